//! The real device: imports, copies, hashes and marks through the CUDA driver, in the daemon's own context.
//!
//! One thread uses it, after [`Device::attach`]. Its registrar goes to another thread.

mod context;
mod hashing;
mod kernel;

pub use context::{CudaRegistrar, Which};

use crate::device::{Capacity, Device, DeviceError, HASH_BLOCKS_MAX, Lane, Mark, Registrar};
use crate::pace::{COPY_BYTES_MAX, pieces};
use blocks::{BLOCK_BYTES, DeviceKey, Sums};
use context::{Context, call, check, find, name, uuid};
use cuda::types::{
    CU_EVENT_DISABLE_TIMING, CU_STREAM_NON_BLOCKING, CUdevice_attribute, CUdeviceptr, CUevent,
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemLocationType, CUstream,
};
use cuda::{CUresult, Driver};
use hashing::Hashing;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// A lane: its stream, and the marks on it that have not passed.
#[derive(Debug)]
struct Track {
    stream: CUstream,
    marks: VecDeque<(u64, CUevent)>,
    marks_set: u64,
    marks_passed: u64,
}

/// A tenant's memory, imported and mapped.
#[derive(Debug)]
pub struct CudaMemory {
    range: CudaRange,
    handle: CUmemGenericAllocationHandle,
}

/// Where it is mapped.
#[derive(Clone, Copy, Debug)]
pub struct CudaRange {
    address: CUdeviceptr,
    bytes: u64,
}

/// What a GPU is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Who may use it, by the driver's number.
    pub compute_mode: i32,
}

/// A GPU. See the module.
#[derive(Debug)]
pub struct CudaDevice {
    context: Arc<Context>,
    out: Track,
    into: Track,
    /// Not there unless it was prepared.
    hash: Option<(Track, Hashing)>,
    /// Events that no mark uses now.
    spare_events: Vec<CUevent>,
    uuid: String,
    name: String,
}

impl CudaDevice {
    /// Opens a GPU: makes the daemon's context there, and leaves it current on the calling thread.
    pub fn open(driver: Arc<Driver>, which: &Which) -> Result<CudaDevice, DeviceError> {
        // SAFETY: initialising has no conditions.
        unsafe { call!(driver, cuInit(0)) }?;
        let device = find(&driver, which)?;
        let uuid = uuid(&driver, device)?;
        let name = name(&driver, device)?;
        let context = Arc::new(Context::retain(driver, device)?);
        context.make_current()?;
        let out = Track::new(&context.driver)?;
        let into = Track::new(&context.driver)?;
        Ok(CudaDevice { context, out, into, hash: None, spare_events: Vec::new(), uuid, name })
    }

    /// How many GPUs this process sees.
    pub fn count(driver: &Driver) -> Result<i32, DeviceError> {
        let mut count = 0;
        // SAFETY: initialising has no conditions, and `count` is a place for the result.
        unsafe {
            call!(driver, cuInit(0))?;
            call!(driver, cuDeviceGetCount(&mut count))?;
        }
        Ok(count)
    }

    /// What a GPU is, without a context there.
    pub fn glance(driver: &Driver, which: &Which) -> Result<Glance, DeviceError> {
        // SAFETY: initialising has no conditions.
        unsafe { call!(driver, cuInit(0)) }?;
        let device = find(driver, which)?;
        let mut compute_mode = 0;
        // SAFETY: `compute_mode` is a place for the result.
        unsafe {
            call!(driver, cuDeviceGetAttribute(&mut compute_mode, CUdevice_attribute::COMPUTE_MODE, device))
        }?;
        Ok(Glance { uuid: uuid(driver, device)?, name: name(driver, device)?, compute_mode })
    }

    /// The host's NUMA node that it is near to, where the driver knows one.
    pub fn host_node(&self) -> Option<u32> {
        let mut node = -1;
        let (which, device) = (CUdevice_attribute::HOST_NUMA_ID, self.context.device);
        // SAFETY: `node` is a place for the result.
        let asked = unsafe { call!(self.driver(), cuDeviceGetAttribute(&mut node, which, device)) };
        asked.ok().and_then(|()| u32::try_from(node).ok())
    }

    fn driver(&self) -> &Driver {
        &self.context.driver
    }

