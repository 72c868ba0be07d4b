//! What came of a simulation: who was where when, and the figures made of it.

use sched::{Bytes, Span, TenantId, Time};

/// All that is kept of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Everybody who came, in order.
    pub tenants: Vec<Fate>,
    /// Stretches of time, in the order in which they began, as many as a picture needs: figures are not made of them.
    pub stretches: Vec<Stretch>,
    /// Time in which any best-effort tenant was not idle, summed over GPUs.
    pub wanted: Span,
    /// Bytes moved, both ways added.
    pub moved: Bytes,
    /// Time in which memory moved and nobody could run because of it, summed over GPUs.
    pub moving: Span,
    /// When the last one ended, or the limit.
    pub makespan: Span,
    /// Did everybody end by itself?
    pub finished: bool,
    /// Latency of each request of latency-critical tenants.
    pub latencies: Vec<Span>,
    /// Every wait for a turn that ended in one.
    pub forecasts: Vec<Foretold>,
    /// Events that the core was given.
    pub events: u64,
    /// Nobody made progress although somebody could run: short slices that only switch.
    pub livelock: bool,
}

/// What became of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    /// Who.
    pub tenant: TenantId,
    /// Of which job in the scenario.
    pub job: usize,
    /// For people: the job's name and a number.
    pub name: String,
    /// When it came.
    pub arrived: Time,
    /// When it ended, if it did.
    pub ended: Option<Time>,
    /// GPU time it would have needed alone for what it did.
    pub work: Span,
    /// Its longest gap between two turns while it had work.
    pub gap_max: Span,
    /// Its longest wait for anything: a turn, the door, memory.
    pub wait_max: Span,
    /// Best-effort?
    pub best_effort: bool,
    /// For how long it was not idle.
    pub wanted: Span,
    /// If it is latency-critical, for how long it could compute.
    pub ran: Span,
    /// And of that, while any best-effort tenant of its GPU was not idle.
    pub ran_beside: Span,
    /// Requests that took longer than its SLO allows.
    pub late: u64,
}

/// A wait for a turn: what was said of it, and what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foretold {
    /// Who waited.
    pub tenant: TenantId,
    /// From when on. That is when the core was asked.
    pub begin: Time,
    /// How long it would be, if the core said anything.
    pub said: Option<Span>,
    /// How long it was.
    pub was: Span,
}

/// A stretch of one tenant's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Whose.
    pub tenant: TenantId,
    /// On which GPU.
    pub gpu: u16,
    /// What it did.
    pub what: What,
    /// From.
    pub begin: Time,
    /// To.
    pub end: Time,
}

/// What a tenant does in a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// It may compute.
    Ran,
    /// It would like to.
    Waited,
    /// Its memory goes out.
    MovedOut,
    /// Its memory comes in.
    MovedIn,
    /// It has nothing to do.
    Idle,
}
