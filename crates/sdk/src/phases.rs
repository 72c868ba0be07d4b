//! Phases in which a program gives way.

use crate::{NO_DAEMON, guarded, shim};
use std::ffi::{c_char, c_int};

/// See `rota.h`.
///
/// # Safety
/// `name` is null, or ends with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn rota_phase_begin(name: *const c_char) -> c_int {
    // SAFETY: by the caller's promise.
    guarded(NO_DAEMON, || shim::tell(|shim| unsafe { (shim.phase)(1, name) }))
}

/// See `rota.h`.
#[unsafe(no_mangle)]
extern "C" fn rota_phase_end() -> c_int {
    // SAFETY: without a name.
    guarded(NO_DAEMON, || shim::tell(|shim| unsafe { (shim.phase)(0, std::ptr::null()) }))
}
