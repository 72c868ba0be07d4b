//! Host memory that the device knows: registered by the program, or allocated here.

use std::ffi::{c_uint, c_void};
use std::ptr;

use cuda::CUresult;
use cuda::types::CUdeviceptr;
use rustix::mm::{MapFlags, ProtFlags};
use vgpu_messages::host::HostRequest;
use vgpu_messages::{Address, Answer, ContextId, Request};

use crate::argument::Out;
use crate::context::current;
use crate::guard::{Outcome, api};
use crate::session::{self, ask};

const PAGE_BYTES: usize = 4096;
/// Portable, mapped, write-combined.
const ALLOC_FLAGS: u32 = 7;
/// Mapped for kernels.
const DEVICE_MAP: u32 = 2;
/// Portable, mapped, of a device, read-only.
const REGISTER_FLAGS: u32 = 15;

/// Allocates host memory and tells the device of it; nothing, if nothing is asked for. All of it can be mapped.
pub(super) fn allocate(context: ContextId, bytes: usize, flags: u32) -> Result<u64, CUresult> {
    if bytes == 0 {
        return Ok(0);
    }
    let flags = flags | DEVICE_MAP;
    let rounded = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(CUresult::OUT_OF_MEMORY)?;
    // SAFETY: a new mapping, at an address of the system's choice.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            ptr::null_mut(),
            rounded,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let start = start.map_err(|_| CUresult::OUT_OF_MEMORY)?;
    let address = start.expose_provenance() as u64;
    let request = HostRequest::Register { context, address, bytes: bytes as u64, flags, allocated: true };
    if let Err(code) = session::tell(Request::Host(request)) {
        // SAFETY: just made, and known to nobody.
        let _ = unsafe { rustix::mm::munmap(start, rounded) };
        return Err(code);
    }
    Ok(address)
}

/// Frees what [`allocate`] made; waits for work that uses it.
pub(super) fn free(address: u64, bytes: u64) -> Outcome {
    session::tell(Request::Host(HostRequest::Unregister { address, allocated: true }))?;
    let start = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the device knew it as allocated here, and has forgotten it; the program says that it is done with it.
    let _ = unsafe { rustix::mm::munmap(start, (bytes as usize).next_multiple_of(PAGE_BYTES)) };
    Ok(())
}

/// The range of host memory that begins here; refused if there is none.
fn range(address: u64) -> Result<u64, CUresult> {
    use vgpu_messages::memory::{MemoryRequest, PointerKind};
    let request = Request::Memory(MemoryRequest::Pointer(Address(address)));
    let facts = ask!(request, Answer::Pointer(facts) => facts);
    match facts.kind {
        PointerKind::Host if facts.range_start == address => Ok(facts.range_bytes),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

api! {
    cuMemHostAlloc(host: Out<u64>, bytes: usize, flags: c_uint) {
        let context = current::id()?;
        host.check()?;
        if flags & !ALLOC_FLAGS != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        host.set(allocate(context, bytes, flags)?)
    }

    cuMemAllocHost_v2(host: Out<u64>, bytes: usize) {
        let context = current::id()?;
        host.check()?;
        host.set(allocate(context, bytes, 0)?)
    }

    cuMemFreeHost(host: Out<c_void>) {
        current::id()?;
        if host.is_null() {
            return Ok(());
        }
        free(host.address(), range(host.address())?)
    }

    cuMemHostRegister, cuMemHostRegister_v2(host: Out<c_void>, bytes: usize, flags: c_uint) {
        let context = current::id()?;
        host.check()?;
        if flags & !REGISTER_FLAGS != 0 || bytes == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let (address, bytes) = (host.address(), bytes as u64);
        session::tell(Request::Host(HostRequest::Register { context, address, bytes, flags, allocated: false }))
    }

    cuMemHostUnregister(host: Out<c_void>) {
        current::id()?;
        host.check()?;
        session::tell(Request::Host(HostRequest::Unregister { address: host.address(), allocated: false }))
    }

    cuMemHostGetDevicePointer_v2(address: Out<CUdeviceptr>, host: Out<c_void>, flags: c_uint) {
        current::id()?;
        address.check()?;
        host.check()?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let request = Request::Host(HostRequest::DeviceAddress(host.address()));
        address.set(ask!(request, Answer::Address(Address(at)) => CUdeviceptr(at)))
    }

    cuMemHostGetFlags(flags: Out<c_uint>, host: Out<c_void>) {
        current::id()?;
        flags.check()?;
        host.check()?;
        let request = Request::Host(HostRequest::Flags(host.address()));
        flags.set(ask!(request, Answer::Number(flags) => flags as c_uint))
    }
}
