//! A quick hash for tables whose keys are handles, addresses and sizes, which nobody chooses to collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table with this hash.
pub(crate) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

/// Multiplies and folds, a word at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        // The golden ratio spreads the bits; the table uses the upper ones and the lower ones.
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher as _;

    #[test]
    fn aligned_keys_spread() {
        let build = BuildHasherDefault::<Quick>::default();
        for shift in [0, 9, 21, 40] {
            let low: std::collections::HashSet<u64> =
                (1..=128_u64).map(|key| build.hash_one(key << shift) & 0xff).collect();
            assert!(low.len() > 60, "{shift}: {}", low.len());
        }
    }
}
