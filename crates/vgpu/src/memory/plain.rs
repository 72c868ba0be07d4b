//! Plain and pitched device memory.

use std::ffi::c_uint;

use cuda::CUresult;
use cuda::types::CUdeviceptr;
use vgpu_messages::memory::MemoryRequest;
use vgpu_messages::{Address, Answer, Request};

use super::{managed, pointer};
use crate::argument::Out;
use crate::context::current;
use crate::guard::api;
use crate::session::{self, ask};

api! {
    cuMemAlloc_v2(address: Out<CUdeviceptr>, bytes: usize) {
        let context = current::id()?;
        address.check()?;
        if bytes == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let request = MemoryRequest::Alloc { context, bytes: bytes as u64 };
        address.set(ask!(Request::Memory(request), Answer::Address(Address(at)) => CUdeviceptr(at)))
    }

    cuMemAllocPitch_v2(
        address: Out<CUdeviceptr>,
        pitch: Out<usize>,
        width_bytes: usize,
        height: usize,
        element_bytes: c_uint,
    ) {
        let context = current::id()?;
        address.check()?;
        pitch.check()?;
        let request = MemoryRequest::AllocPitch {
            context,
            width_bytes: width_bytes as u64,
            height: height as u64,
            element_bytes,
        };
        let (at, row) = ask!(
            Request::Memory(request),
            Answer::Pitched { address, pitch_bytes } => (address.0, pitch_bytes)
        );
        address.set(CUdeviceptr(at))?;
        pitch.set(row as usize)
    }

    cuMemFree_v2(address: CUdeviceptr) {
        session::current()?;
        // Without a current context, the memory's own is meant.
        let context = match current::id() {
            Err(CUresult::INVALID_CONTEXT) => pointer::facts(address.0)?.context.ok_or(CUresult::INVALID_VALUE)?,
            found => found?,
        };
        if address.0 == 0 || managed::free(address.0)? {
            return Ok(());
        }
        session::tell(Request::Memory(MemoryRequest::Free { context, address: Address(address.0) }))
    }

    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let context = current::id()?;
        let (left, all) = ask!(
            Request::Memory(MemoryRequest::Info(context)),
            Answer::Memory { free_bytes, total_bytes } => (free_bytes, total_bytes)
        );
        free.offer(left as usize);
        total.offer(all as usize);
        Ok(())
    }

    cuMemGetAddressRange_v2(base: Out<CUdeviceptr>, bytes: Out<usize>, address: CUdeviceptr) {
        let context = current::id()?;
        let request = MemoryRequest::AddressRange { context, address: Address(address.0) };
        let (start, size) = ask!(Request::Memory(request), Answer::Range { base, bytes } => (base.0, bytes));
        base.offer(CUdeviceptr(start));
        bytes.offer(size as usize);
        Ok(())
    }
}
