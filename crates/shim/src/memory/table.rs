//! The tenant's allocations: which addresses are rota's, how large, and whether memory lies under them.
//!
//! Pure bookkeeping; the driver's calls are in [`super::physical`]. The table's lock may be held during calls that
//! make, map, unmap, export or release memory, because those never wait for the GPU. It may not be held during
//! anything that can: a frozen program would keep the agent from bringing its memory back.

use std::collections::{BTreeMap, HashMap, VecDeque};

use cuda::types::{CUcontext, CUdevice, CUmemGenericAllocationHandle};
use wire::{BLOCK_BYTES, GrantId, HANDLE_BYTES_MAX, HandleId};

/// One allocation of the program: addresses in a row, over memory in one or several parts.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Where it starts.
    pub(crate) address: u64,
    /// The size that the program asked for, which is what it is told.
    pub(crate) asked_bytes: u64,
    /// The size that is reserved and mapped.
    pub(crate) bytes: u64,
    /// The context it was made in; null once that one is being destroyed.
    pub(crate) context: CUcontext,
    /// The device it lies on.
    pub(crate) device: CUdevice,
    /// The grant that covers it, until the daemon has the files of all parts.
    pub(crate) grant: GrantId,
    /// The memory under it, in the order of addresses.
    pub(crate) parts: Vec<Part>,
}

/// What is moved as one: so much of an allocation as one handle has.
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

/// All allocations.
#[derive(Debug, Default)]
pub(crate) struct Table {
    by_address: BTreeMap<u64, Allocation>,
    /// Where each part is: the start of its allocation, and its place there.
    places: HashMap<HandleId, (u64, usize)>,
    /// Handles that the daemon has no file for yet, oldest first.
    unexported: VecDeque<HandleId>,
    bytes: u64,
    /// The agent is unmapping some.
    unmapping: bool,
}

impl Table {
    pub(crate) fn insert(&mut self, allocation: Allocation) {
        self.bytes += allocation.bytes;
        for (place, part) in allocation.parts.iter().enumerate() {
            self.places.insert(part.handle, (allocation.address, place));
            if !part.exported {
                self.unexported.push_back(part.handle);
            }
        }
        let before = self.by_address.insert(allocation.address, allocation);
        debug_assert!(before.is_none(), "the driver reserved an address twice");
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<Allocation> {
        let allocation = self.by_address.remove(&address)?;
        self.bytes -= allocation.bytes;
        for part in &allocation.parts {
            self.places.remove(&part.handle);
        }
        if allocation.parts.iter().any(|part| !part.exported) {
            self.unexported.retain(|handle| self.places.contains_key(handle));
        }
        Some(allocation)
    }

    /// The allocation that starts at an address.
    pub(crate) fn at(&self, address: u64) -> Option<&Allocation> {
        self.by_address.get(&address)
    }

    /// The allocation that an address lies in. What was rounded up belongs to nobody.
    pub(crate) fn around(&self, address: u64) -> Option<&Allocation> {
        let (_, allocation) = self.by_address.range(..=address).next_back()?;
        (address - allocation.address < allocation.asked_bytes).then_some(allocation)
    }

    /// A part, with the context of its allocation.
    pub(crate) fn part_mut(&mut self, handle: HandleId) -> Option<(CUcontext, &mut Part)> {
        let &(address, place) = self.places.get(&handle)?;
        let allocation = self.by_address.get_mut(&address)?;
        Some((allocation.context, allocation.parts.get_mut(place)?))
    }

    /// The next part whose file the daemon lacks, with the grant that covers it. Whoever gets it exports it, or says that
    /// it failed.
    pub(crate) fn next_unexported(&mut self) -> Option<(GrantId, &mut Part)> {
        let handle = self.unexported.pop_front()?;
        let &(address, place) = self.places.get(&handle)?;
        let allocation = self.by_address.get_mut(&address)?;
        Some((allocation.grant, allocation.parts.get_mut(place)?))
    }

    /// An export failed: the handle goes to the end of the queue.
    pub(crate) fn export_later(&mut self, handle: HandleId) {
        self.unexported.push_back(handle);
    }

    /// The agent is about to unmap: from now on the gate stays closed.
    pub(crate) fn begin_unmapping(&mut self) {
        self.unmapping = true;
    }

    /// It is done.
    pub(crate) fn end_unmapping(&mut self) {
        self.unmapping = false;
    }

    /// Whether any allocation has no memory under some of it, or may have none in a moment.
    pub(crate) fn needs_gate(&self) -> bool {
        let mut parts = self.by_address.values().flat_map(|allocation| &allocation.parts);
        self.unmapping || parts.any(|part| part.physical.is_none())
    }

    /// Whether a range of addresses has something in common with memory of this table, rounded up as it is mapped.
    pub(crate) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let last = address.saturating_add(bytes.saturating_sub(1));
        let before = self.by_address.range(..=last).next_back();
        before.is_some_and(|(start, allocation)| start + (allocation.bytes - 1) >= address)
    }

