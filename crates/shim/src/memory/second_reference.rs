//! Second references to the program's memory.
//!
//! The memory under an address changes when rota moves it. The program's pointers mean the new memory from then on, but
//! a handle, a file, a multicast binding or a third party's token would go on meaning the old. So memory that other devices
//! get at stays where it is from then on, if the driver lets them; other calls that hand one out answer that it is not
//! supported, and programs fall back to copies as they do on older GPUs.
//! Memory that rota does not move is the real driver's matter. That the daemon is gone changes nothing: there may be another.

use std::ffi::{c_int, c_ulonglong, c_void};

use cuda::CUresult;
use cuda::types::{CUdeviceptr, CUmemGenericAllocationHandle, CUpointer_attribute};

use super::native;
use super::pinned::{self, Pinned};
use super::table::Table;
use crate::guard::guarded;
use crate::notice::OnceNotice;
use crate::session::{self, Session};

/// Whether a range has memory in it that rota may move.
fn moves(address: CUdeviceptr, bytes: usize) -> bool {
    session::all().any(|session| session.table().overlaps(address.0, bytes as u64))
}

/// Refuses a call about memory that rota moves, and makes any other.
fn unless_moved(name: &str, address: CUdeviceptr, bytes: usize, call: impl Fn() -> CUresult) -> CUresult {
    // After a fault of rota's own nobody knows whose it is: better refused than stale.
    match guarded(name, || true, || moves(address, bytes)) {
        true => CUresult::NOT_SUPPORTED,
        false => call(),
    }
}

/// The same; but what the program created itself stays where it is from then on, if the call succeeds.
fn unless_it_moves(name: &str, address: CUdeviceptr, bytes: usize, call: impl Fn() -> CUresult) -> CUresult {
    let pin = || {
        let mut pinned = Pinned::default();
        let all = session::all().try_for_each(|session| pinned.add_range(session, address, bytes));
        all.is_ok().then_some(pinned)
    };
    let Some(pinned) = guarded(name, || None, pin) else { return CUresult::NOT_SUPPORTED };
    let result = unless_moved(name, address, bytes, call);
    guarded(name, || result, || pinned.keep_after(result))
}

/// Makes a call that lets other devices use memory, which stays where it is from then on. Where the driver refuses, as it does
/// for memory that was not made for them, nothing has changed.
pub(super) fn if_it_stays(
    name: &str,
    address: CUdeviceptr,
    bytes: usize,
    call: impl Fn() -> CUresult,
) -> CUresult {
    static REFUSED: OnceNotice = OnceNotice::new();
    let found = || {
        let overlaps = |session: &&Session| session.table().overlaps(address.0, bytes as u64);
        session::all().find(overlaps)
    };
    let Some(session) = guarded(name, || None, found) else {
        return unless_it_moves(name, address, bytes, call);
    };
    let with_pinned = || {
        let range = |table: &Table| Some(table.range_around(address.0)?.parts.clone());
        let last = address.0.saturating_add((bytes as u64).saturating_sub(1));
        let is_in_one = |table: &Table| {
            table.range_around(address.0).is_some_and(|range| last - range.block.address < range.block.bytes)
        };
        if !is_in_one(&session.table()) {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let handles = pinned::once_exported(session, range)?;
        session.pin(&handles).map_err(|_| CUresult::NOT_SUPPORTED)?;
        match call() {
            CUresult::SUCCESS => Ok(()),
            code => {
                session.unpin(&handles);
                Err(code)
            }
        }
    };
    guarded(name, || Err(CUresult::UNKNOWN), with_pinned).map_or_else(
        |code| {
            REFUSED.notice(format_args!(
                "{name}: {code}: memory that rota moves is not made for other devices (RDMA); \
                 set ROTA_DISABLE=1 for programs that need that"
            ));
            code
        },
        |()| CUresult::SUCCESS,
    )
}

/// A handle of the memory at an address.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemRetainAllocationHandle(
    handle: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> CUresult {
    let place = CUdeviceptr(address.addr() as u64);
    let retained = || session::all().find_map(|session| session.table().created_mut().retain(place.0));
    if !handle.is_null()
        && let Some(number) = guarded("cuMemRetainAllocationHandle", || None, retained)
    {
        // SAFETY: not null, and the caller promises a place for a handle.
        unsafe { handle.write(CUmemGenericAllocationHandle(number)) };
        return CUresult::SUCCESS;
    }
    unless_moved("cuMemRetainAllocationHandle", place, 1, || {
        // SAFETY: the caller's arguments, as they came.
        unsafe { native::cuMemRetainAllocationHandle(handle, address) }
    })
}

/// A file for a range of memory, for other devices.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetHandleForAddressRange(
    handle: *mut c_void,
    address: CUdeviceptr,
    bytes: usize,
    kind: c_int,
    flags: c_ulonglong,
) -> CUresult {
    if_it_stays("cuMemGetHandleForAddressRange", address, bytes, || {
        // SAFETY: the caller's arguments, as they came.
        unsafe { native::cuMemGetHandleForAddressRange(handle, address, bytes, kind, flags) }
    })
}

/// Makes memory a part of what several devices write to at once.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMulticastBindAddr(
    multicast: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: c_ulonglong,
) -> CUresult {
    unless_it_moves("cuMulticastBindAddr", address, bytes, || {
        // SAFETY: the caller's arguments, as they came.
        unsafe { native::cuMulticastBindAddr(multicast, offset, address, bytes, flags) }
    })
}

/// Sets a property of an allocation.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerSetAttribute(
    value: *const c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let set = || unsafe { native::cuPointerSetAttribute(value, attribute, address) };
    if attribute == CUpointer_attribute::SYNC_MEMOPS {
        // SAFETY: for this attribute the caller promises a number.
        let note = || unsafe { super::pointer::note_sync_memops(value, address) };
        return match guarded("cuPointerSetAttribute", || false, note) {
            true => CUresult::SUCCESS,
            false => super::while_mapped(set),
        };
    }
    unless_moved("cuPointerSetAttribute", address, 1, set)
}

/// Whether asking for this property hands out a second reference to the memory at an address.
pub(super) fn is_refused(attribute: CUpointer_attribute, address: CUdeviceptr) -> bool {
    attribute == CUpointer_attribute::P2P_TOKENS
        && guarded("cuPointerGetAttribute", || true, || moves(address, 1))
}
