//! Hints that a request comes, and requests that begin and end.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use wire::{HintSource, ToDaemon, monotonic_ns};

use super::{Said, hints_are_off, present, sight, stretches, take_one, unheard};
use crate::guard::guarded;

/// Requests that this process serves now.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// A request arrived: kernels follow in about so many nanoseconds.
#[unsafe(no_mangle)]
extern "C" fn rota_shim_hint(within_ns: u64) -> c_int {
    guarded("rota_shim_hint", || Said::NoDaemon, || hint(within_ns)).into()
}

/// A request begins: its kernels follow in about so many nanoseconds, or at once if that is 0.
#[unsafe(no_mangle)]
extern "C" fn rota_shim_request_begin(within_ns: u64) -> c_int {
    guarded("rota_shim_request_begin", || Said::NoDaemon, || begin(within_ns)).into()
}

/// A request ends.
#[unsafe(no_mangle)]
extern "C" fn rota_shim_request_end() -> c_int {
    guarded("rota_shim_request_end", || Said::NoDaemon, end).into()
}

/// A request that has ended took so long, and was to take no longer than that, or than its job's SLO if that is 0.
#[unsafe(no_mangle)]
extern "C" fn rota_shim_request_took(took_ns: u64, slo_ns: u64) -> c_int {
    guarded("rota_shim_request_took", || Said::NoDaemon, || took(took_ns, slo_ns)).into()
}

fn took(took_ns: u64, slo_ns: u64) -> Said {
    for session in present() {
        let slo = Some(slo_ns).filter(|&slo| slo != 0).or_else(|| session.page.slo_ns());
        session.page.add_request(took_ns, slo);
    }
    if present().next().is_some() { Said::Heard } else { unheard() }
}

fn hint(within_ns: u64) -> Said {
    if hints_are_off() {
        return Said::Off;
    }
    sight::leave_it_to_the_program();
    let at_ns = monotonic_ns().saturating_add(within_ns);
    tell(&ToDaemon::Hint { at_ns, source: HintSource::Sdk })
}

fn begin(within_ns: u64) -> Said {
    OPEN.fetch_add(1, SeqCst);
    publish();
    stretches::leave_them_to_the_program();
    match within_ns {
        0 => announce(),
        _ => hint(within_ns),
    }
}

/// Work follows at once. Whoever waits to hear of it is told here, so that the first launch of the request, whose time counts,
/// finds nothing to do.
fn announce() -> Said {
    let mut said = None;
    let wants = || ToDaemon::Wants { since_ns: monotonic_ns() };
    for session in present() {
        let page = &session.page;
        let now = match () {
            () if !page.critical() => Said::NotCritical,
            // It knows.
            () if !page.take_watch() => Said::Heard,
            () if session.connection.send_at_once(&wants()) => Said::Heard,
            () => {
                page.count_dropped_hint();
                if page.give_watch_back() {
                    session.say(wants());
                    session.wake_agent();
                }
                Said::Dropped
            }
        };
        if said.is_none() || now == Said::Dropped {
            said = Some(now);
        }
    }
    said.unwrap_or_else(unheard)
}

fn end() -> Said {
    if !take_one(&OPEN) {
        return Said::Invalid;
    }
    publish();
    tell(&ToDaemon::Served)
}

/// Says something to whoever has latency-critical tenants of this process, at once or not at all.
pub(super) fn tell(message: &ToDaemon) -> Said {
    let mut said = None;
    for session in present() {
        let now = match () {
            () if !session.page.critical() => Said::NotCritical,
            () if session.connection.send_at_once(message) => Said::Heard,
            () => {
                session.page.count_dropped_hint();
                Said::Dropped
            }
        };
        // With several GPUs all have the same class; what did not reach one of them is what counts.
        if said.is_none() || now == Said::Dropped {
            said = Some(now);
        }
    }
    said.unwrap_or_else(unheard)
}

/// Says in all pages how many requests are served.
pub(super) fn publish() {
    super::publish(&OPEN, |page, open| page.set_requests_open(open));
}

/// How many requests are served.
pub(super) fn open() -> u64 {
    OPEN.load(SeqCst)
}

pub(super) fn forget() {
    OPEN.store(0, SeqCst);
}
