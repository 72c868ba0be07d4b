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

/// What the worker has the keeper remember of each block of a version. The hash is the word that the block is full of: some
/// are zero, and most are the same as in the version before.
pub(crate) fn facts(key: HandleKey, version: u64, blocks: u64) -> Vec<BlockFact> {
    let fact = |block: u64| {
        let owner = mix(u64::from(key.tenant.0) << 32 | key.handle);
        let word = mix(mix(owner ^ block) ^ ((version + block) / 3));
        let word = if word.is_multiple_of(3) { 0 } else { word };
        BlockFact { hash: u128::from(word).to_ne_bytes(), zero: word == 0 }
    };
    (0..blocks).map(fact).collect()
}

/// A page of a block. All pages of the block are the same.
fn page(fact: &BlockFact) -> [u8; PAGE_BYTES] {
    let word = u128::from_ne_bytes(fact.hash) as u64;
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
pub(crate) unsafe fn write(at: *mut u8, fact: &BlockFact) {
    let page = page(fact);
    for offset in (0..BLOCK_BYTES as usize).step_by(PAGE_BYTES) {
        // SAFETY: within the block, as the caller says.
        unsafe { at.add(offset).copy_from_nonoverlapping(page.as_ptr(), PAGE_BYTES) };
    }
}

/// Whether this block is there.
///
/// # Safety
/// A block must be readable there, and nobody may write to it.
pub(crate) unsafe fn is_there(at: *const u8, fact: &BlockFact) -> bool {
    let page = page(fact);
    (0..BLOCK_BYTES as usize).step_by(PAGE_BYTES).all(|offset| {
        // SAFETY: within the block, as the caller says.
        unsafe { std::slice::from_raw_parts(at.add(offset), PAGE_BYTES) == page }
    })
}