    fn track(&mut self, lane: Lane) -> Result<&mut Track, DeviceError> {
        match lane {
            Lane::Out => Ok(&mut self.out),
            Lane::In => Ok(&mut self.into),
            Lane::Hash => Ok(&mut self.hash.as_mut().ok_or(DeviceError::NoHashing)?.0),
        }
    }

    fn streams(&self) -> impl Iterator<Item = CUstream> {
        [self.out.stream, self.into.stream].into_iter().chain(self.hash.iter().map(|(track, _)| track.stream))
    }

    fn take_event(&mut self) -> Result<CUevent, DeviceError> {
        if let Some(event) = self.spare_events.pop() {
            return Ok(event);
        }
        let mut event = CUevent::NULL;
        // SAFETY: `event` is a place for the result.
        unsafe { call!(self.driver(), cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING)) }?;
        Ok(event)
    }

    /// Starts hashing the blocks at these places, which are mapped.
    fn hash_places(&mut self, places: &[CUdeviceptr]) -> Result<Mark, DeviceError> {
        let Some((track, hashing)) = &mut self.hash else { return Err(DeviceError::NoHashing) };
        let stream = track.stream;
        let slot = hashing.next_slot(track.marks_passed)?;
        let started = hashing.start(slot, places, stream);
        match started.and_then(|()| self.mark(Lane::Hash)) {
            Ok(mark) => {
                if let Some((_, hashing)) = &mut self.hash {
                    hashing.note(slot, mark.number, places.len());
                }
                Ok(mark)
            }
            Err(error) => {
                // Part of it may be under way, without a mark: neither the slot nor the memory may be used again before.
                // SAFETY: the stream is alive.
                unsafe { call!(self.driver(), cuStreamSynchronize(stream)) }?;
                Err(error)
            }
        }
    }

    /// Maps an imported handle at an address of our own.
    fn map(&self, handle: CUmemGenericAllocationHandle, bytes: u64) -> Result<CUdeviceptr, DeviceError> {
        let driver = self.driver();
        let size = bytes as usize;
        let mut address = CUdeviceptr(0);
        // SAFETY: `address` is a place for the result; zeros ask for any alignment and any address.
        unsafe { call!(driver, cuMemAddressReserve(&mut address, size, 0, CUdeviceptr(0), 0)) }?;
        // SAFETY: the range was just reserved with this size.
        let mapped = unsafe { call!(driver, cuMemMap(address, size, 0, handle, 0)) };
        let location = CUmemLocation { type_: CUmemLocationType::DEVICE, id: self.context.device.0 };
        let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::READWRITE };
        let result = mapped.and_then(|()| {
            // SAFETY: the range was just mapped, and there is one descriptor.
            let accessible = unsafe { call!(driver, cuMemSetAccess(address, size, &access, 1)) };
            if accessible.is_err() {
                // SAFETY: the range was just mapped, and nothing uses it yet.
                warn_if_failed(unsafe { call!(driver, cuMemUnmap(address, size)) });
            }
            accessible
        });
        if let Err(error) = result {
            // SAFETY: the range was just reserved, and nothing is mapped there.
            warn_if_failed(unsafe { call!(driver, cuMemAddressFree(address, size)) });
            return Err(error);
        }
        Ok(address)
    }
}

fn warn_if_failed(result: Result<(), DeviceError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "cannot undo a step that failed");
    }
}

impl Track {
    fn new(driver: &Driver) -> Result<Track, DeviceError> {
        let mut stream = CUstream::NULL;
        // SAFETY: `stream` is a place for the result.
        unsafe { call!(driver, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING)) }?;
        Ok(Track { stream, marks: VecDeque::new(), marks_set: 0, marks_passed: 0 })
    }

    /// Ends it. Nothing is under way on it, and it has no marks any more.
    fn end(&self, driver: &Driver) {
        // SAFETY: nothing is under way, and nobody uses the stream after this.
        warn_if_failed(unsafe { call!(driver, cuStreamDestroy_v2(self.stream)) });
    }
}

impl CudaRange {
    fn block(&self, block: u64) -> CUdeviceptr {
        CUdeviceptr(self.address.0 + block * BLOCK_BYTES as u64)
    }

