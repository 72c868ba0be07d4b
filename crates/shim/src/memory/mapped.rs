//! Where the program maps what it created: `cuMemMap`, `cuMemUnmap`, `cuMemSetAccess`, `cuMemAddressFree`.
//!
//! The driver does and judges it all; what it did is written down, to be done again when memory comes back. So mapping
//! waits at the gate while memory is away. Unmapping does not: where nothing is mapped the driver has nothing to do.

use std::ffi::c_ulonglong;

use cuda::CUresult;
use cuda::types::{CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemGenericAllocationHandle};

use super::pinned::Pinned;
use super::table::{Created, Mapped};
use super::{cache, native, now_ns, physical, while_mapped};
use crate::guard::guarded;
use crate::session::{self, HeldTable, Session};

/// Maps memory at reserved addresses.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemMap(
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> CUresult {
    while_mapped(|| {
        let asked = Asked { address, bytes, offset, flags };
        let mapped = guarded("cuMemMap", || Some(CUresult::UNKNOWN), || map(&asked, handle.0));
        // SAFETY: the caller's arguments, as they came.
        mapped.unwrap_or_else(|| unsafe { native::cuMemMap(address, bytes, offset, handle, flags) })
    })
}

/// The arguments of `cuMemMap`, but for the handle.
struct Asked {
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    flags: c_ulonglong,
}

/// Maps all parts of what has a number; None if that is not the program's.
fn map(asked: &Asked, number: u64) -> Option<CUresult> {
    let session = session::with_number(number)?;
    let mut table = session.table();
    let result = map_parts(session, table.created().named(number)?, asked);
    if result == CUresult::SUCCESS {
        table.map_created(number, asked.address.0);
    }
    Some(result)
}

fn map_parts(session: &Session, created: &Created, asked: &Asked) -> CUresult {
    let Asked { address, bytes, offset, flags } = *asked;
    if let [part] = &created.parts[..] {
        // It went away since this thread came through the gate: by this answer it comes through again.
        let Some(physical) = part.physical else { return CUresult::INVALID_VALUE };
        // SAFETY: the caller's arguments, with the handle that is meant.
        return unsafe { (session.driver.cuMemMap)(address, bytes, offset, physical, flags) };
    }
    // As the driver says it of one handle.
    if flags != 0 || address.0.checked_add(created.bytes).is_none() {
        return CUresult::INVALID_VALUE;
    }
    if offset != 0 || bytes as u64 != created.bytes {
        return CUresult::NOT_SUPPORTED;
    }
    let mut next = address.0;
    for part in &created.parts {
        let mapped = match part.physical {
            Some(physical) => physical::map(session.driver, next, part.bytes, physical),
            None => Err(physical::Refused { call: "cuMemMap", code: CUresult::INVALID_VALUE }),
        };
        if let Err(refused) = mapped {
            if next > address.0 {
                // What came before it.
                let _ = physical::unmap(session.driver, address.0, next - address.0);
            }
            return refused.code;
        }
        next += part.bytes;
    }
    CUresult::SUCCESS
}

/// The tables of all sessions, locked: a range of addresses may have memory of several GPUs.
fn tables() -> Vec<(&'static Session, HeldTable<'static>)> {
    session::all().map(|session| (session, session.table())).collect()
}

