//! What is done when the daemon is gone, a tenant that has all its memory goes on alone and one that has not cannot;
//! and when the program itself goes.

use channels::Micros;

use crate::groups;
use crate::notice::{OnceNotice, notice};
use crate::session::Session;

/// How a program ends whose memory is lost. The number says that rota ended it, not the program itself.
const MEMORY_LOST_EXIT: i32 = 125;

/// Said once, however many sessions end.
static GONE: OnceNotice = OnceNotice::new();

/// Ends the session. Slices come first and the thaw last: a thawed tenant with a slice that was meant to be short could
/// keep the GPU from everybody.
pub(super) fn say(session: &Session) {
    if !session.page.resident() {
        notice(format_args!(
            "the daemon is gone, and with it the memory of this program that was not on the GPU; \
             the program cannot go on"
        ));
        // Threads that wait for memory are left waiting: what they would read next is lost.
        // SAFETY: no conditions. No destructors run: the driver's would wait for a frozen GPU.
        unsafe { libc::_exit(MEMORY_LOST_EXIT) };
    }
    session.end();
    if let Some(us) = session.page.slice_us() {
        groups::restore_slices(session, Micros(us));
    }
    // Whatever a thread freezes in between, it thaws by itself once it sees the page.
    let frozen = session.page.frozen();
    session.page.set_frozen(false);
    session.page.wake_held();
    if frozen && !session.page.holds_launches() {
        groups::thaw_all(session);
    }
    session.connection.shut_down();
    GONE.notice(format_args!("the daemon is gone; running on without rota until there is one again"));
}

/// The program exits, and its driver library has let go of its memory: hangs up, so that the daemon waits for nothing.
pub(super) fn leave(session: &Session) {
    session.end();
    session.connection.shut_down();
}
