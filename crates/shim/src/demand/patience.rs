//! Waiting for the GPU without keeping a processor busy while the program is frozen.
//!
//! Unless it was told otherwise, the driver waits by looking again and again. That costs a whole processor, also while the
//! program is off the GPU and there is nothing to see for seconds. So once a program has been frozen for the first time,
//! its waits for streams, events and contexts are made here: they look as the driver would, and sleep while the page says
//! that the program is frozen. When there is nothing left to wait for, or an error, the driver's own function is called,
//! and what it says is the answer.
//!
//! Left to the driver are waits of programs that chose to sleep there (`CU_CTX_SCHED_BLOCKING_SYNC`,
//! `CU_EVENT_BLOCKING_SYNC`), and those that nobody can look at from outside: copies that wait, launches into a full queue,
//! and what a context has in streams that do not wait for its default stream.

use std::collections::BTreeSet;
use std::ffi::c_uint;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
use std::time::{Duration, Instant};

use cuda::CUresult;
use wire::Page;

use super::made_once;
use super::streams::call;
use crate::forward::index;
use crate::guard::{guarded, lock};
use crate::memory::captures;
use crate::session::{self, Session};
use crate::settings;

/// How the driver waits in a context: by yielding, or asleep.
const SCHED_MASK: c_uint = 0x07;
const SCHED_YIELD: c_uint = 0x02;
const SCHED_BLOCKING: c_uint = 0x04;

/// Whoever waits for an event that was made with this sleeps.
const EVENT_BLOCKING: c_uint = 0x01;

/// A look comes late by one part of so many of the wait at most.
const PART: u32 = 128;
/// And by no more than this.
const LATE_MAX: Duration = Duration::from_micros(100);

/// Events for which the driver sleeps. Made lazily, so that a child of `fork` finds no lock that was held.
static SLEEPING: AtomicPtr<Mutex<BTreeSet<usize>>> = AtomicPtr::new(ptr::null_mut());
static ANY_SLEEPING: AtomicBool = AtomicBool::new(false);

/// In a forked child: there are no events.
pub(super) fn forget() {
    SLEEPING.store(ptr::null_mut(), SeqCst);
    ANY_SLEEPING.store(false, SeqCst);
}

/// Returns when `look` has something else to say than that it is not ready, or when the driver is to wait for it.
pub(super) fn wait(name: &str, look: &dyn Fn() -> CUresult) {
    if settings::waits_in_driver() || !session::all().any(was_frozen) {
        return;
    }
    guarded(name, || (), || until_ready(look));
}

/// The same for an event.
pub(super) fn wait_for_event(name: &str, event: usize, look: &dyn Fn() -> CUresult) {
    if ANY_SLEEPING.load(SeqCst) && lock(sleeping()).contains(&event) {
        return;
    }
    wait(name, look);
}

/// The same for all in the current context that its default stream waits for. Not while a stream is captured, in which the
/// default stream cannot be looked at.
pub(super) fn wait_for_context(name: &str) {
    if !captures::any() {
        // The default stream of all threads.
        wait(name, &|| call(index::cuStreamQuery, [1, 0, 0]));
    }
}

fn until_ready(look: &dyn Fn() -> CUresult) {
    if look() != CUresult::NOT_READY {
        return;
    }
    let how = scheduling();
    if how == SCHED_BLOCKING {
        return;
    }
    let mut begin = Instant::now();
    loop {
        if let Some((page, generation)) = frozen() {
            page.wait_while_frozen(generation);
            begin = Instant::now();
        }
        let waited = begin.elapsed();
        let next = waited + (waited / PART).min(LATE_MAX);
        loop {
            if how == SCHED_YIELD {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            if begin.elapsed() >= next {
                break;
            }
        }
        if look() != CUresult::NOT_READY {
            return;
        }
    }
}

/// How the current context is set to wait.
fn scheduling() -> c_uint {
    let mut flags: c_uint = 0;
    match call(index::cuCtxGetFlags, [(&raw mut flags).expose_provenance(), 0, 0]) {
        CUresult::SUCCESS => flags & SCHED_MASK,
        _ => 0,
    }
}

/// Whether a session's program was ever frozen by its channels. Where launches are held back, what runs runs to its end.
fn was_frozen(session: &Session) -> bool {
    !session.page.holds_launches() && session.page.freeze_generation() > 0
}

/// A page that says frozen, and in which generation: should it be thawed before that is waited for, the wait ends at once.
fn frozen() -> Option<(&'static Page, u64)> {
    let pages = session::all().filter(|session| was_frozen(session));
    let mut pages = pages.map(|session| (&*session.page, session.page.freeze_generation()));
    pages.find(|(_, generation)| !generation.is_multiple_of(2))
}

fn sleeping() -> &'static Mutex<BTreeSet<usize>> {
    made_once(&SLEEPING, || Mutex::new(BTreeSet::new()))
}

/// An event is about to be destroyed: its handle may be another's at once.
pub(super) fn forget_event(event: usize) {
    if ANY_SLEEPING.load(SeqCst) {
        lock(sleeping()).remove(&event);
    }
}

/// Makes an event.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut usize, flags: c_uint) -> CUresult {
    let result = super::briefly(index::cuEventCreate, |real| {
        // SAFETY: the caller's arguments, as they came.
        unsafe { real(event.expose_provenance(), flags as usize, 0, 0, 0, 0, 0, 0, 0, 0) }
    });
    if result == CUresult::SUCCESS && flags & EVENT_BLOCKING != 0 && !event.is_null() {
        // SAFETY: the driver has just written a handle there.
        let made = unsafe { event.read_unaligned() };
        let note = || {
            lock(sleeping()).insert(made);
            ANY_SLEEPING.store(true, SeqCst);
        };
        guarded("cuEventCreate", || (), note);
    }
    result
}
