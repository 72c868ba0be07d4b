//! `librota`: what programs say to rota. `include/rota.h` is its documentation and its contract, `include/rota.hpp` the same
//! for C++; the Python package in `python/` loads this library.
//!
//! It knows neither CUDA nor rota's messages: it finds the shim's functions (`rota_shim_…`) by name in the process that it is
//! loaded into. Where they are not there, because the program was not started by `rota run`, every call does nothing, and
//! that is said once. Latencies are counted here, with and without a shim.
//!
//! What always holds: no function aborts, throws, takes a lock that another may hold, or changes errno; all may be called
//! from any thread at any time.
//!
//! - `shim`: the functions of the shim. `notice`: what is said once. `latency`: how long requests took.
//! - `requests`, `phases`, `terms`, `statistics`: the functions of `rota.h`.

mod latency;
mod notice;
mod phases;
mod requests;
mod shim;
mod statistics;
mod terms;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

// Has no names for us: it stands between us and the C library.
use older_glibc as _;

/// As in `rota.h`.
pub(crate) const OK: c_int = 0;
pub(crate) const NO_DAEMON: c_int = 1;
pub(crate) const INVALID: c_int = 5;

/// The version of this interface: the same number means that what was there is there, and means the same.
const ABI: u32 = 1;

/// The version of this interface in the upper half, of the library in the lower.
#[unsafe(no_mangle)]
extern "C" fn rota_version() -> u32 {
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    let (major, minor) = (number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR")));
    ABI << 16 | major << 8 | minor
}

/// Makes a call of which nothing gets out but its result, and that leaves errno as it was.
pub(crate) fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    // SAFETY: the C library returns the address of this thread's errno, which is there as long as the thread.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise);
    *errno = before;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_gets_no_further_and_errno_stays() {
        std::panic::set_hook(Box::new(|_| {}));
        // SAFETY: as above.
        let errno = || unsafe { &mut *libc::__errno_location() };
        *errno() = 7;
        let result = guarded(3, || {
            *errno() = 9;
            panic!("on purpose");
        });
        assert_eq!((result, *errno()), (3, 7));
    }

    #[test]
    fn the_version_says_which_interface_it_is() {
        assert_eq!(rota_version() >> 16, ABI);
    }
}
