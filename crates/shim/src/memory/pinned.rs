//! What the program created and hands on: as a file, to other devices, to a multicast. Those know the memory, not its
//! number, so from then on it stays where it is.

use std::ffi::{c_ulonglong, c_void};
use std::time::Duration;

use cuda::CUresult;
use cuda::types::{CUdeviceptr, CUmemAllocationHandleType, CUmemGenericAllocationHandle};

use super::native;
use super::table::{Part, Table};
use crate::guard::guarded;
use crate::notice::OnceNotice;
use crate::session::{self, NotPinned, Session};

/// How often it is looked whether the daemon has a file, and how long in between: the agent exports one in a millisecond,
/// after those that came before.
const LOOKS_MAX: usize = 20_000;
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// Hands out a file, or another name, for memory.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemExportToShareableHandle(
    shared: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's arguments, but for the handle.
    let native = |handle| unsafe { native::cuMemExportToShareableHandle(shared, handle, kind, flags) };
    let exported = guarded(
        "cuMemExportToShareableHandle",
        || Some(CUresult::UNKNOWN),
        || {
            let session = session::with_number(handle.0)?;
            let asked = session.table().created().named(handle.0)?.kind.handle_types;
            // The driver would do it, because the daemon has a file too; but it was not asked for.
            if asked.0 & kind.0 == 0 || shared.is_null() || flags != 0 {
                return Some(CUresult::INVALID_VALUE);
            }
            Some(with_pinned(session, handle.0, native))
        },
    );
    exported.unwrap_or_else(|| native(handle))
}

/// Makes memory a part of what several devices write to at once.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMulticastBindMem(
    multicast: CUmemGenericAllocationHandle,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    bytes: usize,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's arguments, but for the handle.
    let native = |memory| unsafe {
        native::cuMulticastBindMem(multicast, offset, memory, memory_offset, bytes, flags)
    };
    let bound = guarded(
        "cuMulticastBindMem",
        || Some(CUresult::UNKNOWN),
        || {
            let session = session::with_number(memory.0)?;
            session.table().created().named(memory.0)?;
            Some(with_pinned(session, memory.0, native))
        },
    );
    bound.unwrap_or_else(|| native(memory))
}

/// Makes a call with the driver's handle of what has a number. It stays where it is from then on, if the call succeeds.
fn with_pinned(
    session: &Session,
    number: u64,
    call: impl FnOnce(CUmemGenericAllocationHandle) -> CUresult,
) -> CUresult {
    let stays = session.table().created().stays(number);
    if !stays && let Err(code) = pin(session, number) {
        return code;
    }
    let physical = match session.table().created().named(number).map(|created| &created.parts[..]) {
        Some([part]) => part.physical,
        // One call cannot be made with several handles of the driver.
        Some(_) => return CUresult::NOT_SUPPORTED,
        None => None,
    };
    let result = physical.map_or(CUresult::INVALID_VALUE, call);
    if result == CUresult::SUCCESS {
        session.table().created_mut().set_shared(number, true);
    }
    if result != CUresult::SUCCESS && !stays {
        unpin(session, number);
    }
    result
}

/// What is mapped in a range of addresses stays where it is. False if that cannot be had.
pub(super) fn pin_range(session: &Session, address: CUdeviceptr, bytes: usize) -> bool {
    let numbers = session.table().created().touched_by(address.0, bytes as u64);
    numbers.into_iter().all(|number| {
        let stays = session.table().created().stays(number);
        stays || pin(session, number).is_ok()
    })
}

/// What has a number stays where it is: waits until it is there for good. The calling thread must hold no lock.
pub(super) fn pin(session: &Session, number: u64) -> Result<(), CUresult> {
    static DENIED: OnceNotice = OnceNotice::new();
    let handles = known_to_daemon(session, number)?;
    match session.pin(&handles) {
        Ok(()) | Err(NotPinned::Ended) => {
            session.table().created_mut().set_shared(number, true);
            Ok(())
        }
        Err(NotPinned::Denied(reason)) => {
            DENIED.notice(format_args!("memory cannot be shared: {reason}"));
            Err(CUresult::NOT_SUPPORTED)
        }
    }
}

fn unpin(session: &Session, number: u64) {
    let mut table = session.table();
    table.created_mut().set_shared(number, false);
    let parts = table.created().named(number).map(|created| &created.parts[..]).unwrap_or_default();
    session.unpin(&parts.iter().map(|part| part.handle).collect::<Vec<_>>());
}

/// The handles of what has a number, once the daemon has the files of all of them.
fn known_to_daemon(session: &Session, number: u64) -> Result<Vec<wire::HandleId>, CUresult> {
    once_exported(session, |table| Some(table.created().get(number)?.parts.clone()))
}

/// The handles of parts that are found in the table, once the daemon has the files of all of them.
pub(crate) fn once_exported(
    session: &Session,
    find: impl Fn(&Table) -> Option<Vec<Part>>,
) -> Result<Vec<wire::HandleId>, CUresult> {
    for _ in 0..LOOKS_MAX {
        let parts = find(&session.table()).ok_or(CUresult::INVALID_VALUE)?;
        if session.has_ended() || parts.iter().all(|part| part.exported) {
            return Ok(parts.iter().map(|part| part.handle).collect());
        }
        session.wake_agent();
        std::thread::sleep(LOOK_AGAIN);
    }
    Err(CUresult::NOT_SUPPORTED)
}
