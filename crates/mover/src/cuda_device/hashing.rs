//! Hashing on the GPU: `hash_blocks` in a stream of its own, and the memory that it needs.
//!
//! That memory is one allocation on the device (below 2 MiB, out of what is kept for the daemon's context) and its like
//! in pinned host memory: a slot for each of [`HASHES_MAX`] launches, with the places of the blocks and their sums.

use super::Context;
use super::context::{call, check};
use crate::device::{DeviceError, HASH_BLOCKS_MAX, HASHES_MAX};
use blocks::launch::{DeviceAddresses, ENTRY, Launch, PTX, SHORT_BLOCKS, THREADS};
use blocks::{DeviceKey, Sums};
use cuda::types::{CUdeviceptr, CUfunction, CUmodule, CUstream};
use std::ffi::{CString, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of the places in a slot, and of the sums behind them.
const PLACES_BYTES: usize = 8 * HASH_BLOCKS_MAX;
const SLOT_BYTES: usize = DeviceAddresses::bytes_of(HASH_BLOCKS_MAX);

/// The most that all of it takes on the device.
const DEVICE_BYTES_MAX: usize = 2 << 20;
const _: () = assert!(HASHES_MAX * SLOT_BYTES + DeviceKey::BYTES <= DEVICE_BYTES_MAX);

/// What a slot holds.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The mark behind it; 0 if there was none yet.
    mark: u64,
    blocks: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Hashing {
    context: Arc<Context>,
    module: CUmodule,
    function: CUfunction,
    device: CUdeviceptr,
    host: Pinned,
    slots: [Slot; HASHES_MAX],
    next: usize,
}

/// Pinned host memory.
#[derive(Debug)]
struct Pinned(NonNull<u8>);

// SAFETY: only whoever has the `Hashing` uses the memory, and that is one thread at a time.
unsafe impl Send for Pinned {}

impl Hashing {
    /// Loads the kernel, makes room, and hands the key over. The context must be current.
    pub(super) fn prepare(
        context: &Arc<Context>,
        key: &DeviceKey,
        stream: CUstream,
    ) -> Result<Hashing, DeviceError> {
        let driver = &context.driver;
        let mut hashing = Hashing {
            context: Arc::clone(context),
            module: CUmodule::NULL,
            function: CUfunction::NULL,
            device: CUdeviceptr(0),
            host: Pinned(NonNull::dangling()),
            slots: [Slot::default(); HASHES_MAX],
            next: 0,
        };
        let entry = CString::new(ENTRY).expect("a name without NUL");
        // SAFETY: each first argument is a place for the result. The text ends with a NUL. What was made so far is
        // undone by dropping.
        unsafe {
            call!(driver, cuModuleLoadData(&mut hashing.module, PTX.as_ptr().cast::<c_void>()))?;
            call!(driver, cuModuleGetFunction(&mut hashing.function, hashing.module, entry.as_ptr()))?;
            let bytes = HASHES_MAX * SLOT_BYTES + DeviceKey::BYTES;
            call!(driver, cuMemAlloc_v2(&mut hashing.device, bytes))?;
            let mut host = std::ptr::null_mut();
            call!(driver, cuMemHostAlloc(&mut host, HASHES_MAX * SLOT_BYTES, 0))?;
            let Some(host) = NonNull::new(host.cast::<u8>()) else { return Err(DeviceError::NoHashing) };
            hashing.host = Pinned(host);
            let key = key.to_bytes();
            let to = CUdeviceptr(hashing.key_address());
            call!(driver, cuMemcpyHtoDAsync_v2(to, key.as_ptr().cast::<c_void>(), key.len(), stream))?;
            // Before the bytes go.
            call!(driver, cuStreamSynchronize(stream))?;
        }
        Ok(hashing)
    }

    fn key_address(&self) -> u64 {
        self.device.0 + (HASHES_MAX * SLOT_BYTES) as u64
    }

    /// Which slot is next, if what was in it is over.
    pub(super) fn next_slot(&self, marks_passed: u64) -> Result<usize, DeviceError> {
        if self.slots[self.next].mark > marks_passed { Err(DeviceError::TooMany) } else { Ok(self.next) }
    }

    /// Puts all that hashes these blocks into the stream. Whoever calls sets a mark, and [notes](Hashing::note) it.
    pub(super) fn start(
        &mut self,
        slot: usize,
        blocks: &[CUdeviceptr],
        stream: CUstream,
    ) -> Result<(), DeviceError> {
        assert!(blocks.len() <= HASH_BLOCKS_MAX, "a slot has room for so many");
        // Until it is noted.
        self.slots[slot] = Slot::default();
        let at = slot * SLOT_BYTES;
        let device = |offset: usize| CUdeviceptr(self.device.0 + offset as u64);
        let (places, sums) = (at, at + PLACES_BYTES);
        let addresses =
            DeviceAddresses { places: device(places).0, key: self.key_address(), sums: device(sums).0 };
        let driver = &self.context.driver;
        // SAFETY: a slot lies within both memories, with room for so many blocks, and nothing that was started on it is
        // under way. Places are addresses of whole blocks, mapped here.
        unsafe {
            let host = self.host.0.as_ptr().add(at);
            for (number, block) in blocks.iter().enumerate() {
                host.add(8 * number).cast::<[u8; 8]>().write(block.0.to_le_bytes());
            }
            let blocks = blocks.len();
            call!(driver, cuMemcpyHtoDAsync_v2(device(places), host.cast::<c_void>(), 8 * blocks, stream))?;
            call!(driver, cuMemsetD8Async(device(sums), 0, Sums::BYTES * blocks, stream))?;
            // Short ones: somebody latency-critical may come.
            for launch in Launch::over(blocks, SHORT_BLOCKS) {
                let mut parameters = launch.parameters(&addresses);
                let mut pointers =
                    parameters.each_mut().map(|word| std::ptr::from_mut(word).cast::<c_void>());
                let (grid, none) = (launch.grid(), std::ptr::null_mut());
                call!(
                    driver,
                    cuLaunchKernel(
                        self.function,
                        grid,
                        1,
                        1,
                        THREADS,
                        1,
                        1,
                        0,
                        stream,
                        pointers.as_mut_ptr(),
                        none
                    )
                )?;
            }
            let to = host.add(PLACES_BYTES).cast::<c_void>();
            call!(driver, cuMemcpyDtoHAsync_v2(to, device(sums), Sums::BYTES * blocks, stream))
        }
    }

    /// This mark stands behind what was started in a slot.
    pub(super) fn note(&mut self, slot: usize, mark: u64, blocks: usize) {
        self.slots[slot] = Slot { mark, blocks };
        self.next = (slot + 1) % HASHES_MAX;
    }

    /// What came out before a mark that has passed.
    pub(super) fn sums(&self, mark: u64) -> Result<Vec<Sums>, DeviceError> {
        let slot = self.slots.iter().position(|slot| slot.mark == mark).ok_or(DeviceError::TooMany)?;
        // SAFETY: within the slot; the copy that wrote there has ended, and the next is started with `&mut self`.
        let bytes = unsafe {
            let sums = self.host.0.as_ptr().add(slot * SLOT_BYTES + PLACES_BYTES);
            std::slice::from_raw_parts(sums, Sums::BYTES * self.slots[slot].blocks)
        };
        Ok(bytes.as_chunks().0.iter().map(Sums::from_bytes).collect())
    }
}

impl Drop for Hashing {
    fn drop(&mut self) {
        let driver = &self.context.driver;
        // SAFETY: whoever drops it has waited for its stream and has the context current; what was not made is left out.
        unsafe {
            if self.host.0 != NonNull::dangling() {
                super::warn_if_failed(call!(driver, cuMemFreeHost(self.host.0.as_ptr().cast::<c_void>())));
            }
            if self.device.0 != 0 {
                super::warn_if_failed(call!(driver, cuMemFree_v2(self.device)));
            }
            if self.module != CUmodule::NULL {
                super::warn_if_failed(call!(driver, cuModuleUnload(self.module)));
            }
        }
    }
}
