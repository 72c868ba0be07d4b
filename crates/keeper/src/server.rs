//! The socket: one worker at a time, one request after the other.
//!
//! Whoever comes waits at the *door* until its first word is heard; so a second worker is told why it has to go, and one
//! that says nothing keeps nobody up. A worker that does not take its answer is hung up on.
//!
//! A worker is its process, not its connection: one that went without a word keeps the next one out until its process has
//! ended. So whatever it had under way is over when somebody else is here, and nobody has to ask for that.

mod departed;
mod door;
#[cfg(test)]
mod tests;

use crate::keeper::{Keeper, Then};
use crate::message::{Answer, Refusal, Request};
use crate::trust::may_have_everything;
use departed::Departed;
use door::Door;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::{Connection, Listener, WireError};

/// How long a worker may take to take an answer.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// How long to wait when the system has nothing to poll or accept with.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a keeper that is to end looks whether tenants are there whose worker never comes again.
const LOOK_FOR_TENANTS: Duration = Duration::from_secs(1);
/// Wishes to end that are read at a time.
const WISHES_MAX: usize = 16;

/// A keeper at its socket.
#[derive(Debug)]
pub struct Server {
    keeper: Keeper,
    listener: Listener,
    worker: Option<Worker>,
    departed: Option<Departed>,
    door: Door,
    /// Any byte that comes here is a wish that the keeper ends.
    wishes: Option<OwnedFd>,
    /// It ends once nothing is away and no worker is there.
    is_to_end: bool,
    /// When tenants were looked for.
    looked: Instant,
}

#[derive(Debug)]
struct Worker {
    connection: Connection,
    pid: u32,
    /// Readable when its process has ended.
    watch: OwnedFd,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Arena,
    Wishes,
    Worker,
    Guest(usize),
    Listener,
}

impl Server {
    /// Serves this keeper here.
    pub fn new(keeper: Keeper, listener: Listener) -> Server {
        let door = Door::default();
        Server {
            keeper,
            listener,
            worker: None,
            departed: None,
            door,
            wishes: None,
            is_to_end: false,
            looked: Instant::now(),
        }
    }

    /// Has it end by a byte that comes through this file: as soon as nothing is away and no worker is there, and never
    /// before, however many come. Only a worker can have it end with something away.
    pub fn end_by(&mut self, wishes: OwnedFd) {
        self.wishes = Some(wishes);
    }

    /// Serves until it is told to end. Says how many bytes were away then. Until this is dropped, those who connect wait.
    pub fn run(&mut self) -> u64 {
        while !self.is_over() {
            self.forget_the_dead();
            let ready = self.wait();
            // In this order: a worker that is gone must be gone before the next one's first word is heard.
            if ready.contains(&Source::Arena) {
                self.keeper.take_up();
            }
            if ready.contains(&Source::Wishes) {
                self.hear_wishes();
            }
            if ready.contains(&Source::Worker) && self.serve() == Then::End {
                break;
            }
            for &source in ready.iter().rev() {
                // From the last to the first, so that those before it keep their places.
                if let Source::Guest(at) = source {
                    self.hear_guest(at);
                }
            }
            if ready.contains(&Source::Listener) {
                self.let_in();
            }
            self.door.close_to_the_silent(Instant::now());
        }
        self.keeper.away_bytes()
    }

    fn is_over(&self) -> bool {
        self.is_to_end && self.worker.is_none() && self.keeper.away_bytes() == 0
    }

    /// Nobody else tells a keeper without a worker that tenants have ended, and it would wait for them for ever.
    fn forget_the_dead(&mut self) {
        if self.waits_for_tenants() && self.looked.elapsed() >= LOOK_FOR_TENANTS {
            self.keeper.forget_the_dead();
            self.looked = Instant::now();
        }
    }

    fn waits_for_tenants(&self) -> bool {
        self.is_to_end && self.worker.is_none()
    }

    /// Waits until there is something to do, and says what.
    fn wait(&self) -> Vec<Source> {
        let arena = (Source::Arena, self.keeper.bell());
        let wishes = self.wishes.iter().map(|file| (Source::Wishes, file.as_fd()));
        let worker = self.worker.iter().map(|worker| (Source::Worker, worker.connection.as_fd()));
        let guests = self.door.guests().enumerate().map(|(at, guest)| (Source::Guest(at), guest.as_fd()));
        let listener = (Source::Listener, self.listener.as_fd());
        let all = [arena].into_iter().chain(wishes).chain(worker).chain(guests).chain([listener]);
        let (sources, files): (Vec<Source>, Vec<_>) = all.unzip();
        let mut polled: Vec<PollFd<'_>> =
            files.iter().map(|&file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let look = self.waits_for_tenants().then_some(LOOK_FOR_TENANTS);
        let patience = [self.door.patience(Instant::now()), look].into_iter().flatten().min();
        let patience = patience.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut polled, patience.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Vec::new(),
            Err(cause) => {
                tracing::error!(%cause, "cannot wait for requests");
                std::thread::sleep(PAUSE);
                return Vec::new();
            }
        }
        let ready = sources.into_iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
        ready.map(|(source, _)| source).collect()
    }