    fn check_range(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(DeviceError::OutOfRange { offset, bytes, memory_bytes: self.bytes });
        }
        Ok(())
    }
}

impl Device for CudaDevice {
    type Memory = CudaMemory;
    type Target = CudaRange;

    fn target(&self, memory: &CudaMemory) -> CudaRange {
        memory.range
    }

    fn attach(&mut self) -> Result<(), DeviceError> {
        self.context.make_current()
    }

    fn import(&mut self, file: OwnedFd, bytes: u64) -> Result<CudaMemory, DeviceError> {
        let mut handle = CUmemGenericAllocationHandle(0);
        // The driver takes the descriptor's number in place of a pointer, and keeps no hold of the descriptor.
        let number = file.as_raw_fd() as usize as *mut c_void;
        let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
        // SAFETY: `handle` is a place for the result, and `number` an open descriptor.
        unsafe { call!(self.driver(), cuMemImportFromShareableHandle(&mut handle, number, kind)) }?;
        match self.map(handle, bytes) {
            Ok(address) => Ok(CudaMemory { range: CudaRange { address, bytes }, handle }),
            Err(error) => {
                // SAFETY: the handle was just imported, and nothing is mapped.
                warn_if_failed(unsafe { call!(self.driver(), cuMemRelease(handle)) });
                Err(error)
            }
        }
    }

    fn release(&mut self, memory: CudaMemory) -> Result<(), DeviceError> {
        let CudaRange { address, bytes } = memory.range;
        let (size, driver) = (bytes as usize, self.driver());
        // SAFETY: the caller says that no copy is under way, and `memory` is gone after this.
        unsafe {
            let unmapped = call!(driver, cuMemUnmap(address, size));
            let released = call!(driver, cuMemRelease(memory.handle));
            let freed = unmapped.clone().and_then(|()| call!(driver, cuMemAddressFree(address, size)));
            unmapped.and(released).and(freed)
        }
    }

    #[cfg(any(test, feature = "planted"))]
    fn twice(&self, memory: &CudaMemory) -> CudaMemory {
        CudaMemory { range: memory.range, handle: memory.handle }
    }

    unsafe fn copy_out(
        &mut self,
        memory: &CudaRange,
        offset: u64,
        to: *mut u8,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        memory.check_range(offset, bytes)?;
        let (to, from) = (to.cast::<c_void>(), CUdeviceptr(memory.address.0 + offset));
        // SAFETY: the device range is inside `memory`, as checked; the caller answers for the host range.
        unsafe { call!(self.driver(), cuMemcpyDtoHAsync_v2(to, from, bytes as usize, self.out.stream)) }
    }

    unsafe fn copy_in(
        &mut self,
        memory: &CudaRange,
        offset: u64,
        from: *const u8,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        memory.check_range(offset, bytes)?;
        let (to, from) = (CUdeviceptr(memory.address.0 + offset), from.cast::<c_void>());
        // SAFETY: the device range is inside `memory`, as checked; the caller answers for the host range.
        unsafe { call!(self.driver(), cuMemcpyHtoDAsync_v2(to, from, bytes as usize, self.into.stream)) }
    }

    fn zero(&mut self, memory: &CudaRange, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        memory.check_range(offset, bytes)?;
        let to = CUdeviceptr(memory.address.0 + offset);
        // SAFETY: the range is inside `memory`, as checked.
        unsafe { call!(self.driver(), cuMemsetD8Async(to, 0, bytes as usize, self.into.stream)) }
    }

    fn copy_between(
        &mut self,
        lane: Lane,
        from: &CudaRange,
        to: &CudaRange,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        from.check_range(0, bytes)?;
        to.check_range(0, bytes)?;
        let stream = self.track(lane)?.stream;
        for (at, length) in pieces(bytes, COPY_BYTES_MAX) {
            let (to, from) = (CUdeviceptr(to.address.0 + at), CUdeviceptr(from.address.0 + at));
            // SAFETY: both ranges are inside their memories, as checked, and mapped.
            unsafe { call!(self.driver(), cuMemcpyDtoDAsync_v2(to, from, length as usize, stream)) }?;
        }
        Ok(())
    }

