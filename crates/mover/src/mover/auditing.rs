//! Whether hashes tell the truth: all of a handle is copied out whatever they say, and what they call the same is compared, by
//! hashes of another key that are made on the host.

use super::clean::{AuditError, Before, Stored};
use super::{Leaving, Mover};
use crate::arena::{Extent, Extents};
use crate::device::Device;
use crate::{BLOCK_BYTES, HandleKey};
use blocks::{Block, BlockHash, Key};
use std::thread;

/// The host hashes a few GB/s with one thread, and a move waits for it.
const THREADS_MAX: usize = 16;
/// Fewer are not worth a thread.
const BLOCKS_EACH_MIN: usize = 8;

impl<D: Device> Mover<D> {
    pub(super) fn auditor(&self) -> Option<&Key> {
        self.hasher.as_ref()?.auditor.as_ref()
    }

    /// What an auditor sees of a clean copy in blocks that are called the same now, before they are written over. None
    /// without an auditor.
    pub(super) fn before(&self, stored: &Stored, hashes: &[BlockHash]) -> Option<Before> {
        let (auditor, now) = (self.auditor()?, stored.hashes.as_deref()?);
        self.arena.make_usable(&stored.extents).ok()?;
        let is_compared = |block: usize| hashes[block] == now[block] && !now[block].zero;
        let compared = |block| is_compared(block).then(|| self.block(&stored.extents, block));
        let compared: Vec<Option<&Block>> = (0..now.len()).map(compared).collect();
        Some(Before(of_each(&compared, |block| block.map(|bytes| auditor.hash(bytes)))))
    }

    /// Compares all blocks of a handle that was copied out with what their hashes say. The bytes win: what was called
    /// wrongly gets the hash of its bytes.
    pub(super) fn audit(&mut self, key: HandleKey, leaving: &mut Leaving<D::Memory>) {
        let Stored { extents, hashes: Some(now) } = &mut leaving.stored else { return };
        let Some((hasher, auditor)) =
            self.hasher.as_ref().and_then(|hasher| Some((hasher, hasher.auditor.as_ref()?)))
        else {
            return;
        };
        let seen = leaving.before.take().map(|before| before.0).unwrap_or_default();
        let looked_at = |block: usize| {
            let seen = seen.get(block).copied().flatten();
            (self.block(extents, block), now[block].zero, seen)
        };
        let looked_at: Vec<(&Block, bool, Option<BlockHash>)> = (0..now.len()).map(looked_at).collect();
        let is_wrong = of_each(&looked_at, |(bytes, is_zero, seen)| {
            let is_zero_wrongly = *is_zero && bytes.iter().any(|byte| *byte != 0);
            is_zero_wrongly || seen.is_some_and(|seen| seen != auditor.hash(bytes))
        });
        let wrong: Vec<usize> = (0..now.len()).filter(|&block| is_wrong[block]).collect();
        for &block in &wrong {
            now[block] = hasher.key.hash(looked_at[block].0);
        }
        self.compared_bytes += seen.iter().flatten().count() as u64 * BLOCK_BYTES;
        if let Some(&first) = wrong.first() {
            self.audit_errors.push(AuditError { key, blocks: wrong.len(), first });
        }
    }

    /// The bytes of a block in the arena.
    fn block(&self, extents: &Extents, block: usize) -> &Block {
        let mut offset = block as u64 * BLOCK_BYTES;
        for &run in extents.runs() {
            if offset < run.bytes {
                let place = Extent { offset: run.offset + offset, bytes: BLOCK_BYTES };
                // SAFETY: runs are whole blocks, mapped, and taken by this mover; the copy that wrote there has ended,
                // and the next is started by whoever has `self` after this.
                return unsafe { &*self.arena.address(place).cast::<Block>() };
            }
            offset -= run.bytes;
        }
        unreachable!("a handle has as many blocks as its space")
    }
}

/// What this makes of each, in order, by several threads.
fn of_each<T: Sync, R: Send>(all: &[T], make: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let each = all.len().div_ceil(threads).max(BLOCKS_EACH_MIN);
    let made = |part: &[T]| part.iter().map(&make).collect::<Vec<R>>();
    let made = &made;
    thread::scope(|scope| {
        let mut parts = all.chunks(each);
        // This thread has its part too; and all of it where no other can be had.
        let own = parts.next().unwrap_or_default();
        let builder = || thread::Builder::new().name("audit".into());
        let others: Vec<_> =
            parts.map(|part| (part, builder().spawn_scoped(scope, move || made(part)))).collect();
        let mut all = made(own);
        for (part, other) in others {
            match other {
                Ok(other) => {
                    all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                }
                Err(_) => all.extend(made(part)),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_once_and_in_order() {
        for count in [0, 1, BLOCKS_EACH_MIN, BLOCKS_EACH_MIN * THREADS_MAX + 1, 1000] {
            let all: Vec<usize> = (0..count).collect();
            assert_eq!(
                of_each(&all, |number| number * 2),
                (0..count).map(|number| number * 2).collect::<Vec<_>>()
            );
        }
    }
}
