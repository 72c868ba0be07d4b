//! What is started on the lanes of a fake device, and what it does to bytes.

use super::{FakeDevice, is_registered, lock};
use crate::device::{HASHES_MAX, Lane};
use crate::fake_device::mapping::Mapping;
use blocks::{BLOCK_BYTES, Sums};
use rustix::mm::{Advice, madvise};
use std::sync::Arc;

#[derive(Debug)]
pub(super) enum Work {
    Copy {
        memory: Arc<Mapping>,
        inode: u64,
        offset: u64,
        host: usize,
        bytes: u64,
    },
    Zero {
        memory: Arc<Mapping>,
        inode: u64,
        offset: u64,
        bytes: u64,
    },
    /// From the first memory to the second.
    Between {
        between: [(Arc<Mapping>, u64); 2],
        bytes: u64,
    },
    /// Each block by its memory, the inode of that, and its number there; with the number of the mark behind it.
    Hash {
        blocks: Vec<(Arc<Mapping>, u64, u64)>,
        mark: u64,
    },
    Mark(u64),
}

impl FakeDevice {
    /// Does one thing, unless that must never be done.
    pub(super) fn do_work(&mut self, lane: Lane, work: Work) {
        let is_released = |inode: &u64| !lock(&self.imports).contains_key(inode);
        if work.inodes().iter().any(is_released) {
            lock(&self.violations).push(format!("{lane:?}: work on released memory"));
            return;
        }
        match work {
            Work::Copy { host, bytes, .. } if !is_registered(&self.shared, host, bytes) => {
                lock(&self.violations).push(format!("{lane:?}: a copy of unregistered host memory"));
            }
            Work::Copy { memory, offset, host, bytes, .. } => {
                let device = memory.address(offset, bytes);
                let host = host as *mut u8;
                prepare(host, bytes as usize, lane);
                // SAFETY: the device side is a range of a mapping that is alive; the caller of copy_out or copy_in
                // has promised that the host side is valid until a mark after the copy has passed.
                unsafe {
                    match lane {
                        Lane::Out => host.copy_from_nonoverlapping(device, bytes as usize),
                        Lane::In | Lane::Hash => device.copy_from_nonoverlapping(host, bytes as usize),
                    }
                }
            }
            Work::Zero { memory, offset, bytes, .. } => {
                // SAFETY: a range of a mapping that is alive.
                unsafe { memory.address(offset, bytes).write_bytes(0, bytes as usize) };
            }
            Work::Between { between: [(from, _), (to, _)], bytes } => {
                // SAFETY: ranges of two mappings that are alive.
                unsafe {
                    to.address(0, bytes).copy_from_nonoverlapping(from.address(0, bytes), bytes as usize);
                };
            }
            Work::Hash { blocks, mark } => {
                let Some(key) = &self.key else { return };
                let sums_of = |(memory, _, block): &(Arc<Mapping>, u64, u64)| {
                    let at = memory.address(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
                    // SAFETY: a block of a mapping that is alive; whoever hashes has seen to it that nobody writes.
                    key.sums(unsafe { &*at.cast::<[u8; BLOCK_BYTES]>() })
                };
                let sums: Vec<Sums> = blocks.iter().map(sums_of).collect();
                let sums = match &mut self.forge {
                    Some(forge) => forge(sums),
                    None => sums,
                };
                self.sums.insert(mark, sums);
                if self.sums.len() > HASHES_MAX {
                    self.sums.pop_first();
                }
            }
            Work::Mark(_) => {}
        }
    }
}

/// Has the kernel map host memory at once: page by page, as a copy comes to them, takes longer than the copy.
fn prepare(host: *mut u8, bytes: usize, lane: Lane) {
    let how = if lane == Lane::Out { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    // SAFETY: no byte changes. Where that does not work, pages are mapped as the copy comes to them.
    let _ = unsafe { madvise(host.cast(), bytes, how) };
}

impl Work {
    /// The host memory that it reads or writes: where it begins, and its size.
    pub(super) fn host(&self) -> Option<(usize, u64)> {
        match self {
            Work::Copy { host, bytes, .. } => Some((*host, *bytes)),
            _ => None,
        }
    }

    /// The memories that it is about.
    pub(super) fn inodes(&self) -> Vec<u64> {
        match self {
            Work::Copy { inode, .. } | Work::Zero { inode, .. } => vec![*inode],
            Work::Between { between, .. } => between.iter().map(|(_, inode)| *inode).collect(),
            Work::Hash { blocks, .. } => blocks.iter().map(|(_, inode, _)| *inode).collect(),
            Work::Mark(_) => Vec::new(),
        }
    }
}
