//! Memory for a worker's pieces that it creates and maps itself, as frameworks do whose segments grow: addresses for much
//! more than there is are reserved once, and handles are mapped one after another at the end of what is in use.

use std::collections::BTreeMap;

use cuda::CUresult;
use cuda::types::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle,
};

use super::{WorkerError, ok};
use crate::bench::Bench;

/// How much one handle has, at most; also what sizes are multiples of.
const HANDLE_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: u64 = 2 << 20;
/// The addresses that are reserved.
const RESERVED_BYTES: u64 = 1 << 40;

/// See the module.
pub(super) struct Segment<'a> {
    bench: &'a Bench,
    start: CUdeviceptr,
    /// How much of the addresses was in use.
    used_bytes: u64,
    /// The handles under each piece, by its address.
    handles: BTreeMap<CUdeviceptr, Vec<(CUmemGenericAllocationHandle, u64)>>,
}

impl<'a> Segment<'a> {
    pub(super) fn reserve(bench: &'a Bench) -> Result<Self, WorkerError> {
        let mut start = CUdeviceptr(0);
        let code = bench.cu.cuMemAddressReserve(&mut start, RESERVED_BYTES as usize, 0, CUdeviceptr(0), 0);
        ok("cuMemAddressReserve", 0, code)?;
        Ok(Self { bench, start, used_bytes: 0, handles: BTreeMap::new() })
    }

    /// Memory for a piece, at the end of the segment.
    pub(super) fn allocate(&mut self, step: u64, bytes: u64) -> Result<CUdeviceptr, WorkerError> {
        let prop = CUmemAllocationProp::on_device(self.bench.device, CUmemAllocationHandleType::NONE);
        let mut handles = Vec::new();
        let mut left = bytes.next_multiple_of(BLOCK_BYTES);
        while left > 0 {
            let (mut handle, bytes) = (CUmemGenericAllocationHandle(0), left.min(HANDLE_BYTES));
            ok("cuMemCreate", step, self.bench.cu.cuMemCreate(&mut handle, bytes as usize, &prop, 0))?;
            handles.push((handle, bytes));
            left -= bytes;
        }
        let address = self.map(step, &handles)?;
        self.handles.insert(address, handles);
        Ok(address)
    }

    /// Maps handles at the end, and opens all of them at once.
    fn map(
        &mut self,
        step: u64,
        handles: &[(CUmemGenericAllocationHandle, u64)],
    ) -> Result<CUdeviceptr, WorkerError> {
        let (cu, address) = (self.bench.cu, CUdeviceptr(self.start.0 + self.used_bytes));
        let mut next = address;
        for (handle, bytes) in handles {
            ok("cuMemMap", step, cu.cuMemMap(next, *bytes as usize, 0, *handle, 0))?;
            next.0 += bytes;
        }
        let location =
            CUmemAllocationProp::on_device(self.bench.device, CUmemAllocationHandleType::NONE).location;
        let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::READWRITE };
        let bytes = next.0 - address.0;
        ok("cuMemSetAccess", step, cu.cuMemSetAccess(address, bytes as usize, &access, 1))?;
        self.used_bytes += bytes;
        Ok(address)
    }

    fn unmap(
        &self,
        step: u64,
        address: CUdeviceptr,
        handles: &[(CUmemGenericAllocationHandle, u64)],
    ) -> Result<(), WorkerError> {
        let bytes: u64 = handles.iter().map(|(_, bytes)| bytes).sum();
        ok("cuMemUnmap", step, self.bench.cu.cuMemUnmap(address, bytes as usize))
    }

    /// The same memory at other addresses. The device must be done with it.
    pub(super) fn relocate(&mut self, step: u64, address: CUdeviceptr) -> Result<CUdeviceptr, WorkerError> {
        let handles = self.handles.remove(&address).unwrap_or_default();
        self.unmap(step, address, &handles)?;
        let moved = self.map(step, &handles)?;
        self.handles.insert(moved, handles);
        Ok(moved)
    }

    /// The same memory at other addresses too; both are good until one of them is freed.
    pub(super) fn second(&mut self, step: u64, address: CUdeviceptr) -> Result<CUdeviceptr, WorkerError> {
        let handles = self.handles.get(&address).cloned().unwrap_or_default();
        let second = self.map(step, &handles)?;
        let mut place = address.0;
        for (handle, bytes) in &handles {
            // One more reference, as a program gets it that knows addresses only.
            let mut again = CUmemGenericAllocationHandle(0);
            let inside = std::ptr::with_exposed_provenance_mut((place + bytes / 2) as usize);
            let code = match self.bench.cu.cuMemRetainAllocationHandle(&mut again, inside) {
                CUresult::SUCCESS if again != *handle => CUresult::INVALID_HANDLE,
                code => code,
            };
            ok("cuMemRetainAllocationHandle", step, code)?;
            place += bytes;
        }
        self.handles.insert(second, handles);
        Ok(second)
    }

    /// Gives a piece back. The device must be done with it.
    pub(super) fn free(&mut self, step: u64, address: CUdeviceptr) -> Result<(), WorkerError> {
        let handles = self.handles.remove(&address).unwrap_or_default();
        self.unmap(step, address, &handles)?;
        for (handle, _) in handles {
            ok("cuMemRelease", step, self.bench.cu.cuMemRelease(handle))?;
        }
        Ok(())
    }
}
