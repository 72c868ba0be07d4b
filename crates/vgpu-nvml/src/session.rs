//! The connection to the device, between `nvmlInit` and `nvmlShutdown`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_messages::figures::Figures;
use vgpu_messages::start::{StartError, reach_and_greet};
use vgpu_messages::{Answer, DeviceDescription, Directory, Refusal, Reply, Request, VERSION};
use wire::{Connection, WireError};

use crate::types::{Device, Outcome, Return};

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error("ROTA_VGPU is not set; set it to a directory for the virtual machine")]
    Nowhere,
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the device refuses this program: {0:?}")]
    Refused(Refusal),
    #[error("the device answered a greeting with {0:?}")]
    Strange(Box<Answer>),
}

struct Session {
    /// The process that made the connection; a child of `fork` makes its own.
    pid: u32,
    connection: Connection,
    devices: Vec<DeviceDescription>,
    /// How often the library was initialised.
    count: u32,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect() -> Result<(Connection, Vec<DeviceDescription>), OpenError> {
    let directory = Directory::from_environment().ok_or(OpenError::Nowhere)?;
    let greet = |connection: &Connection| {
        connection.send(&Request::Hello { version: VERSION, session: None }, &[])?;
        match connection.receive::<Reply>()?.0 {
            Ok(Answer::Welcome { devices, .. }) => Ok(devices),
            Ok(other) => Err(OpenError::Strange(Box::new(other))),
            Err(refusal) => Err(OpenError::Refused(refusal)),
        }
    };
    let is_gone = |error: &_| matches!(error, OpenError::Wire(WireError::Closed));
    reach_and_greet(&directory, greet, is_gone)
}

/// One initialisation more.
pub(crate) fn open() -> Outcome {
    let mut session = lock();
    let pid = std::process::id();
    if let Some(session) = session.as_mut().filter(|session| session.pid == pid) {
        session.count += 1;
        return Ok(());
    }
    let (connection, devices) = connect().map_err(|error| {
        eprintln!("vgpu: no device for NVML: {error}");
        Return::DRIVER_NOT_LOADED
    })?;
    *session = Some(Session { pid, connection, devices, count: 1 });
    Ok(())
}

/// One initialisation less; with the last the connection ends.
pub(crate) fn close() -> Outcome {
    let mut session = lock();
    let open = session.as_mut().ok_or(Return::UNINITIALIZED)?;
    open.count -= 1;
    if open.count == 0 {
        *session = None;
    }
    Ok(())
}

fn with<T>(work: impl FnOnce(&mut Session) -> Result<T, Return>) -> Result<T, Return> {
    let mut session = lock();
    let session = session.as_mut().ok_or(Return::UNINITIALIZED)?;
    if session.pid != std::process::id() {
        return Err(Return::UNINITIALIZED);
    }
    work(session)
}

/// All devices: NVML does not know of `CUDA_VISIBLE_DEVICES`.
pub(crate) fn devices() -> Result<Vec<DeviceDescription>, Return> {
    with(|session| Ok(session.devices.clone()))
}

/// What a device is.
pub(crate) fn device(device: Device) -> Result<DeviceDescription, Return> {
    let index = device.index()?;
    with(|session| session.devices.get(index).cloned().ok_or(Return::INVALID_ARGUMENT))
}

/// What a device is doing.
pub(crate) fn figures(of: Device) -> Result<Figures, Return> {
    let description = device(of)?;
    let figures = with(|session| {
        let asked = session.connection.send(&Request::Figures(description.device), &[]);
        match asked.and_then(|()| session.connection.receive::<Reply>()) {
            Ok((Ok(Answer::Figures(figures)), _)) => Ok(figures),
            _ => Err(Return::UNKNOWN),
        }
    })?;
    if figures.lost { Err(Return::GPU_IS_LOST) } else { Ok(figures) }
}
