//! Waiting for a stream or a context: what was freed there is free for all then. And the end of a stream. The driver's
//! functions that do so are overridden in `demand`.

use cuda::CUresult;
use cuda::types::{CUcontext, CUstream};

use super::ordered::{Named, finished, mark_if_needed};
use super::reuse::Point;
use crate::guard::guarded;
use crate::memory::{allocation, captures};
use crate::session::{self, Session};

/// A point, and the session it is of.
type Awaited = (&'static Session, Point);

/// What waiting for a stream from here on says done.
fn before_stream(stream: CUstream, per_thread: bool) -> Option<Awaited> {
    let mut freed = session::all().filter(|session| !session.table().reuse.is_empty()).peekable();
    freed.peek()?;
    let stream = Named { stream, per_thread }.stream()?;
    // Its context is on one GPU.
    freed.find_map(|session| Some((session, session.table().reuse.point(stream)?)))
}

/// What waiting for a context, by default the current one, says done.
fn before_context(context: Option<CUcontext>) -> Vec<Awaited> {
    let mut awaited = Vec::new();
    for session in session::all().filter(|session| !session.table().reuse.is_empty()) {
        let Some(context) = context.or_else(|| allocation::current(session)) else { break };
        awaited.extend(session.table().reuse.points(context).into_iter().map(|point| (session, point)));
    }
    awaited
}

/// It was waited for.
fn waited(points: impl IntoIterator<Item = Awaited>) {
    points.into_iter().for_each(|(session, point)| finished(session, point));
    session::all().for_each(|session| session.table().pools.settle());
}

/// A stream is about to be destroyed: its handle may be another's at once.
pub(crate) fn stream_ends(stream: CUstream) {
    captures::forget_stream(stream);
    for session in session::all() {
        if let Some(stream) = mark_if_needed(session, Named { stream, per_thread: false }) {
            session.table().reuse.destroyed(stream);
        }
    }
}

/// Waits by `wait`, and concludes what `before` said if it succeeds.
fn waiting<P: IntoIterator<Item = Awaited>>(
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

/// Waits for a stream by `wait`, or looks whether it is done.
pub(crate) fn for_stream(
    name: &str,
    stream: CUstream,
    per_thread: bool,
    wait: impl FnOnce() -> CUresult,
) -> CUresult {
    waiting(name, || before_stream(stream, per_thread), || None, wait)
}

/// Waits for a context by `wait`; the null handle is the current one.
pub(crate) fn for_context(name: &str, context: CUcontext, wait: impl FnOnce() -> CUresult) -> CUresult {
    let context = (!context.is_null()).then_some(context);
    waiting(name, || before_context(context), Vec::new, wait)
}
