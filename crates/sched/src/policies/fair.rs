//! Weighted shares: whoever had the least GPU time for its weight is next.

use super::Standing;

/// A turn is used up before the next one's begins.
pub(super) const PREEMPTS: bool = false;

pub(super) fn key(standing: &Standing) -> u64 {
    standing.virtual_time
}
