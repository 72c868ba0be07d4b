//! Ranges that are handed out whole, and kept for the next request of about their size.

use std::collections::{BTreeMap, BTreeSet};

use super::Block;

/// A range that is larger than a request by up to one part in so many serves it.
const LARGER_BY: u64 = 8;

/// All such ranges.
#[derive(Debug, Default)]
pub(super) struct Whole {
    /// Each with its size, and since when nobody has it.
    ranges: BTreeMap<u64, (u64, Option<u64>)>,
    /// Those that nobody has, by size.
    idle: BTreeSet<(u64, u64)>,
    idle_bytes: u64,
}

impl Whole {
    pub(super) fn take(&mut self, bytes: u64) -> Option<Block> {
        let &(found, address) =
            self.idle.range((bytes, 0)..=(bytes.saturating_add(bytes / LARGER_BY), u64::MAX)).next()?;
        self.idle.remove(&(found, address));
        self.idle_bytes -= found;
        self.ranges.insert(address, (found, None));
        Some(Block { address, bytes: found })
    }

    pub(super) fn give(&mut self, range: Block, now_ns: u64) {
        debug_assert_eq!(self.ranges.get(&range.address), Some(&(range.bytes, None)));
        self.add(range, now_ns);
    }

    pub(super) fn add(&mut self, range: Block, now_ns: u64) {
        self.ranges.insert(range.address, (range.bytes, Some(now_ns)));
        self.idle.insert((range.bytes, range.address));
        self.idle_bytes += range.bytes;
    }

    /// Takes a range out that nobody has. False if there is none of this start.
    pub(super) fn remove(&mut self, start: u64) -> bool {
        let Some((bytes, since)) = self.ranges.remove(&start) else { return false };
        debug_assert!(since.is_some());
        self.idle.remove(&(bytes, start));
        self.idle_bytes -= bytes;
        true
    }

    /// Ranges that nobody has, and since when.
    pub(super) fn idle(&self) -> impl Iterator<Item = (u64, Block)> {
        self.ranges
            .iter()
            .filter_map(|(start, (bytes, since))| Some(((*since)?, Block { address: *start, bytes: *bytes })))
    }

    pub(super) fn idle_bytes(&self) -> u64 {
        self.idle_bytes
    }
}
