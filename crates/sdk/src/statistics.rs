//! How things are, for a program that asks.

use crate::guarded;
use crate::requests::LATENCIES;
use crate::shim::{self, State};

/// As in `rota.h`. Fields are only ever added at the end.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Statistics {
    requests: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
    slo_missed: u64,
    slo_ns: u64,
    requests_open: u64,
    dropped: u64,
    warm_ups: u64,
    warm_ups_failed: u64,
    tenant: u32,
    critical: u32,
}

/// See `rota.h`.
///
/// # Safety
/// `statistics` is null, or there is room for `bytes` at it.
#[unsafe(no_mangle)]
unsafe extern "C" fn rota_statistics_get(statistics: *mut u8, bytes: usize) -> usize {
    if statistics.is_null() {
        return 0;
    }
    let now = guarded(Statistics::default(), look);
    let length = bytes.min(size_of::<Statistics>());
    // SAFETY: by the caller's promise there is room; the structure has no padding.
    unsafe { std::ptr::copy_nonoverlapping((&raw const now).cast(), statistics, length) };
    length
}

fn look() -> Statistics {
    let State { tenant, critical, slo_ns, requests_open, dropped, warm_ups, warm_ups_failed } =
        shim::find().map(|shim| shim.state()).unwrap_or_default();
    Statistics {
        requests: LATENCIES.count(),
        p50_ns: LATENCIES.quantile_ns(500),
        p99_ns: LATENCIES.quantile_ns(990),
        p999_ns: LATENCIES.quantile_ns(999),
        max_ns: LATENCIES.max_ns(),
        slo_missed: LATENCIES.missed(),
        slo_ns,
        requests_open,
        dropped,
        warm_ups,
        warm_ups_failed,
        tenant,
        critical,
    }
}
