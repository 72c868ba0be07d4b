//! Blocks that are zero need no place: what they are, their facts say. While a handle is away, or has a clean copy, only the
//! others have one, in the order of the blocks; while it is copied out, all have.
//!
//! Worker and keeper both part a handle's space in this way, each for itself, when a copy out is recorded, and when a handle
//! has risen from the cellar. The first place of a handle that is all zero stays with it: no entry is without any.

use crate::BLOCK_BYTES;
use crate::message::Extent;

/// Places that stay, and places that are free.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parted {
    /// Of blocks that are not zero.
    pub kept: Vec<Extent>,
    /// Of blocks that are.
    pub free: Vec<Extent>,
}

/// Parts the places of all blocks of a handle.
pub fn part(runs: &[Extent], is_zero: impl Fn(usize) -> bool) -> Parted {
    let mut parted = Parted::default();
    for (block, place, begins_run) in places(runs) {
        let to = if is_zero(block) { &mut parted.free } else { &mut parted.kept };
        append(to, place, begins_run);
    }
    if parted.kept.is_empty()
        && let Some(first) = parted.free.first_mut()
    {
        parted.kept.push(Extent { bytes: BLOCK_BYTES, ..*first });
        first.offset = first.offset.saturating_add(BLOCK_BYTES);
        first.bytes = first.bytes.saturating_sub(BLOCK_BYTES);
        parted.free.retain(|run| run.bytes > 0);
    }
    parted
}

/// The places of all blocks again: those that stayed, and new ones for the blocks that are zero.
pub fn join(kept: &[Extent], new: &[Extent], blocks: usize, is_zero: impl Fn(usize) -> bool) -> Vec<Extent> {
    let (mut kept, mut new) = (places(kept).peekable(), places(new));
    let keeps_first = (0..blocks).all(&is_zero);
    let mut joined = Vec::new();
    for block in 0..blocks {
        let was_kept = !is_zero(block) || (keeps_first && block == 0);
        let next = if was_kept { kept.next() } else { new.next() };
        // Neighbours of two lists stay two runs: there may be a segment's end between them.
        let Some((_, place, begins_run)) = next else { break };
        let follows_own = block
            .checked_sub(1)
            .is_some_and(|before| was_kept == (!is_zero(before) || (keeps_first && before == 0)));
        append(&mut joined, place, begins_run || !follows_own);
    }
    joined
}

/// The place of each block, and whether a run begins with it.
fn places(runs: &[Extent]) -> impl Iterator<Item = (usize, Extent, bool)> {
    let of_run = |run: &Extent| {
        let run = *run;
        let blocks = run.bytes.checked_div(BLOCK_BYTES).unwrap_or(0);
        (0..blocks).map(move |block| {
            let offset = run.offset.saturating_add(block.saturating_mul(BLOCK_BYTES));
            (Extent { offset, bytes: BLOCK_BYTES }, block == 0)
        })
    };
    let places: Vec<(Extent, bool)> = runs.iter().flat_map(of_run).collect();
    places.into_iter().enumerate().map(|(block, (place, begins_run))| (block, place, begins_run))
}

/// Adds a place, to the last run if it goes on there.
fn append(runs: &mut Vec<Extent>, place: Extent, begins_run: bool) {
    match runs.last_mut().filter(|last| !begins_run && last.offset.saturating_add(last.bytes) == place.offset)
    {
        Some(last) => last.bytes = last.bytes.saturating_add(place.bytes),
        None => runs.push(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(block: u64, blocks: u64) -> Extent {
        Extent { offset: block * BLOCK_BYTES, bytes: blocks * BLOCK_BYTES }
    }

    #[test]
    fn zero_blocks_give_their_places_back() {
        let zeros = [false, true, true, false, false];
        let parted = part(&[run(10, 3), run(20, 2)], |block| zeros[block]);
        assert_eq!(parted, Parted { kept: vec![run(10, 1), run(20, 2)], free: vec![run(11, 2)] });
        let again = join(&parted.kept, &[run(40, 2)], 5, |block| zeros[block]);
        assert_eq!(again, [run(10, 1), run(40, 2), run(20, 2)]);
    }

    #[test]
    fn what_is_all_zero_keeps_one() {
        let parted = part(&[run(7, 1), run(3, 2)], |_| true);
        assert_eq!(parted, Parted { kept: vec![run(7, 1)], free: vec![run(3, 2)] });
        assert_eq!(join(&parted.kept, &[run(1, 2)], 3, |_| true), [run(7, 1), run(1, 2)]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_twice_there(runs in prop::collection::vec((0u64..4, 1u64..4), 1..6), zeros in any::<u64>()) {
            // Runs apart from each other, or side by side with a segment's end between.
            let mut at = 0;
            let runs: Vec<Extent> = runs.into_iter().map(|(gap, blocks)| { at += gap + blocks; run(at - blocks, blocks) }).collect();
            let blocks = runs.iter().map(|run| run.bytes / BLOCK_BYTES).sum::<u64>() as usize;
            let is_zero = |block: usize| zeros >> block & 1 == 1;
            let parted = part(&runs, is_zero);
            let each = |runs: &[Extent]| places(runs).map(|(_, place, _)| place.offset).collect::<Vec<_>>();
            let mut both = [each(&parted.kept), each(&parted.free)].concat();
            both.sort_unstable();
            prop_assert_eq!(both, each(&runs));
            prop_assert!(!parted.kept.is_empty());
            // No run of the result goes over the end of one that was there.
            for part in parted.kept.iter().chain(&parted.free) {
                prop_assert!(runs.iter().any(|run| run.offset <= part.offset && part.offset + part.bytes <= run.offset + run.bytes));
            }
            let joined = join(&parted.kept, &parted.free, blocks, is_zero);
            prop_assert_eq!(each(&joined), each(&runs));
        }
    }
}
