//! Which parts of the file are free. Pure bookkeeping: no file is touched here.
//!
//! The file is made of segments. One that is **absent** takes no room on the disk; the file grows by making one
//! present, and shrinks by making absent one that is wholly free. Space is handed out in granules of present segments,
//! and a run never crosses a segment's end.
//!
//! A file that was taken over may be larger than the limit is now. Then it reaches as far as what it holds, and does not
//! grow before it has become smaller than the limit.

use crate::GRANULE_BYTES;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A run of whole granules in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Extent {
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Extent {
    /// Where it ends, if there is such an offset.
    pub(crate) fn end(self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

/// The space of a file.
#[derive(Debug)]
pub(crate) struct Space {
    limit_bytes: u64,
    /// Where the last segment ends: the limit, or beyond it.
    end_bytes: u64,
    segment_bytes: u64,
    free_bytes: u64,
    absent_bytes: u64,
    /// Segments that are not part of the file now, by their number.
    absent: BTreeSet<u64>,
    /// Free runs by offset; neighbours of one segment are always merged.
    by_offset: BTreeMap<u64, u64>,
    /// The same runs by length.
    by_length: BTreeSet<(u64, u64)>,
}

impl Space {
    /// All of it absent. The limit and the segments' size are rounded down to whole granules. It reaches as far as the
    /// limit, and as far as `reach_bytes`.
    pub(crate) fn new(limit_bytes: u64, segment_bytes: u64, reach_bytes: u64) -> Space {
        let limit_bytes = limit_bytes / GRANULE_BYTES * GRANULE_BYTES;
        let segment_bytes = segment_bytes / GRANULE_BYTES * GRANULE_BYTES;
        assert!(limit_bytes > 0 && segment_bytes > 0, "nothing fits into less than a granule");
        // Beyond the limit all segments are of one size: so whether one more fits does not depend on which one it is.
        let is_beyond = reach_bytes > limit_bytes;
        let end_bytes = if is_beyond { reach_bytes.next_multiple_of(segment_bytes) } else { limit_bytes };
        Space {
            limit_bytes,
            end_bytes,
            segment_bytes,
            free_bytes: 0,
            absent_bytes: end_bytes,
            absent: (0..end_bytes.div_ceil(segment_bytes)).collect(),
            by_offset: BTreeMap::new(),
            by_length: BTreeSet::new(),
        }
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// What is free within the limit, whether the disk has room for it or not.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes + self.growth_bytes()
    }

    /// What is free of what has room on the disk already.
    pub(crate) fn present_free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// By how much the file may grow, in whole segments.
    fn growth_bytes(&self) -> u64 {
        if self.end_bytes == self.limit_bytes {
            return self.absent_bytes;
        }
        let room = self.limit_bytes.saturating_sub(self.present_bytes());
        self.absent_bytes.min(room / self.segment_bytes * self.segment_bytes)
    }

    /// Where the last segment ends.
    pub(crate) fn end_bytes(&self) -> u64 {
        self.end_bytes
    }

    /// What the file takes on the disk.
    pub(crate) fn present_bytes(&self) -> u64 {
        self.end_bytes - self.absent_bytes
    }

    /// The segment that would make the file larger, if the limit allows for one.
    pub(crate) fn next_absent(&self) -> Option<Extent> {
        let segment = self.absent.first().map(|&number| self.segment(number));
        segment.filter(|segment| segment.bytes <= self.growth_bytes())
    }

    /// All segments that are absent.
    pub(crate) fn all_absent(&self) -> Vec<Extent> {
        self.absent.iter().map(|&number| self.segment(number)).collect()
    }

    /// Adds an absent segment: it has room on the disk now.
    pub(crate) fn add(&mut self, segment: Extent) {
        let removed = self.absent.remove(&(segment.offset / self.segment_bytes));
        assert!(removed, "the segment at {} was there already", segment.offset);
        self.absent_bytes -= segment.bytes;
        self.put(segment);
    }

    /// Takes a segment that is wholly free out of what can be taken, so that its room can go back to the disk.
    pub(crate) fn withdraw_free(&mut self) -> Option<Extent> {
        let runs = self.by_offset.iter().map(|(&offset, &bytes)| Extent { offset, bytes });
        let mut whole = runs.filter(|run| *run == self.segment(run.offset / self.segment_bytes));
        let segment = whole.next_back()?;
        self.remove(segment.offset, segment.bytes);
        self.free_bytes -= segment.bytes;
        Some(segment)
    }

    /// A withdrawn segment has no room on the disk any more.
    pub(crate) fn set_absent(&mut self, segment: Extent) {
        let inserted = self.absent.insert(segment.offset / self.segment_bytes);
        assert!(inserted, "the segment at {} was absent already", segment.offset);
        self.absent_bytes += segment.bytes;
    }

    /// Takes space for this many bytes, rounded up to whole granules: in one run if there is one that is long enough
    /// (the shortest such run), else in as few as possible. None if what is present is not enough.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Vec<Extent>> {
        let mut wanted = bytes.checked_next_multiple_of(GRANULE_BYTES)?;
        if wanted > self.free_bytes {
            return None;
        }
        let mut runs = Vec::new();
        while wanted > 0 {
            let fitting = self.by_length.range((wanted, 0)..).next();
            let &(length, offset) =
                fitting.or(self.by_length.last()).expect("free_bytes is the sum of the runs");
            let taken = length.min(wanted);
            self.cut(Extent { offset, bytes: length }, Extent { offset, bytes: taken });
            wanted -= taken;
            runs.push(Extent { offset, bytes: taken });
        }
        Some(runs)
    }

    /// Takes exactly this run, making its segment present. False, and nothing is changed, if it is not free, not whole
    /// granules, or leaves its segment.
    fn take_run(&mut self, run: Extent) -> bool {
        let whole = run.bytes > 0
            && run.bytes.is_multiple_of(GRANULE_BYTES)
            && run.offset.is_multiple_of(GRANULE_BYTES);
        let Some(end) = run.end().filter(|&end| whole && end <= self.end_bytes) else { return false };
        let number = run.offset / self.segment_bytes;
        if (end - 1) / self.segment_bytes != number {
            return false;
        }
        if self.absent.contains(&number) {
            self.add(self.segment(number));
        }
        let around = self.by_offset.range(..=run.offset).next_back();
        let Some((&offset, &bytes)) = around.filter(|&(&offset, &bytes)| end <= offset + bytes) else {
            return false;
        };
        self.cut(Extent { offset, bytes }, run);
        true
    }

    /// Takes exactly these runs, making their segments present. False, and nothing is taken, if that is not possible.
    pub(crate) fn take_exactly(&mut self, runs: &[Extent]) -> bool {
        let possible = runs.iter().take_while(|run| self.take_run(**run)).count();
        if possible < runs.len() {
            self.give_back(&runs[..possible]);
        }
        possible == runs.len()
    }

    /// Makes space free again.
    pub(crate) fn give_back(&mut self, runs: &[Extent]) {
        for &run in runs {
            self.put(run);
        }
    }

    fn segment(&self, number: u64) -> Extent {
        let offset = number * self.segment_bytes;
        Extent { offset, bytes: self.segment_bytes.min(self.end_bytes - offset) }
    }

    /// Takes a part of a free run.
    fn cut(&mut self, free: Extent, part: Extent) {
        self.remove(free.offset, free.bytes);
        if part.offset > free.offset {
            self.insert(free.offset, part.offset - free.offset);
        }
        let (free_end, part_end) = (free.offset + free.bytes, part.offset + part.bytes);
        if part_end < free_end {
            self.insert(part_end, free_end - part_end);
        }
        self.free_bytes -= part.bytes;
    }

    fn put(&mut self, run: Extent) {
        let Extent { mut offset, mut bytes } = run;
        self.free_bytes += bytes;
        let before = self.by_offset.range(..=offset).next_back().map(|(&o, &b)| (o, b));
        if let Some((before_offset, before_bytes)) = before {
            assert!(before_offset + before_bytes <= offset, "space at {offset} was given back twice");
            if before_offset + before_bytes == offset && !offset.is_multiple_of(self.segment_bytes) {
                self.remove(before_offset, before_bytes);
                offset = before_offset;
                bytes += before_bytes;
            }
        }
        let after = self.by_offset.range(offset..).next().map(|(&o, &b)| (o, b));
        if let Some((after_offset, after_bytes)) = after {
            assert!(offset + bytes <= after_offset, "space at {offset} was given back twice");
            if offset + bytes == after_offset && !after_offset.is_multiple_of(self.segment_bytes) {
                self.remove(after_offset, after_bytes);
                bytes += after_bytes;
            }
        }
        self.insert(offset, bytes);
    }

    fn insert(&mut self, offset: u64, bytes: u64) {
        self.by_offset.insert(offset, bytes);
        self.by_length.insert((bytes, offset));
    }

    fn remove(&mut self, offset: u64, bytes: u64) {
        self.by_offset.remove(&offset);
        self.by_length.remove(&(bytes, offset));
    }
}

#[cfg(test)]
mod tests;
