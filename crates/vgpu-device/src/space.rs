//! The addresses of one process: allocations, reservations with their mappings, and host ranges.
//!
//! Addresses are given out once and never again, so that a use after free is always seen. Device addresses lie where no
//! host memory does. Which bytes an address means, and who may touch it, is for [`touch`].

pub mod touch;

use std::collections::BTreeMap;

use vgpu_messages::memory::{Access, Location};
use vgpu_messages::{ContextId, DeviceId, GRANULARITY_BYTES, PoolId};

use crate::physical::BlockId;

/// Where device addresses begin.
pub const BASE: u64 = 0x3000_0000_0000;
/// Where they end. 16 TiB, which nobody uses up.
pub const END: u64 = 0x4000_0000_0000;

/// Some addresses in use.
#[derive(Debug)]
pub struct Region {
    /// How many.
    pub bytes: u64,
    /// Unique to it.
    pub buffer_id: u64,
    /// For what.
    pub kind: Kind,
}

/// What a region is for.
#[derive(Debug)]
pub enum Kind {
    /// Memory of `cuMemAlloc` or a pool: its own block, all of it mapped.
    Allocation(Allocation),
    /// Reserved addresses, and what is mapped there.
    Reservation(BTreeMap<u64, Mapping>),
    /// Host memory that the device knows.
    Host(HostRange),
}

/// Memory of `cuMemAlloc` or a pool.
#[derive(Debug)]
pub struct Allocation {
    /// What the program asked for; the region has a little more.
    pub asked_bytes: u64,
    /// The bytes.
    pub block: BlockId,
    /// Where they are.
    pub device: DeviceId,
    /// In which context it was allocated; None for pools.
    pub context: Option<ContextId>,
    /// From which pool.
    pub pool: Option<PoolId>,
    /// A free of it is on its way in some stream.
    pub freeing: bool,
    /// It is another process's memory, opened by its IPC handle.
    pub opened: bool,
}

/// A part of a block, mapped.
#[derive(Debug)]
pub struct Mapping {
    /// How much.
    pub bytes: u64,
    /// Of what.
    pub block: BlockId,
    /// From where on.
    pub offset: u64,
    /// Who may do what.
    pub access: BTreeMap<Location, Access>,
}

/// Host memory that the device knows.
#[derive(Debug)]
pub struct HostRange {
    /// As the driver function took them.
    pub flags: u32,
    /// By `cuMemHostAlloc`.
    pub allocated: bool,
    /// In which context.
    pub context: ContextId,
}

/// All addresses of one process that the device knows.
#[derive(Debug)]
pub struct Space {
    regions: BTreeMap<u64, Region>,
    next: u64,
}

impl Default for Space {
    fn default() -> Self {
        Self { regions: BTreeMap::new(), next: BASE }
    }
}

impl Space {
    /// Addresses at a multiple of `alignment`, with a gap behind them; never used before, until all have been used once.
    pub fn fresh(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let alignment = alignment.max(GRANULARITY_BYTES);
        let found = self.gap(self.next, bytes, alignment).or_else(|| self.gap(BASE, bytes, alignment));
        let (start, end) = found?;
        self.next = end + GRANULARITY_BYTES;
        Some(start)
    }

    /// The first free addresses from there on: where they begin and end.
    fn gap(&self, from: u64, bytes: u64, alignment: u64) -> Option<(u64, u64)> {
        let mut start = from.checked_next_multiple_of(alignment)?;
        loop {
            let end = start.checked_add(bytes)?.checked_next_multiple_of(GRANULARITY_BYTES)?;
            if end > END {
                return None;
            }
            match self.regions.range(..end).next_back() {
                Some((at, region)) if at + region.bytes > start => {
                    let behind = at + region.bytes + GRANULARITY_BYTES;
                    start = behind.checked_next_multiple_of(alignment)?;
                }
                _ => return Some((start, end)),
            }
        }
    }

