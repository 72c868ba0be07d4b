//! The steps of a move, one handle at a time. Each takes a handle from one place to the next, or leaves it where it is.
//!
//! Callers go through the steps in order; a step for a handle in another place does nothing and says so.

use super::clean::Stored;
use super::parts::{pieces_of, pieces_of_all, ranges, sum};
#[cfg(any(test, feature = "planted"))]
use super::planted::Bug;
use super::{Held, Leaving, Mover, Place, Returning, Stage};
use crate::HandleKey;
use crate::arena::{Extent, Taken};
use crate::device::{Device, DeviceError, Lane, Mark};
use crate::exchange::MoveError;
use crate::pace;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// Within a longer copy, a mark is set every so many bytes.
pub(super) const WAYPOINT_BYTES: u64 = 1 << 30;

/// Whether a copy out was started.
#[derive(Debug)]
pub(crate) enum Started {
    /// Yes, in this many pieces.
    Pieces(usize),
    /// Not yet: what has to be copied is found out first.
    Hashing,
    /// No: the arena has too little free space now.
    NoSpace,
}

/// How far a copy is.
#[derive(Debug)]
pub(crate) enum CopyState {
    /// Still under way.
    UnderWay,
    /// Done; the handle is one place further.
    Done,
    /// It failed. A handle on the way out is on the device; one on the way in is backing out.
    Failed(MoveError),
    /// A copy into memory that another tenant had is done: the tenant is to take it.
    Filled,
    /// The same failed: the handle is in the arena only, and the device got so many bytes back.
    Unfilled(MoveError, u64),
    /// No copy of this handle is under way.
    None,
}

/// What a handle on its way waits for, where that is neither a copy nor anything else of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// To be recorded as copied out.
    RecordOut,
    /// To be recorded as copied in.
    RecordIn,
    /// Its tenant's answer to an unmap.
    Unmap,
    /// Its tenant's answer to a create.
    Create,
    /// Its tenant's answer to a take.
    Take,
}

impl<D: Device> Mover<D> {
    pub(crate) fn bytes_of(&self, key: HandleKey) -> u64 {
        self.handles.get(&key).map_or(0, |held| held.bytes)
    }

    /// Whether a handle can be moved out.
    pub(crate) fn check_out(&self, key: HandleKey) -> Result<(), MoveError> {
        match self.handles.get(&key).map(|held| &held.place) {
            // A copy of it that failed may still write to its space.
            Some(Place::Device { .. }) if self.lost.contains_key(&key) => Err(MoveError::Unsettled),
            Some(Place::Device { .. }) => Ok(()),
            Some(Place::Arena(_) | Place::Sinking { .. } | Place::Cellar { .. } | Place::Fetching { .. }) => {
                Err(MoveError::NotResident)
            }
            Some(Place::Leaving { .. } | Place::Returning { .. }) => Err(MoveError::Unsettled),
            None => Err(MoveError::Unknown),
        }
    }

    /// Whether a handle can be moved in.
    pub(crate) fn check_in(&self, key: HandleKey) -> Result<(), MoveError> {
        match self.handles.get(&key).map(|held| &held.place) {
            Some(Place::Arena(_) | Place::Sinking { .. } | Place::Cellar { .. } | Place::Fetching { .. }) => {
                Ok(())
            }
            Some(Place::Device { .. }) => Err(MoveError::NotAway),
            Some(Place::Leaving { .. } | Place::Returning { .. }) => Err(MoveError::Unsettled),
            None => Err(MoveError::Unknown),
        }
    }

    /// What a handle waits for, if it is in the middle of its way.
    pub(crate) fn owed(&self, key: HandleKey) -> Option<Owed> {
        match &self.handles.get(&key)?.place {
            Place::Leaving(leaving) => match leaving.stage {
                Stage::Hashing(_) | Stage::Copying(_) => None,
                Stage::Copied => Some(Owed::RecordOut),
                Stage::Unmapping => Some(Owed::Unmap),
            },
            Place::Returning { stage, .. } => match stage {
                Returning::Copying { .. } | Returning::Filling { .. } => None,
                Returning::Copied { .. } => Some(Owed::RecordIn),
                Returning::BackingOut { .. } => Some(Owed::Unmap),
                Returning::Creating => Some(Owed::Create),
                Returning::Taking { .. } => Some(Owed::Take),
            },
            _ => None,
        }
    }

