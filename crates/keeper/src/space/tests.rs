//! Every block is taken once, and all come back.

use super::*;
use proptest::prelude::*;

const SEGMENT_BLOCKS: u64 = 4;
const SEGMENT: u64 = SEGMENT_BLOCKS * BLOCK_BYTES;

/// Segments near to these nodes in turn, the last one perhaps shorter.
fn space(blocks: u64, nodes: &[Option<Node>]) -> Space {
    let mut space = Space::new(SEGMENT);
    let mut offset = 0;
    while offset < blocks * BLOCK_BYTES {
        let bytes = SEGMENT.min(blocks * BLOCK_BYTES - offset);
        let node = nodes[(offset / SEGMENT) as usize % nodes.len()];
        assert!(space.add_segment(Extent { offset, bytes }, node));
        offset += bytes;
    }
    space
}

fn segments_of(extents: &Extents) -> Vec<u64> {
    extents.runs().iter().map(|run| run.offset / SEGMENT).collect()
}

#[test]
fn a_part_of_a_block_takes_a_whole_one() {
    let mut space = space(8, &[None]);
    let extents = space.take(BLOCK_BYTES + 1, None).expect("8 blocks are free");
    assert_eq!(extents.runs(), [Extent { offset: 0, bytes: 2 * BLOCK_BYTES }]);
    assert_eq!((space.free_bytes(), extents.bytes()), (6 * BLOCK_BYTES, 2 * BLOCK_BYTES));
}

#[test]
fn the_shortest_run_that_fits_is_preferred() {
    let mut space = space(8, &[None]);
    let first = space.take(3 * BLOCK_BYTES, None).expect("free");
    let second = space.take(BLOCK_BYTES, None).expect("free");
    assert_eq!(second.runs(), [Extent { offset: 3 * BLOCK_BYTES, bytes: BLOCK_BYTES }]);
    assert!(space.give_back(first));
    assert_eq!(space.take(4 * BLOCK_BYTES, None).expect("free").runs().len(), 1);
}

#[test]
fn too_much_takes_nothing() {
    let mut space = space(8, &[None, Some(Node(1))]);
    assert_eq!(space.take(9 * BLOCK_BYTES, None), None);
    assert_eq!(space.take(u64::MAX, Some(Node(1))), None);
    assert_eq!(space.free_bytes(), 8 * BLOCK_BYTES);
}

#[test]
fn near_comes_first_and_far_is_better_than_none() {
    let (here, there) = (Some(Node(0)), Some(Node(1)));
    let mut space = space(16, &[here, there]);
    assert_eq!(segments_of(&space.take(SEGMENT, there).expect("free")), [1]);
    assert_eq!(segments_of(&space.take(2 * SEGMENT, there).expect("free")), [3, 0]);
    assert_eq!(segments_of(&space.take(SEGMENT, Some(Node(7))).expect("a node without memory")), [2]);
    assert_eq!(space.free_bytes(), 0);
}

#[test]
fn giving_back_twice_or_what_was_never_there_changes_nothing() {
    let mut space = space(8, &[None]);
    let extents = space.take(2 * BLOCK_BYTES, None).expect("free");
    let copy = Extents(extents.runs().to_vec());
    assert!(space.give_back(extents));
    assert!(!space.give_back(copy));
    let strange =
        [(8 * BLOCK_BYTES, BLOCK_BYTES), (u64::MAX, BLOCK_BYTES), (0, u64::MAX), (0, 9 * BLOCK_BYTES)];
    for (offset, bytes) in strange {
        assert!(!space.give_back(Extents(vec![Extent { offset, bytes }])), "{offset} {bytes}");
    }
    assert_eq!(space.free_bytes(), 8 * BLOCK_BYTES);
}

#[test]
fn segments_that_cannot_be_are_not_added() {
    let mut space = space(4, &[None]);
    let last = u64::MAX / SEGMENT * SEGMENT;
    let strange =
        [(0, SEGMENT), (1, SEGMENT), (SEGMENT, 0), (SEGMENT, 2 * SEGMENT), (SEGMENT, 1), (last, SEGMENT)];
    for (offset, bytes) in strange {
        assert!(!space.add_segment(Extent { offset, bytes }, None), "{offset} {bytes}");
    }
    assert_eq!(space.ready_bytes(), SEGMENT);
}

proptest! {
    #[test]
    fn blocks_are_taken_once_and_all_come_back(
        blocks in 1u64..40,
        steps in prop::collection::vec((any::<bool>(), 1u64..12, any::<prop::sample::Index>()), 0..120),
    ) {
        let mut space = space(blocks, &[None, Some(Node(0)), Some(Node(1))]);
        let mut held: Vec<Extents> = Vec::new();
        for (take, wanted, which) in steps {
            let free = space.free_bytes();
            if take {
                let near = [None, Some(Node(0)), Some(Node(1)), Some(Node(2))][which.index(4)];
                let taken = space.take(wanted * BLOCK_BYTES, near);
                prop_assert_eq!(taken.is_some(), wanted * BLOCK_BYTES <= free);
                if let Some(extents) = taken {
                    prop_assert_eq!(extents.bytes(), wanted * BLOCK_BYTES);
                    held.push(extents);
                }
            } else if !held.is_empty() {
                let extents = held.swap_remove(which.index(held.len()));
                prop_assert!(space.give_back(extents));
            }
            let mut runs: Vec<Extent> = held.iter().flat_map(|extents| extents.runs().to_vec()).collect();
            runs.sort();
            for pair in runs.windows(2) {
                prop_assert!(pair[0].offset + pair[0].bytes <= pair[1].offset);
            }
            for run in &runs {
                prop_assert!(run.offset + run.bytes <= blocks * BLOCK_BYTES);
                prop_assert_eq!(run.offset / SEGMENT, (run.offset + run.bytes - 1) / SEGMENT);
            }
            let taken: u64 = runs.iter().map(|run| run.bytes).sum();
            prop_assert_eq!(taken + space.free_bytes(), space.ready_bytes());
        }
        for extents in held {
            prop_assert!(space.give_back(extents));
        }
        // All runs merged again: one for each segment.
        prop_assert_eq!(space.free_bytes(), blocks * BLOCK_BYTES);
        let runs: usize = space.pools.values().map(|pool| pool.by_offset.len()).sum();
        prop_assert_eq!(runs as u64, blocks.div_ceil(SEGMENT_BLOCKS));
    }
}
