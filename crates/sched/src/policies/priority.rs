//! Five levels. Whoever waits rises by one level in each `ageing`, so nobody waits for ever.
//!
//! Since everybody in line rises at the same speed, the order of two does not change while they wait: the instant at which
//! one came, put off by its level, says it all.

use super::Standing;
use crate::Span;

/// Without ageing a level is worth more than any wait: 2^60 ns are 36 years.
const STRICT: u64 = 1 << 60;

pub(super) fn key(standing: &Standing, ageing: Span) -> u64 {
    let level = standing.priority as u64;
    standing.queued_at.0.saturating_add(level * ageing.0.min(STRICT))
}

pub(super) fn preempts(newcomer: &Standing, runner: &Standing, ran: Span, ageing: Span) -> bool {
    // One that has risen by waiting is not cut short by those it has passed. To run is not to wait.
    newcomer.priority < runner.priority && key(newcomer, ageing) < key(runner, ageing).saturating_add(ran.0)
}
