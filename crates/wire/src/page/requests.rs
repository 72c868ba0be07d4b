//! What the page says of requests: what the daemon tells of the job, what the tenant tells of its requests and phases, and
//! what either counts.

use super::Page;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

impl Page {
    /// The daemon says whether the tenant's job is latency-critical, and how soon its requests are to be served.
    pub fn set_class(&self, critical: bool, slo_ns: Option<u64>) {
        self.critical.store(u64::from(critical), SeqCst);
        self.slo_ns.store(slo_ns.unwrap_or(0), SeqCst);
    }

    /// Is the tenant's job latency-critical?
    pub fn critical(&self) -> bool {
        self.critical.load(SeqCst) != 0
    }

    /// How soon its requests are to be served, if anything was said.
    pub fn slo_ns(&self) -> Option<u64> {
        Some(self.slo_ns.load(SeqCst)).filter(|&slo| slo != 0)
    }

    /// The tenant serves so many requests now.
    pub fn set_requests_open(&self, open: u64) {
        self.requests_open.store(open, SeqCst);
    }

    /// How many requests the tenant serves, by its own word.
    pub fn requests_open(&self) -> u64 {
        self.requests_open.load(SeqCst)
    }

    /// The tenant is in so many phases in which it gives way.
    pub fn set_phases_open(&self, open: u64) {
        self.phases_open.store(open, SeqCst);
    }

    /// Does the tenant give way to others as soon as it has no work?
    pub fn gives_way(&self) -> bool {
        self.phases_open.load(SeqCst) != 0
    }

    /// The tenant does not want its requests to be forecast, or does again.
    pub fn set_unforecast(&self, unforecast: bool) {
        self.unforecast.store(u64::from(unforecast), SeqCst);
    }

    /// May the tenant's requests be forecast?
    pub fn may_be_forecast(&self) -> bool {
        self.unforecast.load(SeqCst) == 0
    }

    /// A hint could not be sent.
    pub fn count_dropped_hint(&self) {
        self.hints_dropped.fetch_add(1, Relaxed);
    }

    /// How many hints could not be sent.
    pub fn hints_dropped(&self) -> u64 {
        self.hints_dropped.load(Relaxed)
    }

    /// The tenant launched a warm-up kernel, or could not.
    pub fn count_warm_up(&self, launched: bool) {
        let count = if launched { &self.warm_ups } else { &self.warm_ups_failed };
        count.fetch_add(1, Relaxed);
    }

    /// How many warm-up kernels were launched, and how many could not be.
    pub fn warm_ups(&self) -> (u64, u64) {
        (self.warm_ups.load(Relaxed), self.warm_ups_failed.load(Relaxed))
    }
}
