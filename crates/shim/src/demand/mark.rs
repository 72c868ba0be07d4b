//! An event of the shim's own behind what a stream has, to look at while the program waits for that.
//!
//! Looking at the stream itself would say when it is empty: while another thread feeds it, that is never.

use cuda::CUresult;
use cuda::types::CUstreamCaptureMode;

use super::streams::call;
use crate::forward::index;
use crate::memory::captures;

/// Nobody asks when it happened.
const DISABLE_TIMING: usize = 0x02;

/// See the module.
pub(super) struct Mark {
    event: usize,
}

impl Mark {
    /// Behind all that a stream of the current context has now. None if that cannot be, as in a stream that is captured.
    pub(super) fn set(stream: usize, per_thread: bool) -> Option<Self> {
        let record = if per_thread { index::cuEventRecord_ptsz } else { index::cuEventRecord };
        let set = || {
            let mut event = 0usize;
            let place = (&raw mut event).expose_provenance();
            if call(index::cuEventCreate, [place, DISABLE_TIMING, 0]) != CUresult::SUCCESS {
                return None;
            }
            let mark = Self { event };
            (call(record, [event, stream, 0]) == CUresult::SUCCESS).then_some(mark)
        };
        captures::unless_any(set).flatten()
    }

    /// Whether all of it is done.
    pub(super) fn look(&self) -> CUresult {
        call(index::cuEventQuery, [self.event, 0, 0])
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = call(index::cuEventDestroy_v2, [self.event, 0, 0]);
    }
}

/// While this is there, what the calling thread asks of the driver is no business of other threads' captures.
pub(super) struct Relaxed {
    before: CUstreamCaptureMode,
}

impl Relaxed {
    pub(super) fn enter() -> Self {
        Self { before: exchange(CUstreamCaptureMode::RELAXED) }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        exchange(self.before);
    }
}

/// Sets the thread's mode, and returns what it was.
fn exchange(mut mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    let place = (&raw mut mode).expose_provenance();
    let _ = call(index::cuThreadExchangeStreamCaptureMode, [place, 0, 0]);
    mode
}
