//! What the program is told about its memory: the sizes it asked for, and the shared GPU as if it were its own.

use std::ffi::{c_uint, c_void};

use cuda::CUresult;
use cuda::types::{CUdevice, CUdeviceptr, CUpointer_attribute};

use super::second_reference::is_refused;
use super::table::Allocation;
use super::{native, while_mapped};
use crate::guard::guarded;
use crate::session::{self, Session};

/// What a context takes on the device, roughly. The program's own is not in its table of allocations, but it is not free.
const CONTEXT_BYTES: u64 = 512 << 20;

/// The allocation around an address.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAddressRange_v2(
    base: *mut CUdeviceptr,
    bytes: *mut usize,
    address: CUdeviceptr,
) -> CUresult {
    let Some(found) = guarded("cuMemGetAddressRange", || None, || around(address)) else {
        // SAFETY: the caller's arguments, as they came.
        return unsafe { native::cuMemGetAddressRange_v2(base, bytes, address) };
    };
    // SAFETY: null or a place for the answer, by the caller's word.
    unsafe {
        write_unless_null(base, CUdeviceptr(found.address));
        write_unless_null(bytes, found.asked_bytes as usize);
    }
    CUresult::SUCCESS
}

/// One property of an address.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(
    data: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> CUresult {
    if is_refused(attribute, address) {
        return CUresult::NOT_SUPPORTED;
    }
    let found = guarded("cuPointerGetAttribute", || None, || around(address));
    // SAFETY: the caller's arguments, as they came.
    let result = while_mapped(|| unsafe { native::cuPointerGetAttribute(data, attribute, address) });
    if let Some(found) = found
        && result == CUresult::SUCCESS
    {
        // SAFETY: the driver has just written this attribute there.
        unsafe { correct(&found, attribute, data) };
    }
    result
}

/// Several properties of an address.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: the caller promises `count` attributes, if any place at all.
    let asked = |index| unsafe { attributes.add(index).read() };
    if !attributes.is_null() && (0..count as usize).any(|index| is_refused(asked(index), address)) {
        return CUresult::NOT_SUPPORTED;
    }
    let found = guarded("cuPointerGetAttributes", || None, || around(address));
    // SAFETY: the caller's arguments, as they came.
    let result = while_mapped(|| unsafe { native::cuPointerGetAttributes(count, attributes, data, address) });
    if let Some(found) = found
        && result == CUresult::SUCCESS
    {
        for index in 0..count as usize {
            // SAFETY: the driver has just read `count` attributes and written each to its place.
            unsafe { correct(&found, attributes.add(index).read(), data.add(index).read()) };
        }
    }
    result
}

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
            let session = session::current().filter(|session| !session.has_ended())?;
            let mut device = CUdevice(0);
            // SAFETY: the driver writes one number.
            unsafe { (session.driver.cuCtxGetDevice)(&mut device) }.ok().ok()?;
            let total = tenant_total(session, device, real_total as u64)?;
            Some((tenant_free(total, session.table().bytes()), total))
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
                let Some(session) = session::current().filter(|session| !session.has_ended()) else { return };
                // SAFETY: the driver has just written it.
                let real = unsafe { bytes.read() } as u64;
                if let Some(total) = tenant_total(session, device, real) {
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

/// What a tenant may think is free: all that is not its own. Others' memory does not count, since it can be moved away;
/// nor does what the tenant allocates past rota, such as the driver's own pools.
fn tenant_free(total: u64, own: u64) -> u64 {
    total.saturating_sub(own).saturating_sub(CONTEXT_BYTES)
}

/// An allocation as the program knows it.
struct Known {
    address: u64,
    asked_bytes: u64,
}

fn around(address: CUdeviceptr) -> Option<Known> {
    let table = session::current()?.table();
    let &Allocation { address, asked_bytes, .. } = table.around(address.0)?;
    Some(Known { address, asked_bytes })
}

/// Puts the size that was asked for in place of the mapping's.
///
/// # Safety
/// `data` is where the driver has written the attribute.
unsafe fn correct(found: &Known, attribute: CUpointer_attribute, data: *mut c_void) {
    match attribute {
        // SAFETY: as this function's own contract; the attribute is an address.
        CUpointer_attribute::RANGE_START_ADDR => unsafe {
            data.cast::<CUdeviceptr>().write_unaligned(CUdeviceptr(found.address));
        },
        // SAFETY: as this function's own contract; the attribute is a size.
        CUpointer_attribute::RANGE_SIZE => unsafe {
            data.cast::<usize>().write_unaligned(found.asked_bytes as usize);
        },
        _ => {}
    }
}

/// # Safety
/// `place` is null or can be written.
unsafe fn write_unless_null<T>(place: *mut T, value: T) {
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
