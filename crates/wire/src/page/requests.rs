//! What the page says of requests: what the daemon tells of the job, what the tenant tells of its requests and phases, and
//! what either counts.

use super::{PHASE_NAME_BYTES, Page};
use crate::RequestTimes;
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

    /// The daemon keeps others off the GPU for the tenant's request, or does no longer.
    pub fn await_end(&self, awaited: bool) {
        self.end_awaited.store(u64::from(awaited), SeqCst);
    }

    /// Is the daemon to be told at once when the tenant's request has ended?
    pub fn end_is_awaited(&self) -> bool {
        self.end_awaited.load(SeqCst) != 0
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

    /// The tenant says itself when requests begin and end.
    pub fn tell_requests(&self) {
        self.requests_told.store(1, SeqCst);
    }

    /// Does the tenant say itself when requests begin and end?
    pub fn requests_are_told(&self) -> bool {
        self.requests_told.load(SeqCst) != 0
    }

    /// A request took so long, and was to take no longer than that, if anything was said.
    pub fn add_request(&self, took_ns: u64, slo_ns: Option<u64>) {
        self.latencies.add(took_ns, slo_ns);
    }

    /// How long requests took, by the tenant's word; None if none has ended.
    pub fn request_times(&self) -> Option<RequestTimes> {
        let by_program = self.requests_are_told();
        let times = self.latencies.times()?;
        Some(RequestTimes { by_program, times, slo_missed: self.latencies.missed() })
    }

    /// The same requests in a page that has none yet.
    pub(super) fn take_requests_from(&self, other: &Self) {
        self.requests_told.store(other.requests_told.load(SeqCst), SeqCst);
        self.latencies.copy_from(&other.latencies);
    }

    /// What the tenant calls the phase that it is in, as much of it as is kept.
    pub fn set_phase_name(&self, name: &[u8]) {
        let mut bytes = [0; PHASE_NAME_BYTES];
        let length = name.len().min(PHASE_NAME_BYTES);
        bytes[..length].copy_from_slice(&name[..length]);
        for (word, bytes) in self.phase_name.iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), SeqCst);
        }
    }

    /// The name of the phase in which the tenant gives way, as far as it can be read; None in no phase, or without a name.
    pub fn phase_name(&self) -> Option<String> {
        let mut bytes = [0; PHASE_NAME_BYTES];
        for (word, bytes) in self.phase_name.iter().zip(bytes.as_chunks_mut().0) {
            *bytes = word.load(SeqCst).to_le_bytes();
        }
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(PHASE_NAME_BYTES);
        let name = String::from_utf8_lossy(&bytes[..length]);
        let name: String = name.chars().filter(|sign| !sign.is_control()).collect();
        (self.gives_way() && !name.is_empty()).then_some(name)
    }
}
