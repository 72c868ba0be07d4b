//! Whoever is due first is next. Those with no SLO come after those who have one, unless they have waited for long: so
//! nobody waits for ever.

use super::Standing;
use crate::{Span, Time};

/// Whoever has no SLO is due when it would have risen from the lowest priority to the highest.
const LEVELS: u64 = 4;
/// Without ageing that is never: 2^60 ns are 36 years.
const STRICT: u64 = 1 << 60;

pub(super) fn key(standing: &Standing, ageing: Span) -> u64 {
    let Time(due) = standing.due.unwrap_or(standing.queued_at + Span(ageing.times(LEVELS).0.min(STRICT)));
    due
}

pub(super) fn preempts(newcomer: &Standing, runner: &Standing, ageing: Span) -> bool {
    // One that has waited for so long that it is due is not cut short by those that are due later.
    newcomer.due.is_some() && key(newcomer, ageing) < key(runner, ageing)
}
