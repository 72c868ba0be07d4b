//! Physical memory: blocks of bytes on a GPU or the host, with what each GPU has left.
//!
//! A block lives as long as something refers to it: a handle, a mapping, an exported file. Its bytes are made when first
//! touched; until then they read as [`POISON`], so that a forgotten copy shows.

use std::collections::HashMap;

use vgpu_messages::memory::{HandleProperties, Location};
use vgpu_messages::{DeviceId, SessionId};

/// What memory reads as before anything was written to it.
pub const POISON: u8 = 0xa5;

/// Bytes come into being in pages of this size.
const PAGE_BYTES: usize = 64 << 10;

/// A page that nobody has touched.
static UNTOUCHED: [u8; PAGE_BYTES] = [POISON; PAGE_BYTES];

/// A block of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

/// There is not enough memory left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough device memory")]
pub struct OutOfMemory;

/// A block.
#[derive(Debug)]
pub struct Block {
    /// Its size.
    pub bytes: u64,
    /// What it was made as.
    pub properties: HandleProperties,
    /// Whose memory it is, in the books of NVML. Nobody's once its maker has let go, also if that one takes it again by a file:
    /// then it is the file's.
    owner: Option<SessionId>,
    references: u32,
    /// Of them, those that are the owner's.
    own: u32,
    /// Its owner is checkpointed: it takes nothing of its GPU.
    out: bool,
    pages: Vec<Option<Box<[u8]>>>,
}

impl Block {
    /// The GPU that holds it; None for the host's memory.
    pub fn device(&self) -> Option<DeviceId> {
        match self.properties.location {
            Location::Device(device) => Some(device),
            _ => None,
        }
    }

    /// Copies bytes out.
    pub fn read(&self, mut offset: u64, mut into: &mut [u8]) {
        while !into.is_empty() {
            let piece = self.piece(offset, into.len());
            let (now, rest) = into.split_at_mut(piece.len());
            now.copy_from_slice(piece);
            into = rest;
            offset += piece.len() as u64;
        }
    }

    /// Copies bytes in.
    pub fn write(&mut self, mut offset: u64, mut from: &[u8]) {
        while !from.is_empty() {
            let piece = self.piece_mut(offset, from.len());
            let (now, rest) = from.split_at(piece.len());
            piece.copy_from_slice(now);
            from = rest;
            offset += now.len() as u64;
        }
    }

    /// The bytes from there to the end of their page; at most so many.
    pub fn piece(&self, offset: u64, bytes_max: usize) -> &[u8] {
        let (page, at) = place(offset);
        let end = PAGE_BYTES.min(at.saturating_add(bytes_max));
        &self.pages[page].as_deref().unwrap_or(&UNTOUCHED)[at..end]
    }

    /// The same, to be filled.
    pub fn piece_mut(&mut self, offset: u64, bytes_max: usize) -> &mut [u8] {
        let (page, at) = place(offset);
        let end = PAGE_BYTES.min(at.saturating_add(bytes_max));
        &mut self.page(page)[at..end]
    }

    fn page(&mut self, page: usize) -> &mut [u8] {
        let bytes = self.pages.len();
        assert!(page < bytes, "page {page} of {bytes}");
        self.pages[page].get_or_insert_with(|| vec![POISON; PAGE_BYTES].into_boxed_slice())
    }
}

fn place(offset: u64) -> (usize, usize) {
    ((offset / PAGE_BYTES as u64) as usize, (offset % PAGE_BYTES as u64) as usize)
}

/// The memory of one GPU, in the books.
#[derive(Clone, Copy, Debug)]
struct Bank {
    total_bytes: u64,
    used_bytes: u64,
}

/// All physical memory of the machine.
#[derive(Debug)]
pub struct Physical {
    blocks: HashMap<BlockId, Block>,
    banks: Vec<Bank>,
    last: u64,
    /// What was released and is to be cleared.
    released: Vec<(DeviceId, u64)>,
}

impl Physical {
    /// So many GPUs with so much memory each.
    pub fn new(gpus: u32, total_bytes: u64) -> Self {
        let banks = vec![Bank { total_bytes, used_bytes: 0 }; gpus as usize];
        Self { blocks: HashMap::new(), banks, last: 0, released: Vec::new() }
    }

