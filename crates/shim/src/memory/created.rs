//! Memory that the program creates itself: `cuMemCreate`, `cuMemRelease`, and what a handle is.
//!
//! The program gets a number in place of the driver's handle ([`super::table::Creations`]). Numbers that are not rota's go to
//! the driver as they are: handles of others, of other devices, of the host's memory, and those for special uses. What the
//! driver does not make as rota needs it is made as the program wants it, counted, and stays where it is.

use std::ffi::c_ulonglong;

use cuda::CUresult;
use cuda::types::{
    CUdevice, CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType,
    CUmemGenericAllocationHandle, CUmemLocationType,
};
use wire::{BLOCK_BYTES, HANDLE_BYTES_MAX};

use super::growth::{self, Short};
use super::table::{Kind, Making};
use super::{cache, native, now_ns};
use crate::gpus;
use crate::guard::guarded;
use crate::session::{self, Session};
use crate::settings;

/// Creates memory.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemCreate(
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    wanted: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> CUresult {
    let created = guarded(
        "cuMemCreate",
        || Some(CUresult::UNKNOWN),
        || {
            // What the driver would refuse, it refuses itself.
            if handle.is_null() || flags != 0 {
                return None;
            }
            // SAFETY: null, or by the caller's word properties.
            let wanted = unsafe { wanted.as_ref() }?;
            let kind = own_kind(wanted, bytes as u64)?;
            let session = match gpus::session(kind.device) {
                Ok(session) => session.filter(|session| !session.has_ended())?,
                Err(code) => return Some(code),
            };
            Some(match create(session, kind, bytes as u64)? {
                Ok(number) => {
                    // SAFETY: not null, and the caller promises a place for a handle.
                    unsafe { handle.write(CUmemGenericAllocationHandle(number)) };
                    CUresult::SUCCESS
                }
                Err(code) => code,
            })
        },
    );
    // SAFETY: the caller's arguments, as they came.
    created.unwrap_or_else(|| unsafe { native::cuMemCreate(handle, bytes, wanted, flags) })
}

/// The kind of memory that is asked for; None if it cannot be rota's, or cannot be at all.
fn own_kind(wanted: &CUmemAllocationProp, bytes: u64) -> Option<Kind> {
    let is_plain =
        wanted.type_ == CUmemAllocationType::PINNED && wanted.location.type_ == CUmemLocationType::DEVICE;
    // Special uses, such as under sparse arrays, have mappings that are made by the GPU.
    if !is_plain || wanted.alloc_flags.usage != 0 || bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        return None;
    }
    let device = CUdevice(wanted.location.id);
    Some(Kind { device, handle_types: wanted.requested_handle_types, flags: wanted.alloc_flags })
}

/// The number of new memory; None if the driver is to make it.
fn create(session: &Session, kind: Kind, bytes: u64) -> Option<Result<u64, CUresult>> {
    if let Some(number) = session.table().created_mut().take_idle(kind, bytes) {
        return Some(Ok(number));
    }
    // What is shared has to be one handle of the driver, and what is moved has a largest size. Frameworks ask for memory that
    // can be shared, and for RDMA, wherever the GPU has it, so neither is a reason by itself.
    let is_for_rdma = kind.flags.gpu_direct_rdma_capable != 0 && settings::rdma();
    let can_be_shared = kind.handle_types != CUmemAllocationHandleType::NONE;
    let is_one_handle = can_be_shared && bytes > HANDLE_BYTES_MAX && settings::whole_handles();
    let can_move = !is_for_rdma && !is_one_handle;
    let mut made = Err(Short::Refused(CUresult::NOT_SUPPORTED));
    if can_move {
        made = growth::create(session, kind, bytes, Making::Moving);
    }
    // Perhaps the driver refused what was added to the program's own wishes.
    if matches!(made, Err(Short::Refused(code)) if code != CUresult::OUT_OF_MEMORY) {
        made = growth::create(session, kind, bytes, Making::Kept);
    }
    match made {
        Ok(number) => Some(Ok(number)),
        Err(Short::Refused(code)) => Some(Err(code)),
        Err(Short::NotHere) => None,
    }
}

/// Lets memory go, once it is mapped nowhere.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult {
    let released = guarded("cuMemRelease", || Some(CUresult::UNKNOWN), || release(handle.0));
    // SAFETY: the caller's argument, as it came.
    released.unwrap_or_else(|| unsafe { native::cuMemRelease(handle) })
}

/// None if the number is not the program's.
fn release(number: u64) -> Option<CUresult> {
    let session = session::with_number(number)?;
    let mut table = session.table();
    if !table.created_mut().release(number, now_ns()) {
        return None;
    }
    cache::keep_some(session, &mut table);
    Some(CUresult::SUCCESS)
}

/// What kind of memory it is.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAllocationPropertiesFromHandle(
    found: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    let known = guarded(
        "cuMemGetAllocationPropertiesFromHandle",
        || None,
        || {
            let session = session::with_number(handle.0)?;
            session.table().created().named(handle.0).map(|created| created.kind.asked())
        },
    );
    match known {
        Some(_) if found.is_null() => CUresult::INVALID_VALUE,
        Some(asked) => {
            // SAFETY: not null, and the caller promises a place for properties.
            unsafe { found.write(asked) };
            CUresult::SUCCESS
        }
        // SAFETY: the caller's arguments, as they came.
        None => unsafe { native::cuMemGetAllocationPropertiesFromHandle(found, handle) },
    }
}
