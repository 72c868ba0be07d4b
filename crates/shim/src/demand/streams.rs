//! What ends work: waiting for a stream, an event or a context, and seeing that one is done.
//!
//! Whoever waits while the program is taken for idle is looked after first: should there be work after all, because it came
//! on a way that is not seen, the daemon is told.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use cuda::CUresult;

use super::recorded::{Point, Recorded};
use super::slots::StreamKey;
use super::{Handover, Inside, WORK, contexts, page, settle, stir};
use crate::forward::{self, index};
use crate::guard::{guarded, lock};

/// The default stream that all threads share, as the driver names it.
const LEGACY: u64 = 1;
/// The calling thread's own, as the driver names it.
const PER_THREAD: u64 = 2;

/// Where streams begin to be objects of their own.
const FIRST_OBJECT: usize = 3;

static RECORDED: AtomicPtr<Mutex<Recorded>> = AtomicPtr::new(ptr::null_mut());

fn recorded() -> &'static Mutex<Recorded> {
    made_once(&RECORDED, || Mutex::new(Recorded::new()))
}

/// What is there, made if it is not.
pub(super) fn made_once<T>(place: &'static AtomicPtr<T>, make: impl FnOnce() -> T) -> &'static T {
    let mut current = place.load(SeqCst);
    if current.is_null() {
        let fresh = Box::into_raw(Box::new(make()));
        current = match place.compare_exchange(ptr::null_mut(), fresh, SeqCst, SeqCst) {
            Ok(_) => fresh,
            Err(theirs) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                theirs
            }
        };
    }
    // SAFETY: what is stored is never freed.
    unsafe { &*current }
}

/// In a forked child: nothing is recorded, and the lock is a new one.
pub(super) fn forget() {
    RECORDED.store(ptr::null_mut(), SeqCst);
}

impl StreamKey {
    /// The stream that a handle means in a function whose default stream is the thread's own, or is not.
    pub(crate) fn of(stream: usize, per_thread: bool) -> Self {
        match stream as u64 {
            0 if per_thread => Self::of_this_thread(),
            0 => Self(LEGACY),
            PER_THREAD => Self::of_this_thread(),
            stream => Self(stream),
        }
    }

    /// The calling thread's own default stream: called by where the thread's control block is, like in the launch.
    pub(super) fn of_this_thread() -> Self {
        let control_block: u64;
        // SAFETY: on x86-64 Linux the first word there is its own address.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) control_block, options(nostack, readonly, preserves_flags));
        }
        Self(control_block)
    }
}

/// The name of a thread's default stream may come to mean another thread's when this one ends.
struct Thread(StreamKey);

impl Drop for Thread {
    fn drop(&mut self) {
        WORK.orphan(self.0);
    }
}

thread_local! {
    static THREAD: Thread = Thread(StreamKey::of_this_thread());
}

/// Makes sure that the slot of the calling thread's default stream is given up when the thread ends. False if it is ending.
pub(super) fn minds_this_thread() -> bool {
    THREAD.try_with(|_| ()).is_ok()
}

/// What waiting for a stream from here on says done; None if it says nothing.
pub(super) fn point(stream: usize, per_thread: bool) -> Option<Point> {
    // The default streams are the context's.
    if stream < FIRST_OBJECT && !contexts::is_the_only_one() {
        return None;
    }
    let slot = WORK.find(StreamKey::of(stream, per_thread))?;
    Some(Point { slot, taken: WORK.slot(slot).taken() })
}

/// All up to a point is done.
pub(super) fn finish(point: Point) {
    lock(recorded()).finish(&WORK, point);
    settle();
}

/// A point before work that was handed over since, with that work if nothing else came in between.
pub(super) fn with_own(before: Point) -> Point {
    let after = WORK.slot(before.slot).taken();
    if after == before.taken + 1 { Point { taken: after, ..before } } else { before }
}

fn call(index: usize, arguments: [usize; 3]) -> CUresult {
    let real = forward::target_of(index);
    let [a, b, c] = arguments;
    // SAFETY: the caller's arguments, as they came, for the function that it meant.
    unsafe { real(a, b, c, 0, 0, 0, 0, 0, 0, 0) }
}

