//! One thread per connection: it listens to a tenant and notices its death.
//!
//! Death is seen by a pidfd, not by the socket, because forked children hold that open. What a message must look like
//! is checked here; whatever is out of order ends this connection with a reason and touches nothing else. So does a panic:
//! see `guard`.

mod caller;
mod files;
mod guard;
mod heard;
mod rejoin;
mod trust;

pub(crate) use caller::Credentials;
pub use files::{Files, Held};
pub use guard::is_guarded;
pub use trust::Belonging;

use crate::daemon::commands::{Asked, Peer};
use crate::daemon::rejoining::Claim;
use crate::daemon::{Input, Newcomer};
use crate::executable::{Executable, Seen};
use crate::grip::{Grip, GripError};
use crate::names::owner;
use caller::Caller;
use guard::guarded;
use heard::hear;
use mover::Reply;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags};
use sched::TenantId;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use thiserror::Error;
use wire::{Command, Connection, FromDaemon, ToDaemon, VERSION, WatchedPeer, WireError, be_prompt};

/// The most bytes of a name that a program may give.
const NAME_BYTES_MAX: usize = 128;

/// The most GPUs that a program may see.
const GPUS_MAX: usize = 64;

/// How long somebody may take to say who it is.
const FIRST_WORD_WITHIN: Duration = Duration::from_secs(5);

/// How often to look whether somebody at the door is still there.
const DOOR_LOOK: Duration = Duration::from_millis(100);

/// How long a program that hung up may take to end before it counts as one that goes on without rota.
const LINGER_AFTER: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How long a program that is put out may take to read why.
const REASON_WITHIN: Duration = Duration::from_millis(100);

