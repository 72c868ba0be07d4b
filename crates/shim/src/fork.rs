//! A forked child starts clean.
//!
//! It has the parent's memory but neither its agent nor its place at the daemon, and locks may have been held at the
//! instant of the fork by threads that the child does not have. So nothing of the parent's state is looked at in the
//! child: every part of the shim keeps its state behind one pointer, or is asked only while a counter is not 0, and the
//! child's copies of those become null.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::{agent, demand, foreign, gpus, groups, init, memory, sdk, session, transient};

/// Makes sure that forks are noticed from now on. To be called before any state of this process is made.
pub(crate) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, SeqCst) {
        // SAFETY: the handler does only what is allowed in the child of a process with threads, and the shim is
        // never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forget_parent)) };
    }
}

/// Runs in the child before fork returns. Only stores and closes: nothing else is safe here.
extern "C" fn forget_parent() {
    demand::forget();
    foreign::forget();
    sdk::forget();
    agent::warm_up::forget();
    memory::forget();
    session::forget();
    transient::forget();
    groups::forget();
    gpus::forget();
    init::forget();
}
