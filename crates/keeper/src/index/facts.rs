//! Facts that follow from others.
//!
//! The place of a zero block was never written: it has bytes of whoever was there before, perhaps another tenant's. They
//! must not come to count. They would if the facts were left out, as then every place counts; and if the block were called
//! not zero while its hash is the same, as then the worker took an unwritten place for a copy.

use crate::message::BlockFact;

/// Can these be the facts of a handle of so many blocks whose place had those before, if any?
pub(super) fn follow(before: &[BlockFact], now: &[BlockFact], blocks: u64) -> bool {
    if now.is_empty() {
        return before.is_empty();
    }
    let unwritten_counts =
        |(before, now): (&BlockFact, &BlockFact)| before.zero && !now.zero && before.hash == now.hash;
    now.len() as u64 == blocks && !before.iter().zip(now).any(unwritten_counts)
}