/// Why a conversation ended.
#[derive(Debug, Error)]
pub enum Ended {
    /// The process is gone.
    #[error("the process ended")]
    Died,
    /// The socket failed or was closed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A report that cannot be true.
    #[error(transparent)]
    Grip(#[from] GripError),
    /// Something out of order.
    #[error("{0}")]
    OutOfOrder(&'static str),
    /// It is too much for now.
    #[error("too many files are on their way to the daemon: it may come again in a moment")]
    Crowded,
    /// What it said has found a mistake in this daemon.
    #[error("what it said cannot be dealt with, because of a mistake in the daemon, whose log says more")]
    Panicked,
    /// The daemon stops.
    #[error("the daemon stops")]
    Stopping,
}

/// Where what is heard goes.
#[derive(Clone, Debug)]
pub struct Ears {
    /// To the main loop.
    pub inputs: Sender<Input>,
    /// What is held of those who tell of their memory.
    pub files: Files,
    /// Does it matter what file a process runs?
    pub looks_at_programs: bool,
}

impl Ears {
    /// The file that somebody runs. Not asked by the main loop: its disk may be slow.
    fn executable(&self, caller: &Caller) -> Result<Seen, Ended> {
        let seen = match self.looks_at_programs {
            true => Executable::of(caller.pid()),
            false => Err("there are no rules for commands".into()),
        };
        caller.is_there().map(|()| seen)
    }
}

/// A tenant that is taken in.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its number.
    pub tenant: TenantId,
    /// The grip on it.
    pub grip: Arc<Grip>,
    /// To a move under way on its GPU.
    pub replies: Sender<Reply>,
}

/// Holds one conversation from its first word to its end, with whoever was watched when it was accepted: until that first
/// word the other side may take its time, and be another by then.
pub fn hold(connection: Connection, peer: Result<WatchedPeer, WireError>, ears: &Ears) {
    let connection = Arc::new(connection);
    let wait = |limit| sockopt::set_socket_timeout(&*connection, sockopt::Timeout::Recv, limit);
    let _ = wait(Some(FIRST_WORD_WITHIN));
    let first = match guarded(|| Ok(connection.receive::<ToDaemon>()?)) {
        Ok((first, files)) if files.is_empty() => first,
        Ok(_) => return refuse(&connection, "the first message brought files"),
        // Someone who only looked whether anybody is here.
        Err(Ended::Wire(WireError::Closed)) => return,
        Err(cause) => return refuse(&connection, &cause.to_string()),
    };
    let _ = wait(None);
    match first {
        ToDaemon::List { version }
        | ToDaemon::Hello { version, .. }
        | ToDaemon::Command { version, .. }
        | ToDaemon::Survey { version, .. }
        | ToDaemon::Rejoin { version, .. }
            if version != VERSION =>
        {
            refuse(
                &connection,
                &format!(
                    "this daemon speaks version {VERSION}, the other side version {version}: install both anew"
                ),
            );
        }
        ToDaemon::List { .. } => {
            let (answer, listing) = mpsc::channel();
            if ears.inputs.send(Input::List(answer)).is_ok()
                && let Ok(listing) = listing.recv()
                && let Err(cause) = connection.send(&FromDaemon::Listing(listing), &[])
            {
                tracing::debug!("a listing was not taken: {cause}");
            }
        }
        ToDaemon::Hello { job, program, gpus, .. } => {
            let long = |name: &String| name.len() > NAME_BYTES_MAX;
            if long(&job) || long(&program) || gpus.iter().any(long) || gpus.len() > GPUS_MAX {
                return refuse(&connection, "a name is too long, or there are too many");
            }
            let held =
                caller(peer).and_then(|caller| hold_tenant(&connection, &caller, ears, job, program, gpus));
            if let Err(ended) = held {
                refuse(&connection, &ended.to_string());
            }
        }
        ToDaemon::Rejoin {
            tenant,
            epoch,
            job,
            program,
            gpu,
            resident,
            frozen,
            channels,
            holds_launches,
            sessions,
            vacated,
            ..
        } => {
            if [&job, &program, &gpu].into_iter().any(|name| name.len() > NAME_BYTES_MAX) {
                return refuse(&connection, "a name is too long");
            }
            if sessions == 0 || sessions as usize > GPUS_MAX {
                return refuse(&connection, "a program is on no GPU, or on too many");
            }
            let claim = Claim {
                tenant,
                epoch,
                job,
                program,
                gpu,
                resident,
                frozen,
                channels,
                holds_launches,
                sessions,
                vacated,
            };
            let held = caller(peer).and_then(|caller| rejoin::hold(&connection, &caller, ears, claim));
            if let Err(ended) = held {
                refuse(&connection, &ended.to_string());
            }
        }
        ToDaemon::Survey { job, gpus, .. } => {
            let long = |name: &String| name.len() > NAME_BYTES_MAX;
            if long(&job) || gpus.iter().any(long) || gpus.len() > GPUS_MAX {
                return refuse(&connection, "a name is too long, or there are too many");
            }
            let Ok(peer) = connection.peer() else { return };
            let (answer, surveyed) = mpsc::channel();
            let asked = Input::Survey { uid: peer.uid.as_raw(), job, gpus, answer };
            if ears.inputs.send(asked).is_ok()
                && let Ok(answer) = surveyed.recv()
                && let Err(cause) = connection.send(&answer, &[])
            {
                tracing::debug!("a survey was not taken: {cause}");
            }
        }
        ToDaemon::Command { command, .. } => {
            match caller(peer).and_then(|caller| serve_command(&connection, &caller, ears, command)) {
                Ok(()) => {}
                // Whoever asks and is still there, learns why.
                Err(ended @ Ended::Wire(WireError::Unseen | WireError::Unwatched { .. })) => {
                    refuse(&connection, &ended.to_string());
                }
                Err(ended) => tracing::debug!("a command came to nothing: {ended}"),
            }
        }
        _ => refuse(&connection, "the first message was neither Hello nor List nor Command"),
    }
}

/// Has a command answered. If that makes the process one that a job lives with, stays with it to its end.
fn serve_command(
    connection: &Connection,
    caller: &Caller,
    ears: &Ears,
    command: Command,
) -> Result<(), Ended> {
    let (pid, uid) = (caller.pid(), caller.uid());
    // One that has ended meanwhile is watched all the same.
    let process = caller.process().unwrap_or(keeper::Process { pid, start_ticks: 0 });
    if let Command::Open(request) = &command
        && let Some(wrong) = wrong_name(&request.name)
    {
        refuse(connection, wrong);
        return Ok(());
    }
    let (answer, done) = mpsc::channel();
    tell(ears, Input::Command(Asked { peer: Peer { process, uid }, command, answer }))?;
    let (answer, job) = done.recv().map_err(|_| Ended::Stopping)?;
    let sent = connection.send(&FromDaemon::Answer(Box::new(answer)), &[]);
    if let Some(job) = job {
        dies(caller.watch(), None);
        tell(ears, Input::RootGone(job, pid))?;
    }
    Ok(sent?)
}

/// Why a job cannot be called so.
fn wrong_name(name: &str) -> Option<&'static str> {
    match () {
        () if name.is_empty() => Some("a job's name is empty"),
        () if name.len() > NAME_BYTES_MAX => Some("a name is too long"),
        () => None,
    }
}

