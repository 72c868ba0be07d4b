//! How much memory the program is told there is: the shared GPU as if it were its own.

use std::time::Duration;

use cuda::CUresult;
use cuda::types::CUdevice;
use wire::{Command, Connection, FromDaemon, ToDaemon};

use super::native;
use crate::gpus;
use crate::guard::guarded;
use crate::session::{self, Session};
use crate::settings;

/// How long the daemon may take to say what other processes of the job have.
const OTHERS_WITHIN: Duration = Duration::from_millis(200);

/// Free and total memory of the current device.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult {
    let (mut real_free, mut real_total) = (0, 0);
    // SAFETY: two places of our own.
    let result = unsafe { native::cuMemGetInfo_v2(&mut real_free, &mut real_total) };
    if result != CUresult::SUCCESS {
        return result;
    }
    let own = guarded(
        "cuMemGetInfo",
        || None,
        || {
            let session = session::here().ok()?.filter(|session| !session.has_ended())?;
            let mut device = CUdevice(0);
            // SAFETY: the driver writes one number.
            unsafe { (session.driver.cuCtxGetDevice)(&mut device) }.ok().ok()?;
            let total = tenant_total(session, device, real_total as u64)?;
            ask_for_others(session);
            Some((tenant_free(total, used(session)), total))
        },
    );
    let (own_free, own_total) =
        own.map_or((real_free, real_total), |(free, total)| (free as usize, total as usize));
    // SAFETY: null or a place for the answer, by the caller's word.
    unsafe {
        write_unless_null(free, own_free);
        write_unless_null(total, own_total);
    }
    CUresult::SUCCESS
}

/// Total memory of a device.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let result = unsafe { native::cuDeviceTotalMem_v2(bytes, device) };
    if result == CUresult::SUCCESS && !bytes.is_null() {
        guarded(
            "cuDeviceTotalMem",
            || (),
            || {
                // SAFETY: the driver has just written it.
                let real = unsafe { bytes.read() } as u64;
                let total = match gpus::of(device) {
                    Some(session) if session.has_ended() => None,
                    Some(session) => tenant_total(session, device, real),
                    // It is not used yet, but its size is known.
                    None => gpus::capacity_bytes(device),
                };
                if let Some(total) = total {
                    // SAFETY: as above.
                    unsafe { bytes.write(total as usize) };
                }
            },
        );
    }
    result
}

/// The size of the shared GPU for a tenant, which is what its job may have; None for another GPU.
fn tenant_total(session: &Session, device: CUdevice, real: u64) -> Option<u64> {
    // More than the GPU has is told only where the job may have it in the host's memory.
    let total = match session.page.limit_bytes() {
        0 => session.capacity_bytes.min(real),
        limit => limit,
    };
    session.shares(device).then_some(total)
}

/// What the job has of it: its contexts, and what its programs have, wherever that lies just now. What rota keeps for them
/// without use is free, and so is what other jobs have, since that can be moved away.
fn used(session: &Session) -> u64 {
    let own = session.table().used_bytes();
    own + session.page.residue_bytes() + session.page.others_bytes()
}

/// Where the job has other processes there, what they have may have changed since the daemon looked last: it looks again
/// when it is asked. Without an answer the page is as good as it was.
fn ask_for_others(session: &Session) {
    if session.page.others_bytes() == 0 {
        return;
    }
    let Some(socket) = settings::socket() else { return };
    let command = Command::Memory { job: settings::job() };
    let question = ToDaemon::Command { version: wire::VERSION, command };
    let _ = Connection::ask::<_, FromDaemon>(&socket, &question, OTHERS_WITHIN);
}

/// What a tenant may think is free.
fn tenant_free(total: u64, used: u64) -> u64 {
    total.saturating_sub(used)
}

/// Writes an answer that the caller may not want.
///
/// # Safety
/// `place` is null or can be written.
pub(super) unsafe fn write_unless_null<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: as this function's own contract.
        unsafe { place.write(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_never_less_than_nothing() {
        assert_eq!(tenant_free(16 << 30, 4 << 30), 12 << 30);
        assert_eq!(tenant_free(4 << 30, 4 << 30), 0);
        assert_eq!(tenant_free(4 << 30, 5 << 30), 0);
    }
}
