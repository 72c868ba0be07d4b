//! How a process becomes a tenant on one GPU: it says hello, waits at the door, and gets a session.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use cuda::Driver;
use cuda::types::{CUdevice, CUuuid};
use rustix::event::{PollFd, PollFlags, Timespec};
use thiserror::Error;
use wire::{
    Connection, FromDaemon, PageError, SharedGpu, SharedPage, TenantId, ToDaemon, VERSION, WireError,
};

use crate::notice::notice;
use crate::session::{self, SESSIONS_MAX, Session};
use crate::{agent, demand, settings};

/// How long the daemon may be silent. Once it has said that the program has to wait, that may take any time.
pub(crate) const WELCOME_SECONDS_MAX: i64 = 5;

/// So many daemons may go while a program says hello to them.
const DAEMONS_MAX: usize = 8;

/// How a program ends that gave up waiting. The number says that rota ended it, not the program itself.
const GAVE_UP_EXIT: i32 = 125;

/// Why this process is not a tenant.
#[derive(Debug, Error)]
pub(crate) enum JoinError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the daemon at {0} did not answer within {1} s")]
    Silent(String, i64),
    #[error("the daemon refuses this program: {0}")]
    Refused(String),
    #[error("its memory is lost: {0}")]
    Lost(String),
    #[error("this program is about to end")]
    Exiting,
    #[error("it waited for as long as its job is willing to: {0}")]
    GaveUp(String),
    #[error("the daemon's answer makes no sense: {0}")]
    Strange(&'static str),
    #[error("the daemon's page cannot be used: {0}")]
    Page(#[from] PageError),
    #[error("no means to wake the agent: {0}")]
    Bell(rustix::io::Errno),
    #[error("the agent thread cannot be started: {0}")]
    Agent(#[from] std::io::Error),
    #[error("this program uses more than {SESSIONS_MAX} GPUs")]
    TooMany,
}

/// Says that a program is not taken in, and what follows.
pub(crate) fn complain(error: &JoinError) {
    match settings::required() {
        true => notice(format_args!(
            "{error}; CUDA is not available to this program, as it was started by `rota run` (ROTA_REQUIRED)"
        )),
        false => notice(format_args!("{error}; running without rota")),
    }
}

/// Which of these GPUs the daemon shares. It refuses a program that sees none of those.
pub(crate) fn survey(socket: &Path, gpus: &[String]) -> Result<Vec<SharedGpu>, JoinError> {
    whoever_is_there(|| survey_once(socket, gpus.to_vec()))
}

/// Asks again where the daemon went before it had answered: the next one is about to come. Where there is none, nobody listens
/// any more, and that is said.
fn whoever_is_there<T>(ask: impl Fn() -> Result<T, JoinError>) -> Result<T, JoinError> {
    for _ in 1..DAEMONS_MAX {
        match ask() {
            Err(JoinError::Wire(WireError::Closed)) => {}
            other => return other,
        }
    }
    ask()
}

fn survey_once(socket: &Path, gpus: Vec<String>) -> Result<Vec<SharedGpu>, JoinError> {
    let connection = Connection::connect(socket)?;
    ask(&connection, &ToDaemon::Survey { version: VERSION, job: settings::job(), gpus })?;
    match first_answer(&connection, socket)?.0 {
        FromDaemon::Shared { gpus } => Ok(gpus),
        FromDaemon::Refused { reason } => Err(JoinError::Refused(reason)),
        _ => Err(JoinError::Strange("not what was asked for")),
    }
}

/// What a daemon that takes this process in has given it.
pub(crate) struct Welcome {
    pub(crate) connection: Connection,
    pub(crate) page: SharedPage,
    pub(crate) tenant: TenantId,
    pub(crate) gpu: String,
    pub(crate) capacity_bytes: u64,
}

/// Becomes a tenant on the first of these GPUs that is shared. May wait at the door: the calling thread must hold no lock.
pub(crate) fn join(
    driver: &'static Driver,
    socket: &Path,
    gpus: &[(CUdevice, CUuuid)],
    alone: bool,
) -> Result<&'static Session, JoinError> {
    let seen: Vec<String> = gpus.iter().map(|(_, uuid)| uuid.to_string()).collect();
    let waits = |reason: &str| notice(format_args!("waiting for the GPU: {reason}"));
    let welcome = match whoever_is_there(|| be_welcomed(socket, seen.clone(), alone, waits)) {
        Err(JoinError::GaveUp(reason)) => {
            notice(format_args!("giving up: {reason}"));
            // Whoever started it said so: `rota run --timeout`.
            // SAFETY: no conditions. Nothing of CUDA is in use on that GPU, and the program's own ends are not to run.
            unsafe { libc::_exit(GAVE_UP_EXIT) };
        }
        other => other?,
    };
    let found = gpus.iter().find(|(_, uuid)| uuid.to_string() == welcome.gpu);
    let gpu = *found.ok_or(JoinError::Strange("a welcome to a GPU that this program does not see"))?;
    let session = Session::new(driver, welcome, gpu).map_err(JoinError::Bell)?;
    let session = session::publish(session).ok_or(JoinError::TooMany)?;
    static MINDED: AtomicBool = AtomicBool::new(false);
    if !MINDED.swap(true, SeqCst) {
        demand::mind_the_end();
    }
    agent::start(session).inspect_err(|_| {
        // Without an agent nobody would ever answer.
        session.end();
        session.stay_alone();
        session.connection.shut_down();
    })?;
    Ok(session)
}

/// Says hello, and waits at the door for as long as it takes.
fn be_welcomed(
    socket: &Path,
    gpus: Vec<String>,
    alone: bool,
    waits: impl FnOnce(&str),
) -> Result<Welcome, JoinError> {
    let connection = Connection::connect(socket)?;
    let (program, job) = names(alone);
    ask(&connection, &ToDaemon::Hello { version: VERSION, job, program, gpus })?;
    let (mut answer, mut files) = first_answer(&connection, socket)?;
    if let FromDaemon::Waiting { reason } = &answer {
        waits(reason);
        (answer, files) = connection.receive::<FromDaemon>()?;
    }
    welcomed(connection, answer, files)
}

/// What this process is called: the program and its job.
pub(crate) fn names(alone: bool) -> (String, String) {
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let program = program.trim_end().to_owned();
    let mut job = settings::job();
    if job == settings::NO_JOB && !alone {
        // A process on several GPUs only gets on as a whole, which programs of the same job would have to share.
        job = format!("{program}-{}", std::process::id());
    }
    (program, job)
}

/// Makes of an answer what it means.
pub(crate) fn welcomed(
    connection: Connection,
    answer: FromDaemon,
    mut files: Vec<OwnedFd>,
) -> Result<Welcome, JoinError> {
    let (tenant, gpu, capacity_bytes) = match answer {
        FromDaemon::Welcome { tenant, gpu, capacity_bytes } => (tenant, gpu, capacity_bytes),
        FromDaemon::Lost { reason } => return Err(JoinError::Lost(reason)),
        FromDaemon::Refused { reason } => return Err(JoinError::Refused(reason)),
        FromDaemon::GaveUp { reason } => return Err(JoinError::GaveUp(reason)),
        _ => return Err(JoinError::Strange("neither a welcome nor a refusal")),
    };
    let (Some(file), true) = (files.pop(), files.is_empty()) else {
        return Err(JoinError::Strange("a welcome without its one file"));
    };
    let page = SharedPage::open(file)?;
    Ok(Welcome { connection, page, tenant, gpu, capacity_bytes })
}

/// Says the first word.
pub(crate) fn ask(connection: &Connection, word: &ToDaemon) -> Result<(), JoinError> {
    connection.send(word, &[]).map_err(|unsent| match connection.receive() {
        // One that takes nobody in says so at once, and hears no word.
        Ok((FromDaemon::Refused { reason }, _)) => JoinError::Refused(reason),
        _ => unsent.into(),
    })
}

/// The first answer, with its files.
fn first_answer(connection: &Connection, socket: &Path) -> Result<(FromDaemon, Vec<OwnedFd>), JoinError> {
    answer_within(connection, socket, WELCOME_SECONDS_MAX)
}

/// An answer that has to come in time, with its files.
pub(crate) fn answer_within(
    connection: &Connection,
    socket: &Path,
    seconds: i64,
) -> Result<(FromDaemon, Vec<OwnedFd>), JoinError> {
    if !answers(connection, seconds)? {
        return Err(JoinError::Silent(socket.display().to_string(), seconds));
    }
    Ok(connection.receive::<FromDaemon>()?)
}

/// Waits for an answer.
fn answers(connection: &Connection, seconds: i64) -> Result<bool, WireError> {
    let mut polled = [PollFd::new(connection, PollFlags::IN)];
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    loop {
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result? > 0),
        }
    }
}
