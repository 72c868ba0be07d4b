//! The step before the copy out of a handle that may have a clean copy: its blocks are hashed where they are, and only
//! those that changed are copied.

use super::clean::{AuditError, Copy, Hashes, Stored};
use super::parts::{blocks_in, bytes_of_blocks};
use super::{Leaving, Mover, Place, Stage};
use crate::arena::Extents;
use crate::device::{Device, HASH_BLOCKS_MAX, Mark};
use crate::exchange::MoveError;
use crate::{BLOCK_BYTES, HandleKey};
use blocks::{BlockHash, Changed, Sums};
use std::error::Error;
use std::ops::Range;

/// How far the hashing of a handle is.
#[derive(Debug)]
pub(crate) enum HashState {
    /// Still under way.
    UnderWay,
    /// Done, and this many pieces of it are being copied.
    Copying(usize),
    /// Done, and nothing has to be copied: the tenant is to unmap the handle.
    Done,
    /// The copy could not be started. The handle is on the device.
    Failed(MoveError),
    /// This handle is not being hashed.
    None,
}

/// Where a handle goes that leaves, and what it is compared with.
pub(super) struct Destination {
    pub(super) stored: Stored,
    pub(super) before: Option<Stored>,
}

impl<D: Device> Mover<D> {
    /// Space for a handle that goes out: that of its copy, if it has one.
    pub(super) fn take_space(&mut self, bytes: u64, copy: Option<Copy>) -> Option<Destination> {
        let stored = copy.and_then(|copy| self.resume(copy));
        let fresh = |extents| Stored { extents, hashes: None };
        let audit = self.hasher.as_ref().is_some_and(|hasher| hasher.audit);
        match stored {
            Some(before) if audit => match self.arena.take(bytes) {
                Some(extents) => Some(Destination { stored: fresh(extents), before: Some(before) }),
                // Without space for both it is not audited this time.
                None => Some(Destination { stored: fresh(before.extents), before: None }),
            },
            Some(stored) => Some(Destination { stored, before: None }),
            None => Some(Destination { stored: fresh(self.arena.take(bytes)?), before: None }),
        }
    }

    /// Starts hashing a handle that goes out, if that may be worth it. None: all of it is to be copied.
    pub(super) fn start_hash(&mut self, key: HandleKey, memory: &D::Memory, bytes: u64) -> Option<Mark> {
        self.hasher.as_ref()?;
        if blocks_in(bytes) > HASH_BLOCKS_MAX || !self.habits.entry(key).or_default().goes_out() {
            return None;
        }
        match self.device.hash(memory) {
            Ok(mark) => Some(mark),
            Err(error) => {
                self.hash_failed(key, &error);
                None
            }
        }
    }

    fn hash_failed(&mut self, key: HandleKey, error: &dyn Error) {
        tracing::warn!(%key, %error, "cannot hash; all of it is copied");
        self.habits.entry(key).or_default().rest();
    }

    /// Looks at the hashing of a handle. When it is done, what has changed is being copied.
    pub(crate) fn look_hash(&mut self, key: HandleKey) -> HashState {
        let Some(mark) = self.hashing(key) else { return HashState::None };
        let now = match self.device.passed(mark) {
            Ok(false) => return HashState::UnderWay,
            Ok(true) => self.device.sums(mark),
            Err(error) => {
                // It may still read memory that is let go soon.
                self.drain_after(key);
                Err(error)
            }
        };
        let hashes = match now.map_err(Into::into).and_then(|sums| self.finished(&sums)) {
            Ok(hashes) => hashes,
            Err(error) => {
                self.hash_failed(key, &*error);
                Hashes::default()
            }
        };
        let mut state = HashState::None;
        self.replace(key, |mover, place| match place {
            Place::Leaving(leaving) => {
                let place;
                (place, state) = mover.copy_changed(key, leaving, hashes);
                place
            }
            other => other,
        });
        state
    }

    /// The hashes that sums of the kernel make; none if it did not get to every block.
    fn finished(&self, sums: &[Sums]) -> Result<Hashes, Box<dyn Error>> {
        let Some(hasher) = &self.hasher else { return Ok(Hashes::default()) };
        Ok(sums.iter().map(|sums| hasher.key.finish(sums)).collect::<Result<_, _>>()?)
    }