    /// Whether a wish for addresses can be fulfilled: they are free. Only by a wish are addresses used again.
    pub fn is_free(&mut self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        let inside = start >= BASE && end <= END && start.is_multiple_of(GRANULARITY_BYTES);
        if !inside || self.overlaps(start, bytes) {
            return false;
        }
        self.next = self.next.max(end + GRANULARITY_BYTES);
        true
    }

    /// Puts a region in. Its addresses are free.
    pub fn insert(&mut self, start: u64, region: Region) {
        assert!(!self.overlaps(start, region.bytes), "addresses at {start:#x} are in use");
        self.regions.insert(start, region);
    }

    /// Takes the region that begins there out.
    pub fn remove(&mut self, start: u64) -> Option<Region> {
        self.regions.remove(&start)
    }

    /// The region that begins there.
    pub fn starting(&self, start: u64) -> Option<&Region> {
        self.regions.get(&start)
    }

    /// The same, to change.
    pub fn starting_mut(&mut self, start: u64) -> Option<&mut Region> {
        self.regions.get_mut(&start)
    }

    /// The region that holds an address, and where it begins.
    pub fn around(&self, address: u64) -> Option<(u64, &Region)> {
        let (&start, region) = self.regions.range(..=address).next_back()?;
        (address - start < region.bytes).then_some((start, region))
    }

    /// The same, to change.
    pub fn around_mut(&mut self, address: u64) -> Option<(u64, &mut Region)> {
        let (&start, region) = self.regions.range_mut(..=address).next_back()?;
        (address - start < region.bytes).then_some((start, region))
    }

    /// Whether any of these addresses is in use.
    pub fn overlaps(&self, start: u64, bytes: u64) -> bool {
        let end = start.saturating_add(bytes);
        self.regions.range(..end).next_back().is_some_and(|(&at, region)| at + region.bytes > start)
    }

    /// The reservation that holds the whole range.
    pub fn reservation(&mut self, start: u64, bytes: u64) -> Option<&mut BTreeMap<u64, Mapping>> {
        let (at, region) = self.around_mut(start)?;
        let inside = start.checked_add(bytes).is_some_and(|end| end <= at + region.bytes);
        match &mut region.kind {
            Kind::Reservation(mappings) if inside => Some(mappings),
            _ => None,
        }
    }

    /// The mapping that holds an address, and where it begins.
    pub fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (_, region) = self.around(address)?;
        let Kind::Reservation(mappings) = &region.kind else { return None };
        let (&start, mapping) = mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some((start, mapping))
    }

    /// All regions.
    pub fn regions(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.regions.iter().map(|(&start, region)| (start, region))
    }

    /// Every reference to a block.
    pub fn blocks(&self) -> Vec<BlockId> {
        let mut blocks = Vec::new();
        for region in self.regions.values() {
            match &region.kind {
                Kind::Allocation(allocation) => blocks.push(allocation.block),
                Kind::Reservation(mappings) => blocks.extend(mappings.values().map(|mapping| mapping.block)),
                Kind::Host(_) => {}
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(space: &mut Space, start: u64, bytes: u64) {
        space.insert(start, Region { bytes, buffer_id: 0, kind: Kind::Reservation(BTreeMap::new()) });
    }

    #[test]
    fn addresses_are_new_until_there_are_no_new_ones() {
        let mut space = Space::default();
        let first = space.fresh(5 << 20, 0).unwrap();
        reserve(&mut space, first, 5 << 20);
        let second = space.fresh(1 << 30, 1 << 30).unwrap();
        assert!(second.is_multiple_of(1 << 30) && second > first);
        space.remove(first);
        assert_ne!(space.fresh(5 << 20, 0), Some(first), "not at once");
        // A wish at the very end leaves nothing new behind it.
        let last = END - (4 << 20);
        assert!(space.is_free(last, 4 << 20));
        reserve(&mut space, last, 4 << 20);
        reserve(&mut space, BASE, 2 << 20);
        assert_eq!(space.fresh(2 << 20, 0), Some(BASE + (4 << 20)), "behind what is in use, with a gap");
        assert_eq!(space.fresh(END - BASE, 0), None);
    }
}