    /// Answers the worker's next request.
    fn serve(&mut self) -> Then {
        let Some(worker) = &self.worker else { return Then::GoOn };
        let (request, files) = match worker.connection.receive::<Request>() {
            Ok(received) => received,
            Err(why) => {
                self.lose_worker(&why);
                return Then::GoOn;
            }
        };
        let reply = self.keeper.answer_with(request, files);
        let (then, is_farewell) = (reply.then, matches!(reply.answer, Answer::Left { .. }));
        let sent = worker.connection.send(&reply.answer, &reply.files);
        match (then, sent) {
            (Then::GoOn, Ok(())) => {}
            (Then::GoOn, Err(why)) => self.lose_worker(&why),
            (Then::HangUp | Then::End, _) if is_farewell => {
                tracing::info!(pid = worker.pid, "the worker left");
                self.worker = None;
            }
            (Then::HangUp | Then::End, _) => self.orphan_what_is_under_way(),
        }
        then
    }

    fn lose_worker(&mut self, why: &WireError) {
        let Some(worker) = &self.worker else { return };
        tracing::warn!(pid = worker.pid, %why, "the worker is gone");
        if !matches!(why, WireError::Closed) {
            refuse(&worker.connection, Refusal::OutOfOrder);
        }
        self.orphan_what_is_under_way();
    }

    /// There is no worker any more, and it has not said that nothing is under way.
    fn orphan_what_is_under_way(&mut self) {
        self.keeper.lose_worker();
        if let Some(Worker { pid, watch, .. }) = self.worker.take() {
            self.departed = Some(Departed { pid, watch });
        }
    }

    /// Hears the first word of somebody at the door.
    fn hear_guest(&mut self, at: usize) {
        let Some(connection) = self.door.take(at) else { return };
        let request = match receive(&connection) {
            Ok(request @ Request::Hello { .. }) => request,
            // Someone who only looked whether anybody is here.
            Err(WireError::Closed) => return,
            Ok(_) | Err(_) => return refuse(&connection, Refusal::OutOfOrder),
        };
        let Ok(peer) = connection.peer() else { return refuse(&connection, Refusal::Stranger) };
        if !may_have_everything(peer.uid) {
            return refuse(&connection, Refusal::Stranger);
        }
        if let Some(worker) = &self.worker {
            return refuse(&connection, Refusal::Busy { pid: worker.pid });
        }
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        if let Some(departed) = self.departed.as_ref().filter(|departed| departed.keeps_out(pid)) {
            return refuse(&connection, Refusal::Busy { pid: departed.pid });
        }
        let watch = match pidfd_open(peer.pid, PidfdFlags::empty()) {
            Ok(watch) => watch,
            // It has ended already.
            Err(Errno::SRCH) => return,
            Err(cause) => {
                tracing::warn!(pid, %cause, "a worker cannot be watched, and has to come again");
                return refuse(&connection, Refusal::Busy { pid });
            }
        };
        let reply = self.keeper.answer(request);
        if connection.send(&reply.answer, &[]).is_ok() && reply.then == Then::GoOn {
            tracing::info!(pid, "a worker is here");
            self.worker = Some(Worker { connection, pid, watch });
            self.departed = None;
        }
    }

    fn let_in(&mut self) {
        match self.listener.accept() {
            Ok(connection) => {
                // Without a limit a worker that takes no answers would stop everything.
                if set_socket_timeout(&connection, Timeout::Send, Some(TAKEN_WITHIN)).is_ok() {
                    self.door.add(connection, Instant::now());
                }
            }
            Err(cause) => {
                tracing::warn!(%cause, "somebody could not be let in");
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn hear_wishes(&mut self) {
        let mut bytes = [0; WISHES_MAX];
        match self.wishes.as_ref().map(|file| rustix::io::read(file, &mut bytes)) {
            Some(Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN)) => {}
            // Nobody can wish for anything any more.
            Some(Ok(0) | Err(_)) | None => self.wishes = None,
            Some(Ok(_)) => {
                self.is_to_end = true;
                let away_bytes = self.keeper.away_bytes();
                tracing::info!(away_bytes, "told to end, once nothing is away and no worker is there");
            }
        }
    }
}

/// The first request. It brings no files.
fn receive(connection: &Connection) -> Result<Request, WireError> {
    match connection.receive::<Request>()? {
        (request, files) if files.is_empty() => Ok(request),
        _ => Err(WireError::TooManyFiles),
    }
}

fn refuse(connection: &Connection, refusal: Refusal) {
    match refusal {
        // The next worker comes again and again until the last one is gone.
        Refusal::Busy { .. } => tracing::debug!(%refusal, "a connection ends"),
        _ => tracing::warn!(%refusal, "a connection ends"),
    }
    let _ = connection.send(&Answer::Refused(refusal), &[]);
    connection.shut_down();
}
