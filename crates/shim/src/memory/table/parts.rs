//! The parts of all ranges: where each is, which ones are away, and which ones the daemon has no file for.

use std::collections::{HashMap, VecDeque};

use cuda::types::{CUdevice, CUmemGenericAllocationHandle};
use wire::{BLOCK_BYTES, HANDLE_BYTES_MAX, HandleId};

use super::Range;

/// What is moved as one: so much of a range as one handle has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its name towards the daemon.
    pub(crate) handle: HandleId,
    /// Where it starts.
    pub(crate) address: u64,
    /// Its size.
    pub(crate) bytes: u64,
    /// The device it lies on.
    pub(crate) device: CUdevice,
    /// The memory under it; None while it is away.
    pub(crate) physical: Option<CUmemGenericAllocationHandle>,
    /// Has the daemon its file? Only then it can be moved, and is freed by its name.
    pub(crate) exported: bool,
}

#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Where each part is: the start of its range, and its place there.
    places: HashMap<HandleId, (u64, usize)>,
    /// Handles that the daemon has no file for yet, oldest first.
    unexported: VecDeque<HandleId>,
    /// How many have no memory under them.
    absent: usize,
}

impl Parts {
    pub(super) fn insert(&mut self, range: &Range) {
        for (place, part) in range.parts.iter().enumerate() {
            self.places.insert(part.handle, (range.block.address, place));
            self.absent += usize::from(part.physical.is_none());
            if !part.exported {
                self.unexported.push_back(part.handle);
            }
        }
    }

    pub(super) fn remove(&mut self, range: &Range) {
        for part in &range.parts {
            self.places.remove(&part.handle);
            self.absent -= usize::from(part.physical.is_none());
        }
        if range.parts.iter().any(|part| !part.exported) {
            self.unexported.retain(|handle| self.places.contains_key(handle));
        }
    }

    pub(super) fn place(&self, handle: HandleId) -> Option<(u64, usize)> {
        self.places.get(&handle).copied()
    }

    pub(super) fn absent_changed(&mut self, before: bool, now: bool) {
        self.absent = self.absent + usize::from(now) - usize::from(before);
    }

    pub(super) fn any_absent(&self) -> bool {
        self.absent > 0
    }

    pub(super) fn next_unexported(&mut self) -> Option<(u64, usize)> {
        let handle = self.unexported.pop_front()?;
        self.place(handle)
    }

    pub(super) fn export_later(&mut self, handle: HandleId) {
        self.unexported.push_back(handle);
    }
}

/// The sizes of the handles that so much memory is made of: as few as can be, and about as large as each other, so that
/// none is a sliver that costs as much to map as a large one.
pub(crate) fn part_sizes(bytes: u64) -> impl Iterator<Item = u64> {
    let blocks = bytes / BLOCK_BYTES;
    let parts = bytes.div_ceil(HANDLE_BYTES_MAX).max(1);
    (0..parts).map(move |part| (blocks / parts + u64::from(part < blocks % parts)) * BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_memory_comes_in_even_parts() {
        let sizes = |bytes| part_sizes(bytes).collect::<Vec<u64>>();
        assert_eq!(sizes(BLOCK_BYTES), [BLOCK_BYTES]);
        assert_eq!(sizes(HANDLE_BYTES_MAX), [HANDLE_BYTES_MAX]);
        let half = HANDLE_BYTES_MAX / 2;
        assert_eq!(sizes(HANDLE_BYTES_MAX + BLOCK_BYTES), [half + BLOCK_BYTES, half]);
        for blocks in (1..4000).step_by(7) {
            let bytes = blocks * BLOCK_BYTES;
            let sizes = sizes(bytes);
            assert_eq!(sizes.iter().sum::<u64>(), bytes);
            assert_eq!(sizes.len() as u64, bytes.div_ceil(HANDLE_BYTES_MAX));
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(*most <= HANDLE_BYTES_MAX && most - least <= BLOCK_BYTES, "{blocks}: {sizes:?}");
            assert!(sizes.iter().all(|size| size.is_multiple_of(BLOCK_BYTES)));
        }
    }
}
