//! Managed memory, which the driver moves between host and device by itself: counted, and frozen with its program, but not
//! moved by rota.

use std::ffi::c_uint;

use cuda::CUresult;
use cuda::types::CUdeviceptr;

use super::{Made, counting, forget, keep, let_go, note};
use crate::guard::guarded;
use crate::memory::native;

/// Allocates memory that host and device reach.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let native = || unsafe { native::cuMemAllocManaged(address, bytes, flags) };
    let counted = guarded(
        "cuMemAllocManaged",
        || Some(Err(CUresult::UNKNOWN)),
        || {
            let (session, context) = counting().filter(|_| !address.is_null() && bytes > 0)?;
            Some(keep(session, bytes as u64)?.map(|booking| (session, context, booking)))
        },
    );
    match counted {
        None => native(),
        Some(Err(code)) => code,
        Some(Ok((session, context, booking))) => {
            let result = native();
            let settle = || match result {
                CUresult::SUCCESS => {
                    // SAFETY: the driver has just written it.
                    let start = unsafe { address.read() }.0;
                    note(session, Made::Managed(start), context, booking);
                }
                _ => let_go(session, booking),
            };
            guarded("cuMemAllocManaged", || (), settle);
            result
        }
    }
}

/// The driver freed what starts at an address.
pub(crate) fn freed(address: CUdeviceptr) {
    guarded("cuMemFree", || (), || forget(Made::Managed(address.0)));
}
