//! What an address is: `cuPointerGetAttribute` and its family.

use std::ffi::{c_int, c_uint, c_void};

use cuda::CUresult;
use cuda::types::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUcontext, CUdeviceptr, CUmemoryPool,
    CUpointer_attribute as Attribute,
};
use vgpu_messages::memory::{MemoryRequest, PointerFacts, PointerKind};
use vgpu_messages::{Address, Answer, Request};

use super::managed;
use crate::argument::{In, Out};
use crate::context::table;
use crate::guard::api;
use crate::handle::Handle;
use crate::session::{self, Session, ask};

/// The device ordinal of an address that belongs to none.
const NO_DEVICE: i32 = -2;

/// A value, with the size that programs expect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Short(u32),
    Long(u64),
}

impl Value {
    fn put(self, place: Out<c_void>) {
        match self {
            Value::Short(value) => place.cast().offer(value),
            Value::Long(value) => place.cast().offer(value),
        }
    }
}

/// What the device knows of an address.
pub(super) fn facts(address: u64) -> Result<PointerFacts, CUresult> {
    let request = Request::Memory(MemoryRequest::Pointer(Address(address)));
    Ok(ask!(request, Answer::Pointer(facts) => facts))
}

/// What an attribute of a known address is; None where the address has no such thing.
fn value(session: &Session, facts: &PointerFacts, attribute: Attribute, address: u64) -> Option<Value> {
    use Value::{Long, Short};
    let known = facts.kind != PointerKind::Unknown;
    let mapped = matches!(facts.kind, PointerKind::Device | PointerKind::Host);
    let managed = managed::contains(address);
    let context = || facts.context.map_or(CUcontext::NULL, |id| table::handle_of(session, id));
    Some(match attribute {
        Attribute::CONTEXT if mapped => Long(context().0.addr() as u64),
        Attribute::MEMORY_TYPE => match facts.kind {
            PointerKind::Host if !managed => Short(CU_MEMORYTYPE_HOST),
            PointerKind::Host | PointerKind::Device => Short(CU_MEMORYTYPE_DEVICE),
            PointerKind::Unknown | PointerKind::Reserved => return None,
        },
        Attribute::DEVICE_POINTER => Long(facts.device_address.filter(|_| mapped)?.0),
        Attribute::HOST_POINTER => Long(facts.host_address?),
        Attribute::SYNC_MEMOPS if mapped => Short(0),
        Attribute::BUFFER_ID | Attribute::MEMORY_BLOCK_ID if mapped => Long(facts.buffer_id),
        Attribute::IS_MANAGED if known => Short(managed.into()),
        Attribute::DEVICE_ORDINAL if mapped => Short(session.ordinal(facts.device?).0 as u32),
        Attribute::IS_LEGACY_CUDA_IPC_CAPABLE if known => Short(facts.ipc_capable.into()),
        Attribute::RANGE_START_ADDR if known => Long(facts.range_start),
        Attribute::RANGE_SIZE if known => Long(facts.range_bytes),
        Attribute::MAPPED if known => Short(mapped.into()),
        Attribute::ALLOWED_HANDLE_TYPES if known => Long(facts.handle_types.into()),
        Attribute::IS_GPU_DIRECT_RDMA_CAPABLE | Attribute::IS_HW_DECOMPRESS_CAPABLE if known => Short(0),
        Attribute::ACCESS_FLAGS if mapped => Short(3),
        Attribute::MEMPOOL_HANDLE if known => {
            Long(facts.pool.map_or(0, |pool| CUmemoryPool::of(pool).0.addr() as u64))
        }
        Attribute::MAPPING_SIZE if mapped => Long(facts.mapping_bytes),
        Attribute::MAPPING_BASE_ADDR if mapped => Long(facts.mapping_start),
        _ => return None,
    })
}

/// What `cuPointerGetAttributes` says where there is nothing to say.
fn nothing(attribute: Attribute) -> Value {
    match attribute {
        Attribute::DEVICE_ORDINAL => Value::Short(NO_DEVICE as u32),
        Attribute::MEMORY_TYPE
        | Attribute::SYNC_MEMOPS
        | Attribute::IS_MANAGED
        | Attribute::IS_LEGACY_CUDA_IPC_CAPABLE
        | Attribute::MAPPED
        | Attribute::IS_GPU_DIRECT_RDMA_CAPABLE
        | Attribute::IS_HW_DECOMPRESS_CAPABLE
        | Attribute::ACCESS_FLAGS => Value::Short(0),
        _ => Value::Long(0),
    }
}

fn is_attribute(attribute: Attribute) -> bool {
    (Attribute::CONTEXT.0..=Attribute::IS_HW_DECOMPRESS_CAPABLE.0).contains(&attribute.0)
}

api! {
    cuPointerGetAttribute(place: Out<c_void>, attribute: Attribute, address: CUdeviceptr) {
        let session = session::current()?;
        place.check()?;
        if !is_attribute(attribute) {
            return Err(CUresult::INVALID_VALUE);
        }
        let facts = facts(address.0)?;
        let value = value(session, &facts, attribute, address.0).ok_or(CUresult::INVALID_VALUE)?;
        value.put(place);
        Ok(())
    }

    cuPointerGetAttributes(
        count: c_uint,
        attributes: In<Attribute>,
        places: In<Out<c_void>>,
        address: CUdeviceptr,
    ) {
        let session = session::current()?;
        let attributes = attributes.list(count as usize)?;
        let places = places.list(count as usize)?;
        if count == 0 || !attributes.iter().copied().all(is_attribute) {
            return Err(CUresult::INVALID_VALUE);
        }
        let facts = facts(address.0)?;
        for (attribute, place) in attributes.into_iter().zip(places) {
            let found = value(session, &facts, attribute, address.0);
            found.unwrap_or_else(|| nothing(attribute)).put(place);
        }
        Ok(())
    }

    cuPointerSetAttribute(setting: In<c_int>, attribute: Attribute, address: CUdeviceptr) {
        session::current()?;
        setting.get()?;
        // The only one that can be set: whether copies synchronise. Copies here do so where the interface says, always.
        if attribute != Attribute::SYNC_MEMOPS || facts(address.0)?.kind != PointerKind::Device {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(())
    }
}
