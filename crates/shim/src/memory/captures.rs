//! Which streams are being captured, and whether there are green contexts: while none is, waiting for a context is what
//! waiting for its memory means.
//!
//! A capture is counted before it begins, so that a free never takes it for absent when it is there. One that is forgotten to
//! be counted down (a program that destroys a stream in the middle of a capture through a call not seen here) makes frees
//! slower; and where launches are held back (`demand/hold.rs`), a program keeps the GPU for as long as one is counted.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use cuda::CUresult;
use cuda::types::{CUcontext, CUgraph, CUstream, CUstreamCaptureMode};

use super::{allocation, native};
use crate::demand::Inside;
use crate::guard::{guarded, lock};
use crate::{pool, session};

/// What `cuStreamIsCapturing` says of a stream that is not captured.
const NOT_CAPTURED: c_int = 0;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static CAPTURED: Mutex<Vec<Captured>> = Mutex::new(Vec::new());
/// Calls that a capture forbids, and that began while there was none.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// How long a capture waits for those. They are past the driver's look in less than a microsecond, unless the system takes
/// their thread off the processor just there; what stays longer waits for the GPU.
const SETTLE: Duration = Duration::from_micros(100);
/// The same for calls that never wait for the GPU, and how long a capture waits for those.
static LOOKING: AtomicUsize = AtomicUsize::new(0);
const SETTLE_LOOKS: Duration = Duration::from_millis(50);
static GREEN: AtomicBool = AtomicBool::new(false);

/// A stream, in so far as two calls mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Captured {
    stream: CUstream,
    /// The thread whose default stream it is.
    thread: Option<ThreadId>,
    context: CUcontext,
    since: Instant,
}

/// Whether a stream is being captured.
pub(crate) fn any() -> bool {
    COUNT.load(SeqCst) != 0
}

/// How long the oldest capture has been on.
pub(crate) fn longest() -> Option<Duration> {
    if !any() {
        return None;
    }
    lock(&CAPTURED).iter().map(|captured| captured.since.elapsed()).max()
}

/// Makes a call that a capture forbids, if there is none; None if there is one. A capture that begins meanwhile waits a moment
/// for the call to get past the driver's own look.
pub(crate) fn unless_any<T>(call: impl FnOnce() -> T) -> Option<T> {
    INSIDE.fetch_add(1, SeqCst);
    // Either the capture sees this call inside, or this call sees the capture.
    let result = (!any()).then(call);
    INSIDE.fetch_sub(1, SeqCst);
    result
}

/// The same for a call that never waits for the GPU: a capture that begins meanwhile waits for it to return.
pub(crate) fn look_unless_any<T>(look: impl FnOnce() -> T) -> Option<T> {
    LOOKING.fetch_add(1, SeqCst);
    let result = (!any()).then(look);
    LOOKING.fetch_sub(1, SeqCst);
    result
}

/// Whether the program uses green contexts, each of which is waited for by itself.
pub(crate) fn any_green() -> bool {
    GREEN.load(SeqCst)
}

/// A context is gone, and its streams with it.
pub(super) fn forget(context: CUcontext) {
    retain(|captured| captured.context != context);
}

/// In a forked child: nothing is captured. Only stores: the lock may be held by a thread that the child does not have.
pub(super) fn forget_parent() {
    COUNT.store(0, SeqCst);
    INSIDE.store(0, SeqCst);
    LOOKING.store(0, SeqCst);
    GREEN.store(false, SeqCst);
}

/// A stream is gone.
pub(crate) fn forget_stream(stream: CUstream) {
    if any() {
        retain(|captured| captured.stream != stream);
    }
}

fn retain(keep: impl FnMut(&Captured) -> bool) {
    let mut captured = lock(&CAPTURED);
    captured.retain(keep);
    COUNT.store(captured.len(), SeqCst);
}

/// Counts a capture while it begins, and on if it did.
fn begin(name: &str, stream: CUstream, per_thread: bool, begin: impl FnOnce() -> CUresult) -> CUresult {
    // Before it is counted: while it waits for the program's turn, nobody takes it for one that is on.
    let _inside = guarded(name, || None, || Some(Inside::enter()));
    let started = guarded(
        name,
        || None,
        || {
            let first = session::first()?;
            // While it is not counted yet.
            session::all().for_each(|session| pool::begins_capture(session, stream, per_thread));
            let context = allocation::current(first)?;
            let thread = per_thread.then(|| std::thread::current().id());
            let started = Captured { stream, thread, context, since: Instant::now() };
            let mut captured = lock(&CAPTURED);
            captured.push(started);
            COUNT.store(captured.len(), SeqCst);
            drop(captured);
            let now = Instant::now();
            while INSIDE.load(SeqCst) != 0 && now.elapsed() < SETTLE {
                std::hint::spin_loop();
            }
            while LOOKING.load(SeqCst) != 0 && now.elapsed() < SETTLE_LOOKS {
                std::thread::yield_now();
            }
            Some(started)
        },
    );
    let result = begin();
    if let Some(started) = started
        && result != CUresult::SUCCESS
    {
        guarded(name, || (), || end(started));
    }
    result
}

