//! Bytes that say whose they are, and numbers from a seed.

use rota_keeper::{BLOCK_BYTES, BlockFact, HandleKey};

const PAGE_BYTES: usize = 4096;

/// Numbers that are the same for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// A page of a block of this version of a handle. All pages of the block are the same.
fn page(key: HandleKey, version: u64, block: u64) -> [u8; PAGE_BYTES] {
    let word = mix(mix(mix(u64::from(key.tenant.0) << 32 | key.handle) ^ version) ^ block);
    let mut page = [0; PAGE_BYTES];
    for chunk in page.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    page
}

/// Writes a block.
///
/// # Safety
/// A block must be writable there, and nobody else's.
pub(crate) unsafe fn write(at: *mut u8, key: HandleKey, version: u64, block: u64) {
    let page = page(key, version, block);
    for offset in (0..BLOCK_BYTES as usize).step_by(PAGE_BYTES) {
        // SAFETY: within the block, as the caller says.
        unsafe { at.add(offset).copy_from_nonoverlapping(page.as_ptr(), PAGE_BYTES) };
    }
}

/// Whether this block is there.
///
/// # Safety
/// A block must be readable there, and nobody may write to it.
pub(crate) unsafe fn is_there(at: *const u8, key: HandleKey, version: u64, block: u64) -> bool {
    let page = page(key, version, block);
    (0..BLOCK_BYTES as usize).step_by(PAGE_BYTES).all(|offset| {
        // SAFETY: within the block, as the caller says.
        unsafe { std::slice::from_raw_parts(at.add(offset), PAGE_BYTES) == page }
    })
}

/// What the worker has the keeper remember of each block: the version.
pub(crate) fn facts(version: u64, blocks: u64) -> Vec<BlockFact> {
    let hash = u128::from(version).to_ne_bytes();
    vec![BlockFact { hash, zero: false }; blocks as usize]
}

/// The version in those facts.
pub(crate) fn version(facts: &[BlockFact]) -> u64 {
    u128::from_ne_bytes(facts.first().expect("a handle has blocks").hash) as u64
}
