//! What to do with the blocks of a handle on its way out, by their hashes then and now.

use std::ops::Range;

use crate::BlockHash;

/// Why two lists cannot be compared.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangedError {
    /// They are not of the same handle.
    #[error(
        "a handle that had {before} blocks has {now} now: its copy belongs to another one, copy all of it"
    )]
    Lengths {
        /// Blocks of the copy.
        before: usize,
        /// Blocks now.
        now: usize,
    },
}

/// What became of a handle's blocks since its copy was made. Each block is in one of the three.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Blocks to copy out, neighbours together.
    pub copy: Vec<Range<usize>>,
    /// Blocks that became zero: they need no arena space from now on, and what they had can be given back.
    pub zero: Vec<Range<usize>>,
    /// How many are still what they were: their copy, or that they are zero, is right.
    pub same: usize,
}

impl Changed {
    /// Compares with the copy: `before` is what its blocks were, None where there is no copy.
    pub fn since(before: Option<&[BlockHash]>, now: &[BlockHash]) -> Result<Changed, ChangedError> {
        if let Some(before) = before.filter(|before| before.len() != now.len()) {
            return Err(ChangedError::Lengths { before: before.len(), now: now.len() });
        }
        let mut changed = Changed::default();
        for (block, hash) in now.iter().enumerate() {
            if before.is_some_and(|before| before[block] == *hash) {
                changed.same += 1;
                continue;
            }
            let ranges = if hash.zero { &mut changed.zero } else { &mut changed.copy };
            match ranges.last_mut().filter(|last| last.end == block) {
                Some(last) => last.end += 1,
                None => ranges.push(block..block + 1),
            }
        }
        Ok(changed)
    }

    /// How many blocks are to be copied out.
    pub fn copies(&self) -> usize {
        self.copy.iter().map(ExactSizeIterator::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: BlockHash = BlockHash { bits: 99, zero: true };

    fn some(bits: u128) -> BlockHash {
        BlockHash { bits, zero: false }
    }

    #[test]
    fn without_a_copy_all_but_zeros_is_copied() {
        let now = [some(1), some(2), ZERO, ZERO, some(3)];
        let expected = Changed { copy: vec![0..2, 4..5], zero: vec![2..4; 1], same: 0 };
        let changed = Changed::since(None, &now).unwrap();
        assert_eq!((changed.copies(), changed), (3, expected));
    }

    #[test]
    fn only_what_differs_is_copied() {
        let before = [some(1), some(2), ZERO, ZERO, some(3), some(4)];
        let now = [some(1), some(7), some(8), ZERO, ZERO, some(4)];
        let expected = Changed { copy: vec![1..3; 1], zero: vec![4..5; 1], same: 3 };
        assert_eq!(Changed::since(Some(&before), &now), Ok(expected));
        assert_eq!(Changed::since(Some(&now), &now).unwrap(), Changed { same: 6, ..Changed::default() });
    }

    #[test]
    fn a_zero_block_is_not_one_that_hashes_the_same() {
        let same_bits = some(ZERO.bits);
        assert_eq!(Changed::since(Some(&[same_bits]), &[ZERO]).unwrap().zero, vec![0..1; 1]);
        assert_eq!(Changed::since(Some(&[ZERO]), &[same_bits]).unwrap().copy, vec![0..1; 1]);
    }

    #[test]
    fn handles_of_other_sizes_are_no_copies() {
        let error = ChangedError::Lengths { before: 1, now: 2 };
        assert_eq!(Changed::since(Some(&[ZERO]), &[ZERO, ZERO]), Err(error));
    }
}