/// Takes one of its captures off.
fn end(ended: Captured) {
    let mut captured = lock(&CAPTURED);
    if let Some(index) = captured.iter().position(|captured| *captured == ended) {
        captured.swap_remove(index);
    }
    COUNT.store(captured.len(), SeqCst);
}

/// After a call that ends captures: has this one ended? Failing, the call may have ended it or not.
fn after_end(
    name: &str,
    stream: CUstream,
    per_thread: bool,
    is_capturing: impl FnOnce(&mut c_int) -> CUresult,
) {
    guarded(
        name,
        || (),
        || {
            let mut status = NOT_CAPTURED;
            if any() && is_capturing(&mut status) == CUresult::SUCCESS && status == NOT_CAPTURED {
                let thread = per_thread.then(|| std::thread::current().id());
                retain(|captured| (captured.stream, captured.thread) != (stream, thread));
            }
        },
    );
}

macro_rules! beginning {
    ($($symbol:ident($($argument:ident: $type:ty),*), $per_thread:literal;)*) => {$(
        /// Begins a capture of a stream.
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(stream: CUstream, $($argument: $type),*) -> CUresult {
            // SAFETY: the caller's arguments, as they came.
            begin(stringify!($symbol), stream, $per_thread, || unsafe { native::$symbol(stream, $($argument),*) })
        }
    )*};
}

beginning! {
    cuStreamBeginCapture(), false;
    cuStreamBeginCapture_ptsz(), true;
    cuStreamBeginCapture_v2(mode: CUstreamCaptureMode), false;
    cuStreamBeginCapture_v2_ptsz(mode: CUstreamCaptureMode), true;
    cuStreamBeginCaptureToGraph(
        graph: CUgraph, after: *const c_void, data: *const c_void, count: usize, mode: CUstreamCaptureMode
    ), false;
    cuStreamBeginCaptureToGraph_ptsz(
        graph: CUgraph, after: *const c_void, data: *const c_void, count: usize, mode: CUstreamCaptureMode
    ), true;
}

/// Ends a capture of a stream.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuStreamEndCapture(stream, graph) };
    // SAFETY: the driver writes one number; the stream is the caller's.
    let status = |status: &mut c_int| unsafe { native::cuStreamIsCapturing(stream, status) };
    after_end("cuStreamEndCapture", stream, false, status);
    result
}

/// Ends a capture of a stream; the null handle is the thread's own.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuStreamEndCapture_ptsz(stream, graph) };
    // SAFETY: the driver writes one number; the stream is the caller's.
    let status = |status: &mut c_int| unsafe { native::cuStreamIsCapturing_ptsz(stream, status) };
    after_end("cuStreamEndCapture_ptsz", stream, true, status);
    result
}

/// A green context as a context, which it takes to work in it.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxFromGreenCtx(context: *mut CUcontext, green: *mut c_void) -> CUresult {
    GREEN.store(true, SeqCst);
    // SAFETY: the caller's arguments, as they came.
    unsafe { native::cuCtxFromGreenCtx(context, green) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: the streams are the process's.
    #[test]
    fn a_capture_counts_until_it_ends_fails_or_its_stream_is_gone() {
        let handle = |number: usize| std::ptr::without_provenance_mut(number);
        let since = Instant::now();
        let captured = |stream: usize, context: usize| Captured {
            stream: CUstream(handle(stream)),
            thread: None,
            context: CUcontext(handle(context)),
            since: if stream == 4 { since } else { Instant::now() },
        };
        let one = captured(1, 1);
        assert_eq!(longest(), None);
        for one in [one, captured(2, 1), captured(3, 2), captured(4, 2)] {
            lock(&CAPTURED).push(one);
        }
        end(one);
        assert_eq!(COUNT.load(SeqCst), 3);
        forget(CUcontext(handle(1)));
        assert_eq!(COUNT.load(SeqCst), 2);
        forget_stream(CUstream(handle(3)));
        assert!(any());
        after_end("test", CUstream(handle(4)), false, |_| CUresult::INVALID_VALUE);
        after_end("test", CUstream(handle(4)), true, |_| CUresult::SUCCESS);
        after_end("test", CUstream(handle(4)), false, |status| {
            *status = 1;
            CUresult::SUCCESS
        });
        assert!(any(), "it goes on, or nobody knows");
        assert!(longest().is_some_and(|time| time <= since.elapsed()));
        after_end("test", CUstream(handle(4)), false, |_| CUresult::SUCCESS);
        assert!(!any());
        assert_eq!(unless_any(|| 1), Some(1));
        COUNT.store(1, SeqCst);
        assert_eq!(unless_any(|| 1), None);
        assert_eq!(look_unless_any(|| 1), None);
        forget_parent();
        assert!(!any(), "a child has no captures");
        assert_eq!(INSIDE.load(SeqCst), 0);
        assert_eq!(look_unless_any(|| LOOKING.load(SeqCst)), Some(1));
        assert_eq!(LOOKING.load(SeqCst), 0);
    }
}
