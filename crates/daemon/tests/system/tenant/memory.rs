//! Device memory of a fake tenant, and what it holds.

use rustix::fs::MemfdFlags;
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use wire::{BLOCK_BYTES, HandleId};

/// A block holds these bytes again and again.
const WORDS_BYTES: usize = 32;

thread_local! {
    /// Memory for one block, used again and again: tenants look at all they have in every step.
    static BLOCK: RefCell<Vec<u8>> = RefCell::new(vec![0; BLOCK_BYTES as usize]);
}

/// Memory as the fake device has it: zeros at first.
pub(super) fn device_memory(bytes: u64) -> File {
    let file = rustix::fs::memfd_create("device-memory", MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, bytes).expect("memory");
    file.into()
}

/// What a block holds after so many writes: never the same as another one, nor as before.
fn words(handle: HandleId, written: u64, block: u64) -> [u8; WORDS_BYTES] {
    let words = [u64::from(std::process::id()), handle.0, written, !block];
    let mut bytes = [0; WORDS_BYTES];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
    bytes
}

fn fill(block: &mut [u8], words: &[u8; WORDS_BYTES]) {
    block[..WORDS_BYTES].copy_from_slice(words);
    let mut filled = WORDS_BYTES;
    while filled < block.len() {
        let more = filled.min(block.len() - filled);
        block.copy_within(..more, filled);
        filled += more;
    }
}

fn holds(block: &[u8], words: &[u8; WORDS_BYTES]) -> bool {
    // Each part is like the one before it.
    block.starts_with(words) && block[WORDS_BYTES..] == block[..block.len() - WORDS_BYTES]
}

pub(super) fn write(file: &File, handle: HandleId, written: u64, bytes: u64) {
    BLOCK.with_borrow_mut(|buffer| {
        for block in 0..bytes / BLOCK_BYTES {
            fill(buffer, &words(handle, written, block));
            file.write_all_at(buffer, block * BLOCK_BYTES).expect("memory takes bytes");
        }
    });
}

/// Which block is wrong, if one is.
pub(super) fn check(file: &File, handle: HandleId, written: u64, bytes: u64) -> Result<(), u64> {
    BLOCK.with_borrow_mut(|buffer| {
        for block in 0..bytes / BLOCK_BYTES {
            file.read_exact_at(buffer, block * BLOCK_BYTES).expect("memory gives bytes");
            if !holds(buffer, &words(handle, written, block)) {
                return Err(block);
            }
        }
        Ok(())
    })
}

#[test]
fn one_wrong_byte_anywhere_is_found() {
    let (handle, blocks) = (HandleId(7), 3);
    let file = device_memory(blocks * BLOCK_BYTES);
    write(&file, handle, 5, blocks * BLOCK_BYTES);
    assert_eq!(check(&file, handle, 5, blocks * BLOCK_BYTES), Ok(()));
    assert_eq!(check(&file, handle, 6, blocks * BLOCK_BYTES), Err(0), "written once more");
    assert_eq!(check(&file, HandleId(8), 5, blocks * BLOCK_BYTES), Err(0), "of another handle");
    for at in [0, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 12_345, 3 * BLOCK_BYTES - 1] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("memory gives bytes");
        file.write_all_at(&[byte[0] ^ 1], at).expect("memory takes bytes");
        assert_eq!(check(&file, handle, 5, blocks * BLOCK_BYTES), Err(at / BLOCK_BYTES), "byte {at}");
        file.write_all_at(&byte, at).expect("memory takes bytes");
    }
}
