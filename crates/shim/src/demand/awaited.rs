//! Events that somebody waits for, and whether they are recorded again meanwhile: then they are about something later.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use super::made_once;
use crate::guard::lock;

/// How often each was recorded while it was waited for. Made lazily, so that a child of `fork` finds no lock that was held.
static TIMES: AtomicPtr<Mutex<BTreeMap<usize, u64>>> = AtomicPtr::new(ptr::null_mut());
static WAITS: AtomicUsize = AtomicUsize::new(0);

fn times() -> &'static Mutex<BTreeMap<usize, u64>> {
    made_once(&TIMES, || Mutex::new(BTreeMap::new()))
}

/// In a forked child: nobody waits.
pub(super) fn forget() {
    TIMES.store(ptr::null_mut(), SeqCst);
    WAITS.store(0, SeqCst);
}

/// An event is about to be recorded.
pub(super) fn recorded(event: usize) {
    if WAITS.load(SeqCst) != 0
        && let Some(times) = lock(times()).get_mut(&event)
    {
        *times += 1;
    }
}

/// Somebody who waits for an event.
pub(super) struct Awaited {
    event: usize,
    times: u64,
}

impl Awaited {
    pub(super) fn begin(event: usize) -> Self {
        WAITS.fetch_add(1, SeqCst);
        Self { event, times: *lock(times()).entry(event).or_default() }
    }

    /// Whether it was recorded since. Also said of one that was forgotten because somebody else's wait ended just then.
    pub(super) fn was_recorded(&self) -> bool {
        lock(times()).get(&self.event) != Some(&self.times)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if WAITS.fetch_sub(1, SeqCst) == 1 {
            lock(times()).clear();
        }
    }
}
