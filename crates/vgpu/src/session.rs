//! This process's session with the device: what `cuInit` makes, and how every other function reaches the device.
//!
//! There is at most one session in the life of a process, and it is never freed. A child of `fork` has none and gets
//! none: as with the real driver, CUDA is not to be had there.
//!
//! - [`line`]: the connections, one a thread.
//! - [`visible`]: which devices the program is to see.

pub(crate) mod line;
mod visible;

use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};

use cuda::CUresult;
use cuda::types::CUdevice;
use vgpu_messages::{Answer, DeviceDescription, Directory, Request};

use crate::callbacks::Callbacks;
use crate::context::table::Contexts;
use crate::graph::Graphs;
use crate::guard::{Outcome, lock};
use crate::memory::managed::Managed;
use crate::module::table::Modules;
use crate::notice::notice_once;
use crate::rm::ResourceManager;

static CURRENT: AtomicPtr<Session> = AtomicPtr::new(ptr::null_mut());
/// Whether this process is a child of one with a session.
static FORKED: AtomicBool = AtomicBool::new(false);

/// What the library keeps for this process.
pub(crate) struct Session {
    /// The devices that the program sees, by its ordinals.
    pub(crate) devices: Vec<DeviceDescription>,
    /// The driver's control file, and what was allocated through it.
    pub(crate) resources: ResourceManager,
    /// Its contexts.
    pub(crate) contexts: Mutex<Contexts>,
    /// Its modules, libraries and their entries.
    pub(crate) modules: Mutex<Modules>,
    /// Its managed memory.
    pub(crate) managed: Mutex<Managed>,
    /// What it was told of graphs.
    pub(crate) graphs: Mutex<Graphs>,
    /// Its host callbacks.
    pub(crate) callbacks: Callbacks,
    /// Numbers for things of this library alone.
    next_number: AtomicU64,
}

impl Session {
    /// The device with this ordinal.
    pub(crate) fn device(&self, device: CUdevice) -> Result<&DeviceDescription, CUresult> {
        let found = usize::try_from(device.0).ok().and_then(|ordinal| self.devices.get(ordinal));
        found.ok_or(CUresult::INVALID_DEVICE)
    }

    /// The ordinal that the program knows a device of the machine by; -1 for one that it does not see.
    pub(crate) fn ordinal(&self, device: vgpu_messages::DeviceId) -> CUdevice {
        let found = self.devices.iter().position(|known| known.device == device);
        CUdevice(found.and_then(|ordinal| i32::try_from(ordinal).ok()).unwrap_or(-1))
    }

    /// A number that no other thing of this process has.
    pub(crate) fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1, SeqCst)
    }
}

/// The session of this process.
pub(crate) fn current() -> Result<&'static Session, CUresult> {
    // SAFETY: what is stored is never freed.
    unsafe { CURRENT.load(SeqCst).as_ref() }.ok_or(CUresult::NOT_INITIALIZED)
}

/// Makes the session, if there is none yet.
pub(crate) fn open() -> Outcome {
    static OPENING: Mutex<()> = Mutex::new(());
    if FORKED.load(SeqCst) {
        return Err(CUresult::NOT_INITIALIZED);
    }
    let _opening = lock(&OPENING);
    if current().is_ok() {
        return Ok(());
    }
    let Some(directory) = Directory::from_environment() else {
        notice_once(&format!(
            "no device: {} is not set; set it to a directory for the virtual machine",
            vgpu_messages::place::VARIABLE
        ));
        return Err(CUresult::NO_DEVICE);
    };
    let devices = line::first(&directory).map_err(|error| {
        notice_once(&format!("no device: {error}"));
        CUresult::NO_DEVICE
    })?;
    let devices = visible::choose(devices, std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
    if devices.is_empty() {
        return Err(CUresult::NO_DEVICE);
    }
    let (_, mut files) = line::ask_with(Request::OpenControl, &[])?;
    let control: OwnedFd = files.pop().ok_or(CUresult::UNKNOWN)?;
    let session = Session {
        devices,
        resources: ResourceManager::new(control),
        contexts: Mutex::default(),
        modules: Mutex::default(),
        managed: Mutex::default(),
        graphs: Mutex::default(),
        callbacks: Callbacks::default(),
        next_number: AtomicU64::new(1),
    };
    // SAFETY: the handler only stores and closes, which is allowed in the child of a process with threads; the library
    // is never unloaded, because threads may be anywhere in it.
    unsafe { libc::pthread_atfork(None, None, Some(forget_parent)) };
    CURRENT.store(Box::into_raw(Box::new(session)), SeqCst);
    Ok(())
}

/// Asks the device, once `cuInit` was called.
pub(crate) fn answer_to(request: Request) -> Result<Answer, CUresult> {
    current()?;
    line::ask_with(request, &[]).map(|(answer, _)| answer)
}

/// Asks for what is only to be done.
pub(crate) fn tell(request: Request) -> Outcome {
    answer_to(request).map(drop)
}

/// The answer was of another kind than the request's documentation says.
pub(crate) fn strange(answer: &Answer) -> CUresult {
    notice_once(&format!("the device answered {answer:?}, which does not fit the question"));
    CUresult::UNKNOWN
}

/// Asks, and takes what the answer of the expected kind holds.
macro_rules! ask {
    ($request:expr, $pattern:pat => $value:expr) => {
        match $crate::session::answer_to($request)? {
            $pattern => $value,
            #[allow(unreachable_patterns)] // Not for every kind.
            other => return Err($crate::session::strange(&other)),
        }
    };
}
pub(crate) use ask;

/// Runs in the child before fork returns.
extern "C" fn forget_parent() {
    FORKED.store(true, SeqCst);
    CURRENT.store(ptr::null_mut(), SeqCst);
    line::forget();
}
