//! `cuMemAlloc`, `cuMemAllocPitch` and `cuMemFree`.
//!
//! Nearly always a block is found in a range that is there, without a word to the daemon: see [`super::growth`] for when it
//! is not.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cuda::CUresult;
use cuda::types::{CUcontext, CUdevice, CUdeviceptr, CUmemoryPool};

use super::growth::{self, Short};
use super::table::{Allocation, Wanted};
use super::{cache, kept, native, probe};
use crate::guard::guarded;
use crate::pool;
use crate::session::{self, Session};

/// Allocates device memory.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let allocated = guarded(
        "cuMemAlloc",
        || Some(CUresult::UNKNOWN),
        || {
            if address.is_null() {
                return None;
            }
            Some(match plain(bytes as u64)? {
                Ok(start) => {
                    // SAFETY: not null, and the caller promises a place for an address.
                    unsafe { address.write(CUdeviceptr(start)) };
                    CUresult::SUCCESS
                }
                Err(code) => code,
            })
        },
    );
    // SAFETY: the caller's arguments, as they came.
    allocated.unwrap_or_else(|| unsafe { native::cuMemAlloc_v2(address, bytes) })
}

/// Allocates device memory for rows that each start at a good address.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocPitch_v2(
    address: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> CUresult {
    let allocated = guarded(
        "cuMemAllocPitch",
        || Some(CUresult::UNKNOWN),
        || {
            // What the driver would refuse, it refuses itself.
            if address.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) {
                return None;
            }
            let row = width.checked_next_multiple_of(row_granularity()?)?;
            Some(match plain(row.checked_mul(height)? as u64)? {
                Ok(start) => {
                    // SAFETY: neither is null, and the caller promises a place for each.
                    unsafe {
                        address.write(CUdeviceptr(start));
                        pitch.write(row);
                    }
                    CUresult::SUCCESS
                }
                Err(code) => code,
            })
        },
    );
    // SAFETY: the caller's arguments, as they came.
    allocated.unwrap_or_else(|| unsafe { native::cuMemAllocPitch_v2(address, pitch, width, height, element) })
}

/// What the driver makes rows a multiple of. It is asked once, by a row of one byte.
fn row_granularity() -> Option<usize> {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let known = KNOWN.load(Relaxed);
    if known != 0 {
        return Some(known);
    }
    let context = current(session::first()?)?;
    let (mut byte, mut pitch) = (CUdeviceptr(0), 0);
    // SAFETY: the driver writes one address and one number.
    unsafe { native::cuMemAllocPitch_v2(&mut byte, &mut pitch, 1, 1, 4) }.ok().ok()?;
    // Freeing it would wait for the device, which an allocation does not.
    probe::keep(context, byte);
    KNOWN.store(pitch, Relaxed);
    Some(pitch)
}

/// Frees device memory, once the device no longer uses it.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: CUdeviceptr) -> CUresult {
    let freed =
        guarded("cuMemFree", || Some(CUresult::UNKNOWN), || free(session::around(address.0)?, address.0));
    freed.unwrap_or_else(|| {
        // SAFETY: the caller's argument, as it came.
        let result = unsafe { native::cuMemFree_v2(address) };
        if result == CUresult::SUCCESS {
            kept::managed::freed(address);
        }
        result
    })
}

/// The start of a new plain allocation; None if the real driver is to make it.
fn plain(asked_bytes: u64) -> Option<Result<u64, CUresult>> {
    if asked_bytes == 0 {
        return None;
    }
    let session = match session::here() {
        Ok(session) => session?,
        Err(refused) => return Some(Err(refused)),
    };
    let context = current(session)?;
    if !serves(session, context) {
        return None;
    }
    match probe::may_allocate(session, context) {
        CUresult::SUCCESS => {}
        refused => return Some(Err(refused)),
    }
    let wanted = Wanted { context, asked_bytes, pool: CUmemoryPool::NULL };
    let found = take(session, wanted).or_else(|short| match short {
        // What was freed in streams may do.
        Short::Refused(CUresult::OUT_OF_MEMORY) if pool::wait_for_frees(session, context) => {
            take(session, wanted)
        }
        _ => Err(short),
    });
    match found {
        Ok(allocation) => Some(Ok(allocation.block.address)),
        Err(Short::Refused(code)) => Some(Err(code)),
        Err(Short::NotHere) => None,
    }
}

/// The calling thread's context; None without one.
pub(crate) fn current(session: &Session) -> Option<CUcontext> {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes one handle.
    unsafe { (session.driver.cuCtxGetCurrent)(&mut context) }.ok().ok()?;
    (!context.is_null()).then_some(context)
}

/// Whether memory of the current context is rota's matter: it is on the shared GPU.
pub(crate) fn serves(session: &Session, context: CUcontext) -> bool {
    // Also without the daemon: what is there serves until nothing is left in it.
    if session.table().knows(context) {
        return true;
    }
    if session.has_ended() {
        return false;
    }
    let mut device = CUdevice(0);
    // SAFETY: the driver writes one number.
    let known = unsafe { (session.driver.cuCtxGetDevice)(&mut device) }.ok().is_ok();
    known && session.shares(device)
}

/// Finds or makes memory for an allocation in the current context. May wait for the daemon, so the calling thread must
/// hold no lock.
pub(crate) fn take(session: &Session, wanted: Wanted) -> Result<Allocation, Short> {
    // Apart, so that the table is not held while it grows.
    let found = session.table().take(wanted);
    found.map_or_else(|| growth::grow(session, wanted), Ok)
}

/// Frees what starts at an address; None if that is not rota's, or another thread is at it.
fn free(session: &Session, address: u64) -> Option<CUresult> {
    let mut table = session.table();
    let claimed = table.claim(address)?;
    let (context, _) = table.owner(claimed.heap)?;
    drop(table);
    // A frozen program waits here until its next turn, with no lock held.
    let waited = probe::wait(session, context);
    let mut table = session.table();
    if probe::is_capture(waited) {
        // As natively: a stream capture is in the way, and nothing is freed.
        table.unclaim(address);
    } else if let Some(allocation) = table.forget(address) {
        cache::give(session, &mut table, &allocation);
    }
    Some(waited)
}
