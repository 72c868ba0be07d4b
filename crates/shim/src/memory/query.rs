//! How much memory the program is told there is: the shared GPU as if it were its own.

use cuda::CUresult;
use cuda::types::CUdevice;

use super::native;
use crate::gpus;
use crate::guard::guarded;
use crate::session::{self, Session};

/// What a context takes on the device, roughly. The program's own is not in its table of allocations, but it is not free.
const CONTEXT_BYTES: u64 = 512 << 20;

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
            Some((tenant_free(total, session.table().used_bytes()), total))
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
                    None => gpus::capacity_bytes(device).map(|capacity| capacity.min(real)),
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

/// The size of the shared GPU for a tenant; None for another GPU.
fn tenant_total(session: &Session, device: CUdevice, real: u64) -> Option<u64> {
    session.shares(device).then(|| session.capacity_bytes.min(real))
}

/// What a tenant may think is free: all that it does not have; what rota keeps for it without use is free too. Others' memory does not count, since it can be moved away;
/// nor does what the tenant allocates past rota, such as the driver's own pools.
fn tenant_free(total: u64, own: u64) -> u64 {
    total.saturating_sub(own).saturating_sub(CONTEXT_BYTES)
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
        assert_eq!(tenant_free(16 << 30, 4 << 30), (12 << 30) - CONTEXT_BYTES);
        assert_eq!(tenant_free(4 << 30, 4 << 30), 0);
        assert_eq!(tenant_free(4 << 30, 5 << 30), 0);
    }
}
