//! The steps of a move, one handle at a time. Each takes a handle from one place to the next, or leaves it where it is.
//!
//! Callers go through the steps in order; a step for a handle in another place does nothing and says so.

use super::{Held, Leaving, Mover, Place, Returning};
use crate::HandleKey;
use crate::arena::Extents;
use crate::device::{Device, DeviceError, Lane, Mark};
use crate::exchange::MoveError;
use std::os::fd::OwnedFd;

/// Within a longer copy, a mark is set every so many bytes.
const WAYPOINT_BYTES: u64 = 1 << 30;

/// Whether a copy out was started.
#[derive(Debug)]
pub(crate) enum Started {
    /// Yes, in this many pieces.
    Pieces(usize),
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
    /// No copy of this handle is under way.
    None,
}

impl<D: Device> Mover<D> {
    pub(crate) fn bytes_of(&self, key: HandleKey) -> u64 {
        self.handles.get(&key).map_or(0, |held| held.bytes)
    }

    /// Whether a handle can be moved out.
    pub(crate) fn check_out(&self, key: HandleKey) -> Result<(), MoveError> {
        match self.handles.get(&key).map(|held| &held.place) {
            Some(Place::Device(_)) => Ok(()),
            Some(Place::Arena(_)) => Err(MoveError::NotResident),
            Some(Place::Leaving { .. } | Place::Returning { .. }) => Err(MoveError::Unsettled),
            None => Err(MoveError::Unknown),
        }
    }

    /// Whether a handle can be moved in.
    pub(crate) fn check_in(&self, key: HandleKey) -> Result<(), MoveError> {
        match self.handles.get(&key).map(|held| &held.place) {
            Some(Place::Arena(_)) => Ok(()),
            Some(Place::Device(_)) => Err(MoveError::NotAway),
            Some(Place::Leaving { .. } | Place::Returning { .. }) => Err(MoveError::Unsettled),
            None => Err(MoveError::Unknown),
        }
    }

    /// Starts the copy out of a handle on the device.
    pub(crate) fn start_out(&mut self, key: HandleKey) -> Result<Started, MoveError> {
        self.check_out(key)?;
        let bytes = self.bytes_of(key);
        let Some(extents) = self.arena.take(bytes) else { return Ok(Started::NoSpace) };
        let Some(Held { place: Place::Device(memory), .. }) = self.handles.remove(&key) else {
            unreachable!("check_out has found it on the device");
        };
        let (place, result) = match self.copy(Lane::Out, &memory, &extents, bytes) {
            Ok(mark) => {
                let pieces = extents.runs().len();
                (
                    Place::Leaving { memory, extents, stage: Leaving::Copying(mark) },
                    Ok(Started::Pieces(pieces)),
                )
            }
            Err(error) => {
                self.after_failed_copy(key, extents, &error);
                (Place::Device(memory), Err(MoveError::CopyOut(error)))
            }
        };
        self.handles.insert(key, Held { bytes, place });
        result
    }

    /// Looks at the copy out of a handle. When it is done, the tenant is to unmap the handle.
    pub(crate) fn look_out(&mut self, key: HandleKey) -> CopyState {
        let Some(held) = self.handles.get_mut(&key) else { return CopyState::None };
        let Place::Leaving { stage, .. } = &mut held.place else { return CopyState::None };
        let Leaving::Copying(mark) = *stage else { return CopyState::None };
        match self.device.passed(mark) {
            Ok(false) => CopyState::UnderWay,
            Ok(true) => {
                *stage = Leaving::Unmapping;
                CopyState::Done
            }
            Err(error) => {
                self.replace(key, |mover, place| match place {
                    Place::Leaving { memory, extents, .. } => {
                        mover.after_failed_copy(key, extents, &error);
                        Place::Device(memory)
                    }
                    other => other,
                });
                CopyState::Failed(MoveError::CopyOut(error))
            }
        }
    }

    /// The tenant has unmapped a handle that is copied: it is in the arena now. Says how many bytes the device got back.
    pub(crate) fn unmapped(&mut self, key: HandleKey) -> Option<u64> {
        let bytes = self.bytes_of(key);
        let mut freed_bytes = None;
        self.replace(key, |mover, place| match place {
            Place::Leaving { memory, extents, stage: Leaving::Unmapping } => {
                freed_bytes = Some(mover.release(key, memory, bytes));
                Place::Arena(extents)
            }
            other => other,
        });
        freed_bytes
    }

    /// The tenant could not unmap: the handle stays on the device, and its copy is dropped.
    pub(crate) fn unmap_failed(&mut self, key: HandleKey) {
        self.replace(key, |mover, place| match place {
            Place::Leaving { memory, extents, stage: Leaving::Unmapping } => {
                mover.arena.give_back(extents);
                Place::Device(memory)
            }
            other => other,
        });
    }

    /// The tenant is being asked to create memory for a handle in the arena.
    pub(crate) fn creating(&mut self, key: HandleKey) -> Result<(), MoveError> {
        self.check_in(key)?;
        self.replace(key, |_, place| match place {
            Place::Arena(extents) => Place::Returning { extents, stage: Returning::Creating },
            other => other,
        });
        Ok(())
    }

    /// The tenant could not create memory: the handle stays in the arena.
    pub(crate) fn create_failed(&mut self, key: HandleKey) {
        self.replace(key, |_, place| match place {
            Place::Returning { extents, stage: Returning::Creating } => Place::Arena(extents),
            other => other,
        });
    }

