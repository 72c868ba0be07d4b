//! Phases in which a program gives way.

use crate::{NO_DAEMON, guarded, shim};
use std::ffi::{c_char, c_int};

/// See `rota.h`. The name is for whoever reads the program; it goes nowhere yet.
#[unsafe(no_mangle)]
extern "C" fn rota_phase_begin(_name: *const c_char) -> c_int {
    // SAFETY: it takes a number.
    guarded(NO_DAEMON, || shim::tell(|shim| unsafe { (shim.phase)(1) }))
}

/// See `rota.h`.
#[unsafe(no_mangle)]
extern "C" fn rota_phase_end() -> c_int {
    // SAFETY: as above.
    guarded(NO_DAEMON, || shim::tell(|shim| unsafe { (shim.phase)(0) }))
}
