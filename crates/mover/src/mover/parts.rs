//! Parts of a handle, as ranges of its bytes, and where they are in the arena. Pure arithmetic.

use crate::BLOCK_BYTES;
use crate::arena::{Extent, Extents};
use std::ops::Range;

/// How many blocks so many bytes are.
pub(super) fn blocks_in(bytes: u64) -> usize {
    (bytes / BLOCK_BYTES) as usize
}

/// The bytes of some blocks of a handle.
pub(super) fn bytes_of_blocks(blocks: &Range<usize>) -> Range<u64> {
    blocks.start as u64 * BLOCK_BYTES..blocks.end as u64 * BLOCK_BYTES
}

/// How long they are together.
pub(super) fn sum(parts: &[Range<u64>]) -> u64 {
    parts.iter().map(|part| part.end - part.start).sum()
}

/// The bytes of these blocks, neighbours together.
pub(super) fn ranges(blocks: impl Iterator<Item = usize>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        let Range { start, end } = bytes_of_blocks(&(block..block + 1));
        match ranges.last_mut().filter(|last| last.end == start) {
            Some(last) => last.end = end,
            None => ranges.push(start..end),
        }
    }
    ranges
}

/// Parts of a handle, in order, cut where its arena space is: each with its offset in the handle.
pub(super) fn pieces_of(extents: &Extents, parts: &[Range<u64>]) -> Vec<(u64, Extent)> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for run in extents.runs() {
        let end = start + run.bytes;
        let first = parts.partition_point(|part| part.end <= start);
        for part in parts[first..].iter().take_while(|part| part.start < end) {
            let (from, to) = (part.start.max(start), part.end.min(end));
            pieces.push((from, Extent { offset: run.offset + (from - start), bytes: to - from }));
        }
        start = end;
    }
    debug_assert_eq!(pieces.iter().map(|(_, run)| run.bytes).sum::<u64>(), sum(parts));
    pieces
}

/// Parts of a handle that are all it has in the arena, in order, cut where its space is: each with its offset in the handle.
pub(super) fn pieces_of_all(extents: &Extents, parts: &[Range<u64>]) -> Vec<(u64, Extent)> {
    let mut pieces = Vec::new();
    let mut runs = extents.runs().iter().copied();
    let mut rest: Option<Extent> = None;
    for part in parts {
        let mut at = part.start;
        while at < part.end
            && let Some(run) = rest.filter(|run| run.bytes > 0).or_else(|| runs.next())
        {
            let bytes = run.bytes.min(part.end - at);
            pieces.push((at, Extent { offset: run.offset, bytes }));
            rest = Some(Extent { offset: run.offset + bytes, bytes: run.bytes - bytes });
            at += bytes;
        }
    }
    debug_assert_eq!(pieces.iter().map(|(_, run)| run.bytes).sum::<u64>(), sum(parts));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = BLOCK_BYTES;

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(ranges([0, 1, 4, 6, 7, 8].into_iter()), [0..2 * B, 4 * B..5 * B, 6 * B..9 * B]);
        assert_eq!(ranges([].into_iter()), []);
    }

    #[test]
    fn parts_are_cut_where_runs_end_and_cover_no_more() {
        let runs = [8 * B, 2 * B, 20 * B];
        let extents = Extents::new(runs.map(|offset| Extent { offset, bytes: 2 * B }).to_vec());
        let pieces = pieces_of(&extents, &[0..B, 3 * B..6 * B]);
        let at =
            |run: usize, block: u64, blocks: u64| Extent { offset: runs[run] + block * B, bytes: blocks * B };
        assert_eq!(pieces, [(0, at(0, 0, 1)), (3 * B, at(1, 1, 1)), (4 * B, at(2, 0, 2))]);
        let all = pieces_of(&extents, std::slice::from_ref(&(0..6 * B)));
        assert_eq!(all, [(0, at(0, 0, 2)), (2 * B, at(1, 0, 2)), (4 * B, at(2, 0, 2))]);
        assert_eq!(pieces_of(&extents, &[]), []);
    }

    #[test]
    fn parts_that_are_all_there_is_follow_each_other_in_the_arena() {
        let extents = Extents::new(vec![
            Extent { offset: 8 * B, bytes: 2 * B },
            Extent { offset: 20 * B, bytes: 3 * B },
        ]);
        let at = |block: u64, blocks: u64| Extent { offset: block * B, bytes: blocks * B };
        let pieces = pieces_of_all(&extents, &[B..2 * B, 5 * B..9 * B]);
        assert_eq!(pieces, [(B, at(8, 1)), (5 * B, at(9, 1)), (6 * B, at(20, 3))]);
        assert_eq!(pieces_of_all(&extents, &[]), []);
    }
}
