//! Stream-ordered allocation and its pools.

use std::ffi::{c_int, c_uint, c_void};

use cuda::CUresult;
use cuda::types::{
    CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemLocation, CUmemLocationType, CUmemPoolProps, CUmemoryPool,
    CUstream,
};
use vgpu_messages::pool::PoolRequest;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::{Address, Answer, DeviceId, PoolId, Request};

use super::{access, access_flags, location};
use crate::argument::{In, Out};
use crate::context::current;
use crate::guard::{Outcome, api, stream_api};
use crate::handle::{self, Handle};
use crate::session::{self, ask};

/// The first attributes are numbers of four bytes, the others of eight.
const SHORT_ATTRIBUTES: c_uint = 3;
const ATTRIBUTES: c_uint = 8;
const PINNED: u32 = 1;

fn device_of(place: In<CUmemLocation>, kind: c_uint) -> Result<DeviceId, CUresult> {
    let session = session::current()?;
    let place = place.get()?;
    if kind != PINNED || place.type_ != CUmemLocationType::DEVICE {
        return Err(CUresult::NOT_SUPPORTED);
    }
    Ok(session.device(CUdevice(place.id))?.device)
}

fn allocate(
    address: Out<CUdeviceptr>,
    bytes: usize,
    pool: Option<PoolId>,
    stream: CUstream,
    default: StreamRef,
) -> Outcome {
    let context = current::id()?;
    address.check()?;
    let stream = handle::stream(stream, default)?;
    let request = PoolRequest::Alloc { context, stream, pool, bytes: bytes as u64 };
    address.set(ask!(Request::Pool(request), Answer::Address(Address(at)) => CUdeviceptr(at)))
}

stream_api! {
    |default| cuMemAllocAsync / cuMemAllocAsync_ptsz(address: Out<CUdeviceptr>, bytes: usize, stream: CUstream) {
        allocate(address, bytes, None, stream, default)
    }

    |default| cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(
        address: Out<CUdeviceptr>,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) {
        current::id()?;
        allocate(address, bytes, Some(pool.id()?), stream, default)
    }

    |default| cuMemFreeAsync / cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) {
        let context = current::id()?;
        let stream = handle::stream(stream, default)?;
        session::tell(Request::Pool(PoolRequest::Free { context, stream, address: Address(address.0) }))
    }
}

api! {
    cuMemPoolCreate(pool: Out<CUmemoryPool>, wanted: In<CUmemPoolProps>) {
        let session = session::current()?;
        pool.check()?;
        let wanted = wanted.get()?;
        if wanted.kind != PINNED {
            return Err(CUresult::INVALID_VALUE);
        }
        let request = PoolRequest::Create {
            location: location(session, wanted.location),
            handle_types: wanted.handle_types,
            bytes_max: wanted.bytes_max,
        };
        pool.set(ask!(Request::Pool(request), Answer::Pool(id) => CUmemoryPool::of(id)))
    }

    cuMemPoolDestroy(pool: CUmemoryPool) {
        session::current()?;
        session::tell(Request::Pool(PoolRequest::Destroy(pool.id()?)))
    }

    cuMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize) {
        session::current()?;
        session::tell(Request::Pool(PoolRequest::Trim { pool: pool.id()?, keep_bytes: keep_bytes as u64 }))
    }

    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: Out<c_void>) {
        session::current()?;
        value.check()?;
        if !(1..=ATTRIBUTES).contains(&attribute) {
            return Err(CUresult::INVALID_VALUE);
        }
        let request = Request::Pool(PoolRequest::GetAttribute { pool: pool.id()?, attribute });
        let found = ask!(request, Answer::Number(number) => number);
        match attribute {
            ..=SHORT_ATTRIBUTES => value.cast::<c_int>().set(found as c_int),
            _ => value.cast::<u64>().set(found),
        }
    }

    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: Out<c_void>) {
        session::current()?;
        value.check()?;
        let value = match attribute {
            1..=SHORT_ATTRIBUTES => u64::from(value.cast::<c_uint>().get()?),
            ..=ATTRIBUTES if attribute != 0 => value.cast::<u64>().get()?,
            _ => return Err(CUresult::INVALID_VALUE),
        };
        session::tell(Request::Pool(PoolRequest::SetAttribute { pool: pool.id()?, attribute, value }))
    }

    cuMemPoolSetAccess(pool: CUmemoryPool, list: In<CUmemAccessDesc>, count: usize) {
        let session = session::current()?;
        let mut asked = Vec::new();
        for one in list.list(count)? {
            let flags = access(one.flags.0).ok_or(CUresult::INVALID_VALUE)?;
            asked.push((location(session, one.location), flags));
        }
        session::tell(Request::Pool(PoolRequest::SetAccess { pool: pool.id()?, access: asked }))
    }

    cuMemPoolGetAccess(flags: Out<c_uint>, pool: CUmemoryPool, who: In<CUmemLocation>) {
        let session = session::current()?;
        flags.check()?;
        let location = location(session, who.get()?);
        let request = Request::Pool(PoolRequest::GetAccess { pool: pool.id()?, location });
        flags.set(ask!(request, Answer::Access(found) => access_flags(found)))
    }

    cuMemGetDefaultMemPool(pool: Out<CUmemoryPool>, place: In<CUmemLocation>, kind: c_uint) {
        let device = device_of(place, kind)?;
        pool.check()?;
        pool.set(ask!(Request::Pool(PoolRequest::Default(device)), Answer::Pool(id) => CUmemoryPool::of(id)))
    }

    cuMemGetMemPool(pool: Out<CUmemoryPool>, place: In<CUmemLocation>, kind: c_uint) {
        let device = device_of(place, kind)?;
        pool.check()?;
        pool.set(ask!(Request::Pool(PoolRequest::Current(device)), Answer::Pool(id) => CUmemoryPool::of(id)))
    }

    cuMemSetMemPool(place: In<CUmemLocation>, kind: c_uint, pool: CUmemoryPool) {
        let device = device_of(place, kind)?;
        session::tell(Request::Pool(PoolRequest::SetCurrent { device, pool: pool.id()? }))
    }
}