    /// Starts the copy of what differs from the handle's copy by these hashes, of all of it if there are none.
    fn copy_changed(
        &mut self,
        key: HandleKey,
        mut leaving: Leaving<D::Memory>,
        now: Hashes,
    ) -> (Place<D::Memory>, HashState) {
        let bytes = leaving.stored.extents.bytes();
        let changed = self.compare(key, &leaving, &now);
        let audit = self.hasher.as_ref().is_some_and(|hasher| hasher.audit);
        let parts: Vec<Range<u64>> = match &changed {
            Some(changed) if !audit => changed.copy.iter().map(bytes_of_blocks).collect(),
            _ => vec![0..bytes; 1],
        };
        leaving.stored.hashes = changed.map(|_| now);
        if parts.is_empty() {
            leaving.stage = Stage::Unmapping;
            return (Place::Leaving(leaving), HashState::Done);
        }
        match self.start_copy_out(key, leaving, &parts) {
            (place, Ok(pieces)) => (place, HashState::Copying(pieces)),
            (place, Err(error)) => (place, HashState::Failed(error)),
        }
    }

    /// What has changed by these hashes, if they are of all blocks.
    fn compare(
        &mut self,
        key: HandleKey,
        leaving: &Leaving<D::Memory>,
        now: &[BlockHash],
    ) -> Option<Changed> {
        if now.len() != blocks_in(leaving.stored.extents.bytes()) {
            return None;
        }
        let before = leaving.before.as_ref().unwrap_or(&leaving.stored).hashes.as_deref();
        match Changed::since(before, now) {
            Ok(changed) => {
                if before.is_some() {
                    self.habits.entry(key).or_default().compared(changed.copies() == now.len());
                }
                Some(changed)
            }
            Err(error) => {
                tracing::warn!(%key, %error, "hashes cannot be compared");
                None
            }
        }
    }

    fn hashing(&self, key: HandleKey) -> Option<Mark> {
        match &self.handles.get(&key)?.place {
            Place::Leaving(Leaving { stage: Stage::Hashing(mark), .. }) => Some(*mark),
            _ => None,
        }
    }

    /// A move out was given up: once the hashing is over, the handle is on the device as before, and so is its copy.
    pub(super) fn abandon_hash(&mut self, key: HandleKey) {
        let Some(mark) = self.hashing(key) else { return };
        match self.device.passed(mark) {
            Ok(false) => return,
            Ok(true) => {}
            Err(_) => self.drain_after(key),
        }
        self.replace(key, |mover, place| match place {
            Place::Leaving(Leaving { memory, stored, before, .. }) => {
                let copy = match before {
                    Some(before) => {
                        mover.arena.give_back(stored.extents);
                        mover.keep(before)
                    }
                    None => mover.keep(stored),
                };
                Place::Device { memory, copy }
            }
            other => other,
        });
    }

    fn drain_after(&mut self, key: HandleKey) {
        if let Err(error) = self.device.drain() {
            tracing::error!(%key, %error, "cannot wait for hashing that failed");
        }
    }

    /// Compares all bytes of a handle that was copied out with what its hashes say. `before` is its last copy, of which it
    /// needs nothing any more.
    pub(super) fn audit(&mut self, key: HandleKey, stored: &Stored, before: Option<&Stored>) {
        let Some(now) = &stored.hashes else { return };
        let old = before.and_then(|before| Some((&before.extents, before.hashes.as_deref()?)));
        let is_wrong = |block: &usize| {
            let bytes = self.block(&stored.extents, *block);
            let is_zero_wrongly = now[*block].zero && bytes.iter().any(|byte| *byte != 0);
            let is_same_wrongly = old.is_some_and(|(extents, hashes)| {
                hashes[*block] == now[*block] && self.block(extents, *block) != bytes
            });
            is_zero_wrongly || is_same_wrongly
        };
        let wrong: Vec<usize> = (0..now.len()).filter(is_wrong).collect();
        if let Some(&first) = wrong.first() {
            self.audit_errors.push(AuditError { key, blocks: wrong.len(), first });
        }
    }

    /// The bytes of a block in the arena.
    fn block(&self, extents: &Extents, block: usize) -> &[u8] {
        let mut offset = block as u64 * BLOCK_BYTES;
        for &run in extents.runs() {
            if offset < run.bytes {
                let place = crate::arena::Extent { offset: run.offset + offset, bytes: BLOCK_BYTES };
                // SAFETY: runs are whole blocks, mapped, and taken by this mover; the copy that wrote there has ended,
                // and the next is started by whoever has `self` after this.
                return unsafe {
                    std::slice::from_raw_parts(self.arena.address(place), BLOCK_BYTES as usize)
                };
            }
            offset -= run.bytes;
        }
        unreachable!("a handle has as many blocks as its space")
    }
}
