//! What programs say to rota themselves: requests that come, begin and end, phases in which they give way, their job's terms.
//!
//! Plain C functions that `librota` looks up by name; programs call that library, not these. Each returns a code of
//! [`Said`]; none takes memory or a lock where the daemon reads, none waits (`terms` excepted, which asks the daemon), and
//! none changes what the program computes. There is one class for a whole process, its job's: what one thread says is said of all.
//!
//! - [`requests`]: hints, and requests that begin and end. [`phases`]: giving way. [`terms`]: class and weight.
//! - [`state`]: how things are. [`sight`]: hints that the shim gives itself. [`stretches`]: requests that nobody tells of.

mod phases;
mod requests;
pub(crate) mod sight;
mod state;
pub(crate) mod stretches;
mod terms;

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use wire::Page;

use crate::session::{self, Session};
use crate::settings::{self, Hinting};

/// The version of these functions. One that means something else than it did has a new number.
const VERSION: u32 = 1;

/// What became of what was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Said {
    /// It reached the daemon, or is written where the daemon looks.
    Heard = 0,
    /// There is no daemon for this process, so it means nothing.
    NoDaemon = 1,
    /// The job is not latency-critical, so it means nothing.
    NotCritical = 2,
    /// The daemon's queue is full: it is lost, and counted.
    Dropped = 3,
    /// The daemon does not allow it.
    Refused = 4,
    /// It makes no sense.
    Invalid = 5,
    /// The process has not begun to use the GPU.
    NotYet = 6,
    /// Hints are turned off (`ROTA_HINTS=off`).
    Off = 7,
}

impl From<Said> for c_int {
    fn from(said: Said) -> Self {
        said as c_int
    }
}

/// The version of these functions.
#[unsafe(no_mangle)]
extern "C" fn rota_shim_version() -> u32 {
    VERSION
}

/// The sessions whose daemon is there.
fn present() -> impl Iterator<Item = &'static Session> {
    session::all().filter(|session| !session.has_ended())
}

/// Why nobody hears.
fn unheard() -> Said {
    match session::first() {
        None if settings::socket().is_some() => Said::NotYet,
        _ => Said::NoDaemon,
    }
}

/// There is a new session, or an old one has a new page: what was said before is written there.
pub(crate) fn begin() {
    for session in session::all() {
        session.page.set_unforecast(!settings::hints().forecast());
    }
    requests::publish();
    phases::publish();
    stretches::publish();
}

/// In a forked child: it serves nothing.
pub(crate) fn forget() {
    requests::forget();
    phases::forget();
    sight::forget();
    stretches::forget();
}

/// Writes a count into all pages. Several threads may do so at the same time: the last count stays.
fn publish(count: &AtomicU64, set: impl Fn(&Page, u64)) {
    loop {
        let value = count.load(SeqCst);
        session::all().for_each(|session| set(&session.page, value));
        if count.load(SeqCst) == value {
            return;
        }
    }
}

/// One less, unless there is none.
fn take_one(count: &AtomicU64) -> bool {
    count.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_ok()
}

/// Whether a request is served whose time counts.
pub(crate) fn serves_request() -> bool {
    requests::open() > 0 && present().any(|session| session.page.critical())
}

/// Whether hints mean anything here.
pub(crate) fn hints_are_off() -> bool {
    settings::hints() == Hinting::Off
}
