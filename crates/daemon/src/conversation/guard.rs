//! A client that finds a mistake in what listens to it is dropped, and nobody else notices.
//!
//! Anywhere else a panic ends the worker, because the thread that is missing then is one that everybody waits for. If what a
//! client says could do that, one client could keep all others from the GPU by saying it again and again.

use super::Ended;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread concerns one client only, just now.
pub fn is_guarded() -> bool {
    IS_GUARDED.try_with(Cell::get).unwrap_or(false)
}

/// Does something with what a client said. What is shared with other threads is behind locks that do not mind a panic, or is
/// sent to them whole.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, Ended>) -> Result<T, Ended> {
    let before = IS_GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(before);
    done.unwrap_or(Err(Ended::Panicked))
}
