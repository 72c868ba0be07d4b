//! The GPUs that the program sees, and on which of them it is a tenant.
//!
//! A program that sees one GPU, or one that is shared, is a tenant there from `cuInit` on: runtimes may use it by ways that
//! are not seen here. One that sees several becomes a tenant of each shared one when it makes its first context there, or, if
//! that was not seen, when it first allocates there. What is not shared is the real driver's.
//!
//! Nothing here holds a lock: a thread that waits at the door must not keep others from their GPUs.

use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering::SeqCst};

use cuda::types::{CUdevice, CUuuid};
use cuda::{CUresult, Driver};

use crate::guard::guarded;
use crate::init::LOOK_AGAIN;
use crate::join::{self, JoinError};
use crate::notice::notice;
use crate::session::{self, Session};
use crate::{forward, settings};

/// A GPU that the program sees.
struct Seen {
    device: CUdevice,
    uuid: CUuuid,
    /// Its size by the daemon's word; None if it is not shared.
    capacity_bytes: Option<u64>,
    /// How far the program is with it.
    stage: AtomicU8,
}

const NOT_ASKED: u8 = 0;
const ASKING: u8 = 1;
const JOINED: u8 = 2;
const NATIVE: u8 = 3;
const TURNED_AWAY: u8 = 4;

/// All of them, once the daemon was asked; null before.
static SEEN: AtomicPtr<Vec<Seen>> = AtomicPtr::new(ptr::null_mut());

fn seen() -> &'static [Seen] {
    // SAFETY: what is stored here is never freed.
    unsafe { SEEN.load(SeqCst).as_ref() }.map_or(&[], Vec::as_slice)
}

/// In a forked child: nobody has asked.
pub(crate) fn forget() {
    SEEN.store(ptr::null_mut(), SeqCst);
}

/// Whether the program sees one GPU only, so that all it does is done there.
pub(crate) fn is_sole() -> bool {
    seen().len() <= 1
}

/// Asks the daemon about the GPUs that this program sees, and joins where there is but one to join.
pub(crate) fn begin(driver: &'static Driver, socket: &Path) -> Result<(), JoinError> {
    let visible = visible(driver);
    let shared = match visible.len() {
        0 | 1 => Vec::new(),
        _ => {
            let seen: Vec<String> = visible.iter().map(|(_, uuid)| uuid.to_string()).collect();
            join::survey(socket, &seen)?
        }
    };
    let seen = visible.iter().map(|&(device, uuid)| {
        let name = uuid.to_string();
        let found = shared.iter().find(|shared| shared.uuid == name);
        let stage = AtomicU8::new(NOT_ASKED);
        Seen { device, uuid, capacity_bytes: found.map(|shared| shared.capacity_bytes), stage }
    });
    let seen: &'static Vec<Seen> = Box::leak(Box::new(seen.collect()));
    SEEN.store(ptr::from_ref(seen).cast_mut(), SeqCst);
    let to_join: Vec<_> = match visible.len() {
        0 | 1 => visible,
        _ => {
            seen.iter().filter(|gpu| gpu.capacity_bytes.is_some()).map(|gpu| (gpu.device, gpu.uuid)).collect()
        }
    };
    if to_join.len() > 1 {
        return Ok(());
    }
    let joined = join::join(driver, socket, &to_join, seen.len() <= 1);
    // Whatever came of it: nobody asks again.
    let stage = if joined.is_ok() { JOINED } else { NATIVE };
    let asked = |gpu: &&Seen| to_join.iter().any(|(device, _)| gpu.device == *device);
    seen.iter().filter(asked).for_each(|gpu| gpu.stage.store(stage, SeqCst));
    joined.map(drop)
}

/// The session of a device, begun now if the GPU is shared and there is none; None if the real driver is to serve it, and
/// the error for a program that may not use it. It may wait at the door, so the calling thread must hold no lock.
pub(crate) fn session(device: CUdevice) -> Result<Option<&'static Session>, CUresult> {
    // In no GPU that was seen: the daemon was not asked, or there is no such device.
    let Some(gpu) = seen().iter().find(|gpu| gpu.device == device) else { return Ok(None) };
    let mut stage = gpu.stage.load(SeqCst);
    while matches!(stage, NOT_ASKED | ASKING) {
        if stage == NOT_ASKED && gpu.stage.compare_exchange(stage, ASKING, SeqCst, SeqCst).is_ok() {
            become_tenant(gpu);
        } else if stage == ASKING {
            // Another thread is at the door.
            std::thread::sleep(LOOK_AGAIN);
        }
        stage = gpu.stage.load(SeqCst);
    }
    match stage {
        JOINED => Ok(of(device)),
        TURNED_AWAY => Err(CUresult::SYSTEM_NOT_READY),
        _ => Ok(None),
    }
}

/// The session of a device that has one.
pub(crate) fn of(device: CUdevice) -> Option<&'static Session> {
    session::all().find(|session| session.shares(device))
}

/// The size of a shared GPU on which there is no session yet.
pub(crate) fn capacity_bytes(device: CUdevice) -> Option<u64> {
    seen().iter().find(|gpu| gpu.device == device)?.capacity_bytes
}

fn become_tenant(gpu: &Seen) {
    // Reached on every way out, also by a panic.
    struct Asked<'a>(&'a AtomicU8, u8);
    impl Drop for Asked<'_> {
        fn drop(&mut self) {
            self.0.store(self.1, SeqCst);
        }
    }
    let mut asked = Asked(&gpu.stage, if settings::required() { TURNED_AWAY } else { NATIVE });
    if gpu.capacity_bytes.is_none() {
        notice(format_args!("{} is not shared here; the program has it without rota", gpu.uuid));
        asked.1 = NATIVE;
        return;
    }
    let (Some(driver), Some(socket)) = (forward::driver(), settings::socket()) else { return };
    let joined = guarded(
        "joining",
        || Err(JoinError::Strange("see above")),
        || join::join(driver, &socket, &[(gpu.device, gpu.uuid)], false),
    );
    match joined {
        Ok(_) => asked.1 = JOINED,
        Err(error) => join::complain(&error),
    }
}

/// The GPUs that this program sees. One that the driver does not tell of is left out.
fn visible(driver: &Driver) -> Vec<(CUdevice, CUuuid)> {
    let mut count = 0;
    // SAFETY: the driver writes one number.
    let _ = unsafe { (driver.cuDeviceGetCount)(&mut count) };
    let one = |index| {
        let (mut device, mut uuid) = (CUdevice(0), CUuuid::default());
        // SAFETY: the driver writes one number and one UUID.
        unsafe {
            (driver.cuDeviceGet)(&mut device, index).ok().ok()?;
            (driver.cuDeviceGetUuid_v2)(&mut uuid, device).ok().ok()?;
        }
        Some((device, uuid))
    };
    (0..count).filter_map(one).collect()
}
