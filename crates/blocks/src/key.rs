//! The key: a seed, expanded. Its larger part goes to the device.

use std::fmt;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};

use crate::{OUTPUTS, PART_MIXERS, PART_ROWS, PASSES, ROW_PAIRS, STRIP_PARTS, STRIPS, Seed};

/// Pairs of words of the first level: a pass has one row more than the pass before it.
const PAIRS: usize = (PART_ROWS + PASSES - 1) * ROW_PAIRS;
/// Words of the second level.
const MIXERS: usize = STRIPS * STRIP_PARTS * PART_MIXERS;

/// Why bytes are no key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There are too few or too many.
    #[error("a key for the device has {expected} bytes, not {0}", expected = DeviceKey::BYTES)]
    Length(usize),
}

/// What the kernel knows of the key.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceKey {
    /// The first level's words, two and two, the first of them in the lower half.
    pub(crate) pairs: Box<[u64]>,
    /// The second level's: `[part][pass][half][output]`.
    pub(crate) mixers: Box<[u64]>,
}

impl DeviceKey {
    /// How many bytes the kernel takes.
    pub const BYTES: usize = 8 * (PAIRS + MIXERS);

    /// As the kernel takes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.pairs.iter().chain(&self.mixers).flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Back from those bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<DeviceKey, KeyError> {
        if bytes.len() != Self::BYTES {
            return Err(KeyError::Length(bytes.len()));
        }
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let pairs = words.by_ref().take(PAIRS).collect();
        Ok(DeviceKey { pairs, mixers: words.collect() })
    }
}

/// All of the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    device: DeviceKey,
    /// What the kernel's sums are moved by.
    pub(crate) offsets: [u64; OUTPUTS],
}

impl Key {
    /// Expands a seed. Always the same for the same seed: hashes outlive the daemon that made them.
    pub fn new(seed: &Seed) -> Key {
        let mut words = ChaCha20Rng::from_seed(seed.to_bytes());
        let mut draw = |count: usize| -> Box<[u64]> { (0..count).map(|_| words.next_u64()).collect() };
        let device = DeviceKey { pairs: draw(PAIRS), mixers: draw(MIXERS) };
        let offsets = draw(OUTPUTS)[..].try_into().expect("as many as were drawn");
        Key { device, offsets }
    }

    /// What goes to the device.
    pub fn device(&self) -> &DeviceKey {
        &self.device
    }
}

impl fmt::Debug for Key {
    /// As with seeds: nothing of it in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_expands_to_the_output_of_chacha20() {
        // RFC 8439, A.1, first test vector: key and nonce zero, from block 0 on.
        let key = Key::new(&Seed::from_bytes([0; 32]));
        let bytes = key.device().to_bytes();
        assert_eq!(bytes.len(), 84 << 10);
        let vector =
            [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd];
        assert_eq!(bytes[..15], vector);
    }

    #[test]
    fn the_devices_part_comes_back_from_its_bytes() {
        let key = Key::new(&Seed::from_bytes([7; 32]));
        let bytes = key.device().to_bytes();
        assert_eq!(DeviceKey::from_bytes(&bytes).as_ref(), Ok(key.device()));
        assert_eq!(DeviceKey::from_bytes(&bytes[1..]), Err(KeyError::Length(DeviceKey::BYTES - 1)));
    }

    #[test]
    fn no_word_is_drawn_twice() {
        let key = Key::new(&Seed::from_bytes([7; 32]));
        let words = key.device.pairs.iter().chain(&key.device.mixers).chain(&key.offsets);
        let distinct: std::collections::HashSet<&u64> = words.collect();
        assert_eq!(distinct.len(), PAIRS + MIXERS + OUTPUTS);
        assert!(!format!("{key:?} {:?}", key.device()).contains(|c: char| c.is_ascii_digit()));
    }
}
