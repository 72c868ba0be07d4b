//! What is done when the daemon is gone: a tenant that has all its memory goes on, and one that has not waits, frozen as it is,
//! for the next one. And what is done when the program itself goes, or has to.

use channels::Micros;

use crate::demand::vacate;
use crate::groups;
use crate::notice::{OnceNotice, notice};
use crate::session::{self, Session};

/// How a program ends whose memory is lost. The number says that rota ended it, not the program itself.
const MEMORY_LOST_EXIT: i32 = 125;

/// Said once for each daemon that goes, however many sessions end.
static GONE: OnceNotice = OnceNotice::new();

/// Whether this process can go on without a daemon: all of its memory is on the device, and its context.
pub(super) fn can_go_on() -> bool {
    has_its_memory() && !vacate::is_closed()
}

/// Whether all memory of this process is on the device. Its GPUs read each other's, so that of all of them.
pub(super) fn has_its_memory() -> bool {
    session::all().all(|session| session.page.resident())
}

/// Lets a program run that has all its memory. Slices come first and the thaw last: a thawed tenant with a slice that was
/// meant to be short could keep the GPU from everybody.
pub(super) fn release(session: &Session) {
    if let Some(us) = session.page.slice_us() {
        groups::restore_slices(session, Micros(us));
    }
    // Whatever a thread freezes in between, it thaws by itself once it sees the page.
    let frozen = session.page.frozen() || session.page.freezes() > 0;
    session.page.set_frozen(false);
    session.page.wake_held();
    if frozen && !session.page.holds_launches() {
        groups::thaw_all(session);
    }
}

/// There is no daemon: the program goes on without, and threads that wait for one as well. Saying it twice changes nothing.
pub(super) fn go_alone(session: &Session) {
    if !session.has_ended() {
        session.end();
        GONE.notice(format_args!("the daemon is gone; running on without rota until there is one again"));
    }
}

/// The agent itself cannot go on, and with it nobody could bring memory back.
pub(super) fn say(session: &Session) {
    if !can_go_on() {
        lose("the part of rota in this program failed");
    }
    release(session);
    session.stay_alone();
    go_alone(session);
    session.connection.shut_down();
}

/// Ends the program: memory of it is nowhere any more.
pub(super) fn lose(why: &str) -> ! {
    notice(format_args!(
        "{why}; the memory of this program that was not on the GPU is lost, and the program cannot go on"
    ));
    // Threads that wait for memory are left waiting: what they would read next is lost.
    // SAFETY: no conditions. No destructors run: the driver's would wait for a frozen GPU.
    unsafe { libc::_exit(MEMORY_LOST_EXIT) };
}

/// The program exits, and its driver library has let go of its memory: hangs up, so that the daemon waits for nothing.
pub(super) fn leave(session: &Session) {
    session.end();
    session.connection.shut_down();
}
