//! How many stages there are at a time: each has several processes that compute, so with as many as there are tests at a time,
//! which mostly wait, all of them would be slow.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};

static TAKEN: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

thread_local! {
    /// Those of this thread's test: one that has a stage is not to wait for another.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// The place of a stage, for as long as it lives.
pub(super) struct Place(());

impl Place {
    /// Waits until there is one.
    pub(super) fn take() -> Self {
        let places = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken >= places && OWN.get() == 0 {
            taken = LEFT.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += 1;
        OWN.set(OWN.get() + 1);
        Self(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        OWN.set(OWN.get().saturating_sub(1));
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        LEFT.notify_one();
    }
}
