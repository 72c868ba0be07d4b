//! Memory that goes from one tenant to the next, in place of being released and made anew.
//!
//! A driver clears memory that is released, with the very engine that copies to the device: what leaves would slow down what
//! comes. So a handle that its tenant has unmapped becomes a **frame** for one of the same size that waits to come in. That one's
//! bytes are copied there, all of them; only then its tenant gets the file of the memory, and only when it has taken that,
//! it is recorded as being back. A frame that nobody takes is released as any other memory.
//!
//! Whoever had memory may have kept a way to it. So it goes to tenants of the same [`Domain`] only, and only if both said of
//! their handle that it is nobody else's.

use super::{Leaving, Mover, Place, Returning, Stage};
use crate::device::{Device, DeviceError, Mark};
use crate::exchange::MoveError;
#[cfg(any(test, feature = "planted"))]
use crate::mover::planted::Bug;
use crate::mover::transit::CopyState;
use crate::{HandleKey, Owner};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Smaller handles are made faster than they are passed.
pub const PASS_BYTES_MIN: u64 = 32 << 20;

/// Tenants of the same one may have each other's memory. What the numbers mean is for whoever gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub [u64; 5]);

/// What may be passed.
#[derive(Debug)]
pub(super) struct Passing {
    domains: BTreeMap<Owner, Domain>,
    /// Handles of which their tenants say so.
    allowed: BTreeSet<HandleKey>,
    /// Files of memory that is imported here. An imported handle cannot be exported again, so they are kept.
    files: BTreeMap<HandleKey, Arc<OwnedFd>>,
    /// The least size.
    bytes_min: u64,
    /// The most files.
    files_max: usize,
}

impl Default for Passing {
    fn default() -> Self {
        Passing {
            domains: BTreeMap::new(),
            allowed: BTreeSet::new(),
            files: BTreeMap::new(),
            bytes_min: PASS_BYTES_MIN,
            files_max: usize::MAX,
        }
    }
}

impl Passing {
    /// Whether a file of a handle's memory is of use.
    fn wants(&self, key: HandleKey, bytes: u64) -> bool {
        bytes >= self.bytes_min && self.allowed.contains(&key) && self.domains.contains_key(&key.owner)
    }

    pub(super) fn forget_owner(&mut self, owner: Owner) {
        self.domains.remove(&owner);
        self.allowed.retain(|key| key.owner != owner);
        self.files.retain(|key, _| key.owner != owner);
    }

    /// From now on a handle is not passed, nor put into memory that another had.
    pub(super) fn forbid(&mut self, key: HandleKey) {
        self.allowed.remove(&key);
    }

    /// Its memory is not here any more.
    pub(super) fn drop_file(&mut self, key: HandleKey) {
        self.files.remove(&key);
    }
}

/// What became of memory that was to be passed.
#[derive(Debug)]
pub(crate) enum Passed {
    /// The copy in is under way.
    Filling,
    /// It could not be started: the handle stays in the arena, and the device got so many bytes back.
    Failed(MoveError, u64),
}

impl<D: Device> Mover<D> {
    /// Tenants of a domain may have each other's memory; who is in none has its own. Not to be changed during an exchange.
    pub fn set_domain(&mut self, owner: Owner, domain: Option<Domain>) {
        match domain {
            Some(domain) => drop(self.passing.domains.insert(owner, domain)),
            None => self.passing.forget_owner(owner),
        }
    }

    /// A tenant says of a handle that nobody else has its memory, and that it can take another's for it. To be said before it
    /// is taken in.
    pub fn may_pass(&mut self, key: HandleKey) {
        self.passing.allowed.insert(key);
    }

    /// From now on somebody else may have the memory of a handle.
    pub fn never_pass(&mut self, key: HandleKey) {
        self.passing.forbid(key);
        self.passing.drop_file(key);
    }

    /// So many files of memory are kept at most: what has none is not passed.
    pub fn keep_files(&mut self, files_max: usize) {
        self.passing.files_max = files_max;
    }

    /// Handles of this size and more are passed: tests have small ones.
    #[cfg(any(test, feature = "fake"))]
    pub fn pass_from(&mut self, bytes_min: u64) {
        self.passing.bytes_min = bytes_min;
    }

    /// Imports memory of a handle. Its file is kept if it may be passed; where there are too many files it may not.
    pub(super) fn import(
        &mut self,
        key: HandleKey,
        bytes: u64,
        file: OwnedFd,
    ) -> Result<D::Memory, DeviceError> {
        let is_wanted = self.passing.wants(key, bytes) && self.passing.files.len() < self.passing.files_max;
        let kept = is_wanted.then(|| file.try_clone().ok()).flatten();
        let memory = self.device.device_mut().import(file, bytes)?;
        if let Some(file) = kept {
            self.passing.files.insert(key, Arc::new(file));
        }
        Ok(memory)
    }

    /// Whether the memory of a handle may become another's at all.
    pub(crate) fn may_pass_on(&self, from: HandleKey) -> bool {
        self.passing.wants(from, self.bytes_of(from)) && self.passing.files.contains_key(&from)
    }

