//! Which parts of the arena are free. Pure bookkeeping: no memory is touched here.
//!
//! Space is added segment by segment, as it becomes ready, and handed out in whole blocks. A run never crosses a
//! segment's end: segments are files of their own, and a device registers them one by one.

use crate::BLOCK_BYTES;
use crate::message::Extent;
use crate::names::Node;
use crate::zeros::{self, Parted};
use std::collections::{BTreeMap, BTreeSet};

/// Space that was taken. It goes back by [`Space::give_back`]; it cannot be copied, so it cannot go back twice.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Extent>);

impl Extents {
    /// The runs, in the order in which bytes are laid into them.
    pub fn runs(&self) -> &[Extent] {
        &self.0
    }

    /// The size of all runs.
    pub fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, run| sum.saturating_add(run.bytes))
    }

    /// Places of all blocks of a handle become those of blocks that are not zero, and the others.
    pub fn part(self, is_zero: impl Fn(usize) -> bool) -> (Extents, Extents) {
        let Parted { kept, free } = zeros::part(&self.0, is_zero);
        (Extents(kept), Extents(free))
    }

    /// The reverse of it, with new places for the blocks that are zero.
    pub fn join(self, new: Extents, blocks: usize, is_zero: impl Fn(usize) -> bool) -> Extents {
        Extents(zeros::join(&self.0, &new.0, blocks, is_zero))
    }
}

/// The free space of an arena.
#[derive(Debug)]
pub struct Space {
    segment_bytes: u64,
    ready_bytes: u64,
    /// The ready segments by offset: how long, and near to which node.
    segments: BTreeMap<u64, (u64, Option<Node>)>,
    /// Free runs, by the node they are near to.
    pools: BTreeMap<Option<Node>, Pool>,
}

/// Free runs.
#[derive(Debug, Default)]
struct Pool {
    free_bytes: u64,
    /// By offset; neighbours of one segment are always merged.
    by_offset: BTreeMap<u64, u64>,
    /// The same runs by length.
    by_length: BTreeSet<(u64, u64)>,
}

impl Space {
    /// No space yet. All segments but the last have this size.
    pub fn new(segment_bytes: u64) -> Space {
        Space { segment_bytes, ready_bytes: 0, segments: BTreeMap::new(), pools: BTreeMap::new() }
    }

    /// What was added, taken or not.
    pub fn ready_bytes(&self) -> u64 {
        self.ready_bytes
    }

    /// What can be taken.
    pub fn free_bytes(&self) -> u64 {
        self.pools.values().fold(0, |sum, pool| sum.saturating_add(pool.free_bytes))
    }

    /// Adds a segment that has become ready. False, and nothing changes, if there cannot be one.
    pub fn add_segment(&mut self, segment: Extent, node: Option<Node>) -> bool {
        let Extent { offset, bytes } = segment;
        let fits = offset.is_multiple_of(self.segment_bytes)
            && bytes > 0
            && bytes <= self.segment_bytes
            && bytes.is_multiple_of(BLOCK_BYTES)
            && offset.checked_add(self.segment_bytes).is_some();
        if !fits || self.segments.contains_key(&offset) {
            return false;
        }
        self.segments.insert(offset, (bytes, node));
        self.ready_bytes = self.ready_bytes.saturating_add(bytes);
        self.pools.entry(node).or_default().put(segment, self.segment_bytes)
    }

    /// Takes space for this many bytes, rounded up to whole blocks, near to this node as far as there is some. Of each
    /// node one run if there is one that is long enough (the shortest such run), else as few as possible. None if there is
    /// not enough in all.
    pub fn take(&mut self, bytes: u64, near: Option<Node>) -> Option<Extents> {
        let mut wanted = bytes.checked_next_multiple_of(BLOCK_BYTES)?;
        if wanted > self.free_bytes() {
            return None;
        }
        let mut runs = Vec::new();
        if let Some(pool) = self.pools.get_mut(&near) {
            wanted = pool.take(wanted, &mut runs);
        }
        for pool in self.pools.values_mut() {
            wanted = pool.take(wanted, &mut runs);
        }
        debug_assert_eq!(wanted, 0, "free_bytes is the sum of all runs");
        Some(Extents(runs))
    }

    /// Makes space free again. False if some of it was free already, or never there: that part is left out.
    pub fn give_back(&mut self, extents: Extents) -> bool {
        let mut all = true;
        for run in extents.0 {
            all &= self.put(run);
        }
        all
    }

    fn put(&mut self, run: Extent) -> bool {
        let Some(node) = self.segment_around(run) else { return false };
        let segment_bytes = self.segment_bytes;
        self.pools.get_mut(&node).is_some_and(|pool| pool.put(run, segment_bytes))
    }

    /// The node of the segment that a run of whole blocks lies in.
    fn segment_around(&self, run: Extent) -> Option<Option<Node>> {
        let whole = run.bytes > 0 && (run.offset | run.bytes).is_multiple_of(BLOCK_BYTES);
        let (&start, &(length, node)) = self.segments.range(..=run.offset).next_back()?;
        let end = run.offset.checked_add(run.bytes)?;
        (whole && end <= start.saturating_add(length)).then_some(node)
    }
}

impl Pool {
    /// Takes as much as there is of what is wanted. Says how much is missing.
    fn take(&mut self, mut wanted: u64, runs: &mut Vec<Extent>) -> u64 {
        while wanted > 0 {
            let fitting = self.by_length.range((wanted, 0)..).next();
            let Some(&(length, offset)) = fitting.or(self.by_length.last()) else { break };
            let taken = length.min(wanted);
            self.remove(offset, length);
            if taken < length {
                self.insert(offset.saturating_add(taken), length.saturating_sub(taken));
            }
            wanted = wanted.saturating_sub(taken);
            runs.push(Extent { offset, bytes: taken });
        }
        wanted
    }

    /// False, and nothing changes, if some of it is free already.
    fn put(&mut self, run: Extent, segment_bytes: u64) -> bool {
        let Extent { mut offset, mut bytes } = run;
        let end = offset.saturating_add(bytes);
        let before = self.by_offset.range(..=offset).next_back().map(|(&o, &b)| (o, b));
        let after = self.by_offset.range(offset..).next().map(|(&o, &b)| (o, b));
        let overlaps =
            before.is_some_and(|(o, b)| o.saturating_add(b) > offset) || after.is_some_and(|(o, _)| o < end);
        if overlaps {
            return false;
        }
        if let Some((before_offset, before_bytes)) = before
            && before_offset.saturating_add(before_bytes) == offset
            && !offset.is_multiple_of(segment_bytes)
        {
            self.remove(before_offset, before_bytes);
            offset = before_offset;
            bytes = bytes.saturating_add(before_bytes);
        }
        if let Some((after_offset, after_bytes)) = after
            && end == after_offset
            && !after_offset.is_multiple_of(segment_bytes)
        {
            self.remove(after_offset, after_bytes);
            bytes = bytes.saturating_add(after_bytes);
        }
        self.insert(offset, bytes);
        true
    }

    fn insert(&mut self, offset: u64, bytes: u64) {
        self.by_offset.insert(offset, bytes);
        self.by_length.insert((bytes, offset));
        self.free_bytes = self.free_bytes.saturating_add(bytes);
    }

    fn remove(&mut self, offset: u64, bytes: u64) {
        self.by_offset.remove(&offset);
        self.by_length.remove(&(bytes, offset));
        self.free_bytes = self.free_bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests;
