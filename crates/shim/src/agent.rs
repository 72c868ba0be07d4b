//! The agent: the thread of rota in a tenant that talks to the daemon, and does what the daemon orders.
//!
//! It never waits for a thread of the program, which may be stuck in the driver for as long as the tenant is frozen: it
//! takes the shim's own locks only, and nobody holds those while waiting for anything. It sends only when the socket takes
//! the message at once, so a daemon that is busy sending to it cannot make both wait for ever.
//!
//! - [`homes`]: memory that changes places between the device and the host.
//! - [`orders`]: what the daemon orders: unmap, create, take. [`drain`]: and to wait for what is on the GPU.
//! - [`vacating`]: and to keep the program out of the driver.
//! - [`warm_up`]: kernels that load the program's context before a request needs it.
//! - [`farewell`]: what is done when the daemon is gone. [`rejoin`]: and when there is another one.

mod drain;
mod farewell;
mod homes;
mod orders;
mod rejoin;
mod vacating;
pub(crate) mod warm_up;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;

use cuda::CUresult;
use cuda::types::CUstreamCaptureMode;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use wire::{FromDaemon, SizedHandle, ToDaemon, WireError};

use crate::demand::{self, vacate};
use crate::grants::Answer;
use crate::groups::{self, Again, Reported, Telling};
use crate::guard::guarded;
use crate::ipc;
use crate::memory::{cache, physical};
use crate::notice::OnceNotice;
use crate::outbox::{Letter, Outbox};
use crate::session::Session;
use drain::Drain;
use vacating::Vacating;

/// How long after it failed something is tried again that was refused for the moment.
const SOON: Next = Next::Within(100_000_000);
const SECOND_NS: u64 = 1_000_000_000;

/// Starts the agent of a session.
pub(crate) fn start(session: &'static Session) -> Result<(), std::io::Error> {
    let work = move || guarded("the agent", || farewell::say(session), || run(session));
    start_thread("rota-agent", work)
}

/// Starts a thread of rota's own.
pub(crate) fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), std::io::Error> {
    // A thread inherits the mask of its maker: with all signals blocked, the program's handlers never run in it.
    let before = exchange_signal_mask(None);
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    exchange_signal_mask(Some(before));
    started.map(drop)
}

/// Sets this thread's signal mask, by default to all signals; returns the one before.
fn exchange_signal_mask(mask: Option<libc::sigset_t>) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills a set, and pthread_sigmask reads one and fills the other; neither fails with these values.
    unsafe {
        let mask = mask.unwrap_or_else(|| {
            let mut all = MaybeUninit::uninit();
            libc::sigfillset(all.as_mut_ptr());
            all.assume_init()
        });
        libc::pthread_sigmask(libc::SIG_SETMASK, &mask, before.as_mut_ptr());
        before.assume_init()
    }
}

fn run(session: &'static Session) {
    // The program may be capturing while the agent maps memory; none of what the agent does belongs to a capture.
    let mut mode = CUstreamCaptureMode::RELAXED;
    // SAFETY: the driver reads and writes one number.
    let _ = unsafe { (session.driver.cuThreadExchangeStreamCaptureMode)(&mut mode) };
    // Whoever is to end the waiting does not wait.
    demand::hold::exempt_this_thread();
    loop {
        match serve(session) {
            Ok(Ended::Program) => return farewell::leave(session),
            Ok(Ended::Lost(reason)) => farewell::lose(&reason),
            // Whatever the error, there is no daemon to talk to any more.
            Err(_) => {}
        }
        if !rejoin::join_next(session) {
            return;
        }
    }
}

/// Why the agent has nothing left to do.
enum Ended {
    /// The program exits: its driver library has shut down already.
    Program,
    /// Its memory is lost, for this reason.
    Lost(String),
}

fn serve(session: &'static Session) -> Result<Ended, WireError> {
    let mut reported = Reported::default();
    let mut drain = None;
    // An order to keep out of the driver that is not answered yet.
    let mut vacating = None;
    let mut held_up = false;
    loop {
        // What cannot be sent is not made either.
        let next = match held_up {
            true => SOON,
            false => {
                let groups = report_groups(session, &mut reported);
                let next = groups
                    .min(drain::go_on(session, &mut drain))
                    .min(vacating::go_on(session, &mut vacating));
                next.min(if vacate::is_closed() { Next::WhenWoken } else { tend(session) })
            }
        };
        let ready = wait(session, next, !held_up && !session.outbox.is_empty())?;
        held_up = false;
        if ready.contains(PollFlags::OUT) {
            held_up = !send_next(&session.outbox, |letter| {
                let files: Vec<_> = letter.files.iter().map(|file| file.as_fd()).collect();
                session.connection.send(&letter.message, &files)
            })?;
        }
        if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            let (message, files, has_all) = session.connection.receive_what_fits::<FromDaemon>()?;
            // Only memory that cannot be taken for want of files is asked for in another way.
            if !has_all && !matches!(message, FromDaemon::Take { .. }) {
                return Err(WireError::TooManyFiles);
            }
            if let FromDaemon::Drain { generation } = message {
                drain = Some(Drain::of(generation));
            } else if let FromDaemon::Vacate { number } = message {
                vacate::close();
                vacating = Some(Vacating::of(number));
            } else if message == FromDaemon::Reenter {
                vacating = None;
                vacate::open();
            } else if message == FromDaemon::WarmUp {
                warm_up::ring(session);
            } else if let Err(ended) = obey(session, message, files) {
                return Ok(ended);
            }
        }
    }
}

