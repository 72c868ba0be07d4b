//! Waiting until nothing of the program is on the GPU, where it is frozen by holding its launches back (`demand/hold.rs`).
//!
//! The agent looks again and again, so that it serves the daemon meanwhile, and gives up when the daemon has.
//!
//! Two kinds of programs keep the GPU whatever is ordered: those that may have work that is not seen, and those in which a
//! capture goes on. Their memory stays with them, and the program says why.

use std::ffi::c_void;
use std::time::Duration;

use cuda::types::{CU_EVENT_DISABLE_TIMING, CUcontext, CUevent, CUstream};
use cuda::{CUresult, Driver};
use wire::ToDaemon;

use super::Next;
use crate::demand;
use crate::demand::hold::{self, Seen};
use crate::memory::{captures, physical};
use crate::notice::OnceNotice;
use crate::session::Session;

/// How often to look.
const LOOK_AGAIN: Next = Next::Within(200_000);

/// A capture that takes so long may have been forgotten.
const CAPTURE_LONG: Duration = Duration::from_secs(10);

/// The default stream that all threads share, as the driver names it.
const LEGACY: usize = 1;

/// One order to drain.
#[derive(Debug)]
pub(super) struct Drain {
    generation: u64,
    /// What is to end, once nobody can begin anything.
    last: Option<Last>,
}

impl Drain {
    pub(super) fn of(generation: u64) -> Self {
        Self { generation, last: None }
    }
}

/// The last that was handed to the driver.
#[derive(Debug)]
struct Last {
    /// Behind all work in each context's default stream, and so in all streams that wait for that one.
    marks: Vec<(CUcontext, CUevent)>,
    /// The others.
    streams: Vec<usize>,
}

/// Looks whether an order is carried out.
pub(super) fn go_on(session: &Session, drain: &mut Option<Drain>) -> Next {
    let Some(current) = drain else { return Next::WhenWoken };
    let driver = session.driver;
    if session.page.freeze_generation() != current.generation {
        let given_up = drain.take();
        given_up.and_then(|drain| drain.last).into_iter().for_each(|last| last.forget(driver));
        return Next::WhenWoken;
    }
    if current.last.is_none() {
        if !hold::is_nobody_inside() {
            say_what_is_in_the_way();
            return LOOK_AGAIN;
        }
        current.last = Some(Last::mark(driver, &hold::seen()));
    }
    if !current.last.as_mut().is_some_and(|last| last.is_over(driver)) {
        return LOOK_AGAIN;
    }
    session.say(ToDaemon::Drained { generation: current.generation });
    *drain = None;
    Next::AtOnce
}

/// Says so, once, if the program cannot be held back at all.
fn say_what_is_in_the_way() {
    static UNSEEN: OnceNotice = OnceNotice::new();
    static CAPTURED: OnceNotice = OnceNotice::new();
    if demand::is_blind() {
        UNSEEN.notice(format_args!(
            "this program uses the GPU in ways that cannot be held back, and the driver cannot freeze it here; \
             it keeps the GPU for as long as it runs, and its memory stays there"
        ));
    }
    if captures::longest().is_some_and(|time| time > CAPTURE_LONG) {
        CAPTURED.notice(format_args!(
            "a stream is captured for more than {} s; until that ends, or the stream is destroyed, the program \
             cannot be held back and keeps the GPU",
            CAPTURE_LONG.as_secs()
        ));
    }
}

impl Last {
    /// While nobody else is inside of the driver: what is seen is there still.
    fn mark(driver: &Driver, seen: &Seen) -> Self {
        let mut marks = Vec::new();
        let orphaned = hold::take_orphaned();
        for &context in &seen.contexts {
            let context = CUcontext(context as *mut c_void);
            physical::within(driver, context, || {
                let mut event = CUevent::NULL;
                // SAFETY: the driver writes one handle.
                let made = unsafe { (driver.cuEventCreate)(&mut event, CU_EVENT_DISABLE_TIMING) };
                if made == CUresult::SUCCESS {
                    // SAFETY: made above, in the current context, whose default stream this is.
                    let _ = unsafe { (driver.cuEventRecord)(event, CUstream(LEGACY as *mut c_void)) };
                    marks.push((context, event));
                }
                if orphaned {
                    // Streams that are gone have no name. A kernel that does not end keeps the agent from all else here;
                    // that is the price of a driver that cannot freeze.
                    // SAFETY: no conditions.
                    let _ = unsafe { (driver.cuCtxSynchronize)() };
                }
            });
        }
        Self { marks, streams: seen.streams.keys().copied().collect() }
    }

    /// Is all of it over? What the driver answers an error for does not run.
    fn is_over(&mut self, driver: &Driver) -> bool {
        self.streams.retain(|&stream| {
            // SAFETY: streams are forgotten before they are destroyed, or with their context, and nobody gets that far
            // while the program is frozen.
            let looked = unsafe { (driver.cuStreamQuery)(CUstream(stream as *mut c_void)) };
            looked == CUresult::NOT_READY
        });
        self.marks.retain(|&(context, event)| {
            // SAFETY: recorded by `mark`.
            let looked = unsafe { (driver.cuEventQuery)(event) };
            if looked != CUresult::NOT_READY {
                forget(driver, context, event);
            }
            looked == CUresult::NOT_READY
        });
        self.streams.is_empty() && self.marks.is_empty()
    }

    fn forget(self, driver: &Driver) {
        self.marks.into_iter().for_each(|(context, event)| forget(driver, context, event));
    }
}

fn forget(driver: &Driver, context: CUcontext, event: CUevent) {
    physical::within(driver, context, || {
        // SAFETY: made by `mark`, and used nowhere else.
        let _ = unsafe { (driver.cuEventDestroy_v2)(event) };
    });
}
