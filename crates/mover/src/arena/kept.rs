//! Space that nobody needs, with bytes in it that somebody may want again.
//!
//! To everybody else it is free: whoever takes space gets it, the oldest first, and is not told. So whoever kept
//! something must ask for it before using it. Pure bookkeeping, as in [`super::space`].

use super::space::{Extents, Space};
use std::collections::BTreeMap;

/// A claim to space that was kept. It is not copied, so that the space comes back once.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept(u64);

/// What is kept, by age.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    next: u64,
    by_age: BTreeMap<u64, Extents>,
    bytes: u64,
}

impl Shelf {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps this space until it is needed.
    pub(crate) fn keep(&mut self, extents: Extents) -> Kept {
        let number = self.next;
        self.next += 1;
        self.bytes += extents.bytes();
        self.by_age.insert(number, extents);
        Kept(number)
    }

    /// Space that was kept, with its bytes, unless it was needed.
    pub(crate) fn resume(&mut self, kept: Kept) -> Option<Extents> {
        let extents = self.by_age.remove(&kept.0)?;
        self.bytes -= extents.bytes();
        Some(extents)
    }

    /// Makes what is kept free, the oldest first, until this many bytes are. Nothing goes if all of it is too little.
    pub(crate) fn make_room(&mut self, bytes: u64, space: &mut Space) {
        if bytes > space.free_bytes().saturating_add(self.bytes) {
            return;
        }
        while bytes > space.free_bytes()
            && let Some((_, extents)) = self.by_age.pop_first()
        {
            self.bytes -= extents.bytes();
            space.give_back(extents);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;
    use crate::arena::Extent;

    fn space(blocks: u64) -> Space {
        let bytes = blocks * BLOCK_BYTES;
        let mut space = Space::new(bytes);
        space.add_segment(Extent { offset: 0, bytes });
        space
    }

    #[test]
    fn the_oldest_goes_first_and_no_more_than_is_needed() {
        let (mut space, mut shelf) = (space(6), Shelf::default());
        let kept: Vec<Kept> = (0..3).map(|_| shelf.keep(space.take(2 * BLOCK_BYTES).unwrap())).collect();
        shelf.make_room(3 * BLOCK_BYTES, &mut space);
        assert_eq!((space.free_bytes(), shelf.bytes()), (4 * BLOCK_BYTES, 2 * BLOCK_BYTES));
        let there: Vec<bool> = kept.into_iter().map(|kept| shelf.resume(kept).is_some()).collect();
        assert_eq!(there, [false, false, true]);
        assert_eq!(shelf.bytes(), 0);
    }

    #[test]
    fn nothing_goes_for_what_would_not_fit_all_the_same() {
        let (mut space, mut shelf) = (space(4), Shelf::default());
        let _taken = space.take(BLOCK_BYTES).unwrap();
        let kept = shelf.keep(space.take(2 * BLOCK_BYTES).unwrap());
        shelf.make_room(4 * BLOCK_BYTES, &mut space);
        shelf.make_room(u64::MAX, &mut space);
        assert_eq!(shelf.resume(kept).map(|extents| extents.bytes()), Some(2 * BLOCK_BYTES));
    }
}
