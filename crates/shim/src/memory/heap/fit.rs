//! Blocks in slabs: best fit, neighbours join, and what was given back last is handed out first for the same size.

use std::collections::{BTreeMap, BTreeSet};

use super::Block;
use crate::memory::quick::QuickMap;

/// How many blocks of one size wait as they are.
const LATELY_EACH_MAX: usize = 16;
/// For how many sizes.
const LATELY_SIZES_MAX: usize = 64;

#[derive(Debug)]
struct Slab {
    bytes: u64,
    /// Of that, handed out.
    used_bytes: u64,
    /// When the last block came back. It means something only while nothing is handed out.
    idle_since_ns: u64,
}

/// Slabs, and the blocks in them.
#[derive(Debug)]
pub(super) struct Fit {
    slabs: BTreeMap<u64, Slab>,
    /// Free blocks. None has a free neighbour in its slab.
    by_address: BTreeMap<u64, u64>,
    /// The same by size.
    by_size: BTreeSet<(u64, u64)>,
    /// Free blocks that were given back lately, by their size: a loop finds its blocks again without cutting and joining.
    lately: QuickMap<u64, Vec<u64>>,
    bytes: u64,
    idle_bytes: u64,
}

impl Fit {
    pub(super) fn new() -> Self {
        Self {
            slabs: BTreeMap::new(),
            by_address: BTreeMap::new(),
            by_size: BTreeSet::new(),
            lately: QuickMap::default(),
            bytes: 0,
            idle_bytes: 0,
        }
    }

    /// All slabs together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Those with nothing in them.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.idle_bytes
    }

    pub(super) fn take(&mut self, bytes: u64) -> Option<Block> {
        let address = match self.lately.get_mut(&bytes).and_then(Vec::pop) {
            Some(address) => address,
            None => self.cut(bytes).or_else(|| {
                self.join_lately().then_some(())?;
                self.cut(bytes)
            })?,
        };
        let (_, slab) = self.slabs.range_mut(..=address).next_back()?;
        if slab.used_bytes == 0 {
            self.idle_bytes -= slab.bytes;
        }
        slab.used_bytes += bytes;
        Some(Block { address, bytes })
    }

    pub(super) fn give(&mut self, block: Block, now_ns: u64) {
        let Some((_, slab)) = self.slabs.range_mut(..=block.address).next_back() else {
            debug_assert!(false, "a block of no slab");
            return;
        };
        slab.used_bytes -= block.bytes;
        if slab.used_bytes == 0 {
            slab.idle_since_ns = now_ns;
            self.idle_bytes += slab.bytes;
        }
        if self.lately.len() >= LATELY_SIZES_MAX && !self.lately.contains_key(&block.bytes) {
            self.join_lately();
        }
        let lately = self.lately.entry(block.bytes).or_default();
        if lately.len() < LATELY_EACH_MAX {
            lately.push(block.address);
        } else {
            self.join(block);
        }
    }

    pub(super) fn add(&mut self, range: Block, now_ns: u64) {
        let slab = Slab { bytes: range.bytes, used_bytes: 0, idle_since_ns: now_ns };
        self.slabs.insert(range.address, slab);
        self.bytes += range.bytes;
        self.idle_bytes += range.bytes;
        self.insert(range);
    }

    /// Takes a slab out, with nothing in it. False if there is none of this start.
    pub(super) fn remove(&mut self, start: u64) -> bool {
        let Some(slab) = self.slabs.get(&start) else { return false };
        debug_assert_eq!(slab.used_bytes, 0);
        let range = Block { address: start, bytes: slab.bytes };
        self.join_lately();
        let whole = self.by_address.get(&start) == Some(&range.bytes);
        debug_assert!(whole, "a slab with nothing in it is one free block");
        self.erase(range);
        self.slabs.remove(&start);
        self.bytes -= range.bytes;
        self.idle_bytes -= range.bytes;
        true
    }

    /// Slabs with nothing in them, and since when.
    pub(super) fn idle(&self) -> impl Iterator<Item = (u64, Block)> {
        let idle = self.slabs.iter().filter(|(_, slab)| slab.used_bytes == 0);
        idle.map(|(start, slab)| (slab.idle_since_ns, Block { address: *start, bytes: slab.bytes }))
    }

    /// Cuts a block off the smallest free one that is large enough.
    fn cut(&mut self, bytes: u64) -> Option<u64> {
        let &(found, address) = self.by_size.range((bytes, 0)..).next()?;
        self.erase(Block { address, bytes: found });
        if found > bytes {
            self.insert(Block { address: address + bytes, bytes: found - bytes });
        }
        Some(address)
    }

    /// Joins all that came back lately with its neighbours. False if there was none.
    fn join_lately(&mut self) -> bool {
        let lately = std::mem::take(&mut self.lately);
        let mut any = false;
        for (bytes, addresses) in lately {
            for address in addresses {
                any = true;
                self.join(Block { address, bytes });
            }
        }
        any
    }

    /// Makes a block free, as one with those beside it in its slab.
    fn join(&mut self, block: Block) {
        let (mut start, mut end) = (block.address, block.address + block.bytes);
        // The driver may have put two slabs beside each other: a block never spans two.
        if let Some((&address, &bytes)) = self.by_address.range(..start).next_back()
            && address + bytes == start
            && !self.slabs.contains_key(&start)
        {
            self.erase(Block { address, bytes });
            start = address;
        }
        if let Some(&bytes) = self.by_address.get(&end)
            && !self.slabs.contains_key(&end)
        {
            self.erase(Block { address: end, bytes });
            end += bytes;
        }
        self.insert(Block { address: start, bytes: end - start });
    }

    fn insert(&mut self, block: Block) {
        self.by_address.insert(block.address, block.bytes);
        self.by_size.insert((block.bytes, block.address));
    }

    fn erase(&mut self, block: Block) {
        self.by_address.remove(&block.address);
        self.by_size.remove(&(block.bytes, block.address));
    }
}