pub(crate) fn refuse(connection: &Connection, reason: &str) {
    tracing::warn!("a connection is refused: {reason}");
    let _ = connection.send(&FromDaemon::Refused { reason: reason.into() }, &[]);
    connection.shut_down();
}

fn caller(peer: Result<WatchedPeer, WireError>) -> Result<Caller, Ended> {
    Caller::of(peer?)
}

fn hold_tenant(
    connection: &Arc<Connection>,
    caller: &Caller,
    ears: &Ears,
    job: String,
    program: String,
    gpus: Vec<String>,
) -> Result<(), Ended> {
    let (answer, welcome) = mpsc::channel();
    let (uid, domain) = (caller.uid(), Belonging::of(caller));
    let executable = ears.executable(caller)?;
    let process = caller.process()?;
    let stream = connection.clone();
    let newcomer =
        Newcomer { process, uid, executable, domain, job, program, gpus, connection: stream, answer };
    ears.inputs.send(Input::Hello(newcomer)).map_err(|_| Ended::Stopping)?;
    let Some(taken) = await_welcome(connection, caller.watch(), ears, &welcome) else {
        // Refused by the main loop, which has told the tenant why; or it went away.
        return Ok(());
    };
    stay_with(connection, caller.watch(), ears, &taken, None);
    Ok(())
}

/// Listens to a tenant that was taken in, to its end. One that has `come_back` and hangs up without a word had no success
/// with its welcome, and comes once more.
fn stay_with(
    connection: &Connection,
    watch: &OwnedFd,
    ears: &Ears,
    taken: &Taken,
    come_back: Option<keeper::Process>,
) {
    let (tenant, grip) = (taken.tenant, &taken.grip);
    let (mut heard, mut prompt) = (false, false);
    let listened = listen(connection, watch, |message, files| {
        heard = true;
        if !prompt && grip.page().critical() {
            prompt = true;
            be_prompt();
        }
        hear(message, files, ears, taken)
    });
    let ended = match listened {
        Ok(never) => match never {},
        Err(ended) => ended,
    };
    let seen = Instant::now();
    if let (Some(process), false, Ended::Wire(_)) = (come_back, heard, &ended)
        && !dies(watch, Some(AT_ONCE))
        && is_let_go(ears, tenant, process)
    {
        connection.shut_down();
        return grip.close();
    }
    match ended {
        Ended::Died | Ended::Wire(WireError::Closed) => tracing::info!("tenant {tenant} left: {ended}"),
        _ => {
            tracing::warn!("tenant {tenant} is put out: {ended}");
            // It may not be listening either, and its end does not wait for that.
            let _ = sockopt::set_socket_timeout(connection, sockopt::Timeout::Send, Some(REASON_WITHIN));
            let _ = connection.send(&FromDaemon::Refused { reason: ended.to_string() }, &[]);
        }
    }
    // A move under way must not wait for it.
    let _ = taken.replies.send(Reply::Gone { owner: owner(tenant) });
    let _ = ears.inputs.send(Input::Left(tenant, seen));
    connection.shut_down();
    // The last close of a dead program's control file is what frees its memory, and may take the driver 100 ms.
    grip.close();
    if !dies(watch, Some(LINGER_AFTER)) {
        let _ = ears.inputs.send(Input::Lingers(tenant));
        dies(watch, None);
    }
    let _ = ears.inputs.send(Input::Closed(tenant));
}

