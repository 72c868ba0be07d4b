//! Events: what each is behind, who waits for it, and what is known when it is over.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use cuda::CUresult;

use super::recorded::{Point, Recorded};
use super::slots::StreamKey;
use super::streams::{await_point, call, point, with_own};
use super::{Handover, WORK, awaited, made_once, patience, settle};
use crate::forgetting;
use crate::forward::index;
use crate::guard::{guarded, lock};

static RECORDED: AtomicPtr<Mutex<Recorded>> = AtomicPtr::new(ptr::null_mut());

fn recorded() -> &'static Mutex<Recorded> {
    made_once(&RECORDED, || Mutex::new(Recorded::new()))
}

/// In a forked child: nothing is recorded, and the lock is a new one.
pub(super) fn forget() {
    RECORDED.store(ptr::null_mut(), SeqCst);
}

/// All up to a point is done, and with it what had to be before.
pub(super) fn finish(point: Point) {
    lock(recorded()).finish(&WORK, point);
    settle();
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
    let real = || call(index::cuEventSynchronize, [event, 0, 0]);
    let wait = || patience::wait_for_event("cuEventSynchronize", event, &look, &real);
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

fn forget_event(event: usize) {
    patience::forget_event(event);
    lock(recorded()).forget(event as u64);
}

forgetting! {
    /// Destroys an event.
    cuEventDestroy: forget_event;
    /// Destroys an event.
    cuEventDestroy_v2: forget_event;
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
            awaited::recorded(event);
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
