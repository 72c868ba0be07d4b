//! What ends work: waiting for a stream or a context, and seeing that one is done.
//!
//! Whoever waits while the program is taken for idle is looked after first: should there be work after all, because it came
//! on a way that is not seen, the daemon is told.

use std::ffi::c_void;

use cuda::CUresult;
use cuda::types::{CUcontext, CUstream};

use super::events::finish;
use super::recorded::Point;
use super::slots::StreamKey;
use super::{Inside, WORK, contexts, hold, page, patience, stir, vacate};
use crate::forgetting;
use crate::forward::{self, index};
use crate::guard::guarded;
use crate::pool;

/// The default stream that all threads share, as the driver names it.
const LEGACY: u64 = 1;
/// The calling thread's own, as the driver names it.
const PER_THREAD: u64 = 2;

/// Where streams begin to be objects of their own.
const FIRST_OBJECT: usize = 3;

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

    /// Is it a stream of the program's, or a thread's, rather than the default stream of all?
    pub(super) fn is_object(self) -> bool {
        self != Self::UNKNOWN && self.0 >= FIRST_OBJECT as u64
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

/// A point before work that was handed over since, with that work if nothing else came in between.
pub(super) fn with_own(before: Point) -> Point {
    let after = WORK.slot(before.slot).taken();
    if after == before.taken + 1 { Point { taken: after, ..before } } else { before }
}

pub(super) fn call(index: usize, arguments: [usize; 3]) -> CUresult {
    let real = forward::target_of(index);
    let [a, b, c] = arguments;
    // SAFETY: the caller's arguments, as they came, for the function that it meant.
    unsafe { real(a, b, c, 0, 0, 0, 0, 0, 0, 0) }
}

/// Waits for something by `wait`, or looks at it, and concludes what it says if it succeeds.
///
/// `look` says whether there is something to wait for, without waiting.
pub(super) fn await_point(
    name: &str,
    point: impl Fn() -> Option<(Point, u64)>,
    look: Option<&dyn Fn() -> CUresult>,
    wait: impl FnOnce() -> CUresult,
) -> CUresult {
    let (inside, before) = guarded(
        name,
        || (None, None),
        || {
            // Whoever waits may wait for work that nobody saw, so it is in a call that uses the GPU; unless there is nothing
            // to wait for.
            let waits = |look: &dyn Fn() -> CUresult| {
                page().idle_since_ns().is_none() || look() == CUresult::NOT_READY
            };
            vacate::rest();
            (look.is_some_and(waits).then(Inside::enter), point())
        },
    );
    let result = wait();
    guarded(
        name,
        || (),
        || {
            match (result, before) {
                (CUresult::NOT_READY, _) => stir(),
                // With another point by now, nobody knows which of them this was about.
                (CUresult::SUCCESS, Some((at, number))) if point().is_some_and(|(_, now)| now == number) => {
                    finish(at);
                }
                _ => {}
            }
            drop(inside);
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
                let real = || call(index::$symbol, [stream, 0, 0]);
                let patient = || match look {
                    Some(look) => {
                        patience::wait_for_stream(stringify!($symbol), stream, $per_thread, look, &real)
                    }
                    None => real(),
                };
                let wait = || await_point(stringify!($symbol), point, look, patient);
                pool::for_stream(stringify!($symbol), CUstream(stream as *mut c_void), $per_thread, wait)
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

fn orphan(stream: usize) {
    pool::stream_ends(CUstream(stream as *mut c_void));
    if stream >= FIRST_OBJECT {
        hold::stream_ends(stream);
        WORK.orphan(StreamKey(stream as u64));
    }
}

forgetting! {
    /// Destroys a stream; its work goes on.
    cuStreamDestroy: orphan;
    /// Destroys a stream; its work goes on.
    cuStreamDestroy_v2: orphan;
}

/// Waits for a whole context by `wait`.
fn await_context(name: &str, context: usize, wait: impl FnOnce() -> CUresult) -> CUresult {
    let begun = guarded(name, || None, || Some((Inside::enter(), WORK.taken())));
    let result = pool::for_context(name, CUcontext(context as *mut c_void), wait);
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
    await_context("cuCtxSynchronize", 0, || {
        patience::wait_for_context("cuCtxSynchronize", &|| call(index::cuCtxSynchronize, [0, 0, 0]))
    })
}

/// Waits for a context.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize_v2(context: usize) -> CUresult {
    await_context("cuCtxSynchronize_v2", context, || call(index::cuCtxSynchronize_v2, [context, 0, 0]))
}
