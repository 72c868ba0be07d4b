//! Hashing on the GPU: `hash_blocks` in a stream of its own, and the memory that it needs.
//!
//! That memory is one allocation on the device (below 2 MiB, out of what is kept for the daemon's context) and its like
//! in pinned host memory: a slot for each of [`HASHES_MAX`] launches, with the places of the blocks and their sums behind
//! them. `copy_words` sends both, the sums as zeros, and brings the sums back: so nothing of this waits for the copy engines,
//! which are busy with the moves, and no move waits for it.

use super::Context;
use super::context::{call, check};
use super::kernel::Kernel;
use crate::device::{DeviceError, HASH_BLOCKS_MAX, HASHES_MAX};
use blocks::launch::{DeviceAddresses, Launch, SHORT_BLOCKS};
use blocks::{DeviceKey, Sums, copy, launch};
use cuda::types::{CU_MEMHOSTALLOC_DEVICEMAP, CUdeviceptr, CUstream};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a slot.
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
    hash_blocks: Kernel,
    copy_words: Kernel,
    device: CUdeviceptr,
    host: Pinned,
    /// The device's address of the host memory.
    host_on_device: CUdeviceptr,
    slots: [Slot; HASHES_MAX],
    next: usize,
}

/// Pinned host memory.
#[derive(Debug)]
struct Pinned(NonNull<u8>);

// SAFETY: only whoever has the `Hashing` uses the memory, and that is one thread at a time.
unsafe impl Send for Pinned {}

impl Hashing {
    /// Loads the kernels, makes room, and hands the key over. The context must be current.
    pub(super) fn prepare(
        context: &Arc<Context>,
        key: &DeviceKey,
        stream: CUstream,
    ) -> Result<Hashing, DeviceError> {
        let driver = &context.driver;
        let mut hashing = Hashing {
            context: Arc::clone(context),
            hash_blocks: Kernel::load(context, launch::ENTRY, launch::PTX, launch::THREADS)?,
            copy_words: Kernel::load(context, copy::ENTRY, copy::PTX, copy::THREADS)?,
            device: CUdeviceptr(0),
            host: Pinned(NonNull::dangling()),
            host_on_device: CUdeviceptr(0),
            slots: [Slot::default(); HASHES_MAX],
            next: 0,
        };
        // SAFETY: each first argument is a place for the result. What was made so far is undone by dropping.
        unsafe {
            let bytes = HASHES_MAX * SLOT_BYTES + DeviceKey::BYTES;
            call!(driver, cuMemAlloc_v2(&mut hashing.device, bytes))?;
            let mut host = std::ptr::null_mut();
            call!(driver, cuMemHostAlloc(&mut host, HASHES_MAX * SLOT_BYTES, CU_MEMHOSTALLOC_DEVICEMAP))?;
            let Some(host) = NonNull::new(host.cast::<u8>()) else { return Err(DeviceError::NoHashing) };
            hashing.host = Pinned(host);
            let host = host.as_ptr().cast::<c_void>();
            call!(driver, cuMemHostGetDevicePointer_v2(&mut hashing.host_on_device, host, 0))?;
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
        let (at, count) = (slot * SLOT_BYTES, blocks.len());
        let (places_bytes, sums_bytes) = (8 * count, Sums::BYTES * count);
        let of_slot = |memory: CUdeviceptr| {
            let places = memory.0 + at as u64;
            (places, places + places_bytes as u64)
        };
        let ((places, sums), (host_places, host_sums)) = (of_slot(self.device), of_slot(self.host_on_device));
        let addresses = DeviceAddresses { places, key: self.key_address(), sums };
        // SAFETY: a slot lies within both memories, with room for so many blocks, and nothing that was started on it is
        // under way. Places are addresses of whole blocks, mapped here.
        unsafe {
            let host = self.host.0.as_ptr().add(at);
            for (number, block) in blocks.iter().enumerate() {
                host.add(8 * number).cast::<[u8; 8]>().write(block.0.to_le_bytes());
            }
            host.add(places_bytes).write_bytes(0, sums_bytes);
            self.copy(places, host_places, places_bytes + sums_bytes, stream)?;
            // Short ones: somebody latency-critical may come.
            for launch in Launch::over(count, SHORT_BLOCKS) {
                self.hash_blocks.launch(launch.grid(), launch.parameters(&addresses), stream)?;
            }
            self.copy(host_sums, sums, sums_bytes, stream)
        }
    }

    /// Puts a copy between addresses of the device into the stream.
    ///
    /// # Safety
    /// Both have so many bytes until it has ended, and nothing but this stream uses them until then.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: CUstream) -> Result<(), DeviceError> {
        let words = bytes / 8;
        // SAFETY: the caller answers for it.
        unsafe { self.copy_words.launch(copy::grid(words), [to, from, words as u64], stream) }
    }

    /// This mark stands behind what was started in a slot.
    pub(super) fn note(&mut self, slot: usize, mark: u64, blocks: usize) {
        self.slots[slot] = Slot { mark, blocks };
        self.next = (slot + 1) % HASHES_MAX;
    }

    /// What came out before a mark that has passed.
    pub(super) fn sums(&self, mark: u64) -> Result<Vec<Sums>, DeviceError> {
        let slot = self.slots.iter().position(|slot| slot.mark == mark).ok_or(DeviceError::TooMany)?;
        let blocks = self.slots[slot].blocks;
        // SAFETY: within the slot; the copy that wrote there has ended, and the next is started with `&mut self`.
        let bytes = unsafe {
            let sums = self.host.0.as_ptr().add(slot * SLOT_BYTES + 8 * blocks);
            std::slice::from_raw_parts(sums, Sums::BYTES * blocks)
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
        }
    }
}