/// What is mapped in a range of addresses, by session; None if nothing is.
fn whole_in(
    tables: &[(&Session, HeldTable<'_>)],
    address: CUdeviceptr,
    bytes: usize,
) -> Option<Result<Vec<Vec<Mapped>>, CUresult>> {
    let found = tables.iter().map(|(_, table)| table.created().whole_in(address.0, bytes as u64));
    match found.collect::<Result<Vec<_>, _>>() {
        Ok(mappings) => mappings.iter().any(|mappings| !mappings.is_empty()).then_some(Ok(mappings)),
        Err(code) => Some(Err(code)),
    }
}

/// Unmaps all that is mapped in a range of addresses.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemUnmap(address: CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let native = || unsafe { native::cuMemUnmap(address, bytes) };
    let unmapped = guarded(
        "cuMemUnmap",
        || Some(CUresult::UNKNOWN),
        || {
            let mut tables = tables();
            let mappings = match whole_in(&tables, address, bytes)? {
                Ok(mappings) => mappings,
                Err(code) => return Some(code),
            };
            let result = native();
            if result == CUresult::SUCCESS {
                for ((session, table), mappings) in tables.iter_mut().zip(&mappings) {
                    for mapped in mappings {
                        table.created_mut().unmap(mapped, now_ns());
                    }
                    cache::keep_some(session, table);
                }
            }
            Some(result)
        },
    );
    unmapped.unwrap_or_else(native)
}

/// Opens what is mapped in a range of addresses to somebody, or closes it.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemSetAccess(
    address: CUdeviceptr,
    bytes: usize,
    access: *const CUmemAccessDesc,
    count: usize,
) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let native = || unsafe { native::cuMemSetAccess(address, bytes, access, count) };
    let set = || {
        let mut tables = tables();
        let mappings = match whole_in(&tables, address, bytes)? {
            Ok(mappings) => mappings,
            Err(code) => return Some(code),
        };
        let result = native();
        if result == CUresult::SUCCESS && !access.is_null() {
            // SAFETY: the driver has just read so many.
            let access = unsafe { std::slice::from_raw_parts(access, count) };
            for ((_, table), mappings) in tables.iter_mut().zip(&mappings) {
                for mapped in mappings {
                    table.created_mut().set_access(mapped, access);
                }
            }
        }
        Some(result)
    };
    // SAFETY: by the caller's word so many can be read there.
    let opened = || unsafe { pin_for_others(address, bytes, access, count) };
    match guarded("cuMemSetAccess", || Err(CUresult::UNKNOWN), opened) {
        Ok(pinned) => {
            let set = || guarded("cuMemSetAccess", || Some(CUresult::UNKNOWN), set).unwrap_or_else(native);
            let result = while_mapped(set);
            guarded("cuMemSetAccess", || result, || pinned.keep_after(result))
        }
        Err(refused) => refused,
    }
}

/// What other devices may use stays where it is: they may be ones that nobody freezes. So it does until the driver has
/// refused.
///
/// # Safety
/// So many descriptions can be read, unless there is no place.
unsafe fn pin_for_others(
    address: CUdeviceptr,
    bytes: usize,
    access: *const CUmemAccessDesc,
    count: usize,
) -> Result<Pinned, CUresult> {
    let mut pinned = Pinned::default();
    if access.is_null() {
        return Ok(pinned);
    }
    // SAFETY: as this function's own contract.
    let access = unsafe { std::slice::from_raw_parts(access, count) };
    for session in session::all() {
        for number in opened_to_others(session, address, bytes, access) {
            pinned.add(session, number)?;
        }
    }
    Ok(pinned)
}

/// The numbers of what lies in a range of addresses and is to be opened to other devices than its own.
fn opened_to_others(
    session: &Session,
    address: CUdeviceptr,
    bytes: usize,
    access: &[CUmemAccessDesc],
) -> Vec<u64> {
    let table = session.table();
    let is_anothers = |number: &u64| {
        let Some(created) = table.created().get(*number) else { return false };
        let own = created.kind.asked().location;
        access.iter().any(|asked| {
            asked.location.type_ == own.type_
                && asked.location != own
                && asked.flags != CUmemAccess_flags::NONE
        })
    };
    let numbers = table.created().touched_by(address.0, bytes as u64);
    numbers.into_iter().filter(is_anothers).collect()
}

/// Gives reserved addresses back, with nothing mapped there.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) -> CUresult {
    let is_mapped = || {
        // Also what is away is mapped, as far as the program knows.
        whole_in(&tables(), address, bytes).is_some()
    };
    match guarded("cuMemAddressFree", || true, is_mapped) {
        true => CUresult::INVALID_VALUE,
        // SAFETY: the caller's arguments, as they came.
        false => unsafe { native::cuMemAddressFree(address, bytes) },
    }
}
