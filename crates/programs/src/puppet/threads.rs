//! What a puppet's other threads do meanwhile: one feeds the default stream, one captures a stream.

use std::ffi::c_void;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cuda::CUresult;
use cuda::types::{CUcontext, CUevent, CUgraph, CUstream, CUstreamCaptureMode};

use super::{NON_BLOCKING, first_error};
use crate::api::Api;
use crate::bench::Bench;

/// How long each piece of what is fed takes, and how often there is another: more than can be done.
const FED: Duration = Duration::from_millis(10);
const FED_EVERY: Duration = Duration::from_millis(8);

/// The thread that was started last, if it was not waited for.
#[derive(Default)]
pub(super) struct Threads(Option<JoinHandle<CUresult>>);

/// Handles may be used by every thread.
struct Handles {
    cu: &'static Api,
    context: CUcontext,
    event: CUevent,
}

// SAFETY: the driver's handles mean the same in every thread, and its functions may be called by each.
unsafe impl Send for Handles {}

unsafe extern "C" fn take_a_while(_: *mut c_void) {
    std::thread::sleep(FED);
}

impl Handles {
    /// Gives the default stream more to do than it can, and records the event behind each piece.
    fn feed(self, time: Duration) -> CUresult {
        let Self { cu, context, event } = self;
        let began = Instant::now();
        let mut code = cu.cuCtxSetCurrent(context);
        while code == CUresult::SUCCESS && began.elapsed() < time {
            code = first_error([
                cu.cuLaunchHostFunc(CUstream::NULL, take_a_while, std::ptr::null_mut()),
                cu.cuEventRecord(event, CUstream::NULL),
            ]);
            std::thread::sleep(FED_EVERY);
        }
        code
    }

    /// Captures a stream after a while, for a while.
    fn capture(self, after: Duration, time: Duration) -> CUresult {
        let Self { cu, context, .. } = self;
        let (mut stream, mut graph) = (CUstream::NULL, CUgraph::NULL);
        let made = first_error([cu.cuCtxSetCurrent(context), cu.cuStreamCreate(&mut stream, NON_BLOCKING)]);
        std::thread::sleep(after);
        let begun = cu.cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::GLOBAL);
        std::thread::sleep(time);
        first_error([made, begun, cu.cuStreamEndCapture(stream, &mut graph)])
    }
}

impl Threads {
    /// Does one of its lines. None if it is no line of these.
    pub(super) fn does(&mut self, bench: &Bench, event: CUevent, words: &[&str]) -> Option<CUresult> {
        let handles = Handles { cu: bench.cu, context: bench.context, event };
        let ms = |word: &str| word.parse().ok().map(Duration::from_millis);
        match words {
            ["feed", time] => {
                let time = ms(time)?;
                self.0 = Some(std::thread::spawn(move || handles.feed(time)));
            }
            ["capture-soon", after, time] => {
                let (after, time) = (ms(after)?, ms(time)?);
                self.0 = Some(std::thread::spawn(move || handles.capture(after, time)));
            }
            ["thread"] => {
                let code = self.0.take().map(|thread| thread.join().unwrap_or(CUresult::UNKNOWN));
                return Some(code.unwrap_or(CUresult::INVALID_VALUE));
            }
            _ => return None,
        }
        Some(CUresult::SUCCESS)
    }
}