    fn prepare_hashing(&mut self, key: &DeviceKey) -> Result<(), DeviceError> {
        let track = Track::new(self.driver())?;
        match Hashing::prepare(&self.context, key, track.stream) {
            Ok(hashing) => {
                self.hash = Some((track, hashing));
                Ok(())
            }
            Err(error) => {
                track.end(self.driver());
                Err(error)
            }
        }
    }

    fn hash(&mut self, memory: &CudaMemory) -> Result<Mark, DeviceError> {
        let blocks = memory.range.bytes / BLOCK_BYTES as u64;
        if blocks > HASH_BLOCKS_MAX as u64 {
            return Err(DeviceError::TooLong { blocks });
        }
        let places: Vec<CUdeviceptr> = (0..blocks).map(|block| memory.range.block(block)).collect();
        self.hash_places(&places)
    }

    fn hash_some(&mut self, blocks: &[(&CudaMemory, u64)]) -> Result<Mark, DeviceError> {
        if blocks.len() > HASH_BLOCKS_MAX {
            return Err(DeviceError::TooLong { blocks: blocks.len() as u64 });
        }
        for (memory, block) in blocks {
            memory.range.check_range(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64)?;
        }
        let places: Vec<CUdeviceptr> =
            blocks.iter().map(|(memory, block)| memory.range.block(*block)).collect();
        self.hash_places(&places)
    }

    fn sums(&mut self, mark: Mark) -> Result<Vec<Sums>, DeviceError> {
        self.hash.as_ref().ok_or(DeviceError::NoHashing)?.1.sums(mark.number)
    }

    fn mark(&mut self, lane: Lane) -> Result<Mark, DeviceError> {
        let stream = self.track(lane)?.stream;
        let event = self.take_event()?;
        // SAFETY: event and stream are of this context, and alive.
        if let Err(error) = unsafe { call!(self.driver(), cuEventRecord(event, stream)) } {
            self.spare_events.push(event);
            return Err(error);
        }
        let track = self.track(lane)?;
        track.marks_set += 1;
        let number = track.marks_set;
        track.marks.push_back((number, event));
        Ok(Mark { lane, number })
    }

    fn passed(&mut self, mark: Mark) -> Result<bool, DeviceError> {
        // A lane is in order: only the oldest mark is worth a look.
        while self.track(mark.lane)?.marks_passed < mark.number {
            let Some(&(number, event)) = self.track(mark.lane)?.marks.front() else { break };
            // SAFETY: the event is alive: it is destroyed with the device only.
            match unsafe { (self.driver().cuEventQuery)(event) } {
                CUresult::NOT_READY => return Ok(false),
                result => check("cuEventQuery", result)?,
            }
            let track = self.track(mark.lane)?;
            track.marks.pop_front();
            track.marks_passed = number;
            self.spare_events.push(event);
        }
        Ok(true)
    }

    fn drain(&mut self) -> Result<(), DeviceError> {
        for stream in self.streams() {
            // SAFETY: the stream is alive.
            unsafe { call!(self.driver(), cuStreamSynchronize(stream)) }?;
        }
        Ok(())
    }

    fn registrar(&self) -> Box<dyn Registrar> {
        Box::new(CudaRegistrar { context: Arc::clone(&self.context) })
    }

    fn capacity(&mut self) -> Result<Capacity, DeviceError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are places for results.
        unsafe { call!(self.driver(), cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok(Capacity { free_bytes: free as u64, total_bytes: total as u64 })
    }

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        warn_if_failed(self.context.make_current());
        warn_if_failed(self.drain());
        let hash = self.hash.take();
        let mut tracks = vec![&mut self.out, &mut self.into];
        let (mut hash, hashing) = hash.unzip();
        tracks.extend(hash.as_mut());
        for track in tracks {
            self.spare_events.extend(track.marks.drain(..).map(|(_, event)| event));
            track.end(&self.context.driver);
        }
        for event in self.spare_events.drain(..) {
            // SAFETY: nothing is under way, and nobody uses the event after this.
            warn_if_failed(unsafe { call!(self.context.driver, cuEventDestroy_v2(event)) });
        }
        drop(hashing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_can_go_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<CudaDevice>();
        is_send::<CudaRegistrar>();
        is_send::<crate::Mover<CudaDevice>>();
    }
}