    /// A new block with one reference.
    pub fn make(
        &mut self,
        bytes: u64,
        properties: HandleProperties,
        owner: SessionId,
    ) -> Result<BlockId, OutOfMemory> {
        if let Location::Device(device) = properties.location {
            self.take(device, bytes)?;
        }
        let pages = bytes.div_ceil(PAGE_BYTES as u64) as usize;
        let pages = std::iter::repeat_with(|| None).take(pages).collect();
        self.last += 1;
        let id = BlockId(self.last);
        self.blocks.insert(
            id,
            Block { bytes, properties, owner: Some(owner), references: 1, own: 1, out: false, pages },
        );
        Ok(id)
    }

    /// One more reference.
    pub fn retain(&mut self, id: BlockId) {
        self.blocks.get_mut(&id).expect("a block that is referred to").references += 1;
    }

    /// One more reference by a handle or a mapping of this session.
    pub fn hold(&mut self, id: BlockId, session: SessionId) {
        self.retain(id);
        let block = self.block_mut(id);
        block.own += u32::from(block.owner == Some(session));
    }

    /// One less. Once its owner has none left it is nobody's memory, though somebody else may keep it.
    pub fn let_go(&mut self, id: BlockId, session: SessionId) {
        let block = self.block_mut(id);
        if block.owner == Some(session) {
            block.own -= 1;
            block.owner = block.owner.filter(|_| block.own > 0);
        }
        self.release(id);
    }

    /// One reference less; the last one takes the block along.
    pub fn release(&mut self, id: BlockId) {
        let block = self.blocks.get_mut(&id).expect("a block that is referred to");
        block.references -= 1;
        if block.references == 0 {
            let (device, bytes) = (block.device().filter(|_| !block.out), block.bytes);
            self.blocks.remove(&id);
            if let Some(device) = device {
                self.give_back(device, bytes);
                self.released.push((device, bytes));
            }
        }
    }

    /// Memory that was released since the last call, and where: it is to be cleared.
    pub fn take_released(&mut self) -> Vec<(DeviceId, u64)> {
        std::mem::take(&mut self.released)
    }

    /// Takes memory that has no bytes: of contexts, and kept by pools.
    pub fn take(&mut self, device: DeviceId, bytes: u64) -> Result<(), OutOfMemory> {
        let bank = &mut self.banks[device.0 as usize];
        if bytes > bank.total_bytes - bank.used_bytes {
            return Err(OutOfMemory);
        }
        bank.used_bytes += bytes;
        Ok(())
    }

    /// Gives that back.
    pub fn give_back(&mut self, device: DeviceId, bytes: u64) {
        let bank = &mut self.banks[device.0 as usize];
        assert!(bank.used_bytes >= bytes, "{device:?} gets back more than was taken");
        bank.used_bytes -= bytes;
    }

    /// Bytes in use on a GPU, and all of them.
    pub fn used(&self, device: DeviceId) -> (u64, u64) {
        let bank = self.banks[device.0 as usize];
        (bank.used_bytes, bank.total_bytes)
    }