    /// Starts the copy out of a handle on the device, or the hashing that comes before.
    pub(crate) fn start_out(&mut self, key: HandleKey) -> Result<Started, MoveError> {
        self.check_out(key)?;
        let taken = match self.reserved.remove(&key) {
            Some(taken) => Some(taken),
            None => self.arena.take(key, self.bytes_of(key)).map_err(MoveError::Keeper)?,
        };
        let Some(Held { bytes, place: Place::Device { memory, copy } }) = self.handles.remove(&key) else {
            unreachable!("check_out has found it on the device");
        };
        let Some(Taken { extents, reused }) = taken else {
            // Its copy, if it has one, may have gone: whether it is there, the next answer says.
            self.handles.insert(key, Held { bytes, place: Place::Device { memory, copy } });
            return Ok(Started::NoSpace);
        };
        let mark = self.start_hash(key, &memory, bytes);
        // Where nothing is hashed, the copy says the stage.
        let stage = mark.map_or(Stage::Copied, Stage::Hashing);
        let stored = Stored { extents, hashes: copy.filter(|_| reused) };
        let leaving = Leaving { memory, stored, reused, before: None, copied_bytes: 0, stage };
        let (place, result) = match mark {
            Some(_) => (Place::Leaving(leaving), Ok(Started::Hashing)),
            None => {
                let (place, started) = self.copy_all_out(key, leaving);
                (place, started.map(Started::Pieces))
            }
        };
        self.handles.insert(key, Held { bytes, place });
        result
    }

    /// Starts to copy all of a handle whose blocks are not known. Says in how many pieces. The place of a clean copy is of no
    /// use then: the keeper could not tell that its zero blocks are written.
    pub(super) fn copy_all_out(
        &mut self,
        key: HandleKey,
        mut leaving: Leaving<D::Memory>,
    ) -> (Place<D::Memory>, Result<usize, MoveError>) {
        let bytes = leaving.stored.extents.bytes();
        leaving.stored.hashes = None;
        if leaving.reused {
            match self.arena.retake(key, bytes) {
                Ok(extents) => leaving.stored.extents = extents,
                Err(error) => return (self.stay(key, leaving), Err(MoveError::Keeper(error))),
            }
            leaving.reused = false;
        }
        self.start_copy_out(key, leaving, std::slice::from_ref(&(0..bytes)))
    }

    /// Starts to copy parts of a handle to its place in the arena. Says in how many pieces.
    pub(super) fn start_copy_out(
        &mut self,
        key: HandleKey,
        leaving: Leaving<D::Memory>,
        parts: &[Range<u64>],
    ) -> (Place<D::Memory>, Result<usize, MoveError>) {
        match self.arena.make_usable(&leaving.stored.extents) {
            Ok(has_waited) => self.has_waited |= has_waited,
            Err(error) => return (self.stay(key, leaving), Err(MoveError::Keeper(error))),
        }
        match self.copy(Lane::Out, &leaving.memory, &pieces_of(&leaving.stored.extents, parts)) {
            Ok((mark, pieces)) => {
                let stage = Stage::Copying(mark);
                (Place::Leaving(Leaving { copied_bytes: sum(parts), stage, ..leaving }), Ok(pieces))
            }
            Err(error) => (self.stay_after_failed_copy(key, leaving, &error), Err(MoveError::CopyOut(error))),
        }
    }

    /// A copy out has failed: the handle is on the device only. What the arena has of it is nothing that can be relied on.
    fn stay_after_failed_copy(
        &mut self,
        key: HandleKey,
        leaving: Leaving<D::Memory>,
        error: &DeviceError,
    ) -> Place<D::Memory> {
        match self.has_ended(key, leaving.stored.extents.bytes(), error) {
            true => self.stay(key, leaving),
            false => Place::Device { memory: leaving.memory, copy: None },
        }
    }

