//! The step before the copy out of a handle that may have a clean copy: its blocks are hashed where they are, and only
//! those that changed are copied.

use super::clean::Hashes;
use super::parts::{blocks_in, bytes_of_blocks};
use super::{Leaving, Mover, Place, Stage};
use crate::HandleKey;
use crate::device::{Device, HASH_BLOCKS_MAX, Mark};
use crate::exchange::MoveError;
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

impl<D: Device> Mover<D> {
    /// Starts hashing a handle that goes out, if that may be worth it. None: all of it is to be copied.
    pub(super) fn start_hash(&mut self, key: HandleKey, memory: &D::Memory, bytes: u64) -> Option<Mark> {
        self.hasher.as_ref()?;
        if blocks_in(bytes) > HASH_BLOCKS_MAX || !self.habits.entry(key).or_default().goes_out() {
            return None;
        }
        match self.device.device_mut().hash(memory) {
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
            Ok(true) => self.device.device_mut().sums(mark),
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
        let Some(changed) = self.compare(key, &leaving, &now) else {
            return with_state(self.copy_all_out(key, leaving));
        };
        let parts: Vec<Range<u64>> = match self.auditor() {
            Some(_) => vec![0..leaving.stored.extents.bytes(); 1],
            None => changed.copy.iter().map(bytes_of_blocks).collect(),
        };
        let hashes = leaving.stored.hashes.replace(now);
        if parts.is_empty() {
            leaving.stage = Stage::Copied;
            return (Place::Leaving(leaving), HashState::Done);
        }
        leaving.before = hashes.and_then(|hashes| self.before(&leaving.stored, &hashes));
        with_state(self.start_copy_out(key, leaving, &parts))
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
        let before = leaving.stored.hashes.as_deref();
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

    /// A move out was given up: once the hashing is over, the handle is on the device as before. Its copy counted for nothing
    /// since its space was reserved, and is dropped.
    pub(super) fn abandon_hash(&mut self, key: HandleKey) {
        let Some(mark) = self.hashing(key) else { return };
        match self.device.passed(mark) {
            Ok(false) => return,
            Ok(true) => {}
            Err(_) => self.drain_after(key),
        }
        self.replace(key, |mover, place| match place {
            Place::Leaving(leaving) => mover.stay(key, leaving),
            other => other,
        });
    }

    fn drain_after(&mut self, key: HandleKey) {
        if let Err(error) = self.device.drain() {
            tracing::error!(%key, %error, "cannot wait for hashing that failed");
        }
    }
}

/// How far the hashing is of a handle whose copy was to be started.
fn with_state<M>((place, started): (Place<M>, Result<usize, MoveError>)) -> (Place<M>, HashState) {
    (place, started.map_or_else(HashState::Failed, HashState::Copying))
}
