//! Waiting for a stream or a context: what was freed there is free for all then. And the end of a stream.

use cuda::CUresult;
use cuda::types::{CUcontext, CUstream};

use super::ordered::{Named, finished, mark_if_needed};
use super::reuse::Point;
use crate::guard::guarded;
use crate::memory::{allocation, captures, native};
use crate::session;

/// What waiting for a stream from here on says done.
pub(crate) fn before_stream(stream: CUstream, per_thread: bool) -> Option<Point> {
    let session = session::current()?;
    if session.table().reuse.is_empty() {
        return None;
    }
    let stream = Named { stream, per_thread }.stream()?;
    session.table().reuse.point(stream)
}

/// What waiting for a context, by default the current one, says done.
pub(crate) fn before_context(context: Option<CUcontext>) -> Vec<Point> {
    let Some(session) = session::current() else { return Vec::new() };
    if session.table().reuse.is_empty() {
        return Vec::new();
    }
    let context = context.or_else(|| allocation::current(session));
    context.map_or_else(Vec::new, |context| session.table().reuse.points(context))
}

/// It was waited for.
pub(crate) fn waited(points: impl IntoIterator<Item = Point>) {
    let Some(session) = session::current() else { return };
    points.into_iter().for_each(|point| finished(session, point));
    session.table().pools.settle();
}

/// A stream is about to be destroyed: its handle may be another's at once.
pub(crate) fn stream_ends(stream: CUstream) {
    captures::forget_stream(stream);
    if let Some(session) = session::current()
        && let Some(stream) = mark_if_needed(session, Named { stream, per_thread: false })
    {
        session.table().reuse.destroyed(stream);
    }
}

/// Waits by `wait`, and concludes what `before` said if it succeeds.
fn waiting<P: IntoIterator<Item = Point>>(
    name: &str,
    before: impl FnOnce() -> P,
    nothing: impl FnOnce() -> P,
    wait: impl FnOnce() -> CUresult,
) -> CUresult {
    let points = guarded(name, nothing, before);
    let result = wait();
    if result == CUresult::SUCCESS {
        guarded(name, || (), || waited(points));
    }
    result
}

macro_rules! for_streams {
    ($($symbol:ident, $per_thread:literal;)*) => {$(
        /// Waits for a stream.
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(stream: CUstream) -> CUresult {
            // SAFETY: the caller's argument, as it came.
            let wait = || unsafe { native::$symbol(stream) };
            waiting(stringify!($symbol), || before_stream(stream, $per_thread), || None, wait)
        }
    )*};
}

for_streams! {
    cuStreamSynchronize, false;
    cuStreamSynchronize_ptsz, true;
}

/// Waits for the current context.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize() -> CUresult {
    // SAFETY: no conditions.
    let wait = || unsafe { native::cuCtxSynchronize() };
    waiting("cuCtxSynchronize", || before_context(None), Vec::new, wait)
}

/// Waits for a context.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult {
    // SAFETY: the caller's argument, as it came.
    let wait = || unsafe { native::cuCtxSynchronize_v2(context) };
    let context = (!context.is_null()).then_some(context);
    waiting("cuCtxSynchronize_v2", || before_context(context), Vec::new, wait)
}

macro_rules! destroying {
    ($($symbol:ident)*) => {$(
        /// Destroys a stream; its work goes on.
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(stream: CUstream) -> CUresult {
            guarded(stringify!($symbol), || (), || stream_ends(stream));
            // SAFETY: the caller's argument, as it came.
            unsafe { native::$symbol(stream) }
        }
    )*};
}

destroying! { cuStreamDestroy cuStreamDestroy_v2 }