    /// Looks at the copy out of a handle. When it is done, that is to be recorded.
    pub(crate) fn look_out(&mut self, key: HandleKey) -> CopyState {
        let Some(held) = self.handles.get(&key) else { return CopyState::None };
        let Place::Leaving(Leaving { stage: Stage::Copying(mark), .. }) = held.place else {
            return CopyState::None;
        };
        let passed = self.device.passed(mark);
        #[cfg(any(test, feature = "planted"))]
        let passed = passed.map(|passed| passed || self.planted.has(Bug::UnmapBeforeCopyEnds));
        let state = match &passed {
            Ok(false) => return CopyState::UnderWay,
            Ok(true) => CopyState::Done,
            Err(error) => CopyState::Failed(MoveError::CopyOut(error.clone())),
        };
        self.replace(key, |mover, place| match (place, passed) {
            (Place::Leaving(leaving), Err(error)) => mover.stay_after_failed_copy(key, leaving, &error),
            (Place::Leaving(mut leaving), Ok(_)) => {
                mover.audit(key, &mut leaving);
                Place::Leaving(Leaving { stage: Stage::Copied, ..leaving })
            }
            (other, _) => other,
        });
        state
    }

    /// How much of a handle that is leaving was copied: less than all of it where the arena had the rest already.
    pub(crate) fn copied_bytes(&self, key: HandleKey) -> u64 {
        match self.handles.get(&key).map(|held| &held.place) {
            Some(Place::Leaving(leaving)) => leaving.copied_bytes,
            _ => 0,
        }
    }

    /// The tenant has unmapped a handle that is copied: it is in the arena now. Says how many bytes the device got back.
    pub(crate) fn unmapped(&mut self, key: HandleKey) -> Option<u64> {
        let bytes = self.bytes_of(key);
        let mut freed_bytes = None;
        self.replace(key, |mover, place| match place {
            Place::Leaving(Leaving { memory, stored, stage: Stage::Unmapping, .. }) => {
                freed_bytes = Some(mover.release(key, memory, bytes));
                Place::Arena(stored)
            }
            other => other,
        });
        freed_bytes
    }

    /// The tenant is being asked to create memory for a handle, which must be in the arena.
    pub(crate) fn creating(&mut self, key: HandleKey) -> Result<(), MoveError> {
        self.check_in(key)?;
        self.replace(key, |_, place| match place {
            Place::Arena(stored) => Place::Returning { stored, stage: Returning::Creating },
            other => unreachable!("{key} is {:?}, and asked for all the same", other.whereabouts()),
        });
        Ok(())
    }

    /// The tenant could not create memory: the handle stays in the arena.
    pub(crate) fn create_failed(&mut self, key: HandleKey) {
        self.replace(key, |_, place| match place {
            Place::Returning { stored, stage: Returning::Creating } => Place::Arena(stored),
            other => other,
        });
    }

    /// The tenant has created memory: imports it and starts the copy in. After an error the handle is backing out,
    /// unless it was not waiting for memory at all.
    pub(crate) fn created(&mut self, key: HandleKey, file: Option<OwnedFd>) -> Result<(), MoveError> {
        let bytes = self.bytes_of(key);
        let mut result = Err(MoveError::Unknown);
        self.replace(key, |mover, place| match place {
            Place::Returning { stored, stage: Returning::Creating } => {
                let stage;
                (stage, result) = mover.start_in(key, bytes, file, &stored);
                Place::Returning { stored, stage }
            }
            other => other,
        });
        result
    }

    fn start_in(
        &mut self,
        key: HandleKey,
        bytes: u64,
        file: Option<OwnedFd>,
        stored: &Stored,
    ) -> (Returning<D::Memory>, Result<(), MoveError>) {
        let imported = match file {
            Some(file) => self.import(key, bytes, file).map_err(MoveError::Import),
            None => Err(MoveError::NoFile),
        };
        let memory = match imported {
            Ok(memory) => memory,
            Err(error) => return (Returning::BackingOut { freed_bytes: bytes }, Err(error)),
        };
        match self.start_filling(&memory, stored, bytes) {
            Ok(mark) => (Returning::Copying { memory, mark }, Ok(())),
            Err(error) => {
                let freed_bytes = self.drop_unfilled(key, memory, bytes);
                (Returning::BackingOut { freed_bytes }, Err(error))
            }
        }
    }

    /// Starts to fill memory with what the arena has of a handle, and marks the end.
    pub(super) fn start_filling(
        &mut self,
        memory: &D::Memory,
        stored: &Stored,
        bytes: u64,
    ) -> Result<Mark, MoveError> {
        self.arena.make_usable(&stored.extents).map_err(MoveError::Keeper)?;
        self.copy_in(memory, stored, bytes).map_err(MoveError::CopyIn)
    }

