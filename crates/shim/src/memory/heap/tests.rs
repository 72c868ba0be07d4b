//! The heap against a plain model: a list of what is handed out.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn sizes_are_rounded_as_their_kind_needs() {
    assert_eq!(rounded(1), Some(512));
    assert_eq!(rounded(512), Some(512));
    assert_eq!(rounded(MIB - 1), Some(MIB));
    assert_eq!(rounded(MIB), Some(MIB));
    assert_eq!(rounded(MIB + 1), Some(2 * MIB));
    assert_eq!(rounded(33 * MIB), Some(34 * MIB));
    assert_eq!(rounded(u64::MAX), None);
}

/// The sizes of the slabs, in MiB, that so many requests make.
fn slabs(asked: u64, requests: usize) -> Vec<u64> {
    let mut heap = Heap::default();
    let mut sizes = Vec::new();
    let mut start = 1 << 40;
    for _ in 0..requests {
        if heap.take(asked).is_none() {
            let bytes = heap.growth(asked).unwrap().best;
            sizes.push(bytes / MIB);
            heap.add(asked, Block { address: start, bytes }, 0);
            start += bytes;
            heap.take(asked).unwrap();
        }
    }
    sizes
}

#[test]
fn slabs_grow_with_what_is_there() {
    assert_eq!(slabs(512 << 10, 50), [2, 2, 2, 2, 2, 2, 2, 2, 4, 4, 6]);
    assert_eq!(slabs(4 * MIB, 10), [4, 4, 4, 4, 4, 4, 4, 4, 8], "nothing is left over");
    assert_eq!(slabs(20 * MIB, 18), [20, 20, 20, 20, 20, 20, 20, 20, 40, 40, 60, 60]);
    assert_eq!(slabs(2 * MIB, 1000).last(), Some(&64));
    let large = Heap::default().growth(100 * MIB + 1);
    assert_eq!(large, Some(Growth { best: 102 * MIB, least: 102 * MIB }));
    assert_eq!(Heap::default().growth(u64::MAX), None);
}

#[test]
fn a_range_of_its_own_serves_only_what_is_nearly_as_large() {
    let mut heap = Heap::default();
    let range = Block { address: 1 << 40, bytes: 90 * MIB };
    heap.add(90 * MIB, range, 5);
    assert_eq!((heap.idle_bytes(), heap.idle_since()), (90 * MIB, Some(5)));
    assert_eq!(heap.take(60 * MIB), None);
    assert_eq!(heap.take(92 * MIB), None);
    assert_eq!(heap.take(80 * MIB), Some(range));
    assert_eq!((heap.idle_bytes(), heap.idle_since()), (0, None));
    assert!(heap.drop_idle(u64::MAX, u64::MAX).is_empty(), "somebody has it");
    heap.give(80 * MIB, range, 7);
    assert!(heap.drop_idle(6, u64::MAX).is_empty(), "not idle for long enough");
    assert_eq!(heap.drop_idle(7, u64::MAX), [range.address]);
    assert_eq!(heap.idle_bytes(), 0);
}

#[test]
fn the_longest_idle_go_first_and_not_more_than_wanted() {
    let mut heap = Heap::default();
    for (number, since) in [(1, 30), (2, 10), (3, 20)] {
        heap.add(64 * MIB, Block { address: number << 40, bytes: 64 * MIB }, since);
    }
    assert_eq!(heap.drop_idle(u64::MAX, 65 * MIB), [2 << 40, 3 << 40]);
    assert_eq!(heap.drop_idle(u64::MAX, 0), [0_u64; 0]);
    assert_eq!(heap.drop_idle(u64::MAX, u64::MAX), [1 << 40]);
}