    /// Takes its allocations away from a context that is about to be destroyed, so that the agent no longer enters
    /// it. Returns their addresses.
    pub(crate) fn detach(&mut self, context: CUcontext) -> Vec<u64> {
        let mine = self.by_address.values_mut().filter(|allocation| allocation.context == context);
        mine.map(|allocation| {
            allocation.context = CUcontext::NULL;
            allocation.address
        })
        .collect()
    }

    /// Gives them back to a context that lives on.
    pub(crate) fn attach(&mut self, addresses: &[u64], context: CUcontext) {
        for address in addresses {
            if let Some(allocation) = self.by_address.get_mut(address) {
                allocation.context = context;
            }
        }
    }

    /// All bytes, on the device or away.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The size of the memory for a request; None if no such memory can exist.
pub(crate) fn mapped_bytes(asked: u64) -> Option<u64> {
    asked.checked_next_multiple_of(BLOCK_BYTES)
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

    /// An allocation in parts of one block, whose first one has this number.
    fn allocation(handle: u64, address: u64, asked: u64) -> Allocation {
        let bytes = mapped_bytes(asked).unwrap();
        let part = |number: u64| Part {
            handle: HandleId(handle + number),
            address: address + number * BLOCK_BYTES,
            bytes: BLOCK_BYTES,
            device: CUdevice(0),
            physical: Some(CUmemGenericAllocationHandle(handle + number)),
            exported: false,
        };
        Allocation {
            address,
            asked_bytes: asked,
            bytes,
            context: context(1),
            device: CUdevice(0),
            grant: GrantId(handle),
            parts: (0..bytes / BLOCK_BYTES).map(part).collect(),
        }
    }

    fn context(number: usize) -> CUcontext {
        CUcontext(std::ptr::without_provenance_mut(number))
    }

    #[test]
    fn sizes_are_rounded_up_to_blocks() {
        assert_eq!(mapped_bytes(1), Some(BLOCK_BYTES));
        assert_eq!(mapped_bytes(BLOCK_BYTES), Some(BLOCK_BYTES));
        assert_eq!(mapped_bytes(BLOCK_BYTES + 1), Some(2 * BLOCK_BYTES));
        assert_eq!(mapped_bytes(u64::MAX), None);
    }

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

    #[test]
    fn an_address_inside_finds_its_allocation() {
        let mut table = Table::default();
        table.insert(allocation(1, 0x1000_0000, 100));
        table.insert(allocation(2, 0x1020_0000, 2 * BLOCK_BYTES));
        let grant = |address| table.around(address).map(|found| found.grant.0);
        assert_eq!(grant(0x0fff_ffff), None);
        assert_eq!(grant(0x1000_0000), Some(1));
        assert_eq!(grant(0x1000_0063), Some(1));
        assert_eq!(grant(0x1000_0064), None, "past the size that was asked for");
        assert_eq!(grant(0x1020_0000), Some(2));
        assert_eq!(grant(0x105f_ffff), Some(2), "in its second part");
        assert_eq!(grant(0x1060_0000), None);
        assert!(table.at(0x1000_0001).is_none(), "only a start can be freed");
        assert!(table.at(0x1040_0000).is_none(), "a part cannot be freed by itself");
    }

    #[test]
    fn a_range_that_touches_memory_overlaps() {
        let mut table = Table::default();
        table.insert(allocation(1, 0x1000_0000, 100));
        table.insert(allocation(2, 0x1040_0000, 100));
        for (address, bytes) in [
            (0x1000_0000, 1),
            (0x1000_0000, 0),
            (0x101f_ffff, 1),
            (0x0fff_ffff, 2),
            (0x0fff_ffff, 0x1000_0000),
            (0x1030_0000, 0x0010_0001),
            (0, u64::MAX),
            (1, u64::MAX),
        ] {
            assert!(table.overlaps(address, bytes), "{address:x} {bytes:x}");
        }
        for (address, bytes) in
            [(0, 0), (0x0fff_ffff, 1), (0x1020_0000, 0x0020_0000), (0x1060_0000, u64::MAX)]
        {
            assert!(!table.overlaps(address, bytes), "{address:x} {bytes:x}");
        }
    }

    #[test]
    fn the_gate_is_needed_while_any_part_is_away_or_being_unmapped() {
        let mut table = Table::default();
        assert!(!table.needs_gate());
        table.begin_unmapping();
        assert!(table.needs_gate(), "what is next may be unmapped at any moment");
        table.insert(allocation(1, 0x1000_0000, 2 * BLOCK_BYTES));
        table.end_unmapping();
        assert!(!table.needs_gate());
        table.part_mut(HandleId(2)).unwrap().1.physical = None;
        assert!(table.needs_gate());
        table.remove(0x1000_0000);
        assert!(!table.needs_gate());
    }

    #[test]
    fn bytes_and_parts_follow_what_is_there() {
        let mut table = Table::default();
        table.insert(allocation(1, 0x1000_0000, 1));
        table.insert(allocation(2, 0x2000_0000, BLOCK_BYTES + 1));
        assert_eq!(table.bytes(), 3 * BLOCK_BYTES);
        assert_eq!(table.part_mut(HandleId(3)).unwrap().1.address, 0x2020_0000);
        assert_eq!(table.remove(0x2000_0000).unwrap().parts.len(), 2);
        assert_eq!(table.bytes(), BLOCK_BYTES);
        assert!(table.remove(0x2000_0000).is_none());
        assert!(table.part_mut(HandleId(2)).is_none() && table.part_mut(HandleId(3)).is_none());
        assert!(table.part_mut(HandleId(1)).is_some());
    }

    #[test]
    fn exports_come_in_order_and_not_for_what_is_gone() {
        let mut table = Table::default();
        table.insert(allocation(1, 0x1000_0000, 2 * BLOCK_BYTES));
        table.insert(allocation(3, 0x2000_0000, 2 * BLOCK_BYTES));
        table.insert(allocation(5, 0x3000_0000, 1));
        table.remove(0x2000_0000);
        let mut next = || table.next_unexported().map(|(grant, part)| (grant.0, part.handle.0));
        assert_eq!([next(), next(), next(), next()], [Some((1, 1)), Some((1, 2)), Some((5, 5)), None]);
    }

    #[test]
    fn a_context_is_left_and_entered_again() {
        let mut table = Table::default();
        table.insert(allocation(1, 0x1000_0000, 1));
        table.insert(Allocation { context: context(2), ..allocation(2, 0x2000_0000, 1) });
        let detached = table.detach(context(1));
        assert_eq!(detached, [0x1000_0000]);
        assert!(table.part_mut(HandleId(1)).unwrap().0.is_null());
        assert_eq!(table.part_mut(HandleId(2)).unwrap().0, context(2));
        table.attach(&detached, context(1));
        assert_eq!(table.at(0x1000_0000).unwrap().context, context(1));
    }
}