    /// A block that is referred to.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[&id]
    }

    /// The same, to write.
    pub fn block_mut(&mut self, id: BlockId) -> &mut Block {
        self.blocks.get_mut(&id).expect("a block that is referred to")
    }

    /// Bytes of a session's blocks on a GPU.
    pub fn owned(&self, device: DeviceId, owner: SessionId) -> u64 {
        let own = |block: &&Block| block.owner == Some(owner) && !block.out && block.device() == Some(device);
        self.blocks.values().filter(own).map(|block| block.bytes).sum()
    }

    /// Whether others have some of a session's memory, or could get it by a file.
    pub fn has_shared(&self, owner: SessionId) -> bool {
        let on_device = |block: &&Block| block.owner == Some(owner) && block.device().is_some();
        self.blocks.values().filter(on_device).any(|block| block.references > block.own)
    }

    /// Whether a block is this session's, by the books.
    pub fn is_of(&self, id: BlockId, session: SessionId) -> bool {
        self.block(id).owner == Some(session)
    }

    /// What a session has on GPUs takes nothing there any more; its bytes stay what they are.
    pub fn send_out(&mut self, owner: SessionId) {
        for id in self.of(owner, false) {
            let block = self.block_mut(id);
            block.out = true;
            let (device, bytes) = (block.device(), block.bytes);
            device.into_iter().for_each(|device| self.give_back(device, bytes));
        }
    }

    /// It comes back, all of it or nothing.
    pub fn bring_in(&mut self, owner: SessionId) -> Result<(), OutOfMemory> {
        let all = self.of(owner, true);
        for (done, &id) in all.iter().enumerate() {
            let (device, bytes) = (self.block(id).device(), self.block(id).bytes);
            if device.is_some_and(|device| self.take(device, bytes).is_err()) {
                for &id in &all[..done] {
                    let (device, bytes) = (self.block(id).device(), self.block(id).bytes);
                    device.into_iter().for_each(|device| self.give_back(device, bytes));
                }
                return Err(OutOfMemory);
            }
        }
        all.into_iter().for_each(|id| self.block_mut(id).out = false);
        Ok(())
    }

    fn of(&self, owner: SessionId, out: bool) -> Vec<BlockId> {
        let its = |block: &Block| block.owner == Some(owner) && block.out == out && block.device().is_some();
        self.blocks.iter().filter(|(_, block)| its(block)).map(|(id, _)| *id).collect()
    }

    /// How many blocks there are.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_device(device: u32) -> HandleProperties {
        let location = Location::Device(DeviceId(device));
        HandleProperties { kind: 1, handle_types: 1, location, flags: [0; 8] }
    }

    #[test]
    fn memory_is_taken_once_and_given_back_with_the_last_reference() {
        let mut physical = Physical::new(2, 8 << 20);
        let block = physical.make(6 << 20, on_device(1), SessionId(1)).unwrap();
        assert_eq!(physical.used(DeviceId(1)), (6 << 20, 8 << 20));
        assert_eq!(physical.used(DeviceId(0)), (0, 8 << 20));
        assert_eq!(physical.make(4 << 20, on_device(1), SessionId(1)), Err(OutOfMemory));
        physical.retain(block);
        physical.release(block);
        assert_eq!(physical.used(DeviceId(1)).0, 6 << 20);
        assert_eq!(physical.owned(DeviceId(1), SessionId(1)), 6 << 20);
        physical.release(block);
        assert_eq!((physical.used(DeviceId(1)).0, physical.count()), (0, 0));
    }

    #[test]
    fn memory_counts_for_who_made_it_until_that_one_lets_go() {
        let mut physical = Physical::new(1, 8 << 20);
        let (maker, importer) = (SessionId(1), SessionId(2));
        let owned = |physical: &Physical| [maker, importer].map(|it| physical.owned(DeviceId(0), it));
        let block = physical.make(2 << 20, on_device(0), maker).unwrap();
        physical.hold(block, importer);
        physical.hold(block, maker);
        assert_eq!(owned(&physical), [2 << 20, 0]);
        physical.let_go(block, maker);
        assert_eq!(owned(&physical), [2 << 20, 0], "its mapping is there");
        physical.let_go(block, maker);
        assert_eq!((owned(&physical), physical.used(DeviceId(0)).0), ([0, 0], 2 << 20));
        physical.let_go(block, importer);
        assert_eq!(physical.used(DeviceId(0)).0, 0);
    }

    #[test]
    fn memory_that_comes_back_to_its_maker_is_nobodys() {
        let mut physical = Physical::new(1, 8 << 20);
        let (maker, other) = (SessionId(1), SessionId(2));
        let block = physical.make(2 << 20, on_device(0), maker).unwrap();
        physical.hold(block, other);
        physical.let_go(block, maker);
        assert!(!physical.has_shared(maker), "it has nothing of it");
        physical.hold(block, maker);
        physical.hold(block, maker);
        physical.let_go(block, other);
        assert_eq!([maker, other].map(|it| physical.owned(DeviceId(0), it)), [0, 0]);
        physical.send_out(maker);
        assert_eq!(physical.used(DeviceId(0)).0, 2 << 20, "what is nobody's does not go with anybody");
        physical.let_go(block, maker);
        physical.let_go(block, maker);
        assert_eq!((physical.used(DeviceId(0)).0, physical.count()), (0, 0));
    }

    #[test]
    fn untouched_bytes_are_poison_and_written_ones_stay() {
        let mut physical = Physical::new(1, 8 << 20);
        let id = physical.make(2 << 20, on_device(0), SessionId(1)).unwrap();
        let block = physical.block_mut(id);
        let text: Vec<u8> = (0..200_000u32).map(|at| at as u8 ^ 0x33).collect();
        block.write(65_000, &text);
        let mut back = vec![0; 200_002];
        block.read(64_999, &mut back);
        assert_eq!(back[0], POISON);
        assert_eq!(&back[1..200_001], &text[..]);
        assert_eq!(back[200_001], POISON);
    }
}
