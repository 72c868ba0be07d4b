//! Addresses and physical memory apart: reserve, create, map; and physical memory as files, from process to process.

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};

use cuda::CUresult;
use cuda::types::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationPropFlags, CUmemAllocationType, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemLocationType,
};
use vgpu_messages::memory::{HandleProperties, Location, MemoryRequest};
use vgpu_messages::{Address, Answer, HandleId, Request};

use super::{access, access_flags, location, place};
use crate::argument::{In, Out};
use crate::guard::api;
use crate::handle::physical;
use crate::session::{self, Session, ask, line};

fn properties(session: &Session, wanted: CUmemAllocationProp) -> Result<HandleProperties, CUresult> {
    let location = location(session, wanted.location);
    if matches!(location, Location::Other(1, _)) {
        return Err(CUresult::INVALID_DEVICE);
    }
    let flags = wanted.alloc_flags;
    let [low, high] = flags.usage.to_le_bytes();
    let [a, b, c, d] = flags.reserved;
    Ok(HandleProperties {
        kind: wanted.type_.0,
        handle_types: wanted.requested_handle_types.0,
        location,
        flags: [flags.compression_type, flags.gpu_direct_rdma_capable, low, high, a, b, c, d],
    })
}

/// Which memory of the host's can be made, as an H200 answers: of a node by its name, with files or without; of any node only
/// without; and none of the node that the thread happens to be on.
fn can_be_made(wanted: &CUmemAllocationProp) -> Result<(), CUresult> {
    let has_files = wanted.requested_handle_types != CUmemAllocationHandleType::NONE;
    let refused = match wanted.location.type_ {
        CUmemLocationType::HOST => has_files,
        CUmemLocationType::HOST_NUMA => wanted.location.id != 0,
        other => other == CUmemLocationType::HOST_NUMA_CURRENT,
    };
    if refused { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
}

/// No flags are known for these functions.
fn no_flags(flags: u64) -> Result<(), CUresult> {
    if flags == 0 { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

api! {
    cuMemAddressReserve(
        address: Out<CUdeviceptr>,
        bytes: usize,
        alignment: usize,
        hint: CUdeviceptr,
        flags: u64,
    ) {
        session::current()?;
        address.check()?;
        no_flags(flags)?;
        let request =
            MemoryRequest::Reserve { bytes: bytes as u64, alignment: alignment as u64, hint: hint.0 };
        address.set(ask!(Request::Memory(request), Answer::Address(Address(at)) => CUdeviceptr(at)))
    }

    cuMemAddressFree(address: CUdeviceptr, bytes: usize) {
        let request = MemoryRequest::Unreserve { address: Address(address.0), bytes: bytes as u64 };
        session::tell(Request::Memory(request))
    }

    cuMemCreate(
        handle: Out<CUmemGenericAllocationHandle>,
        bytes: usize,
        wanted: In<CUmemAllocationProp>,
        flags: u64,
    ) {
        let session = session::current()?;
        handle.check()?;
        no_flags(flags)?;
        let wanted = wanted.get()?;
        can_be_made(&wanted)?;
        let properties = properties(session, wanted)?;
        let request = MemoryRequest::Create { bytes: bytes as u64, properties };
        handle.set(ask!(Request::Memory(request), Answer::Handle(id) => physical(id)))
    }

    cuMemRelease(handle: CUmemGenericAllocationHandle) {
        session::tell(Request::Memory(MemoryRequest::Release(HandleId(handle.0))))
    }

    cuMemMap(
        address: CUdeviceptr,
        bytes: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: u64,
    ) {
        session::current()?;
        no_flags(flags)?;
        session::tell(Request::Memory(MemoryRequest::Map {
            address: Address(address.0),
            bytes: bytes as u64,
            offset: offset as u64,
            handle: HandleId(handle.0),
        }))
    }

    cuMemUnmap(address: CUdeviceptr, bytes: usize) {
        let request = MemoryRequest::Unmap { address: Address(address.0), bytes: bytes as u64 };
        session::tell(Request::Memory(request))
    }

    cuMemSetAccess(address: CUdeviceptr, bytes: usize, list: In<CUmemAccessDesc>, count: usize) {
        let session = session::current()?;
        if count == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let mut asked = Vec::new();
        for one in list.list(count)? {
            let flags = access(one.flags.0).ok_or(CUresult::INVALID_VALUE)?;
            asked.push((location(session, one.location), flags));
        }
        session::tell(Request::Memory(MemoryRequest::SetAccess {
            address: Address(address.0),
            bytes: bytes as u64,
            access: asked,
        }))
    }

    cuMemGetAccess(flags: Out<u64>, who: In<CUmemLocation>, address: CUdeviceptr) {
        let session = session::current()?;
        flags.check()?;
        let location = location(session, who.get()?);
        let request = MemoryRequest::GetAccess { address: Address(address.0), location };
        flags.set(ask!(Request::Memory(request), Answer::Access(found) => access_flags(found).into()))
    }

    cuMemGetAllocationGranularity(
        bytes: Out<usize>,
        wanted: In<CUmemAllocationProp>,
        option: CUmemAllocationGranularity_flags,
    ) {
        let session = session::current()?;
        bytes.check()?;
        if option.0 > CUmemAllocationGranularity_flags::RECOMMENDED.0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let request = MemoryRequest::Granularity(properties(session, wanted.get()?)?);
        bytes.set(ask!(Request::Memory(request), Answer::Number(bytes) => bytes as usize))
    }

    cuMemGetAllocationPropertiesFromHandle(
        found: Out<CUmemAllocationProp>,
        handle: CUmemGenericAllocationHandle,
    ) {
        let session = session::current()?;
        found.check()?;
        let request = MemoryRequest::Properties(HandleId(handle.0));
        let known = ask!(Request::Memory(request), Answer::HandleProperties(known) => known);
        let [compression_type, gpu_direct_rdma_capable, low, high, reserved @ ..] = known.flags;
        found.set(CUmemAllocationProp {
            type_: CUmemAllocationType(known.kind),
            requested_handle_types: CUmemAllocationHandleType(known.handle_types),
            location: place(session, known.location),
            win32_handle_meta_data: std::ptr::null_mut(),
            alloc_flags: CUmemAllocationPropFlags {
                compression_type,
                gpu_direct_rdma_capable,
                usage: u16::from_le_bytes([low, high]),
                reserved,
            },
        })
    }

    cuMemRetainAllocationHandle(handle: Out<CUmemGenericAllocationHandle>, address: Out<c_void>) {
        session::current()?;
        handle.check()?;
        let request = MemoryRequest::Retain(Address(address.address()));
        handle.set(ask!(Request::Memory(request), Answer::Handle(id) => physical(id)))
    }

    cuMemExportToShareableHandle(
        shared: Out<c_int>,
        handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType,
        flags: u64,
    ) {
        session::current()?;
        shared.check()?;
        no_flags(flags)?;
        if kind != CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR {
            return Err(CUresult::INVALID_VALUE);
        }
        let request = Request::Memory(MemoryRequest::Export(HandleId(handle.0)));
        let (_, mut files) = line::ask_with(request, &[])?;
        let file = files.pop().ok_or(CUresult::UNKNOWN)?;
        shared.set(file.into_raw_fd())
    }

    cuMemImportFromShareableHandle(
        handle: Out<CUmemGenericAllocationHandle>,
        shared: Out<c_void>,
        kind: CUmemAllocationHandleType,
    ) {
        session::current()?;
        handle.check()?;
        if kind != CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR {
            return Err(CUresult::INVALID_VALUE);
        }
        // The number of the file stands in place of a pointer.
        let number = shared.address() as c_int;
        // SAFETY: only asked about; one that is not open is refused, with the real driver's word for it.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            return Err(CUresult::UNKNOWN);
        }
        // SAFETY: open, and the caller keeps it open until this returns.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        match line::ask_with(Request::Memory(MemoryRequest::Import), &[file])? {
            (Answer::Handle(id), _) => handle.set(physical(id)),
            (other, _) => Err(session::strange(&other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_hosts_is_made_as_on_an_h200() {
        let made = |type_, id, requested_handle_types| {
            let asked = CUmemAllocationProp::on_device(cuda::types::CUdevice(0), requested_handle_types);
            can_be_made(&CUmemAllocationProp { location: CUmemLocation { type_, id }, ..asked }).is_ok()
        };
        let (none, files) =
            (CUmemAllocationHandleType::NONE, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR);
        assert!(made(CUmemLocationType::HOST, 0, none) && !made(CUmemLocationType::HOST, 0, files));
        assert!(made(CUmemLocationType::HOST_NUMA, 0, none) && made(CUmemLocationType::HOST_NUMA, 0, files));
        assert!(!made(CUmemLocationType::HOST_NUMA, 63, none));
        assert!(!made(CUmemLocationType::HOST_NUMA_CURRENT, 0, none));
        assert!(made(CUmemLocationType::DEVICE, 0, files));
    }
}
