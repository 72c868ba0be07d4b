//! The longest answers fit into a message.

use rota_wire::{
    Connection, FromDaemon, Hints, Listing, MESSAGE_BYTES_MAX, NotBack, NotDeep, RequestTimes, Statistics,
    Tenant, TenantId, TenantState, Times,
};

use std::os::fd::AsFd;

/// How long a message is on a socket.
fn length(message: &FromDaemon) -> usize {
    let (here, there) = Connection::pair().unwrap();
    here.send(message, &[]).unwrap();
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    rustix::net::recv(there.as_fd(), &mut bytes[..], rustix::net::RecvFlags::empty()).unwrap().0
}

/// A listing of tenants with long names and large numbers, as many with what they went through as are shown, the rest
/// without, fits into a message: `rotad` counts on it.
#[test]
fn the_longest_listing_fits_into_a_message() {
    const LARGE: u64 = 1 << 45;
    const MANY: u64 = 1 << 32;
    let times = Times { count: MANY, p50_ns: LARGE, p99_ns: LARGE, p999_ns: LARGE, max_ns: LARGE };
    let statistics = Statistics {
        requests: Some(RequestTimes { by_program: true, times, slo_missed: MANY }),
        granted: Some(times),
        freezes: MANY,
        frozen_ns: LARGE,
        switching_ns: LARGE,
        moving_ns: LARGE,
        phase: Some("p".repeat(32)),
    };
    let hints = Hints {
        sdk: MANY,
        shim: MANY,
        forecast: MANY,
        good: MANY,
        early: MANY,
        late: MANY,
        false_: MANY,
        missed: MANY,
        dropped: MANY,
        warm_ups: MANY,
        warm_ups_failed: MANY,
        warm_ups_awaited: MANY,
        rhythm_ns: Some(LARGE),
    };
    let tenant = |statistics: Option<Statistics>| Tenant {
        tenant: TenantId(u32::MAX),
        pid: u32::MAX,
        gpu: "g".repeat(40),
        job: "j".repeat(128),
        program: "p".repeat(128),
        state: TenantState::Away,
        resident_bytes: LARGE,
        away_bytes: LARGE,
        turns: MANY,
        waiting_ns: LARGE,
        place: Some(1000),
        places: Some(1000),
        forecast_ns: Some(LARGE),
        host_bytes: LARGE,
        hints: statistics.as_ref().map(|_| hints),
        statistics,
        reserved: true,
        not_back: Some(NotBack::Failed),
        not_deep: Some(NotDeep::Unknown),
    };
    let shown = std::iter::repeat_n(tenant(Some(statistics)), 64);
    let tenants = shown.chain(std::iter::repeat_n(tenant(None), 64)).collect();
    let listing = Listing { schema_version: 1, gpus: Vec::new(), tenants, unmanaged: Vec::new() };
    let bytes = length(&FromDaemon::Listing(listing));
    assert!(bytes < MESSAGE_BYTES_MAX * 15 / 16, "{bytes} bytes, without GPUs and strangers");
}
