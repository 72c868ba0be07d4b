//! What is measured while blocks are put and fetched, and what happened.

use crate::pace::{Meter, Share};
use crate::pack::choice::Conditions;
use crate::pack::processor_time;
use crate::settings::Settings;
use crate::statistics::Totals;
use std::ops::Add;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The figures of a cellar, behind their lock.
pub(super) struct Figures {
    threads: u32,
    processors: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    write: Meter,
    read: Meter,
    /// Of one processor, copying and sealing, in processor time.
    seal: Meter,
    share: Share,
    totals: Totals,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Write,
    Read,
}

impl Figures {
    pub(super) fn new(settings: &Settings) -> Figures {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Figures { threads: settings.workers as u32, processors: processors as u32, state: Mutex::default() }
    }

    /// As if processors were without number, and the disk so slow that a thread may get hardly anything of one: whatever packing
    /// saves anything is chosen.
    #[cfg(test)]
    pub(super) fn pack_whenever_it_saves(&mut self) {
        (self.threads, self.processors) = (u32::MAX, u32::MAX);
        self.state().write.add(Duration::from_secs(1 << 20), 1 << 30);
    }

    /// Whether nobody counts as using the disk.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.write.is_idle() && state.read.is_idle()
    }

    pub(super) fn conditions(&self) -> Conditions {
        let state = self.state();
        Conditions {
            write: state.write.speed(),
            read: state.read.speed(),
            seal: state.seal.speed(),
            threads: self.threads,
            processors: self.processors,
            share: state.share.get(),
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.state().totals
    }

    /// Something happened.
    pub(super) fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.state().totals);
    }

    /// A block was packed and sealed.
    pub(super) fn note_computed(&self, spent: Spent) {
        self.state().share.add(spent.processor, spent.clock);
    }

    /// A block was copied and sealed, and that was all: storing plainly, which packing is compared with.
    pub(super) fn note_plain(&self, spent: Spent, bytes: usize) {
        self.state().seal.add(spent.processor, bytes as u64);
    }

    /// The disk is used from now on.
    pub(super) fn begin(&self, way: Way) -> Using<'_> {
        self.state().meter(way).begin(Instant::now());
        Using { figures: self, way, bytes: 0 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn meter(&mut self, way: Way) -> &mut Meter {
        match way {
            Way::Write => &mut self.write,
            Way::Read => &mut self.read,
        }
    }
}

/// Use of the disk that is being measured. It ends when this is dropped, also by a panic.
pub(super) struct Using<'a> {
    figures: &'a Figures,
    way: Way,
    bytes: u64,
}

impl Using<'_> {
    /// It went well.
    pub(super) fn end(mut self, bytes: usize) {
        self.bytes = bytes as u64;
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.figures.state().meter(self.way).end(Instant::now(), self.bytes);
    }
}

/// Time that a thread spent with something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    processor: Duration,
    clock: Duration,
}

impl Spent {
    /// Does something, and says what it took.
    pub(super) fn with<T>(work: impl FnOnce() -> T) -> (T, Spent) {
        let (clock, processor) = (Instant::now(), processor_time());
        let result = work();
        let processor = processor_time().saturating_sub(processor);
        (result, Spent { processor, clock: clock.elapsed() })
    }
}

impl Add for Spent {
    type Output = Spent;

    fn add(self, other: Spent) -> Spent {
        Spent { processor: self.processor + other.processor, clock: self.clock + other.clock }
    }
}
