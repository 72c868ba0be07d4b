//! How things are, for a program that asks.

use super::requests;
use crate::guard::guarded;
use crate::session;

/// As in `rota.h`. Fields are only ever added at the end.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct State {
    /// 1 if this process is a tenant of a daemon.
    tenant: u32,
    /// 1 if its job is latency-critical.
    critical: u32,
    /// How soon its requests are to be served; 0 if nothing is said.
    slo_ns: u64,
    /// Requests that it serves now.
    requests_open: u64,
    /// Hints and other words that did not reach the daemon.
    dropped: u64,
    /// Warm-up kernels that were launched for it.
    warm_ups: u64,
    /// And that could not be.
    warm_ups_failed: u64,
}

/// Writes how things are, as much of it as there is room for, and returns how much that was.
///
/// # Safety
/// There is room for `bytes` at `state`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rota_shim_state(state: *mut u8, bytes: usize) -> usize {
    let now = guarded("rota_shim_state", State::default, look);
    let length = bytes.min(size_of::<State>());
    if state.is_null() {
        return 0;
    }
    // SAFETY: by the caller's promise there is room; the structure has no padding.
    unsafe { std::ptr::copy_nonoverlapping((&raw const now).cast(), state, length) };
    length
}

fn look() -> State {
    let mut now = State { requests_open: requests::open(), ..State::default() };
    for session in session::all() {
        let page = &session.page;
        let (launched, failed) = page.warm_ups();
        now.tenant |= u32::from(!session.has_ended());
        now.critical |= u32::from(page.critical());
        now.slo_ns = page.slo_ns().unwrap_or(now.slo_ns);
        now.dropped += page.hints_dropped();
        now.warm_ups += launched;
        now.warm_ups_failed += failed;
    }
    now
}