/// Waits for something by `wait`, or looks at it, and concludes what it says if it succeeds.
///
/// `look` says whether there is something to wait for, without waiting.
fn await_point(
    name: &str,
    point: impl Fn() -> Option<(Point, u64)>,
    look: Option<&dyn Fn() -> CUresult>,
    wait: impl FnOnce() -> CUresult,
) -> CUresult {
    let before = guarded(
        name,
        || None,
        || {
            if page().idle_since_ns().is_some() && look.is_some_and(|look| look() == CUresult::NOT_READY) {
                stir();
            }
            point()
        },
    );
    let result = wait();
    guarded(
        name,
        || (),
        || match (result, before) {
            (CUresult::NOT_READY, _) => stir(),
            // With another point by now, nobody knows which of them this was about.
            (CUresult::SUCCESS, Some((at, number))) if point().is_some_and(|(_, now)| now == number) => {
                finish(at);
            }
            _ => {}
        },
    );
    result
}

macro_rules! waiting_for_a_stream {
    ($($symbol:ident, $query:ident, $per_thread:literal;)*) => {
        $(
            /// Waits for a stream, or looks whether it is done.
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol(stream: usize) -> CUresult {
                let point = || point(stream, $per_thread).map(|point| (point, 0));
                let looks = index::$symbol != index::$query;
                let look = || call(index::$query, [stream, 0, 0]);
                let look = looks.then_some(&look as &dyn Fn() -> CUresult);
                await_point(stringify!($symbol), point, look, || call(index::$symbol, [stream, 0, 0]))
            }
        )*
    };
}

waiting_for_a_stream! {
    cuStreamSynchronize, cuStreamQuery, false;
    cuStreamSynchronize_ptsz, cuStreamQuery_ptsz, true;
    cuStreamQuery, cuStreamQuery, false;
    cuStreamQuery_ptsz, cuStreamQuery_ptsz, true;
}

fn point_of_event(event: usize) -> Option<(Point, u64)> {
    lock(recorded()).point(event as u64)
}

/// Waits for an event.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventSynchronize(event: usize) -> CUresult {
    let look = || call(index::cuEventQuery, [event, 0, 0]);
    let wait = || call(index::cuEventSynchronize, [event, 0, 0]);
    await_point("cuEventSynchronize", || point_of_event(event), Some(&look), wait)
}

/// Looks whether an event is over.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventQuery(event: usize) -> CUresult {
    let look = || call(index::cuEventQuery, [event, 0, 0]);
    await_point("cuEventQuery", || point_of_event(event), None, look)
}

macro_rules! forgetting {
    ($($(#[$doc:meta])* $symbol:ident: $forget:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol(object: usize) -> CUresult {
                // Before it is gone: its handle may be another's at once.
                let forget: fn(usize) = $forget;
                guarded(stringify!($symbol), || (), || forget(object));
                super::briefly(index::$symbol, |real| {
                    // SAFETY: the caller's argument, as it came.
                    unsafe { real(object, 0, 0, 0, 0, 0, 0, 0, 0, 0) }
                })
            }
        )*
    };
}

fn orphan(stream: usize) {
    if stream >= FIRST_OBJECT {
        WORK.orphan(StreamKey(stream as u64));
    }
}

fn forget_event(event: usize) {
    lock(recorded()).forget(event as u64);
}

forgetting! {
    /// Destroys an event.
    cuEventDestroy: forget_event;
    /// Destroys an event.
    cuEventDestroy_v2: forget_event;
    /// Destroys a stream; its work goes on.
    cuStreamDestroy: orphan;
    /// Destroys a stream; its work goes on.
    cuStreamDestroy_v2: orphan;
}

/// Is a stream being captured, or is that not known? What is captured does not happen.
fn may_be_capturing(stream: usize, per_thread: bool) -> bool {
    let symbol = if per_thread { index::cuStreamIsCapturing_ptsz } else { index::cuStreamIsCapturing };
    let mut status = -1i32;
    let result = call(symbol, [stream, (&raw mut status) as usize, 0]);
    result != CUresult::SUCCESS || status != 0
}