/// Does what is to be done without an order. Never while the driver is to be vacant: it may not answer.
fn tend(session: &Session) -> Next {
    let trimmed = cache::trim(session).map_or(Next::WhenWoken, Next::Within);
    // One file on its way at a time: they are open in the program.
    match session.outbox.is_empty() {
        true => trimmed.min(export_next(session)).min(homes::go_on(session)),
        false => trimmed,
    }
}

/// Sends the next message. False if it has to be tried again later: then it is the next one still.
fn send_next(
    outbox: &Outbox,
    send: impl FnOnce(&Letter) -> Result<(), WireError>,
) -> Result<bool, WireError> {
    let Some(letter) = outbox.take() else { return Ok(true) };
    match send(&letter) {
        Ok(()) => Ok(true),
        // The system is short of memory, or of files in flight until the daemon has taken some: it is there all the same.
        Err(WireError::System(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM | Errno::AGAIN)) => {
            outbox.put_back(letter);
            Ok(false)
        }
        Err(other) => Err(other),
    }
}

/// Waits until there is something to do, and returns what the socket is ready for.
fn wait(session: &Session, next: Next, sending: bool) -> Result<PollFlags, WireError> {
    let mut wanted = PollFlags::IN;
    if sending {
        wanted |= PollFlags::OUT;
    }
    let mut polled = [PollFd::new(&session.connection, wanted), PollFd::new(session.bell(), PollFlags::IN)];
    let timeout_ns = match next {
        Next::AtOnce => Some(0),
        Next::Within(nanoseconds) => Some(nanoseconds),
        Next::WhenWoken => None,
    };
    let timeout = timeout_ns.map(|nanoseconds| Timespec {
        tv_sec: (nanoseconds / SECOND_NS) as i64,
        tv_nsec: (nanoseconds % SECOND_NS) as i64,
    });
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let [socket, bell] = polled.map(|polled| polled.revents());
    if bell.contains(PollFlags::IN) {
        // Before the work is looked at, so that what comes later rings again.
        let _ = rustix::io::read(session.bell(), &mut [0; 8]);
    }
    Ok(socket)
}

/// Reports the channel groups if they have changed.
fn report_groups(session: &Session, reported: &mut Reported) -> Next {
    let later = match groups::tell_late_slices(session) {
        Telling::After(nanoseconds) => Next::Within(nanoseconds),
        Telling::Now | Telling::Nothing => Next::WhenWoken,
    };
    while session.groups_changed.swap(false, SeqCst) {
        groups::seen(demand::mind_groups);
        let (report, again) = reported.next(session);
        if let Some((message, files)) = report {
            session.outbox.put(message, files);
        }
        if again != Again::No {
            session.groups_changed.store(true, SeqCst);
        }
        if again == Again::Soon {
            return SOON.min(later);
        }
    }
    later
}

/// When there is something to do without anybody saying so; the soonest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    AtOnce,
    /// After so many nanoseconds at the latest.
    Within(u64),
    WhenWoken,
}

/// Gives the daemon the file of one new part. Only one: between two, orders are served.
fn export_next(session: &Session) -> Next {
    static FAILED: OnceNotice = OnceNotice::new();
    session.show_unpinned();
    let Some(part) = session.table().next_unexported() else { return publish_next(session) };
    let Some(physical) = part.physical else { return Next::AtOnce };
    // It takes a millisecond, and the program may be busy with its memory: so without the table. Should it free this part
    // meanwhile, the file is of no use, whatever it is a file of by then.
    let exported = physical::file_of(session.driver, &part, physical);
    // Held until the message is in the outbox: a free that comes later is told later.
    let mut table = session.table();
    let Some(grant) = table.grant(part.handle) else { return Next::AtOnce };
    match exported {
        Ok(file) if part.is_on_host() => {
            let handle = SizedHandle { handle: part.handle, bytes: part.bytes };
            session.outbox.put(ToDaemon::HostShown { handle }, vec![file]);
            Next::AtOnce
        }
        // Then it keeps its home.
        Err(_) if part.is_on_host() => Next::AtOnce,
        Ok(file) => {
            table.set_exported(part.handle);
            let handle = SizedHandle { handle: part.handle, bytes: part.bytes };
            let passable = table.part(part.handle).is_some_and(|(_, now)| now.passable);
            let message = match table.take_unshown(part.handle) {
                true => ToDaemon::Shown { handle: part.handle, passable },
                false => ToDaemon::Allocated { grant, handle, passable },
            };
            session.outbox.put(message, vec![file]);
            Next::AtOnce
        }
        Err(refused) => {
            // Often the program has too many files open for the moment. Until it works the memory stays where it is. One that
            // ends needs no word of it.
            if refused.code != CUresult::DEINITIALIZED {
                FAILED.notice(format_args!("{} failed, trying again: {}", refused.call, refused.code));
            }
            table.export_later(part.handle);
            SOON
        }
    }
}

