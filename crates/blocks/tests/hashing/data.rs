//! Blocks and keys to test with.

use blocks::{BLOCK_BYTES, Block, Key, Seed};

/// Spreads every bit of `x` over all bits of the result.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// A block of which each 64-bit word is a function of its place.
pub(crate) fn block(word: impl Fn(usize) -> u64) -> Box<Block> {
    let bytes: Vec<u8> = (0..BLOCK_BYTES / 8).flat_map(|at| word(at).to_le_bytes()).collect();
    bytes.into_boxed_slice().try_into().expect("as many bytes as a block has")
}

/// All zero.
pub(crate) fn zeros() -> Box<Block> {
    vec![0; BLOCK_BYTES].into_boxed_slice().try_into().expect("as many bytes as a block has")
}

/// Without pattern.
pub(crate) fn random(seed: u64) -> Box<Block> {
    block(|at| mix(mix(seed).wrapping_add(at as u64)))
}

/// A key by a small number.
pub(crate) fn key(seed: u64) -> Key {
    let mut bytes = [0; Seed::BYTES];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Key::new(&Seed::from_bytes(bytes))
}
