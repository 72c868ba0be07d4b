//! The tenant's allocations: which addresses are rota's, how large, and whether memory lies under them.
//!
//! Pure bookkeeping; the driver's calls are in [`super::physical`]. The table's lock may be held during calls that
//! make, map, unmap, export or release memory, because those never wait for the GPU. It may not be held during
//! anything that can: a frozen program would keep the agent from bringing its memory back.

use std::collections::{BTreeMap, HashMap, VecDeque};

use cuda::types::{CUcontext, CUdevice, CUmemGenericAllocationHandle};
use wire::{BLOCK_BYTES, GrantId, HandleId};

/// One allocation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Its name towards the daemon.
    pub(crate) handle: HandleId,
    /// Where it starts.
    pub(crate) address: u64,
    /// The size that the program asked for, which is what it is told.
    pub(crate) asked_bytes: u64,
    /// The size that is reserved and mapped.
    pub(crate) bytes: u64,
    /// The memory under it; None while it is away.
    pub(crate) physical: Option<CUmemGenericAllocationHandle>,
    /// The grant that covers it, until the daemon has its file.
    pub(crate) grant: Option<GrantId>,
    /// The context it was made in; null once that one is being destroyed.
    pub(crate) context: CUcontext,
    /// The device it lies on.
    pub(crate) device: CUdevice,
}

/// All allocations.
#[derive(Debug, Default)]
pub(crate) struct Table {
    by_address: BTreeMap<u64, Allocation>,
    addresses: HashMap<HandleId, u64>,
    /// Handles that the daemon has no file for yet, oldest first.
    unexported: VecDeque<HandleId>,
    bytes: u64,
    /// The agent is unmapping some.
    unmapping: bool,
}

impl Table {
    pub(crate) fn insert(&mut self, allocation: Allocation) {
        self.bytes += allocation.bytes;
        self.addresses.insert(allocation.handle, allocation.address);
        if allocation.grant.is_some() {
            self.unexported.push_back(allocation.handle);
        }
        let before = self.by_address.insert(allocation.address, allocation);
        debug_assert_eq!(before, None, "the driver reserved an address twice");
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<Allocation> {
        let allocation = self.by_address.remove(&address)?;
        self.bytes -= allocation.bytes;
        self.addresses.remove(&allocation.handle);
        self.unexported.retain(|handle| *handle != allocation.handle);
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

    pub(crate) fn get_mut(&mut self, handle: HandleId) -> Option<&mut Allocation> {
        self.by_address.get_mut(self.addresses.get(&handle)?)
    }

    /// The next allocation whose file the daemon lacks; it counts as exported from now on.
    pub(crate) fn next_unexported(&mut self) -> Option<&mut Allocation> {
        let handle = self.unexported.pop_front()?;
        self.get_mut(handle)
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

    /// Whether any allocation has no memory under it, or may have none in a moment.
    pub(crate) fn needs_gate(&self) -> bool {
        self.unmapping || self.by_address.values().any(|allocation| allocation.physical.is_none())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(handle: u64, address: u64, asked: u64) -> Allocation {
        Allocation {
            handle: HandleId(handle),
            address,
            asked_bytes: asked,
            bytes: mapped_bytes(asked).unwrap(),
            physical: Some(CUmemGenericAllocationHandle(handle)),
            grant: Some(GrantId(handle)),
            context: context(1),
            device: CUdevice(0),
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
    fn an_address_inside_finds_its_allocation() {
        let mut table = Table::default();
        table.insert(allocation(1, 0x1000_0000, 100));
        table.insert(allocation(2, 0x1020_0000, BLOCK_BYTES));
        let handle = |address| table.around(address).map(|found| found.handle.0);
        assert_eq!(handle(0x0fff_ffff), None);
        assert_eq!(handle(0x1000_0000), Some(1));
        assert_eq!(handle(0x1000_0063), Some(1));
        assert_eq!(handle(0x1000_0064), None, "past the size that was asked for");
        assert_eq!(handle(0x1020_0000), Some(2));
        assert_eq!(handle(0x103f_ffff), Some(2));
        assert_eq!(handle(0x1040_0000), None);
        assert!(table.at(0x1000_0001).is_none(), "only a start can be freed");
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
    fn the_gate_is_needed_while_something_is_away_or_being_unmapped() {
        let mut table = Table::default();
        assert!(!table.needs_gate());
        table.begin_unmapping();
        assert!(table.needs_gate(), "what is next may be unmapped at any moment");
        table.insert(Allocation { physical: None, ..allocation(1, 0x1000_0000, 1) });
        table.end_unmapping();
        assert!(table.needs_gate());
        table.remove(0x1000_0000);
        assert!(!table.needs_gate());
    }

    #[test]
    fn bytes_follow_what_is_there() {
        let mut table = Table::default();
        table.insert(allocation(1, 0x1000_0000, 1));
        table.insert(allocation(2, 0x2000_0000, BLOCK_BYTES + 1));
        assert_eq!(table.bytes(), 3 * BLOCK_BYTES);
        assert_eq!(table.remove(0x1000_0000).unwrap().handle, HandleId(1));
        assert_eq!(table.bytes(), 2 * BLOCK_BYTES);
        assert_eq!(table.remove(0x1000_0000), None);
        assert!(table.get_mut(HandleId(1)).is_none());
    }

    #[test]
    fn exports_come_in_order_and_not_for_what_is_gone() {
        let mut table = Table::default();
        for handle in 1..=3 {
            table.insert(allocation(handle, handle * 0x1000_0000, 1));
        }
        table.remove(0x2000_0000);
        let mut next = || table.next_unexported().map(|allocation| allocation.handle.0);
        assert_eq!([next(), next(), next()], [Some(1), Some(3), None]);
    }

    #[test]
    fn a_context_is_left_and_entered_again() {
        let mut table = Table::default();
        table.insert(allocation(1, 0x1000_0000, 1));
        table.insert(Allocation { context: context(2), ..allocation(2, 0x2000_0000, 1) });
        let detached = table.detach(context(1));
        assert_eq!(detached, [0x1000_0000]);
        assert!(table.at(0x1000_0000).unwrap().context.is_null());
        assert_eq!(table.at(0x2000_0000).unwrap().context, context(2));
        table.attach(&detached, context(1));
        assert_eq!(table.at(0x1000_0000).unwrap().context, context(1));
    }
}
