//! Blocks on a device, and the calls by which they are hashed: those that a daemon makes.

use std::ops::Range;

use blocks::launch::{DeviceAddresses, Launch, THREADS};
use blocks::{BLOCK_BYTES, Block, BlockHash, DeviceKey, Key, Sums};
use cuda::types::{CUdeviceptr, CUstream};

use super::HasherError;
use crate::bench::Bench;
use crate::kernels::{HASH_BLOCKS, REWRITE};

/// Blocks in a row, the key, and room for what comes out.
pub(super) struct Device<'a> {
    pub(super) bench: &'a Bench,
    pub(super) key: &'a Key,
    pub(super) blocks: usize,
    pub(super) memory: CUdeviceptr,
    at: DeviceAddresses,
}

impl<'a> Device<'a> {
    pub(super) fn allocate(bench: &'a Bench, key: &'a Key, blocks: usize) -> Result<Device<'a>, HasherError> {
        let memory = bench.alloc(blocks * BLOCK_BYTES);
        let at = DeviceAddresses {
            places: bench.alloc(8 * blocks).0,
            key: bench.alloc(DeviceKey::BYTES).0,
            sums: bench.alloc(Sums::BYTES * blocks).0,
        };
        let device = Device { bench, key, blocks, memory, at };
        bench.write(CUdeviceptr(at.key), &key.device().to_bytes());
        device.no_trouble()?;
        Ok(device)
    }

    /// Every call so far worked.
    pub(super) fn no_trouble(&self) -> Result<(), HasherError> {
        match self.bench.take_record() {
            trouble if trouble.is_empty() => Ok(()),
            trouble => Err(HasherError::Driver(trouble)),
        }
    }

    /// Where a block is.
    fn place(&self, block: usize) -> u64 {
        self.memory.0 + (block * BLOCK_BYTES) as u64
    }

    /// Gives every word of every block a value of its own.
    pub(super) fn rewrite(&self, seed: u64) -> Result<(), HasherError> {
        let parameters = [self.memory.0, (self.blocks * BLOCK_BYTES / 8) as u64, 0, seed, 1];
        let function = self.bench.function(REWRITE);
        let code = self.bench.launch_function(function, (1024, 256), CUstream::NULL, &parameters);
        self.bench.expect("rewrite", code);
        self.bench.synchronize();
        self.no_trouble()
    }

    /// Sets every byte of some blocks.
    pub(super) fn set(&self, blocks: Range<usize>, value: u8) -> Result<(), HasherError> {
        let place = CUdeviceptr(self.place(blocks.start));
        let code = self.bench.cu.cuMemsetD8_v2(place, value, blocks.len() * BLOCK_BYTES);
        self.bench.expect("memset", code);
        self.bench.synchronize();
        self.no_trouble()
    }

    /// Flips one bit of a block.
    pub(super) fn flip(&self, block: usize, bit: usize) -> Result<(), HasherError> {
        let place = CUdeviceptr(self.place(block) + bit as u64 / 8);
        let byte = self.bench.read(place, 1)[0];
        self.bench.write(place, &[byte ^ 1 << (bit % 8)]);
        self.no_trouble()
    }

    /// The bytes of a block.
    pub(super) fn bytes(&self, block: usize) -> Result<Box<Block>, HasherError> {
        let bytes = self.bench.read(CUdeviceptr(self.place(block)), BLOCK_BYTES);
        self.no_trouble()?;
        Ok(bytes.into_boxed_slice().try_into().expect("as many bytes as were asked for"))
    }

    /// Sends the places of the first blocks, and clears their sums.
    pub(super) fn prepare(&self, count: usize) {
        let places: Vec<u8> = (0..count).flat_map(|block| self.place(block).to_le_bytes()).collect();
        self.bench.write(CUdeviceptr(self.at.places), &places);
        let code = self.bench.cu.cuMemsetD8_v2(CUdeviceptr(self.at.sums), 0, count * Sums::BYTES);
        self.bench.expect("memset", code);
    }

    /// Launches the kernel over the first blocks, no launch over more than `most`.
    pub(super) fn launch(&self, count: usize, most: usize) {
        let function = self.bench.function(HASH_BLOCKS);
        for launch in Launch::over(count, most) {
            let shape = (launch.grid(), THREADS);
            let code =
                self.bench.launch_function(function, shape, CUstream::NULL, &launch.parameters(&self.at));
            self.bench.expect("hash_blocks", code);
        }
    }

    /// Fetches what came out.
    pub(super) fn fetch(&self, count: usize) -> Result<Vec<BlockHash>, HasherError> {
        let bytes = self.bench.read(CUdeviceptr(self.at.sums), count * Sums::BYTES);
        self.no_trouble()?;
        let sums = bytes.as_chunks().0.iter().map(Sums::from_bytes);
        Ok(sums.map(|sums| self.key.finish(&sums)).collect::<Result<_, _>>()?)
    }

    /// The hashes of the first blocks.
    pub(super) fn hashes(&self, count: usize, most: usize) -> Result<Vec<BlockHash>, HasherError> {
        self.prepare(count);
        self.launch(count, most);
        self.fetch(count)
    }
}
