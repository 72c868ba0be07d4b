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
    session: &'static Session,
    number: u64,
    call: impl FnOnce(CUmemGenericAllocationHandle) -> CUresult,
) -> CUresult {
    static IN_PARTS: OnceNotice = OnceNotice::new();
    // One call cannot be made with several handles of the driver.
    if session.table().created().named(number).is_some_and(|created| created.parts.len() != 1) {
        IN_PARTS.notice(format_args!(
            "memory above 256 MiB cannot be shared, because it is moved in parts; ROTA_WHOLE_HANDLES=1 keeps it in one, \
             on the GPU"
        ));
        return CUresult::NOT_SUPPORTED;
    }
    let mut pinned = Pinned::default();
    if let Err(code) = pinned.add(session, number) {
        return code;
    }
    let only = |table: &Table| table.created().named(number)?.parts.first()?.physical;
    let physical = only(&session.table());
    pinned.keep_after(physical.map_or(CUresult::INVALID_VALUE, call))
}

/// What stays where it is for a call, and after that if it succeeds. Dropped, it moves as before.
#[derive(Default)]
pub(super) struct Pinned(Vec<(&'static Session, u64)>);

impl Pinned {
    /// What has a number stays where it is: waits until it is there for good. The calling thread must hold no lock.
    pub(super) fn add(&mut self, session: &'static Session, number: u64) -> Result<(), CUresult> {
        static DENIED: OnceNotice = OnceNotice::new();
        let mut table = session.table();
        if table.created().stays(number) {
            table.created_mut().share(number);
            self.0.push((session, number));
            return Ok(());
        }
        drop(table);
        let handles = known_to_daemon(session, number)?;
        if let Err(NotPinned::Denied(reason)) = session.pin(&handles) {
            DENIED.notice(format_args!("memory cannot be shared: {reason}"));
            return Err(CUresult::NOT_SUPPORTED);
        }
        if session.table().created_mut().share(number) {
            // Another thread had the same in mind: once is enough.
            session.unpin(&handles);
        }
        self.0.push((session, number));
        Ok(())
    }

    /// The same for all that is mapped in a range of addresses.
    pub(super) fn add_range(
        &mut self,
        session: &'static Session,
        address: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), CUresult> {
        let numbers = session.table().created().touched_by(address.0, bytes as u64);
        numbers.into_iter().try_for_each(|number| self.add(session, number))
    }

    /// The call is made, with this result.
    pub(super) fn keep_after(mut self, result: CUresult) -> CUresult {
        if result == CUresult::SUCCESS {
            self.0.clear();
        }
        result
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for (session, number) in self.0.drain(..) {
            // With the table held: whoever pins it anew says so after this.
            let mut table = session.table();
            let handles = table.created_mut().unshare(number);
            if !handles.is_empty() {
                session.unpin(&handles);
            }
        }
    }
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
