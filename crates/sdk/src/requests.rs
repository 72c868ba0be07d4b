//! Hints, and requests that begin and end.

use crate::latency::Latencies;
use crate::{INVALID, NO_DAEMON, OK, guarded, shim};
use std::ffi::c_int;

/// Of this process.
pub(crate) static LATENCIES: Latencies = Latencies::new();

/// As in `rota.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Request {
    began_ns: u64,
    slo_ns: u64,
    reserved: [u64; 2],
}

/// See `rota.h`.
#[unsafe(no_mangle)]
extern "C" fn rota_hint(in_ns: u64) -> c_int {
    // SAFETY: it takes a number.
    guarded(NO_DAEMON, || shim::tell(|shim| unsafe { (shim.hint)(in_ns) }))
}

/// See `rota.h`.
///
/// # Safety
/// `request` is null, or points to one that may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn rota_request_begin(request: *mut Request, in_ns: u64, slo_ns: u64) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(request) = (unsafe { request.as_mut() }) else { return INVALID };
    *request = Request { began_ns: now_ns(), slo_ns, ..Request::default() };
    // SAFETY: it takes a number.
    guarded(NO_DAEMON, || shim::tell(|shim| unsafe { (shim.request_begin)(in_ns) }))
}

/// See `rota.h`.
///
/// # Safety
/// As [`rota_request_begin`].
#[unsafe(no_mangle)]
unsafe extern "C" fn rota_request_end(request: *mut Request) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(request) = (unsafe { request.as_mut() }) else { return INVALID };
    let Request { began_ns, slo_ns, .. } = std::mem::take(request);
    if began_ns == 0 {
        return INVALID;
    }
    let took = now_ns().saturating_sub(began_ns);
    guarded(NO_DAEMON, || {
        // SAFETY: it takes nothing. First of all: others wait for it.
        let said = shim::tell(|shim| unsafe { (shim.request_end)() });
        let slo = Some(slo_ns).filter(|&slo| slo != 0).or_else(jobs_slo_ns);
        LATENCIES.add(took, slo);
        if let Some(shim) = shim::find() {
            // SAFETY: it takes numbers.
            unsafe { (shim.request_took)(took, slo_ns) };
        }
        said
    })
}

/// How soon requests of this job are to be served, if anything was said.
pub(crate) fn jobs_slo_ns() -> Option<u64> {
    shim::find().map(|shim| shim.state().slo_ns).filter(|&slo| slo != 0)
}

/// Never 0.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes one time. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    (now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()).max(1)
}

/// See `rota.h`.
#[unsafe(no_mangle)]
extern "C" fn rota_statistics_reset() -> c_int {
    guarded(INVALID, || {
        LATENCIES.reset();
        OK
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_once_and_is_counted_without_anybody_who_hears() {
        let before = LATENCIES.count();
        let mut request = Request::default();
        // SAFETY: it is there.
        unsafe {
            assert_eq!(rota_request_end(&mut request), INVALID, "it never began");
            assert_eq!(rota_request_begin(&mut request, 0, 1), NO_DAEMON);
            std::thread::sleep(std::time::Duration::from_millis(1));
            assert_eq!(rota_request_end(&mut request), NO_DAEMON);
            assert_eq!(rota_request_end(&mut request), INVALID, "it has ended");
            assert_eq!(rota_request_begin(std::ptr::null_mut(), 0, 0), INVALID);
        }
        assert_eq!((LATENCIES.count(), LATENCIES.missed()), (before + 1, 1));
        assert!(LATENCIES.max_ns() >= 1_000_000);
    }
}