/// Publishes one range anew for a daemon that does not know its name.
fn publish_next(session: &Session) -> Next {
    match ipc::publish_again(session) {
        None => Next::WhenWoken,
        Some(true) => Next::AtOnce,
        Some(false) => SOON,
    }
}

/// Does what a message says. One that makes no sense here is passed over.
fn obey(session: &Session, message: FromDaemon, files: Vec<OwnedFd>) -> Result<(), Ended> {
    match message {
        FromDaemon::Granted { grant } => {
            let is_known = session.table().answered_again(grant, true);
            if !is_known && !session.settle(grant, Answer::Granted) {
                // Whoever asked did not wait for it.
                session.say(ToDaemon::Returned { grant });
            }
        }
        FromDaemon::GrantedHost { grant, host_bytes } => {
            // What is on the device already, and was asked for anew, cannot be elsewhere: the daemon gets no file of it.
            let is_known = session.table().answered_again(grant, false);
            if is_known || !session.settle(grant, Answer::GrantedHost(host_bytes)) {
                session.say(ToDaemon::Returned { grant });
            }
        }
        FromDaemon::Denied { grant, reason } => {
            if !session.table().answered_again(grant, false) {
                session.settle(grant, Answer::Denied(reason));
            }
        }
        FromDaemon::Pinned { request }
        | FromDaemon::Published { request }
        | FromDaemon::Changed { request } => {
            session.settle(request, Answer::Granted);
        }
        FromDaemon::Opened { request, sizes, complete } => {
            session.take_opened(request, sizes.into_iter().zip(files), complete);
        }
        FromDaemon::Unmap { handles } => return orders::unmap(session, &handles),
        FromDaemon::Create { handles } => return orders::create(session, &handles),
        FromDaemon::Take { handles } => return orders::take(session, &handles, files),
        FromDaemon::Prepare { questions, home } => return homes::prepare(session, &questions, home),
        FromDaemon::Exchange { questions } => return homes::exchange(session, &questions),
        FromDaemon::Discard { questions } => homes::discard(session, &questions),
        FromDaemon::Lost { reason } => return Err(Ended::Lost(reason)),
        FromDaemon::Welcome { .. }
        | FromDaemon::Waiting { .. }
        | FromDaemon::Refused { .. }
        | FromDaemon::Listing(_)
        | FromDaemon::Drain { .. }
        | FromDaemon::WarmUp
        | FromDaemon::Vacate { .. }
        | FromDaemon::Reenter
        | FromDaemon::Answer(_)
        | FromDaemon::GaveUp { .. }
        | FromDaemon::Shared { .. } => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::GrantId;

    #[test]
    fn a_message_that_the_system_has_no_room_for_stays_the_next_one() {
        let outbox = Outbox::default();
        let messages = [1, 2].map(|grant| ToDaemon::Returned { grant: GrantId(grant) });
        messages.iter().for_each(|message| outbox.put(message.clone(), Vec::new()));
        for errno in [Errno::TOOMANYREFS, Errno::NOBUFS, Errno::NOMEM, Errno::AGAIN] {
            let sent = send_next(&outbox, |_| Err(errno.into()));
            assert!(matches!(sent, Ok(false)), "{errno}: {sent:?}");
        }
        let mut order = Vec::new();
        while !outbox.is_empty() {
            let sent = send_next(&outbox, |letter| {
                order.push(letter.message.clone());
                Ok(())
            });
            assert!(matches!(sent, Ok(true)));
        }
        assert_eq!(order, messages);
    }

    #[test]
    fn a_daemon_that_is_gone_is_an_error() {
        for error in [WireError::Closed, Errno::BADF.into()] {
            let outbox = Outbox::default();
            outbox.put(ToDaemon::Returned { grant: GrantId(1) }, Vec::new());
            assert!(send_next(&outbox, |_| Err(error)).is_err());
        }
    }
}
