//! The hash, on the host: what `hash_blocks.ptx` computes, and what is made of that.

use crate::{
    BLOCK_BYTES, Block, DeviceKey, Key, OUTPUTS, PART_MIXERS, PART_ROWS, PASSES, ROW_PAIRS, STRIP_PARTS,
    STRIPS, Strip,
};

/// What is known of a block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockHash {
    /// The hash. Means nothing for other seeds.
    pub bits: u128,
    /// Every byte is zero. Exact.
    pub zero: bool,
}

/// Sums that are not those of one block, hashed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SumsError {
    /// No launch reached the block, or not all of it; or it was hashed twice, or its sums were not zero before.
    #[error("{strips} strips of a block were hashed, {any} of them not zero, where it has {STRIPS}: copy it")]
    Strips {
        /// Strips that were added.
        strips: u32,
        /// Those that are not zero.
        any: u32,
    },
}

/// What the kernel stores for a block, or for strips of it. Sums of strips add up to the block's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The second level, still without the key's offsets.
    pub mixed: [u64; OUTPUTS],
    /// How many strips were added: so a block that no launch reached is not taken for a zero block.
    pub strips: u32,
    /// How many of them have a byte that is not zero.
    pub any: u32,
}

impl Sums {
    /// How many bytes they have on the device.
    pub const BYTES: usize = 8 * (OUTPUTS + 1);

    /// From the device.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Sums {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mixed = std::array::from_fn(|_| words.next().expect("five words"));
        let counts = words.next().expect("five words");
        Sums { mixed, strips: counts as u32, any: (counts >> 32) as u32 }
    }

    /// Takes other strips of the same block in.
    pub fn include(&mut self, more: &Sums) {
        for (sum, more) in self.mixed.iter_mut().zip(more.mixed) {
            *sum = sum.wrapping_add(more);
        }
        self.strips = self.strips.wrapping_add(more.strips);
        self.any = self.any.wrapping_add(more.any);
    }

    /// As on the device.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.words()) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// As on the device, word by word: both counts are one.
    pub fn words(&self) -> [u64; OUTPUTS + 1] {
        let [a, b, c, d] = self.mixed;
        [a, b, c, d, u64::from(self.any) << 32 | u64::from(self.strips)]
    }

    /// Whether these are the sums of a whole block, hashed once.
    fn check(&self) -> Result<(), SumsError> {
        let (strips, any) = (self.strips, self.any);
        let is_whole = strips as usize == STRIPS && any <= strips;
        if is_whole { Ok(()) } else { Err(SumsError::Strips { strips, any }) }
    }
}

impl DeviceKey {
    /// What the kernel adds to a block's sums for one of its strips.
    ///
    /// # Panics
    /// If a block has no such strip.
    pub fn strip(&self, strip: usize, bytes: &Strip) -> Sums {
        assert!(strip < STRIPS, "a block has {STRIPS} strips, {strip} is none of them");
        let mut sums = Sums { strips: 1, ..Sums::default() };
        let mixers = self.mixers.as_chunks::<PART_MIXERS>().0;
        for part in 0..STRIP_PARTS {
            let (passes, any) = self.part(part, bytes);
            sums.any |= u32::from(any);
            let halves = passes.iter().flat_map(|sum| [*sum & u64::from(u32::MAX), *sum >> 32]);
            let keys = mixers[strip * STRIP_PARTS + part].as_chunks::<OUTPUTS>().0;
            for (half, keys) in halves.zip(keys) {
                for (sum, key) in sums.mixed.iter_mut().zip(keys) {
                    *sum = sum.wrapping_add(half.wrapping_mul(*key));
                }
            }
        }
        sums
    }

    /// The first level: the sum of each pass over a part, and whether a byte is not zero.
    fn part(&self, part: usize, strip: &Strip) -> ([u64; PASSES], bool) {
        let rows = strip.as_chunks::<8>().0.as_chunks::<ROW_PAIRS>().0;
        let keys = self.pairs.as_chunks::<ROW_PAIRS>().0;
        let (mut sums, mut any) = ([0_u64; PASSES], 0);
        for row in 0..PART_ROWS {
            let words = &rows[row * STRIP_PARTS + part];
            for (pass, sum) in sums.iter_mut().enumerate() {
                // Both words of a pair in one of 64 bits: so compilers find the instructions for several at once.
                for (word, key) in words.iter().zip(&keys[row + pass]) {
                    *sum = sum.wrapping_add(product(u64::from_le_bytes(*word), *key));
                }
            }
            any |= words.iter().fold(0, |any, word| any | u64::from_le_bytes(*word));
        }
        (sums, any != 0)
    }

    /// What the kernel stores for a block.
    pub fn sums(&self, block: &Block) -> Sums {
        let mut sums = Sums::default();
        let strips = block.as_chunks::<{ BLOCK_BYTES / STRIPS }>().0;
        for (strip, bytes) in strips.iter().enumerate() {
            sums.include(&self.strip(strip, bytes));
        }
        sums
    }
}

/// What a pair of words adds to a sum, with the pair of the key.
#[inline]
fn product(pair: u64, key: u64) -> u64 {
    let first = (pair as u32).wrapping_add(key as u32);
    let second = ((pair >> 32) as u32).wrapping_add((key >> 32) as u32);
    u64::from(first) * u64::from(second)
}

impl Key {
    /// The hash of a block, on the host: some 6 GB/s on one core.
    pub fn hash(&self, block: &Block) -> BlockHash {
        self.finish(&self.device().sums(block)).expect("every strip was added once")
    }

    /// The hash, of what the kernel stored: if it did so for all of the block, once.
    pub fn finish(&self, sums: &Sums) -> Result<BlockHash, SumsError> {
        sums.check()?;
        let outputs = sums.mixed.iter().zip(self.offsets).map(|(sum, offset)| sum.wrapping_add(offset) >> 32);
        let bits = outputs.rev().fold(0, |bits, output| bits << 32 | u128::from(output));
        Ok(BlockHash { bits, zero: sums.any == 0 })
    }
}
