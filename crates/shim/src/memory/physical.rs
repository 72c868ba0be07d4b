//! The driver's calls that make, map, export and release memory. None of them waits for the GPU.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use cuda::types::{
    CUcontext, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle,
};
use cuda::{CUresult, Driver};

use super::table::Part;

/// A call that the driver refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The call.
    pub(crate) call: &'static str,
    /// The driver's answer.
    pub(crate) code: CUresult,
}

fn check(call: &'static str, code: CUresult) -> Result<(), Refused> {
    code.ok().map_err(|_| Refused { call, code })
}

/// Reserves a range of addresses.
pub(crate) fn reserve(driver: &Driver, bytes: u64) -> Result<u64, Refused> {
    let mut address = CUdeviceptr(0);
    // SAFETY: the driver writes one address; no alignment or place is asked for.
    let result = unsafe { (driver.cuMemAddressReserve)(&mut address, bytes as usize, 0, CUdeviceptr(0), 0) };
    check("cuMemAddressReserve", result)?;
    Ok(address.0)
}

/// Gives a range of addresses back, with nothing mapped in it.
pub(crate) fn unreserve(driver: &Driver, address: u64, bytes: u64) -> Result<(), Refused> {
    // SAFETY: reserved by `reserve` with this size; nobody can use it any more.
    check("cuMemAddressFree", unsafe { (driver.cuMemAddressFree)(CUdeviceptr(address), bytes as usize) })
}

/// Makes memory for a part and maps it at its address. On failure nothing is left.
pub(crate) fn bring(driver: &Driver, part: &Part) -> Result<CUmemGenericAllocationHandle, Refused> {
    let bytes = part.bytes as usize;
    let address = CUdeviceptr(part.address);
    // Not for RDMA: other devices register memory at the kernel's driver, past this library, and would go on using what
    // has been moved.
    let wanted =
        CUmemAllocationProp::on_device(part.device, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR);
    let mut physical = CUmemGenericAllocationHandle(0);
    // SAFETY: the driver writes one handle and reads the properties.
    check("cuMemCreate", unsafe { (driver.cuMemCreate)(&mut physical, bytes, &wanted, 0) })?;
    // SAFETY: the range is reserved with this size, and nothing is mapped there.
    let mapped = check("cuMemMap", unsafe { (driver.cuMemMap)(address, bytes, 0, physical, 0) });
    if let Err(refused) = mapped {
        // SAFETY: made above, and nobody else has it.
        let _ = unsafe { (driver.cuMemRelease)(physical) };
        return Err(refused);
    }
    let access = CUmemAccessDesc { location: wanted.location, flags: CUmemAccess_flags::READWRITE };
    // SAFETY: mapped above with this size; the driver reads one description.
    let allowed = check("cuMemSetAccess", unsafe { (driver.cuMemSetAccess)(address, bytes, &access, 1) });
    if let Err(refused) = allowed {
        let _ = send_away(driver, part, physical);
        return Err(refused);
    }
    Ok(physical)
}

/// Unmaps a part and lets its memory go; its address stays reserved. If unmapping fails, nothing has changed.
pub(crate) fn send_away(
    driver: &Driver,
    part: &Part,
    physical: CUmemGenericAllocationHandle,
) -> Result<(), Refused> {
    let address = CUdeviceptr(part.address);
    // SAFETY: mapped at this address with this size. The program is frozen, or has freed it.
    check("cuMemUnmap", unsafe { (driver.cuMemUnmap)(address, part.bytes as usize) })?;
    // SAFETY: the handle is used nowhere from here on. Unmapped memory that the driver would not release is lost, and
    // there is nothing left to undo.
    let _ = unsafe { (driver.cuMemRelease)(physical) };
    Ok(())
}

/// A file that stands for the memory, for the daemon.
pub(crate) fn export(driver: &Driver, physical: CUmemGenericAllocationHandle) -> Result<OwnedFd, Refused> {
    let mut file: RawFd = -1;
    let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    // SAFETY: for this kind the driver writes one file number.
    let result = unsafe { (driver.cuMemExportToShareableHandle)((&raw mut file).cast(), physical, kind, 0) };
    check("cuMemExportToShareableHandle", result)?;
    // SAFETY: the driver made this file for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Runs something in a context, and enters the thread's own again. A null context, or one that cannot be entered, is
/// passed over.
pub(crate) fn within<T>(driver: &Driver, context: CUcontext, work: impl FnOnce() -> T) -> T {
    let mut before = CUcontext::NULL;
    // SAFETY: the driver writes one handle.
    let known = unsafe { (driver.cuCtxGetCurrent)(&mut before) }.ok().is_ok();
    if !known || context.is_null() || before == context {
        return work();
    }
    // SAFETY: the table holds no context that has been destroyed.
    let entered = unsafe { (driver.cuCtxSetCurrent)(context) }.ok().is_ok();
    let result = work();
    if entered {
        // SAFETY: it was current when this began.
        let _ = unsafe { (driver.cuCtxSetCurrent)(before) };
    }
    result
}
