//! The second tier: handles that are away and that the arena has no room for, in the cellar.
//!
//! The file, its key and the tickets are the keeper's as well, so the next worker goes on with it. A handle is in the cellar as a
//! whole, by the keeper's word: it *sinks* when all of its blocks are put and their tickets are kept, and *rises* when all are
//! fetched; [`jobs`] has both. Movers of several GPUs share it, and each hears of its own jobs.

pub(crate) mod jobs;
mod opening;

pub use opening::CellarError;
#[cfg(test)]
pub(crate) use opening::MakeDisk;
pub(super) use opening::local_file;

use crate::{HandleKey, Owner};
use cellar::{Cellar, Done, JobId, Statistics, Ticket};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module. When this is dropped, jobs that a thread has begun are waited for: until then they use the arena's memory.
pub(super) struct Tier {
    cellar: Cellar,
    state: Mutex<State>,
    may_take_bytes: u64,
    /// Jobs are waited for when they are asked about, so that a test goes the same way each time.
    #[cfg(test)]
    is_patient: bool,
    /// Called at every step.
    #[cfg(test)]
    at_step: Mutex<Option<Step>>,
}

#[cfg(test)]
type Step = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct State {
    /// What is in the cellar by the keeper's word.
    held: BTreeMap<HandleKey, Vec<Ticket>>,
    /// Jobs whose mover has not asked about them yet.
    done: HashMap<JobId, Done>,
}

impl Tier {
    #[cfg(test)]
    pub(super) fn each_step(&self, what: Step) {
        *self.at_step.lock().expect("no panic") = Some(what);
    }

    /// A moment at which a worker may die.
    fn step(&self) {
        #[cfg(test)]
        if let Some(what) = &*self.at_step.lock().unwrap_or_else(PoisonError::into_inner) {
            what();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it may take of the disk.
    pub(super) fn may_take_bytes(&self) -> u64 {
        self.may_take_bytes
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.cellar.statistics()
    }

    /// The keeper has forgotten the tickets of a handle: its blocks go.
    pub(super) fn discard(&self, key: HandleKey) {
        let tickets = self.state().held.remove(&key).unwrap_or_default();
        self.discard_all(tickets);
    }

    /// The same for all of a tenant.
    pub(super) fn discard_owner(&self, owner: Owner) {
        let (first, last) = (HandleKey { owner, handle: 0 }, HandleKey { owner, handle: u64::MAX });
        let held: Vec<HandleKey> = self.state().held.range(first..=last).map(|(&key, _)| key).collect();
        for key in held {
            self.discard(key);
        }
    }

    fn discard_all(&self, tickets: impl IntoIterator<Item = Ticket>) {
        for ticket in tickets {
            if !self.cellar.discard(&ticket) {
                tracing::warn!(block = %ticket.block(), "the cellar does not have what is discarded");
            }
        }
    }

    /// Of these jobs, one that is done.
    fn take_done<T>(&self, jobs: &BTreeMap<JobId, T>) -> Option<Done> {
        let mut state = self.state();
        #[cfg(test)]
        while self.is_patient && self.cellar.statistics().jobs > 0 {
            let done = self.cellar.wait(std::time::Duration::from_secs(60)).expect("a disk that works");
            state.done.insert(done.job(), done);
        }
        while let Some(done) = self.cellar.poll() {
            state.done.insert(done.job(), done);
        }
        let job = jobs.keys().find(|job| state.done.contains_key(job))?;
        state.done.remove(job)
    }
}

impl std::fmt::Debug for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tier").field("may_take_bytes", &self.may_take_bytes).finish_non_exhaustive()
    }
}
