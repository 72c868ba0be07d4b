//! Connections to the device: one a thread, made at its first call, because an answer may take as long as a kernel.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Mutex;

use cuda::CUresult;
use thiserror::Error;
use vgpu_messages::start::{StartError, reach_and_greet};
use vgpu_messages::{Answer, DeviceDescription, Directory, Refusal, Reply, Request, SessionId, VERSION};
use wire::{Connection, WireError};

use crate::guard::lock;
use crate::notice::notice_once;

/// Why the device cannot be reached.
#[derive(Debug, Error)]
pub(crate) enum LineError {
    /// Nobody listens.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Nobody listens, and the device cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The device said no.
    #[error("the device refuses this program: {0:?}")]
    Refused(Refusal),
    /// The device said something else.
    #[error("the device answered a greeting with {0:?}")]
    Strange(Box<Answer>),
}

/// Where the device is, and which session this process has there.
#[derive(Clone, Debug)]
struct Known {
    directory: Directory,
    session: SessionId,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
/// The open connections, for a child of `fork`, which has to close its copies.
static OPEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// A connection of this thread.
struct Line(Connection);

impl Line {
    fn new(connection: Connection) -> Rc<Self> {
        lock(&OPEN).push(connection.as_fd().as_raw_fd());
        Rc::new(Self(connection))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let number = self.0.as_fd().as_raw_fd();
        lock(&OPEN).retain(|open| *open != number);
    }
}

thread_local! {
    static LINE: RefCell<Option<Rc<Line>>> = const { RefCell::new(None) };
}

/// Makes the first connection of this process, and starts the device if nobody listens. The machine's devices.
pub(crate) fn first(directory: &Directory) -> Result<Vec<DeviceDescription>, LineError> {
    let mut known = lock(&KNOWN);
    let session = known.as_ref().map(|known| known.session);
    let is_gone = |error: &_| matches!(error, LineError::Wire(WireError::Closed));
    let greet = |connection: &Connection| greet(connection, session);
    let (connection, (session, devices)) = reach_and_greet(directory, greet, is_gone)?;
    *known = Some(Known { directory: directory.clone(), session });
    keep(Line::new(connection));
    Ok(devices)
}

/// A further connection for the session, not this thread's.
pub(crate) fn further() -> Result<Connection, LineError> {
    let mut known = lock(&KNOWN);
    let directory = known.as_ref().map(|known| known.directory.clone()).or_else(Directory::from_environment);
    let directory = directory.unwrap_or_else(|| Directory::new(""));
    let connection = Connection::connect(&directory.socket())?;
    let (session, _) = greet(&connection, known.as_ref().map(|known| known.session))?;
    known.get_or_insert(Known { directory, session });
    Ok(connection)
}

/// Has a child of `fork` close its copy of a connection that lives as long as the process.
pub(crate) fn remember(connection: &Connection) {
    lock(&OPEN).push(connection.as_fd().as_raw_fd());
}

/// Sends one request on this thread's connection, with files, and waits for its answer.
pub(crate) fn ask_with(
    request: Request,
    files: &[BorrowedFd<'_>],
) -> Result<(Answer, Vec<OwnedFd>), CUresult> {
    let asked = of_this_thread().and_then(|line| {
        line.0.send(&request, files)?;
        Ok(line.0.receive::<Reply>()?)
    });
    match asked {
        Ok((Ok(answer), files)) => Ok((answer, files)),
        Ok((Err(refusal), _)) => {
            if let Some(text) = refusal.notice {
                notice_once(&text);
            }
            Err(refusal.code.into())
        }
        Err(LineError::Wire(WireError::TooLong)) => Err(CUresult::INVALID_VALUE),
        Err(error) => {
            notice_once(&format!("the device is gone: {error}"));
            Err(CUresult::UNKNOWN)
        }
    }
}

/// In a forked child: the parent's connections are not ours.
pub(super) fn forget() {
    // Another thread may have held the lock at the instant of the fork; then its copies stay open, unused.
    if let Ok(open) = OPEN.try_lock() {
        for file in open.iter() {
            // SAFETY: a number of this library, which closes it nowhere else: the line below is forgotten.
            unsafe { libc::close(*file) };
        }
    }
    let _ = LINE.try_with(|line| {
        if let Ok(mut line) = line.try_borrow_mut() {
            let _ = ManuallyDrop::new(line.take());
        }
    });
}

fn keep(line: Rc<Line>) {
    // A thread that is ending keeps nothing: each of its last calls has its own connection.
    let _ = LINE.try_with(|place| *place.borrow_mut() = Some(line));
}

fn of_this_thread() -> Result<Rc<Line>, LineError> {
    if let Ok(Some(line)) = LINE.try_with(|line| line.borrow().clone()) {
        return Ok(line);
    }
    let line = Line::new(further()?);
    keep(line.clone());
    Ok(line)
}

fn greet(
    connection: &Connection,
    session: Option<SessionId>,
) -> Result<(SessionId, Vec<DeviceDescription>), LineError> {
    connection.send(&Request::Hello { version: VERSION, session }, &[])?;
    match connection.receive::<Reply>()?.0 {
        Ok(Answer::Welcome { session, device_pid, devices }) => {
            allow_reading(device_pid);
            Ok((session, devices))
        }
        Ok(other) => Err(LineError::Strange(Box::new(other))),
        Err(refusal) => Err(LineError::Refused(refusal)),
    }
}

/// Lets the device read and write this process's memory, where the system restricts that.
fn allow_reading(device: i32) {
    // SAFETY: changes a setting of this process. Where it is not known, nothing is restricted either.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, device as libc::c_ulong, 0, 0, 0) };
}
