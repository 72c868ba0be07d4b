//! Device memory of a fake tenant, and what it holds.

use rustix::fs::MemfdFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use wire::{BLOCK_BYTES, HandleId};

/// Memory as the fake device has it: zeros at first.
pub(super) fn device_memory(bytes: u64) -> File {
    let file = rustix::fs::memfd_create("device-memory", MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&file, bytes).expect("memory");
    file.into()
}

/// What a block holds after so many writes: never the same as another one, nor as before.
fn pattern(handle: HandleId, written: u64, block: u64) -> Vec<u8> {
    let words = [u64::from(std::process::id()), handle.0, written, !block];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.repeat(BLOCK_BYTES as usize / bytes.len())
}

pub(super) fn write(file: &File, handle: HandleId, written: u64, bytes: u64) {
    for block in 0..bytes / BLOCK_BYTES {
        file.write_all_at(&pattern(handle, written, block), block * BLOCK_BYTES).expect("memory takes bytes");
    }
}

/// Which block is wrong, if one is.
pub(super) fn check(file: &File, handle: HandleId, written: u64, bytes: u64) -> Result<(), u64> {
    let mut found = vec![0; BLOCK_BYTES as usize];
    for block in 0..bytes / BLOCK_BYTES {
        file.read_exact_at(&mut found, block * BLOCK_BYTES).expect("memory gives bytes");
        if found != pattern(handle, written, block) {
            return Err(block);
        }
    }
    Ok(())
}