/// Has the daemon expect somebody again. False if it is to be taken for gone.
fn is_let_go(ears: &Ears, tenant: TenantId, process: keeper::Process) -> bool {
    let (answer, let_go) = mpsc::channel();
    tell(ears, Input::LetGo(tenant, process, answer)).is_ok() && let_go.recv().unwrap_or(false)
}

/// Waits at the door together with the tenant, and notices if that goes away.
fn await_welcome(
    connection: &Arc<Connection>,
    watch: &OwnedFd,
    ears: &Ears,
    welcome: &Receiver<Taken>,
) -> Option<Taken> {
    let mut deserted = false;
    loop {
        match welcome.recv_timeout(DOOR_LOOK) {
            Ok(welcomed) => return Some(welcomed),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut both = [
            PollFd::new(&**connection, PollFlags::RDHUP),
            PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN),
        ];
        if !deserted && rustix::event::poll(&mut both, Some(&AT_ONCE)).is_ok_and(|count| count > 0) {
            // Either it is let in all the same, and found gone by the next look, or it is struck off.
            deserted = true;
            ears.inputs.send(Input::Deserted(connection.clone())).ok()?;
        }
    }
}

/// What becomes readable when a process ends; None if it has, or cannot be watched.
pub(crate) fn watch_for_end(process: keeper::Process) -> Option<OwnedFd> {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw)?;
    let watch = watch(pid).ok()?;
    // Only now: another process may have got its number, but not that of one that is watched.
    (keeper::Process::find(process.pid) == Some(process)).then_some(watch)
}

/// Waits for the process to end, at most so long.
fn dies(watch: &OwnedFd, within: Option<Timespec>) -> bool {
    loop {
        let mut one = [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut one, within.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            // A watch that fails tells nothing: it is better to take the process for dead than to wait for ever.
            Err(_) => return true,
            Ok(count) => return count > 0,
        }
    }
}

fn watch(pid: Pid) -> Result<OwnedFd, rustix::io::Errno> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

fn listen(
    connection: &Connection,
    watch: &OwnedFd,
    mut hear: impl FnMut(ToDaemon, Vec<OwnedFd>) -> Result<(), Ended>,
) -> Result<std::convert::Infallible, Ended> {
    loop {
        let mut both =
            [PollFd::new(connection, PollFlags::IN), PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut both, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(cause) => return Err(WireError::System(cause).into()),
        }
        if !both[1].revents().is_empty() {
            return Err(Ended::Died);
        }
        guarded(|| {
            let (message, files) = connection.receive::<ToDaemon>()?;
            hear(message, files)
        })?;
    }
}

fn tell(ears: &Ears, input: Input) -> Result<(), Ended> {
    ears.inputs.send(input).map_err(|_| Ended::Stopping)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpid;

    #[test]
    fn whoever_finds_a_mistake_in_the_daemon_is_put_out_and_nobody_else() {
        let (daemon, client) = Connection::pair().unwrap();
        let watch = watch(getpid()).unwrap();
        client.send(&ToDaemon::Wants { since_ns: 1 }, &[]).unwrap();
        let listened = listen(&daemon, &watch, |message, _| panic!("on purpose, at {message:?}"));
        assert!(matches!(listened, Err(Ended::Panicked)), "{listened:?}");
        assert!(!is_guarded(), "a mistake elsewhere still ends the worker");
    }

    #[test]
    fn another_process_with_the_same_number_is_not_watched() {
        let own = keeper::Process::find(std::process::id()).unwrap();
        assert!(watch_for_end(own).is_some());
        assert!(watch_for_end(keeper::Process { start_ticks: own.start_ticks + 1, ..own }).is_none());
    }
}
