//! Class and weight of this process's job.

use crate::{NO_DAEMON, guarded, shim};
use std::ffi::{c_char, c_int};

/// See `rota.h`.
///
/// # Safety
/// `reason` is null, or there is room for `bytes` at it.
#[unsafe(no_mangle)]
unsafe extern "C" fn rota_set(class: c_int, weight: u32, reason: *mut c_char, bytes: usize) -> c_int {
    if !reason.is_null() && bytes > 0 {
        // SAFETY: by the caller's promise there is room for one byte.
        unsafe { reason.write(0) };
    }
    // SAFETY: by the caller's promise.
    guarded(NO_DAEMON, || shim::tell(|shim| unsafe { (shim.set)(class, weight, reason, bytes) }))
}
