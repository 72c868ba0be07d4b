//! Asking the daemon: one question, one answer, and a limit on the wait.

pub(crate) mod start;

use crate::quantity::printable;
use anyhow::{Context as _, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::{Answer, Command, Connection, Description, FromDaemon, Listing, ToDaemon, WireError};

/// How long the daemon may take to answer. It answers between two steps of its work, and none of them is long.
const ANSWER_SECONDS_MAX: i64 = 10;

/// The same where it answers when something has come to its end: longer than it waits for that.
const OUTCOME_SECONDS_MAX: i64 = 90;

/// Where a worker dies with a question, how often the next one is asked: should it die of the question, not for ever.
const AGAIN_MAX: u32 = 2;
/// Where a worker or its daemon is just ending, how long to wait before it is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Where the daemon is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its socket.
    pub(crate) socket: PathBuf,
    /// It was named, so it is that one or none.
    pub(crate) chosen: bool,
}

/// What the daemon at `socket` sees now.
pub(crate) fn listing(socket: &Path) -> anyhow::Result<Listing> {
    match ask(socket, &ToDaemon::List { version: wire::VERSION }, ANSWER_SECONDS_MAX)? {
        FromDaemon::Listing(listing) => Ok(listing),
        other => Err(strange(socket, &other)),
    }
}

/// Has the daemon at `socket` do something. What it refuses is an error.
pub(crate) fn command(socket: &Path, command: Command) -> anyhow::Result<Answer> {
    let seconds_max = match command {
        Command::AwaitDeep { .. } => OUTCOME_SECONDS_MAX,
        _ => ANSWER_SECONDS_MAX,
    };
    match ask(socket, &ToDaemon::Command { version: wire::VERSION, command }, seconds_max)? {
        FromDaemon::Answer(answer) => match *answer {
            Answer::Refused { reason, hint } => {
                let hint = hint.map(|hint| format!("\nhint: {}", printable(&hint))).unwrap_or_default();
                Err(anyhow!("{}{hint}", printable(&reason)))
            }
            answer => Ok(answer),
        },
        other => Err(strange(socket, &other)),
    }
}

/// The same where the answer is a description.
pub(crate) fn described(socket: &Path, wanted: Command) -> anyhow::Result<Description> {
    match command(socket, wanted)? {
        Answer::Described(description) => Ok(description),
        other => Err(strange(socket, &other)),
    }
}

/// Asks, and waits for the answer, so many seconds at most. A worker that dies with the question has the next one asked: all
/// questions may be asked twice.
fn ask(socket: &Path, question: &ToDaemon, seconds_max: i64) -> anyhow::Result<FromDaemon> {
    let mut asked = 0;
    loop {
        match ask_once(socket, question, seconds_max) {
            Err(error) if is_closed(&error) && asked < AGAIN_MAX => std::thread::sleep(AGAIN_AFTER),
            answered => return answered,
        }
        asked += 1;
    }
}

fn is_closed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<WireError>(), Some(WireError::Closed))
}

fn ask_once(socket: &Path, question: &ToDaemon, seconds_max: i64) -> anyhow::Result<FromDaemon> {
    let connection = Connection::connect(socket).map_err(|error| unreachable(error, socket))?;
    let asked = || format!("the daemon at {} gave no answer", socket.display());
    let sent = connection.send(question, &[]);

    let mut wait = [PollFd::new(&connection, PollFlags::IN)];
    let limit = Timespec { tv_sec: seconds_max, tv_nsec: 0 };
    let ready =
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut wait, Some(&limit))).with_context(asked)?;
    if ready == 0 {
        bail!(
            "the daemon at {} gave no answer in {seconds_max} s\n\
             hint: see what it is doing in its log, or start it again",
            socket.display()
        );
    }
    // One that takes nobody in says so at once, and hears no question.
    let answer = match (connection.receive(), sent) {
        (Err(_), Err(unsent)) => Err(unsent),
        (received, _) => received,
    };
    match answer.with_context(asked)? {
        (FromDaemon::Refused { reason }, _) => {
            bail!("the daemon at {} refused: {reason}", socket.display())
        }
        (answer, _) => Ok(answer),
    }
}

pub(crate) fn strange(socket: &Path, answer: &dyn std::fmt::Debug) -> anyhow::Error {
    anyhow!(
        "the daemon at {} answered something else than was asked: {answer:?}\n\
         hint: use `rota` and `rotad` of the same version",
        socket.display()
    )
}

/// Nobody listens at the socket.
#[derive(Debug)]
pub(crate) struct NobodyThere;

impl std::fmt::Display for NobodyThere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no daemon answers")
    }
}

fn unreachable(error: WireError, socket: &Path) -> anyhow::Error {
    let hint = match &error {
        WireError::Unreachable { cause: Errno::NOENT | Errno::CONNREFUSED, .. } => {
            let hint = "hint: start one with `rotad &` (without a GPU: `rotad --vgpu DIR &`), or name its socket with --socket or ROTA_SOCKET";
            return anyhow!("{error}\n{hint}").context(NobodyThere);
        }
        WireError::Unreachable { cause: Errno::ACCESS | Errno::PERM, .. } => {
            format!("hint: this daemon is another user's; see `ls -l {}`", socket.display())
        }
        _ => "hint: name the daemon's socket with --socket or ROTA_SOCKET".into(),
    };
    anyhow!("no daemon answers: {error}\n{hint}")
}