    /// Starts to copy a handle in, and marks the end. What lies in the place of a block that is zero counts for nothing.
    fn copy_in(&mut self, memory: &D::Memory, stored: &Stored, bytes: u64) -> Result<Mark, DeviceError> {
        let parts = match stored.hashes.as_deref() {
            Some(hashes) => {
                let is_zero = |zero: bool| move |block: &usize| hashes[*block].zero == zero;
                for range in ranges((0..hashes.len()).filter(is_zero(true))) {
                    self.device.zero(memory, range.start, range.end - range.start)?;
                }
                ranges((0..hashes.len()).filter(is_zero(false)))
            }
            None => vec![0..bytes; 1],
        };
        Ok(self.copy(Lane::In, memory, &pieces_of_all(&stored.extents, &parts))?.0)
    }

    /// Looks at the copy in of a handle. When it is done, that is to be recorded.
    pub(crate) fn look_in(&mut self, key: HandleKey) -> CopyState {
        let Some(held) = self.handles.get(&key) else { return CopyState::None };
        let bytes = held.bytes;
        let mark = match &held.place {
            Place::Returning { stage: Returning::Copying { mark, .. }, .. } => mark,
            Place::Returning { stage: Returning::Filling { mark, .. }, .. } => {
                let mark = *mark;
                return self.look_at_frame(key, mark, bytes);
            }
            _ => return CopyState::None,
        };
        let passed = self.device.passed(*mark);
        #[cfg(any(test, feature = "planted"))]
        let passed = passed.map(|passed| passed && !self.planted.has(Bug::UnseenCompletion));
        let state = match &passed {
            Ok(false) => return CopyState::UnderWay,
            Ok(true) => CopyState::Done,
            Err(error) => CopyState::Failed(MoveError::CopyIn(error.clone())),
        };
        self.replace(key, |mover, place| match place {
            Place::Returning { stored, stage: Returning::Copying { memory, .. } } if passed.is_ok() => {
                Place::Returning { stored, stage: Returning::Copied { memory } }
            }
            Place::Returning { stored, stage: Returning::Copying { memory, .. } } => {
                let freed_bytes = mover.drop_unfilled(key, memory, bytes);
                Place::Returning { stored, stage: Returning::BackingOut { freed_bytes } }
            }
            other => other,
        });
        state
    }

    /// The tenant has unmapped memory that could not be filled: the handle is in the arena as before. Says how many
    /// bytes the device got back.
    pub(crate) fn backed_out(&mut self, key: HandleKey) -> Option<u64> {
        let mut freed = None;
        self.replace(key, |_, place| match place {
            Place::Returning { stored, stage: Returning::BackingOut { freed_bytes } } => {
                freed = Some(freed_bytes);
                Place::Arena(stored)
            }
            other => other,
        });
        freed
    }

    /// Whether the tenant is to unmap memory of this handle that could not be filled.
    pub(crate) fn is_backing_out(&self, key: HandleKey) -> bool {
        let place = self.handles.get(&key).map(|held| &held.place);
        matches!(place, Some(Place::Returning { stage: Returning::BackingOut { .. }, .. }))
    }

    /// Ends copies that nobody waits for any more because their move was given up: what came in is in, and what was
    /// copied out, or hashed for that, stays on the device. Says which handles their tenants are to unmap, as their copy in has
    /// failed.
    pub(crate) fn sweep(&mut self) -> Vec<HandleKey> {
        let unsettled = |(&key, held): (&HandleKey, &Held<_>)| match &held.place {
            Place::Leaving(Leaving { stage: Stage::Hashing(_), .. }) => Some((key, Lane::Hash)),
            Place::Leaving(Leaving { stage: Stage::Copying(_), .. }) => Some((key, Lane::Out)),
            Place::Returning { stage: Returning::Copying { .. } | Returning::Filling { .. }, .. } => {
                Some((key, Lane::In))
            }
            _ => None,
        };
        let copying: Vec<(HandleKey, Lane)> = self.handles.iter().filter_map(unsettled).collect();
        self.sweep_cellar();
        let mut backing_out = Vec::new();
        for (key, lane) in copying {
            match lane {
                Lane::Out if matches!(self.look_out(key), CopyState::Done) => {
                    self.replace(key, |mover, place| match place {
                        Place::Leaving(leaving) => mover.stay(key, leaving),
                        other => other,
                    });
                }
                Lane::In => match self.look_in(key) {
                    CopyState::Failed(_) => backing_out.push(key),
                    CopyState::Done => drop(self.record_in(&[key])),
                    // Its tenant knows nothing of it.
                    CopyState::Filled => drop(self.take_failed(key)),
                    CopyState::UnderWay | CopyState::Unfilled(..) | CopyState::None => {}
                },
                Lane::Out => {}
                Lane::Hash => self.abandon_hash(key),
            }
        }
        backing_out
    }