/// Records an event by `call`, and what it is behind if it is `plain`.
fn record(
    name: &str,
    event: usize,
    stream: usize,
    per_thread: bool,
    plain: bool,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let begun = guarded(
        name,
        || None,
        || {
            lock(recorded()).forget(event as u64);
            let key = StreamKey::of(stream, per_thread);
            let handover = Handover::begin(key);
            let known = plain && !may_be_capturing(stream, per_thread);
            let before = if known { point(stream, per_thread) } else { None };
            Some((handover, before))
        },
    );
    let result = call();
    let Some((handover, before)) = begun else { return result };
    guarded(
        name,
        || (),
        || {
            drop(handover);
            if result == CUresult::SUCCESS
                && let Some(before) = before
            {
                lock(recorded()).record(event as u64, with_own(before));
            }
        },
    );
    result
}

macro_rules! recording {
    ($($symbol:ident, $per_thread:literal, $with_flags:literal;)*) => {
        $(
            /// Records an event in a stream.
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol(event: usize, stream: usize, flags: usize) -> CUresult {
                // Flags let a graph record it when it is launched. They are 32 bits, and not there without.
                let plain = !$with_flags || flags as u32 == 0;
                let call = || call(index::$symbol, [event, stream, flags]);
                record(stringify!($symbol), event, stream, $per_thread, plain, call)
            }
        )*
    };
}

recording! {
    cuEventRecord, false, false;
    cuEventRecord_ptsz, true, false;
    cuEventRecordWithFlags, false, true;
    cuEventRecordWithFlags_ptsz, true, true;
}

/// Makes a stream wait for an event by `call`.
fn wait_for(
    name: &str,
    stream: usize,
    event: usize,
    per_thread: bool,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let begun = guarded(
        name,
        || None,
        || {
            let handover = Handover::begin(StreamKey::of(stream, per_thread));
            let known = !may_be_capturing(stream, per_thread);
            Some((handover, if known { point_of_event(event) } else { None }))
        },
    );
    let result = call();
    let Some((handover, before)) = begun else { return result };
    guarded(
        name,
        || (),
        || {
            drop(handover);
            if result == CUresult::SUCCESS
                && let Some((at, number)) = before
                && point_of_event(event).is_some_and(|(_, again)| again == number)
                && let Some(waiting) = point(stream, per_thread)
            {
                lock(recorded()).wait(waiting, at);
            }
        },
    );
    result
}

macro_rules! waiting_for_an_event {
    ($($symbol:ident, $per_thread:literal;)*) => {
        $(
            /// Makes a stream wait for an event.
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol(stream: usize, event: usize, flags: usize) -> CUresult {
                let call = || call(index::$symbol, [stream, event, flags]);
                wait_for(stringify!($symbol), stream, event, $per_thread, call)
            }
        )*
    };
}

waiting_for_an_event! {
    cuStreamWaitEvent, false;
    cuStreamWaitEvent_ptsz, true;
}

/// Waits for a whole context by `wait`.
fn await_context(name: &str, wait: impl FnOnce() -> CUresult) -> CUresult {
    let begun = guarded(name, || None, || Some((Inside::enter(), WORK.taken())));
    let result = wait();
    let Some((inside, taken)) = begun else { return result };
    guarded(
        name,
        || (),
        || {
            if result == CUresult::SUCCESS && contexts::is_the_only_one() {
                WORK.finish_all(&taken);
            }
            drop(inside);
        },
    );
    result
}

/// Waits for the current context.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize() -> CUresult {
    await_context("cuCtxSynchronize", || call(index::cuCtxSynchronize, [0, 0, 0]))
}

/// Waits for a context.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize_v2(context: usize) -> CUresult {
    await_context("cuCtxSynchronize_v2", || call(index::cuCtxSynchronize_v2, [context, 0, 0]))
}
