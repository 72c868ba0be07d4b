//! Copies that stay in the arena after their handle came back, so that what did not change is not copied out again.
//!
//! A copy is arena space that the keeper keeps, and the hash of each block of it, here and there. It is nobody's only copy:
//! the device's bytes are the valid ones, and the space goes to whoever needs it. What changed is found out when the handle
//! goes out the next time, by hashing it where it is (`hashing`): its tenant is frozen then, and nobody else knows. Whatever
//! is in doubt is copied. The seed of the hashes is the keeper's as well, so that the next worker can compare with them.

use super::Mover;
use crate::HandleKey;
use crate::arena::{ArenaError, Extents};
use crate::device::{Device, DeviceError};
use blocks::{BlockHash, Key, Seed, SeedError};

/// So often in a row a handle may have changed wholly before it is not hashed for a while.
const WHOLLY_MAX: u8 = 2;

/// For so many moves out it is not hashed then. Two in a row are hashed after that: the second has something to
/// compare with.
const SKIPS: u8 = 14;

/// What is done with copies of handles that come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleanCopies {
    /// They are dropped, and nothing is hashed.
    #[default]
    Off,
    /// They stay while there is space, and only what changed is copied out again. What is all zero is not copied at all.
    On,
    /// As with `On`, but everything is copied, and compared with what the hashes say, by hashes with another key, which the
    /// host computes. For those who doubt the hashes, or the device that computes them.
    Audit,
}

/// Why copies are not kept.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// There is no seed for the hashes.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The keeper does not keep the seed, or has one of another version.
    #[error("the keeper keeps no seed of hashes for this worker: {0}")]
    Kept(#[from] ArenaError),
    /// The device cannot hash.
    #[error("the device cannot hash blocks: {0}")]
    Device(#[from] DeviceError),
}

/// Blocks of a handle that hashes called the same, or zero, and bytes call different. The bytes that were on the device
/// are the ones that are kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key}: {blocks} of its blocks have changed although their hashes say that they have not, block {first} first: \
     hashes cannot be relied on here, turn clean copies off"
)]
pub struct AuditError {
    /// Which handle.
    pub key: HandleKey,
    /// How many of its blocks.
    pub blocks: usize,
    /// The first of them.
    pub first: usize,
}

/// The hash of each block of a handle.
pub(super) type Hashes = Box<[BlockHash]>;

/// How hashes are made here. The seed behind the key is as old as the keeper, and all hashes are of it.
#[derive(Debug)]
pub(super) struct Hasher {
    pub(super) key: Key,
    /// For an audit: hashes the same blocks by another key, on the host.
    pub(super) auditor: Option<Key>,
}

/// Arena space of a handle, and what is known of the blocks in it.
#[derive(Debug)]
pub(super) struct Stored {
    /// Of all blocks while it is copied out or fetched, and once that is recorded only of those that are not zero
    /// ([`keeper::zeros`]).
    pub(super) extents: Extents,
    /// The bytes of blocks that are zero by these need not be there.
    pub(super) hashes: Option<Hashes>,
}

impl Stored {
    /// It is recorded: blocks that are zero have no place any more, as the keeper has it too.
    pub(super) fn let_go_of_zeros(mut self) -> Stored {
        if let Some(hashes) = self.hashes.as_deref() {
            self.extents =
                Extents::new(keeper::zeros::part(self.extents.runs(), |block| hashes[block].zero).kept);
        }
        self
    }
}

/// What an auditor has seen of a copy before it was written over: of each block that is called the same now.
#[derive(Debug)]
pub(super) struct Before(pub(super) Vec<Option<BlockHash>>);

/// Whether hashing a handle has been worth it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Habit {
    wholly: u8,
    skips_left: u8,
}

impl Habit {
    /// It goes out: is it to be hashed?
    pub(super) fn goes_out(&mut self) -> bool {
        let skipped = self.skips_left > 0;
        self.skips_left = self.skips_left.saturating_sub(1);
        !skipped
    }

    /// It was compared with its copy, and had changed wholly or not.
    pub(super) fn compared(&mut self, wholly: bool) {
        self.wholly = if wholly { self.wholly + 1 } else { 0 };
        if self.wholly >= WHOLLY_MAX {
            self.rest();
        }
    }

    /// It is not hashed for a while. After that, one failure is enough.
    pub(super) fn rest(&mut self) {
        *self = Habit { wholly: WHOLLY_MAX - 1, skips_left: SKIPS };
    }
}

impl<D: Device> Mover<D> {
    /// Keeps copies of what comes back from now on. To be called once, before the first handle is taken in; after an error
    /// none are kept, and all else works.
    pub fn keep_copies(&mut self, how: CleanCopies) -> Result<(), CleanError> {
        assert!(self.handles.is_empty() && self.hasher.is_none(), "copies are kept from the beginning");
        if how == CleanCopies::Off {
            return Ok(());
        }
        let key = Key::new(&self.arena.seed(&Seed::random()?)?);
        let auditor = match how {
            CleanCopies::Audit => Some(Key::new(&Seed::random()?)),
            CleanCopies::Off | CleanCopies::On => None,
        };
        self.device.device_mut().prepare_hashing(key.device())?;
        self.hasher = Some(Hasher { key, auditor });
        Ok(())
    }

    /// What audits have found since the last call, and how much they compared.
    pub(crate) fn take_audited(&mut self) -> (Vec<AuditError>, u64) {
        (std::mem::take(&mut self.audit_errors), std::mem::take(&mut self.compared_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many moves out are hashed, where each that can be compared has changed wholly.
    fn hashed(habit: &mut Habit, moves: usize) -> usize {
        let (mut has_copy, mut hashed) = (false, 0);
        for _ in 0..moves {
            let hashes = habit.goes_out();
            if hashes && has_copy {
                habit.compared(true);
            }
            has_copy = hashes;
            hashed += usize::from(hashes);
        }
        hashed
    }

    #[test]
    fn what_always_changes_wholly_is_hashed_now_and_then() {
        let mut habit = Habit::default();
        assert_eq!(hashed(&mut habit, 3), 3);
        assert_eq!(hashed(&mut habit, usize::from(SKIPS)), 0);
        assert_eq!(hashed(&mut habit, 160), 20);
    }

    #[test]
    fn what_stays_is_hashed_always() {
        let mut habit = Habit::default();
        for round in 0..100 {
            assert!(habit.goes_out());
            habit.compared(round % 2 == 0);
        }
    }
}
