//! What the keeper is told of a move: the moment from which the arena's bytes are the valid ones, and that from which the
//! device's are.
//!
//! When the connection fails at that, nobody knows which they are: the handle stays where it is, unsettled, and its tenant
//! never runs again under this worker. The next one asks the keeper.

use super::clean::Stored;
use super::{Leaving, Mover, Place, Returning, Stage};
use crate::HandleKey;
use crate::arena::{ArenaError, settled};
use crate::device::Device;
use crate::exchange::MoveError;

impl<D: Device> Mover<D> {
    /// Records copies out that are done: their tenants are to unmap them. What became of each.
    pub(crate) fn record_out(&mut self, keys: &[HandleKey]) -> Vec<Result<(), MoveError>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let facts = keys.iter().map(|&key| match self.handles.get(&key).map(|held| &held.place) {
            Some(Place::Leaving(leaving)) => (key, leaving.stored.hashes.as_deref()),
            _ => (key, None),
        });
        let outcomes = match self.arena.record_out(facts) {
            Ok(outcomes) => outcomes,
            Err(error) => return vec![Err(MoveError::Keeper(error)); keys.len()],
        };
        let record = |(&key, outcome)| {
            let recorded = settled(outcome).map_err(MoveError::Keeper);
            self.replace(key, |mover, place| match place {
                Place::Leaving(leaving @ Leaving { stage: Stage::Copied, .. }) if recorded.is_ok() => {
                    let stored = leaving.stored.let_go_of_zeros();
                    Place::Leaving(Leaving { stage: Stage::Unmapping, stored, ..leaving })
                }
                Place::Leaving(leaving @ Leaving { stage: Stage::Copied, .. }) => mover.stay(key, leaving),
                other => other,
            });
            recorded
        };
        keys.iter().zip(outcomes).map(record).collect()
    }

    /// A handle that is copied, which the keeper was never told, stays.
    pub(crate) fn stay_unrecorded(&mut self, key: HandleKey) {
        self.replace(key, |mover, place| match place {
            Place::Leaving(leaving @ Leaving { stage: Stage::Copied, .. }) => mover.stay(key, leaving),
            other => other,
        });
    }

    /// A handle that was to leave stays: nothing is under way, nothing is recorded, and its space is given up.
    pub(super) fn stay(&mut self, key: HandleKey, leaving: Leaving<D::Memory>) -> Place<D::Memory> {
        self.arena.cancel(key);
        Place::Device { memory: leaving.memory, copy: None }
    }

    /// Records copies in that are done: these handles are on the device. What became of each.
    pub(crate) fn record_in(&mut self, keys: &[HandleKey]) -> Vec<Result<(), MoveError>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let recorded = self.record_back(keys);
        for (&key, recorded) in keys.iter().zip(&recorded) {
            self.replace(key, |mover, place| match place {
                Place::Returning { stored, stage: Returning::Copied { memory } } if recorded.is_ok() => {
                    let copy = stored.hashes.filter(|_| mover.hasher.is_some());
                    Place::Device { memory, copy }
                }
                other => other,
            });
        }
        recorded.into_iter().map(|recorded| recorded.map_err(MoveError::Keeper)).collect()
    }

    /// The tenant could not unmap: the handle stays on the device, and its copy is not the valid one any more.
    pub(crate) fn unmap_failed(&mut self, key: HandleKey) {
        let place = self.handles.get(&key).map(|held| &held.place);
        if !matches!(place, Some(Place::Leaving(Leaving { stage: Stage::Unmapping, .. }))) {
            return;
        }
        if let [Err(error)] = &self.record_back(&[key])[..] {
            tracing::error!(%key, %error, "it could not be unmapped, and that cannot be recorded");
            return;
        }
        self.replace(key, |mover, place| match place {
            Place::Leaving(Leaving { memory, stored, .. }) => {
                Place::Device { memory, copy: stored.hashes.filter(|_| mover.hasher.is_some()) }
            }
            other => other,
        });
    }

    /// Has the keeper write down that these are on the device, and keep their copies if their hashes are of use.
    fn record_back(&mut self, keys: &[HandleKey]) -> Vec<Result<(), ArenaError>> {
        let keep = |&key: &HandleKey| {
            let stored = self.stored(key);
            (key, self.hasher.is_some() && stored.is_some_and(|stored| stored.hashes.is_some()))
        };
        let handles: Vec<(HandleKey, bool)> = keys.iter().map(keep).collect();
        match self.arena.record_in(&handles) {
            Ok(outcomes) => outcomes.into_iter().map(settled).collect(),
            Err(error) => vec![Err(error); keys.len()],
        }
    }

    /// Where a handle lies in the arena, if it does, or goes there.
    fn stored(&self, key: HandleKey) -> Option<&Stored> {
        match &self.handles.get(&key)?.place {
            Place::Arena(stored) | Place::Sinking { stored, .. } | Place::Returning { stored, .. } => {
                Some(stored)
            }
            Place::Leaving(leaving) => Some(&leaving.stored),
            Place::Device { .. } | Place::Cellar { .. } | Place::Fetching { .. } => None,
        }
    }
}