    /// The tenant has created memory: imports it and starts the copy in. After an error the handle is backing out,
    /// unless it was not waiting for memory at all.
    pub(crate) fn created(&mut self, key: HandleKey, file: Option<OwnedFd>) -> Result<(), MoveError> {
        let bytes = self.bytes_of(key);
        let mut result = Err(MoveError::Unknown);
        self.replace(key, |mover, place| match place {
            Place::Returning { extents, stage: Returning::Creating } => {
                let stage;
                (stage, result) = mover.start_in(key, bytes, file, &extents);
                Place::Returning { extents, stage }
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
        extents: &Extents,
    ) -> (Returning<D::Memory>, Result<(), MoveError>) {
        let imported = match file {
            Some(file) => self.device.import(file, bytes).map_err(MoveError::Import),
            None => Err(MoveError::NoFile),
        };
        let memory = match imported {
            Ok(memory) => memory,
            Err(error) => return (Returning::BackingOut { freed_bytes: bytes }, Err(error)),
        };
        match self.copy(Lane::In, &memory, extents, bytes) {
            Ok(mark) => (Returning::Copying { memory, mark }, Ok(())),
            Err(error) => {
                let freed_bytes = self.drop_unfilled(key, memory, bytes);
                (Returning::BackingOut { freed_bytes }, Err(MoveError::CopyIn(error)))
            }
        }
    }

    /// Looks at the copy in of a handle. When it is done, the handle is on the device and its arena space is free.
    pub(crate) fn look_in(&mut self, key: HandleKey) -> CopyState {
        let Some(held) = self.handles.get(&key) else { return CopyState::None };
        let bytes = held.bytes;
        let Place::Returning { stage: Returning::Copying { mark, .. }, .. } = &held.place else {
            return CopyState::None;
        };
        let passed = self.device.passed(*mark);
        let state = match &passed {
            Ok(false) => return CopyState::UnderWay,
            Ok(true) => CopyState::Done,
            Err(error) => CopyState::Failed(MoveError::CopyIn(error.clone())),
        };
        self.replace(key, |mover, place| match place {
            Place::Returning { extents, stage: Returning::Copying { memory, .. } } if passed.is_ok() => {
                mover.arena.give_back(extents);
                Place::Device(memory)
            }
            Place::Returning { extents, stage: Returning::Copying { memory, .. } } => {
                let freed_bytes = mover.drop_unfilled(key, memory, bytes);
                Place::Returning { extents, stage: Returning::BackingOut { freed_bytes } }
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
            Place::Returning { extents, stage: Returning::BackingOut { freed_bytes } } => {
                freed = Some(freed_bytes);
                Place::Arena(extents)
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
    /// copied out stays on the device. Says which handles their tenants are to unmap, as their copy in has failed.
    pub(crate) fn sweep(&mut self) -> Vec<HandleKey> {
        let unsettled = |(&key, held): (&HandleKey, &Held<_>)| match held.place {
            Place::Leaving { stage: Leaving::Copying(_), .. } => Some((key, Lane::Out)),
            Place::Returning { stage: Returning::Copying { .. }, .. } => Some((key, Lane::In)),
            _ => None,
        };
        let copying: Vec<(HandleKey, Lane)> = self.handles.iter().filter_map(unsettled).collect();
        let mut backing_out = Vec::new();
        for (key, lane) in copying {
            match lane {
                Lane::Out if matches!(self.look_out(key), CopyState::Done) => self.unmap_failed(key),
                Lane::In if matches!(self.look_in(key), CopyState::Failed(_)) => backing_out.push(key),
                Lane::Out | Lane::In => {}
            }
        }
        backing_out
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

    /// Starts a copy between a handle's memory and its arena space, and marks its end.
    fn copy(
        &mut self,
        lane: Lane,
        memory: &D::Memory,
        extents: &Extents,
        bytes: u64,
    ) -> Result<Mark, DeviceError> {
        debug_assert_eq!(extents.bytes(), bytes);
        let mut offset = 0;
        let mut next_waypoint = WAYPOINT_BYTES;
        for &run in extents.runs() {
            let host = self.arena.address(run);
            // SAFETY: the run is mapped and registered; it and the memory stay taken until a mark behind the copy
            // has passed or the device is drained, and nobody else touches taken space.
            unsafe {
                match lane {
                    Lane::Out => self.device.copy_out(memory, offset, host, run.bytes)?,
                    Lane::In => self.device.copy_in(memory, offset, host, run.bytes)?,
                }
            }
            offset += run.bytes;
            if offset >= next_waypoint && offset < bytes {
                next_waypoint = offset + WAYPOINT_BYTES;
                self.waypoints[lane as usize].push_back(self.device.mark(lane)?);
            }
        }
        self.device.mark(lane)
    }

    /// Drops an import after a copy into it has failed. What was started of the copy only reads the arena. Says how
    /// many bytes the device gets back once the tenant has unmapped.
    fn drop_unfilled(&mut self, key: HandleKey, memory: D::Memory, bytes: u64) -> u64 {
        if let Err(error) = self.device.drain() {
            tracing::error!(%key, %error, "cannot wait for a copy that failed");
        }
        self.release(key, memory, bytes)
    }

    fn replace(
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
