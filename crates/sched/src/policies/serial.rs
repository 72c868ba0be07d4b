//! One after the other, each to its end, in the order in which they came.

use super::Standing;

/// To the end means to the end.
pub(super) const PREEMPTS: bool = false;

pub(super) fn key(standing: &Standing) -> u64 {
    standing.queued_at.0
}
