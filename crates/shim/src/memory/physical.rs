//! The driver's calls that make, map, export and release memory. None of them waits for the GPU.

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use cuda::types::{
    CUcontext, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUmemLocationType,
};
use cuda::{CUresult, Driver};

use super::table::{Mapping, Part};

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

/// Makes memory that is mapped nowhere.
pub(crate) fn make(
    driver: &Driver,
    wanted: &CUmemAllocationProp,
    bytes: u64,
) -> Result<CUmemGenericAllocationHandle, Refused> {
    let make = |wanted: &CUmemAllocationProp| {
        let mut physical = CUmemGenericAllocationHandle(0);
        // SAFETY: the driver writes one handle and reads the properties.
        let result = unsafe { (driver.cuMemCreate)(&mut physical, bytes as usize, wanted, 0) };
        check("cuMemCreate", result).map(|()| physical)
    };
    let made = make(wanted);
    let is_hosts = wanted.location.type_ == CUmemLocationType::HOST_NUMA;
    match made {
        // Perhaps the driver has no files for memory of the host's: then it cannot change its home.
        Err(refused) if is_hosts && refused.code != CUresult::OUT_OF_MEMORY => {
            make(&CUmemAllocationProp { requested_handle_types: CUmemAllocationHandleType::NONE, ..*wanted })
                .map_err(|_| refused)
        }
        made => made,
    }
}

/// Lets memory go that is mapped nowhere. Memory that the driver would not release is lost, and there is nothing left to undo.
pub(crate) fn release(driver: &Driver, physical: CUmemGenericAllocationHandle) {
    // SAFETY: the handle is used nowhere from here on.
    let _ = unsafe { (driver.cuMemRelease)(physical) };
}

/// Maps memory at an address.
pub(crate) fn map(
    driver: &Driver,
    address: u64,
    bytes: u64,
    physical: CUmemGenericAllocationHandle,
) -> Result<(), Refused> {
    // SAFETY: whoever asks has reserved the range; if not, or if something is mapped there, the driver refuses.
    check("cuMemMap", unsafe { (driver.cuMemMap)(CUdeviceptr(address), bytes as usize, 0, physical, 0) })
}

/// Takes away what is mapped in a range.
pub(crate) fn unmap(driver: &Driver, address: u64, bytes: u64) -> Result<(), Refused> {
    // SAFETY: the program is frozen, or does not use it any more.
    check("cuMemUnmap", unsafe { (driver.cuMemUnmap)(CUdeviceptr(address), bytes as usize) })
}

/// Maps memory as it was. On failure nothing is left.
pub(crate) fn map_again(
    driver: &Driver,
    mapping: &Mapping,
    bytes: u64,
    physical: CUmemGenericAllocationHandle,
) -> Result<(), Refused> {
    map(driver, mapping.address, bytes, physical)?;
    if mapping.access.is_empty() {
        return Ok(());
    }
    let (address, access) = (CUdeviceptr(mapping.address), &mapping.access);
    // SAFETY: mapped above with this size; the driver reads so many descriptions.
    let result = unsafe { (driver.cuMemSetAccess)(address, bytes as usize, access.as_ptr(), access.len()) };
    check("cuMemSetAccess", result).inspect_err(|_| {
        let _ = unmap(driver, mapping.address, bytes);
    })
}

/// Makes memory for a part and maps it at its addresses. On failure nothing is left.
pub(crate) fn bring(driver: &Driver, part: &Part) -> Result<CUmemGenericAllocationHandle, Refused> {
    map_everywhere(driver, part, make(driver, &part.made(), part.bytes)?)
}

/// Maps memory that a file stands for at a part's addresses. On failure nothing is left.
pub(crate) fn take(
    driver: &Driver,
    part: &Part,
    file: &impl AsFd,
) -> Result<CUmemGenericAllocationHandle, Refused> {
    map_everywhere(driver, part, import(driver, file)?)
}

fn map_everywhere(
    driver: &Driver,
    part: &Part,
    physical: CUmemGenericAllocationHandle,
) -> Result<CUmemGenericAllocationHandle, Refused> {
    for (done, mapping) in part.mappings.iter().enumerate() {
        if let Err(refused) = map_again(driver, mapping, part.bytes, physical) {
            for before in &part.mappings[..done] {
                let _ = unmap(driver, before.address, part.bytes);
            }
            release(driver, physical);
            return Err(refused);
        }
    }
    Ok(physical)
}

/// Unmaps a part everywhere and lets its memory go; its addresses stay reserved. If unmapping fails, nothing has changed.
pub(crate) fn send_away(
    driver: &Driver,
    part: &Part,
    physical: CUmemGenericAllocationHandle,
) -> Result<(), Refused> {
    for (done, mapping) in part.mappings.iter().enumerate() {
        if let Err(refused) = unmap(driver, mapping.address, part.bytes) {
            for before in &part.mappings[..done] {
                let _ = map_again(driver, before, part.bytes, physical);
            }
            return Err(refused);
        }
    }
    release(driver, physical);
    Ok(())
}

/// Puts other memory under a part's addresses, where some may lie already. If that fails, nothing has changed.
pub(crate) fn exchange(
    driver: &Driver,
    part: &Part,
    from: Option<CUmemGenericAllocationHandle>,
    to: CUmemGenericAllocationHandle,
) -> Result<(), Refused> {
    for (done, mapping) in part.mappings.iter().enumerate() {
        let as_it_was = |mapping: &Mapping| {
            let _ = from.map(|from| map_again(driver, mapping, part.bytes, from));
        };
        let cleared = from.map_or(Ok(()), |_| unmap(driver, mapping.address, part.bytes));
        let mapped = cleared
            .and_then(|()| map_again(driver, mapping, part.bytes, to).inspect_err(|_| as_it_was(mapping)));
        if let Err(refused) = mapped {
            for before in &part.mappings[..done] {
                let _ = unmap(driver, before.address, part.bytes);
                as_it_was(before);
            }
            return Err(refused);
        }
    }
    Ok(())
}

/// Memory that a file stands for.
fn import(driver: &Driver, file: &impl AsFd) -> Result<CUmemGenericAllocationHandle, Refused> {
    let mut physical = CUmemGenericAllocationHandle(0);
    // The driver takes the number in place of a pointer.
    let number = std::ptr::without_provenance_mut::<c_void>(file.as_fd().as_raw_fd() as usize);
    let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    // SAFETY: the driver writes one handle, and `number` is that of an open file.
    let result = unsafe { (driver.cuMemImportFromShareableHandle)(&mut physical, number, kind) };
    check("cuMemImportFromShareableHandle", result)?;
    Ok(physical)
}

/// A file that stands for the memory under a part, for the daemon.
pub(crate) fn file_of(
    driver: &Driver,
    part: &Part,
    physical: CUmemGenericAllocationHandle,
) -> Result<OwnedFd, Refused> {
    match &part.file {
        None => export(driver, physical),
        Some(taken) => taken.copy().map_err(|_| Refused { call: "dup", code: CUresult::OPERATING_SYSTEM }),
    }
}

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
