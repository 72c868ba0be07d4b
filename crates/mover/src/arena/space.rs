//! Which parts of the arena are free. Pure bookkeeping: no memory is touched here.
//!
//! Space is added segment by segment, as it becomes ready, and handed out in whole blocks. A run never crosses a
//! segment's end, because segments are registered with the device one by one and a copy must stay within one.

use crate::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// A run of bytes in the arena, within one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Where it starts.
    pub offset: u64,
    /// How long it is: whole blocks.
    pub bytes: u64,
}

/// Space that was taken. It goes back by [`crate::Arena::give_back`]; it cannot be copied, so it cannot go back twice.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<Extent>);

impl Extents {
    /// The runs, in the order in which bytes are laid into them.
    pub fn runs(&self) -> &[Extent] {
        &self.0
    }

    /// The size of all runs.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|run| run.bytes).sum()
    }
}

/// The free space of an arena.
#[derive(Debug)]
pub(crate) struct Space {
    segment_bytes: u64,
    free_bytes: u64,
    ready_bytes: u64,
    /// Free runs by offset; neighbours of one segment are always merged.
    by_offset: BTreeMap<u64, u64>,
    /// The same runs by length.
    by_length: BTreeSet<(u64, u64)>,
}

impl Space {
    /// No space yet. All segments but the last have this size.
    pub(crate) fn new(segment_bytes: u64) -> Space {
        assert!(segment_bytes > 0 && segment_bytes.is_multiple_of(BLOCK_BYTES));
        Space {
            segment_bytes,
            free_bytes: 0,
            ready_bytes: 0,
            by_offset: BTreeMap::new(),
            by_length: BTreeSet::new(),
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    pub(crate) fn ready_bytes(&self) -> u64 {
        self.ready_bytes
    }

    /// Adds a segment that has become ready.
    pub(crate) fn add_segment(&mut self, segment: Extent) {
        assert!(segment.offset.is_multiple_of(self.segment_bytes) && segment.bytes <= self.segment_bytes);
        self.ready_bytes += segment.bytes;
        self.put(segment);
    }

    /// Takes space for this many bytes, rounded up to whole blocks: in one run if there is one that is long enough
    /// (the shortest such run), else in as few as possible. None if there is not enough in all.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Extents> {
        let mut wanted = bytes.checked_next_multiple_of(BLOCK_BYTES)?;
        if wanted > self.free_bytes {
            return None;
        }
        let mut runs = Vec::new();
        while wanted > 0 {
            let fitting = self.by_length.range((wanted, 0)..).next();
            let &(length, offset) =
                fitting.or(self.by_length.last()).expect("free_bytes is the sum of the runs");
            let taken = length.min(wanted);
            self.remove(offset, length);
            if taken < length {
                self.insert(offset + taken, length - taken);
            }
            self.free_bytes -= taken;
            wanted -= taken;
            runs.push(Extent { offset, bytes: taken });
        }
        Some(Extents(runs))
    }

    /// Makes space free again.
    pub(crate) fn give_back(&mut self, extents: Extents) {
        for run in extents.0 {
            self.put(run);
        }
    }

    fn put(&mut self, run: Extent) {
        let Extent { mut offset, mut bytes } = run;
        self.free_bytes += bytes;
        assert!(self.free_bytes <= self.ready_bytes, "space at {offset} was given back twice");
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEGMENT_BLOCKS: u64 = 4;

    fn space(blocks: u64) -> Space {
        let segment_bytes = SEGMENT_BLOCKS * BLOCK_BYTES;
        let mut space = Space::new(segment_bytes);
        let mut offset = 0;
        while offset < blocks * BLOCK_BYTES {
            let bytes = segment_bytes.min(blocks * BLOCK_BYTES - offset);
            space.add_segment(Extent { offset, bytes });
            offset += bytes;
        }
        space
    }

    #[test]
    fn a_part_of_a_block_takes_a_whole_one() {
        let mut space = space(8);
        let extents = space.take(BLOCK_BYTES + 1).expect("8 blocks are free");
        assert_eq!(extents.runs(), [Extent { offset: 0, bytes: 2 * BLOCK_BYTES }]);
        assert_eq!(space.free_bytes(), 6 * BLOCK_BYTES);
    }

    #[test]
    fn the_shortest_run_that_fits_is_preferred() {
        let mut space = space(8);
        let first = space.take(3 * BLOCK_BYTES).expect("free");
        assert_eq!(
            space.take(BLOCK_BYTES).expect("free").runs(),
            [Extent { offset: 3 * BLOCK_BYTES, bytes: BLOCK_BYTES }]
        );
        space.give_back(first);
        assert_eq!(space.take(4 * BLOCK_BYTES).expect("free").runs().len(), 1);
    }

    #[test]
    fn too_much_takes_nothing() {
        let mut space = space(8);
        assert_eq!(space.take(9 * BLOCK_BYTES), None);
        assert_eq!(space.take(u64::MAX), None);
        assert_eq!(space.free_bytes(), 8 * BLOCK_BYTES);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_noticed() {
        let mut space = space(8);
        let extents = space.take(2 * BLOCK_BYTES).expect("free");
        let _kept = space.take(2 * BLOCK_BYTES).expect("free");
        let copy = Extents(extents.0.clone());
        space.give_back(extents);
        space.give_back(copy);
    }

    proptest! {
        #[test]
        fn blocks_are_taken_once_and_all_come_back(
            blocks in 1u64..40,
            steps in prop::collection::vec((any::<bool>(), 1u64..12, any::<prop::sample::Index>()), 0..120),
        ) {
            let mut space = space(blocks);
            let mut held: Vec<Extents> = Vec::new();
            for (take, wanted, which) in steps {
                let free = space.free_bytes();
                if take {
                    let taken = space.take(wanted * BLOCK_BYTES);
                    prop_assert_eq!(taken.is_some(), wanted * BLOCK_BYTES <= free);
                    if let Some(extents) = taken {
                        prop_assert_eq!(extents.bytes(), wanted * BLOCK_BYTES);
                        held.push(extents);
                    }
                } else if !held.is_empty() {
                    let extents = held.swap_remove(which.index(held.len()));
                    space.give_back(extents);
                }
                let mut runs: Vec<Extent> = held.iter().flat_map(|extents| extents.runs().to_vec()).collect();
                runs.sort();
                for pair in runs.windows(2) {
                    prop_assert!(pair[0].offset + pair[0].bytes <= pair[1].offset);
                }
                for run in &runs {
                    prop_assert!(run.offset + run.bytes <= blocks * BLOCK_BYTES);
                    let segment = SEGMENT_BLOCKS * BLOCK_BYTES;
                    prop_assert_eq!(run.offset / segment, (run.offset + run.bytes - 1) / segment);
                }
                let taken: u64 = runs.iter().map(|run| run.bytes).sum();
                prop_assert_eq!(taken + space.free_bytes(), space.ready_bytes());
                prop_assert_eq!(space.by_offset.len(), space.by_length.len());
            }
            for extents in held {
                space.give_back(extents);
            }
            // All runs merged again: one per segment.
            prop_assert_eq!(space.free_bytes(), blocks * BLOCK_BYTES);
            prop_assert_eq!(space.by_offset.len() as u64, blocks.div_ceil(SEGMENT_BLOCKS));
        }
    }
}
