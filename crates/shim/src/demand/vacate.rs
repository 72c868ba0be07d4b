//! Keeping the program out of the driver while that puts its context away, or brings it back (`rota pause --deep`).
//!
//! The driver's steps need the program's channels to run, and meanwhile none of its memory is under its addresses. So freezing
//! does not help: from the agent's order on, calls that may use the GPU wait here, counted as begun, whether the program is
//! frozen or not. Whoever waits in rota meanwhile, at the gate or for an answer of the daemon, **stands aside**, and passes here
//! before it goes on. The driver is vacant when everybody who is counted stands aside.
//!
//! Only the agent opens it again, by the order of a daemon: one that goes changes nothing. What never hands over work nor
//! uses memory (`quiet.txt`) may be inside all the same; it waits in the driver's own lock, and goes on behind that.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use super::{WORK, aim, hold};
use crate::agent::warm_up;

/// 1 while nobody may enter.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// How often those who stand aside are counted as begun.
static ASIDE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How often this thread is counted as begun.
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// In a forked child: it is open, and nobody waits.
pub(super) fn forget() {
    CLOSED.store(0, SeqCst);
    ASIDE.store(0, SeqCst);
    let _ = COUNTED.try_with(|counted| counted.set(0));
}

/// This thread was counted as begun.
pub(super) fn count() {
    let _ = COUNTED.try_with(|counted| counted.set(counted.get() + 1));
}

/// That is over, or the driver has it now and says so itself.
pub(super) fn count_off() {
    let _ = COUNTED.try_with(|counted| counted.set(counted.get().saturating_sub(1)));
}

/// Nobody enters from now on.
pub(crate) fn close() {
    CLOSED.store(1, SeqCst);
    aim();
}

/// All go on.
pub(crate) fn open() {
    CLOSED.store(0, SeqCst);
    aim();
    // SAFETY: a word that is always there, of which the kernel wakes who waits.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            CLOSED.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            libc::c_int::MAX,
        );
    }
}

/// Whether nobody may enter.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(SeqCst) != 0
}

/// Is nobody inside, and can nobody be before it is opened? By a look that may be wrong the other way.
pub(crate) fn is_vacant() -> bool {
    // In this order: whoever stands aside was counted before.
    let aside = ASIDE.load(SeqCst);
    is_closed() && WORK.inside() <= aside && warm_up::is_off()
}

/// For what was just counted as begun: waits until it may go on. Not inside of another such call, which would never end.
pub(super) fn pass() {
    if is_closed() && !hold::is_within() {
        aside(|| ());
    }
}

/// For a thread that waits for the GPU by looking: it looks later.
pub(crate) fn rest() {
    if is_closed() {
        aside(|| ());
    }
}

/// Waits for something else than the driver. The calling thread must hold no lock that the agent may need.
pub(crate) fn aside<T>(wait: impl FnOnce() -> T) -> T {
    // At the end of a thread nobody knows: then it counts as inside.
    let counted = COUNTED.try_with(Cell::get).unwrap_or(0);
    ASIDE.fetch_add(counted, SeqCst);
    let waited = wait();
    loop {
        ASIDE.fetch_sub(counted, SeqCst);
        // Either this is seen closed, or `is_vacant` sees this thread inside.
        if !is_closed() {
            return waited;
        }
        ASIDE.fetch_add(counted, SeqCst);
        while CLOSED.load(Relaxed) != 0 {
            // SAFETY: a word that is always there, which the kernel compares with the value.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    CLOSED.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    1,
                    ptr::null::<libc::timespec>(),
                );
            }
        }
    }
}
