//! `cuInit`: how a process becomes a tenant.
//!
//! The real driver comes first; only where that succeeds, the daemon is asked to take this process in. If there is a
//! daemon to be asked and it does not, one line says so and the program runs natively; or, where `rota run` started it and
//! nobody expects it beside rota, gets an error.

use std::ffi::c_uint;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::Duration;

use cuda::types::{CUdevice, CUuuid};
use cuda::{CUresult, Driver};
use rustix::event::{PollFd, PollFlags, Timespec};
use thiserror::Error;
use wire::{Connection, FromDaemon, PageError, SharedPage, ToDaemon, VERSION, WireError};

use crate::guard::{guarded, silence_panics};
use crate::notice::notice;
use crate::session::{self, Session};
use crate::{agent, demand, fork, forward, settings};

/// How long the daemon may be silent. Once it has said that the program has to wait, that may take any time.
const WELCOME_SECONDS_MAX: i64 = 5;

/// How long another thread's `cuInit` waits between looks at the one that is connecting.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How far this process is. Not a lock, because a child of `fork` must be able to begin anew.
static STAGE: AtomicU8 = AtomicU8::new(NOT_ASKED);
const NOT_ASKED: u8 = 0;
const ASKING: u8 = 1;
const ASKED: u8 = 2;
const TURNED_AWAY: u8 = 3;

/// Initialises the driver, and makes this process a tenant.
#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> CUresult {
    let result = guarded("cuInit", || CUresult::UNKNOWN, || forward::real_init(flags));
    if result != CUresult::SUCCESS {
        return result;
    }
    guarded("cuInit", || (), join_once);
    match STAGE.load(SeqCst) {
        TURNED_AWAY => CUresult::SYSTEM_NOT_READY,
        _ => result,
    }
}

/// Whether this process has come here to begin: whoever uses the GPU and has not, found another way to the driver.
pub(crate) fn has_begun() -> bool {
    STAGE.load(SeqCst) != NOT_ASKED
}

/// In a forked child: nobody has asked yet.
pub(crate) fn forget() {
    STAGE.store(NOT_ASKED, SeqCst);
}

fn join_once() {
    let Some(socket) = settings::socket() else { return };
    if let Err(stage) = STAGE.compare_exchange(NOT_ASKED, ASKING, SeqCst, SeqCst) {
        // A thread that went ahead would allocate memory that rota cannot move. The wait is bounded by the asking.
        let mut stage = stage;
        while stage == ASKING {
            std::thread::sleep(LOOK_AGAIN);
            stage = STAGE.load(SeqCst);
        }
        return;
    }
    // Reached on every way out, also by a panic.
    struct Asked(u8);
    impl Drop for Asked {
        fn drop(&mut self) {
            STAGE.store(self.0, SeqCst);
        }
    }
    let mut asked = Asked(if settings::required() { TURNED_AWAY } else { ASKED });
    silence_panics();
    fork::watch();
    // A driver that lacks functions has been complained about where it was loaded.
    let Some(driver) = forward::driver() else { return };
    match join(driver, &socket) {
        Ok(()) => asked.0 = ASKED,
        Err(error) if settings::required() => notice(format_args!(
            "{error}; CUDA is not available to this program, as it was started by `rota run` (ROTA_REQUIRED)"
        )),
        Err(error) => notice(format_args!("{error}; running without rota")),
    }
}

/// Why this process is not a tenant.
#[derive(Debug, Error)]
enum JoinError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the daemon at {0} did not answer within {WELCOME_SECONDS_MAX} s")]
    Silent(String),
    #[error("the daemon refuses this program: {0}")]
    Refused(String),
    #[error("the daemon's answer makes no sense: {0}")]
    Strange(&'static str),
    #[error("the daemon's page cannot be used: {0}")]
    Page(#[from] PageError),
    #[error("no means to wake the agent: {0}")]
    Bell(rustix::io::Errno),
    #[error("the agent thread cannot be started: {0}")]
    Agent(#[from] std::io::Error),
}

fn join(driver: &'static Driver, socket: &Path) -> Result<(), JoinError> {
    let connection = Connection::connect(socket)?;
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let hello = ToDaemon::Hello {
        version: VERSION,
        job: settings::job(),
        program: program.trim_end().to_owned(),
        gpus: gpus(driver),
    };
    if let Err(unsent) = connection.send(&hello, &[]) {
        // One that takes nobody in says so at once, and hears no hello.
        return Err(match connection.receive() {
            Ok((FromDaemon::Refused { reason }, _)) => JoinError::Refused(reason),
            _ => unsent.into(),
        });
    }
    if !answers(&connection)? {
        return Err(JoinError::Silent(socket.display().to_string()));
    }
    let (mut answer, mut files) = connection.receive::<FromDaemon>()?;
    if let FromDaemon::Waiting { reason } = &answer {
        notice(format_args!("waiting for the GPU: {reason}"));
        (answer, files) = connection.receive::<FromDaemon>()?;
    }
    let (gpu, capacity_bytes) = match answer {
        FromDaemon::Welcome { gpu, capacity_bytes, .. } => (gpu, capacity_bytes),
        FromDaemon::Refused { reason } => return Err(JoinError::Refused(reason)),
        _ => return Err(JoinError::Strange("neither a welcome nor a refusal")),
    };
    let (Some(file), true) = (files.pop(), files.is_empty()) else {
        return Err(JoinError::Strange("a welcome without its one file"));
    };
    let page = SharedPage::open(file)?;
    let session = Session::new(driver, connection, page, gpu, capacity_bytes).map_err(JoinError::Bell)?;
    let session = session::publish(session);
    demand::mind_the_end();
    agent::start(session).inspect_err(|_| {
        // Without an agent nobody would ever answer.
        session.end();
        session.connection.shut_down();
    })?;
    Ok(())
}

/// UUIDs of the GPUs that this program sees. One that the driver does not tell of is left out.
fn gpus(driver: &Driver) -> Vec<String> {
    let mut count = 0;
    // SAFETY: the driver writes one number.
    let _ = unsafe { (driver.cuDeviceGetCount)(&mut count) };
    let uuid = |index| {
        let (mut device, mut uuid) = (CUdevice(0), CUuuid::default());
        // SAFETY: the driver writes one number and one UUID.
        unsafe {
            (driver.cuDeviceGet)(&mut device, index).ok().ok()?;
            (driver.cuDeviceGetUuid_v2)(&mut uuid, device).ok().ok()?;
        }
        Some(uuid.to_string())
    };
    (0..count).filter_map(uuid).collect()
}

/// Waits for the first answer.
fn answers(connection: &Connection) -> Result<bool, WireError> {
    let mut polled = [PollFd::new(connection, PollFlags::IN)];
    let timeout = Timespec { tv_sec: WELCOME_SECONDS_MAX, tv_nsec: 0 };
    loop {
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result? > 0),
        }
    }
}