    /// Whether the memory of one handle, which is unmapped and may be passed on, can become that of another, which is in the arena.
    /// A tenant gets nothing back that it has just let go of: what a driver makes of that nobody has seen.
    pub(crate) fn can_pass(&self, from: HandleKey, to: HandleKey) -> bool {
        let bytes = self.bytes_of(from);
        let domain = |key: HandleKey| self.passing.domains.get(&key.owner);
        let is_away = || matches!(self.handles.get(&to).map(|held| &held.place), Some(Place::Arena(_)));
        from.owner != to.owner
            && bytes == self.bytes_of(to)
            && self.passing.wants(to, bytes)
            && domain(from) == domain(to)
            && is_away()
    }

    /// The tenant has unmapped a handle that is copied, and is in the arena now: its memory becomes that of another, whose bytes are
    /// copied there at once. None if the first is not in such a place.
    pub(crate) fn pass(&mut self, from: HandleKey, to: HandleKey) -> Option<Passed> {
        let mut frame = None;
        self.replace(from, |_, place| match place {
            Place::Leaving(Leaving { memory, stored, stage: Stage::Unmapping, .. }) => {
                frame = Some(memory);
                Place::Arena(stored)
            }
            other => other,
        });
        let memory = frame?;
        if let Some(file) = self.passing.files.remove(&from) {
            self.passing.files.insert(to, file);
        }
        let bytes = self.bytes_of(to);
        let mut passed = Passed::Filling;
        self.replace(to, |mover, place| match place {
            Place::Arena(stored) => match mover.start_filling(&memory, &stored, bytes) {
                Ok(mark) => Place::Returning { stored, stage: Returning::Filling { memory, mark } },
                Err(error) => {
                    passed = Passed::Failed(error, mover.drop_unfilled(to, memory, bytes));
                    Place::Arena(stored)
                }
            },
            other => unreachable!("{to} is {:?}, and gets memory all the same", other.whereabouts()),
        });
        Some(passed)
    }

    /// Looks at the copy into a frame. When it is done, the tenant is to take that memory.
    pub(super) fn look_at_frame(&mut self, key: HandleKey, mark: Mark, bytes: u64) -> CopyState {
        let passed = self.device.passed(mark);
        #[cfg(any(test, feature = "planted"))]
        let passed = passed.map(|passed| {
            (passed || self.planted.has(Bug::TakenBeforeFilled)) && !self.planted.has(Bug::UnseenCompletion)
        });
        let mut state = match &passed {
            Ok(false) => return CopyState::UnderWay,
            Ok(true) => CopyState::Filled,
            Err(_) => CopyState::None,
        };
        self.replace(key, |mover, place| match (place, passed) {
            (Place::Returning { stored, stage: Returning::Filling { memory, .. } }, Ok(_)) => {
                Place::Returning { stored, stage: Returning::Taking { memory } }
            }
            (Place::Returning { stored, stage: Returning::Filling { memory, .. } }, Err(error)) => {
                let freed_bytes = mover.drop_unfilled(key, memory, bytes);
                state = CopyState::Unfilled(MoveError::CopyIn(error), freed_bytes);
                Place::Arena(stored)
            }
            (other, _) => other,
        });
        state
    }

    /// The file of memory that a tenant is to take.
    pub(crate) fn frame_file(&self, key: HandleKey) -> Option<Arc<OwnedFd>> {
        let is_filled = matches!(
            self.handles.get(&key).map(|held| &held.place),
            Some(Place::Returning { stage: Returning::Taking { .. }, .. })
        );
        self.passing.files.get(&key).filter(|_| is_filled).cloned()
    }

    /// The tenant has taken its memory, which is to be recorded. False if nobody waits for that.
    pub(crate) fn taken(&mut self, key: HandleKey) -> bool {
        let mut is_taken = false;
        self.replace(key, |_, place| match place {
            Place::Returning { stored, stage: Returning::Taking { memory } } => {
                is_taken = true;
                Place::Returning { stored, stage: Returning::Copied { memory } }
            }
            other => other,
        });
        is_taken
    }

    /// The tenant could not take its memory, or is not asked to: the handle stays in the arena. Says how many bytes the device
    /// got back.
    pub(crate) fn take_failed(&mut self, key: HandleKey) -> Option<u64> {
        let bytes = self.bytes_of(key);
        let mut freed_bytes = None;
        self.replace(key, |mover, place| match place {
            Place::Returning { stored, stage: Returning::Taking { memory } } => {
                freed_bytes = Some(mover.release(key, memory, bytes));
                Place::Arena(stored)
            }
            other => other,
        });
        freed_bytes
    }

    /// Nobody knows whether the tenant has taken its memory: it is to unmap it, if it has, and the handle stays in the arena.
    pub(crate) fn take_back(&mut self, key: HandleKey) {
        let bytes = self.bytes_of(key);
        self.replace(key, |mover, place| match place {
            Place::Returning { stored, stage: Returning::Taking { memory } } => {
                let freed_bytes = mover.release(key, memory, bytes);
                Place::Returning { stored, stage: Returning::BackingOut { freed_bytes } }
            }
            other => other,
        });
    }
}