#[test]
fn blocks_of_slabs_beside_each_other_stay_apart() {
    let mut heap = Heap::default();
    let (first, second) = (1 << 40, (1 << 40) + 2 * MIB);
    heap.add(1, Block { address: first, bytes: 2 * MIB }, 0);
    heap.add(1, Block { address: second, bytes: 2 * MIB }, 0);
    let blocks: Vec<Block> =
        (0..6).map(|_| heap.take(700 << 10).unwrap_or(Block { address: 0, bytes: 0 })).collect();
    let found: Vec<Block> = blocks.into_iter().filter(|block| block.bytes > 0).collect();
    assert_eq!(found.len(), 4, "two in each, and none across the border");
    found.into_iter().for_each(|block| heap.give(700 << 10, block, 1));
    assert_eq!(heap.drop_idle(1, u64::MAX), [first, second]);
}

#[derive(Clone, Debug)]
enum Deed {
    Take(u64),
    Give(usize),
    Drop(u64),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let size = prop_oneof![
        4 => (0..8_u64).prop_map(|power| 512 << power),
        4 => 1..(2 * MIB),
        2 => (1..16_u64).prop_map(|blocks| blocks * 2 * MIB),
        1 => (30 * MIB)..(200 * MIB),
    ];
    let deed = prop_oneof![
        5 => size.prop_map(Deed::Take),
        4 => any::<usize>().prop_map(Deed::Give),
        1 => (0..100_u64).prop_map(Deed::Drop),
    ];
    proptest::collection::vec(deed, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_overlaps_and_every_byte_is_accounted_for(deeds in deeds()) {
        let mut heap = Heap::default();
        let mut ranges = BTreeMap::<u64, u64>::new();
        let mut taken = Vec::<(u64, Block)>::new();
        // Ranges lie beside each other, as the driver may put them.
        let mut end = 1_u64 << 40;
        for (now, deed) in (0..).zip(deeds) {
            match deed {
                Deed::Take(asked) => {
                    let block = heap.take(asked).unwrap_or_else(|| {
                        let growth = heap.growth(asked).unwrap();
                        assert!(growth.least <= growth.best && growth.best % BLOCK_BYTES == 0);
                        // Sometimes only the least is to be had.
                        let bytes = if now % 3 == 0 { growth.least } else { growth.best };
                        heap.add(asked, Block { address: end, bytes }, now);
                        ranges.insert(end, bytes);
                        end += bytes;
                        heap.take(asked).expect("there is room in the new range")
                    });
                    prop_assert!(block.bytes >= asked);
                    prop_assert_eq!(block.address % if asked < MIB { 512 } else { 2 * MIB }, 0);
                    let (start, bytes) = ranges.range(..=block.address).next_back().expect("in a range");
                    prop_assert!(block.address + block.bytes <= start + bytes, "within its range");
                    for (_, other) in &taken {
                        prop_assert!(
                            other.address + other.bytes <= block.address
                                || block.address + block.bytes <= other.address
                        );
                    }
                    taken.push((asked, block));
                }
                Deed::Give(which) if !taken.is_empty() => {
                    let (asked, block) = taken.swap_remove(which % taken.len());
                    heap.give(asked, block, now);
                }
                Deed::Give(_) => {}
                Deed::Drop(age) => {
                    for start in heap.drop_idle(now.saturating_sub(age), u64::MAX) {
                        let bytes = ranges.remove(&start).expect("a range that is there");
                        let is_inside = |block: &Block| (start..start + bytes).contains(&block.address);
                        prop_assert!(!taken.iter().any(|(_, block)| is_inside(block)), "in use");
                    }
                }
            }
            let is_empty = |start: u64, bytes: u64| {
                !taken.iter().any(|(_, block)| (start..start + bytes).contains(&block.address))
            };
            let empty = ranges.iter().filter(|(start, bytes)| is_empty(**start, **bytes));
            prop_assert_eq!(heap.idle_bytes(), empty.map(|(_, bytes)| bytes).sum::<u64>());
        }
        for (asked, block) in taken {
            heap.give(asked, block, u64::MAX);
        }
        let mut left = heap.drop_idle(u64::MAX, u64::MAX);
        left.sort_unstable();
        prop_assert_eq!(left, ranges.into_keys().collect::<Vec<u64>>(), "all of it comes back");
    }
}