    /// Whether a copy out had to wait for its place in the arena since the last call.
    pub(crate) fn has_waited(&mut self) -> bool {
        std::mem::take(&mut self.has_waited)
    }

    /// Whether a mark within a long copy has passed since the last call.
    pub(crate) fn passed_waypoint(&mut self) -> bool {
        let mut passed = false;
        for lane in &mut self.waypoints {
            // An error shows at the mark that ends the copy, too.
            while lane.pop_front_if(|mark| self.device.passed(*mark) != Ok(false)).is_some() {
                passed = true;
            }
        }
        passed
    }

    /// Starts a copy of parts between a handle's memory and its arena space, and marks its end. Says in how many pieces.
    fn copy(
        &mut self,
        lane: Lane,
        memory: &D::Memory,
        pieces: &[(u64, Extent)],
    ) -> Result<(Mark, usize), DeviceError> {
        let bytes: u64 = pieces.iter().map(|(_, run)| run.bytes).sum();
        let is_short = lane == Lane::Out && self.copies_out_short;
        let longest = if is_short { self.lengths.short_bytes } else { self.lengths.usual_bytes };
        let (mut copied, mut next_waypoint) = (0, self.waypoint_bytes);
        #[cfg(any(test, feature = "planted"))]
        let mut early = None;
        let cut = |&(offset, run): &(u64, Extent)| {
            let parts = self.arena.registered_parts(run);
            let parts = parts.into_iter().map(move |part| (offset + (part.offset - run.offset), part));
            parts.flat_map(|(offset, part)| {
                let shorter = move |(at, bytes)| (offset + at, Extent { offset: part.offset + at, bytes });
                pace::pieces(part.bytes, longest).map(shorter)
            })
        };
        let mut count = 0;
        for (offset, run) in pieces.iter().flat_map(cut) {
            #[cfg(any(test, feature = "planted"))]
            if lane == Lane::In && copied + run.bytes == bytes && self.planted.has(Bug::ThawBeforeLastBlock) {
                early = Some(self.device.mark(lane)?);
            }
            let host = self.arena.address(run);
            // SAFETY: the run is mapped and registered; it and the memory stay taken until a mark behind the copy
            // has passed or the device is drained, and nobody else touches taken space.
            unsafe {
                self.device.copy(lane, memory, offset, host, run.bytes)?;
            }
            count += 1;
            copied += run.bytes;
            if copied >= next_waypoint && copied < bytes {
                next_waypoint = copied + self.waypoint_bytes;
                self.waypoints[lane as usize].push_back(self.device.mark(lane)?);
            }
        }
        let mark = self.device.mark(lane)?;
        self.short_bytes += if is_short { copied } else { 0 };
        #[cfg(any(test, feature = "planted"))]
        let mark = early.unwrap_or(mark);
        Ok((mark, count))
    }

    /// Drops an import after a copy into it has failed. What was started of the copy only reads the arena. Says how
    /// many bytes the device gets back once the tenant has unmapped.
    pub(super) fn drop_unfilled(&mut self, key: HandleKey, memory: D::Memory, bytes: u64) -> u64 {
        if let Err(error) = self.device.drain() {
            tracing::error!(%key, %error, "cannot wait for a copy that failed");
        }
        self.release(key, memory, bytes)
    }

    pub(super) fn replace(
        &mut self,
        key: HandleKey,
        next: impl FnOnce(&mut Self, Place<D::Memory>) -> Place<D::Memory>,
    ) {
        if let Some(held) = self.handles.remove(&key) {
            let place = next(self, held.place);
            self.handles.insert(key, Held { bytes: held.bytes, place });
        }
    }
}
