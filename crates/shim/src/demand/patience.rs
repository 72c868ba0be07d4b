//! Waiting for the GPU without keeping a processor busy while the program is frozen.
//!
//! Unless it was told otherwise, the driver waits by looking again and again. That costs a whole processor, also while the
//! program is off the GPU and there is nothing to see for seconds. So once a program has been frozen for the first time,
//! its waits for streams, events and contexts are made here: they look as the driver would, and sleep while the page says
//! that the program is frozen. What they wait for is what was there when they began: another thread may go on handing over
//! work. When there is nothing left to wait for, or an error, the driver's own function is called, and what it says is the
//! answer.
//!
//! Left to the driver are waits in a request of a latency-critical program, which is hardly ever frozen then, those of
//! programs that chose to sleep there (`CU_CTX_SCHED_BLOCKING_SYNC`, `CU_EVENT_BLOCKING_SYNC`), and those that nobody can look at
//! from outside: copies that wait, launches into a full queue, and what a context has in streams that do not wait for its
//! default stream.

use std::collections::BTreeSet;
use std::ffi::c_uint;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
use std::time::{Duration, Instant};

use cuda::CUresult;
use wire::Page;

use super::awaited::{self, Awaited};
use super::mark::{Mark, Relaxed};
use super::streams::call;
use super::{WORK, is_blind, made_once, vacate};
use crate::forward::index;
use crate::guard::{guarded, lock};
use crate::memory::captures;
use crate::sdk;
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

/// So long a context is waited for here while others hand over work.
const FED_LONG: Duration = Duration::from_millis(10);
/// How often it is looked whether a capture is over.
const CAPTURE_LOOK: Duration = Duration::from_millis(1);
/// A capture that is on for so long may itself wait for whoever waits for its end.
const CAPTURE_LONG: Duration = Duration::from_secs(60);

/// Events for which the driver sleeps. Made lazily, so that a child of `fork` finds no lock that was held.
static SLEEPING: AtomicPtr<Mutex<BTreeSet<usize>>> = AtomicPtr::new(ptr::null_mut());
static ANY_SLEEPING: AtomicBool = AtomicBool::new(false);

/// In a forked child: there are no events.
pub(super) fn forget() {
    SLEEPING.store(ptr::null_mut(), SeqCst);
    ANY_SLEEPING.store(false, SeqCst);
    awaited::forget();
}

/// Waits for what a stream has, by `real` in the end. `look` says whether it has something.
pub(super) fn wait_for_stream(
    name: &str,
    stream: usize,
    per_thread: bool,
    look: &dyn Fn() -> CUresult,
    real: &dyn Fn() -> CUresult,
) -> CUresult {
    wait(name, look, real, &|| {
        let mark = Mark::set(stream, per_thread)?;
        until_ready(&|| mark.look(), &|_| false)
    })
}

/// The same for an event. One that is recorded again meanwhile is the driver's: it knows what is waited for.
pub(super) fn wait_for_event(
    name: &str,
    event: usize,
    look: &dyn Fn() -> CUresult,
    real: &dyn Fn() -> CUresult,
) -> CUresult {
    if ANY_SLEEPING.load(SeqCst) && lock(sleeping()).contains(&event) {
        return real();
    }
    wait(name, look, real, &|| {
        let awaited = Awaited::begin(event);
        until_ready(look, &|_| awaited.was_recorded())
    })
}

fn wait(
    name: &str,
    look: &dyn Fn() -> CUresult,
    real: &dyn Fn() -> CUresult,
    until_done: &dyn Fn() -> Option<CUresult>,
) -> CUresult {
    let is_done = || match captures::look_unless_any(look) {
        Some(CUresult::NOT_READY) if scheduling() != SCHED_BLOCKING => {
            let _relaxed = Relaxed::enter();
            until_done() == Some(CUresult::SUCCESS)
        }
        looked => looked == Some(CUresult::SUCCESS),
    };
    match is_patient() && guarded(name, || false, is_done) {
        // To the driver the wait begins only now; a capture that began meanwhile has nothing to do with it.
        true => captures::unless_any(real).unwrap_or(CUresult::SUCCESS),
        false => real(),
    }
}

/// The same for all in the current context that its default stream waits for. The default stream cannot be looked at while a
/// stream is captured: then this waits for the end of the capture too, and is the driver's if it was there before.
///
/// Where others hand over work meanwhile, nobody can tell from outside what was there before, and the driver waits.
pub(super) fn wait_for_context(name: &str, real: &dyn Fn() -> CUresult) -> CUresult {
    if !is_patient() || captures::any() {
        return real();
    }
    let taken = WORK.taken();
    let is_fed = || is_blind() || WORK.taken() != taken;
    let is_stuck = || captures::longest().is_some_and(|time| time > CAPTURE_LONG);
    // The default stream of all threads.
    let query = || call(index::cuStreamQuery, [1, 0, 0]);
    let look = || {
        captures::look_unless_any(query).unwrap_or_else(|| {
            std::thread::sleep(CAPTURE_LOOK);
            CUresult::NOT_READY
        })
    };
    let gives_up = |waited| is_stuck() || (waited > FED_LONG && is_fed());
    let wait = || {
        if look() == CUresult::NOT_READY && scheduling() != SCHED_BLOCKING {
            until_ready(&look, &gives_up);
        }
    };
    guarded(name, || (), wait);
    while !guarded(name, || true, is_stuck) {
        if let Some(result) = captures::unless_any(real) {
            return result;
        }
        std::thread::sleep(CAPTURE_LOOK);
    }
    real()
}

/// Whether waits are made here.
fn is_patient() -> bool {
    !settings::waits_in_driver() && session::all().any(was_frozen) && !sdk::serves_request()
}

/// Looks until there is something else to say than that it is not ready, and returns that. None if `gives_up` says so, which
/// is asked with the time since the program was frozen last.
fn until_ready(look: &dyn Fn() -> CUresult, gives_up: &dyn Fn(Duration) -> bool) -> Option<CUresult> {
    let how = scheduling();
    let mut begin = Instant::now();
    loop {
        vacate::rest();
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
        if gives_up(waited) {
            return None;
        }
        match look() {
            CUresult::NOT_READY => {}
            other => return Some(other),
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
