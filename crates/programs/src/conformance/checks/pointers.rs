//! What can be asked about an address.

use cuda::types::{CUcontext, CUdeviceptr, CUpointer_attribute as Attribute};

use super::{Check, check};
use crate::bench::Bench;

/// Asks for an attribute that is a number of up to eight bytes.
fn number(b: &Bench, attribute: Attribute, address: CUdeviceptr) -> u64 {
    let mut value = 0_u64;
    b.code(b.cu.cuPointerGetAttribute(std::ptr::from_mut(&mut value).cast(), attribute, address));
    value
}

pub(super) const CHECKS: &[Check] = &[
    check("device memory", "ok type=2 ok ordinal=0 ok managed=0 ok mapped=1 ok context=true", |b| {
        let memory = b.alloc(1000);
        b.value("type", number(b, Attribute::MEMORY_TYPE, memory));
        b.value("ordinal", number(b, Attribute::DEVICE_ORDINAL, memory));
        b.value("managed", number(b, Attribute::IS_MANAGED, memory));
        b.value("mapped", number(b, Attribute::MAPPED, memory));
        b.value("context", number(b, Attribute::CONTEXT, memory) == b.context.0.expose_provenance() as u64);
        b.free(memory);
    }),
    check("inside of device memory", "ok start=true ok bytes=1000 ok pointer=true", |b| {
        let memory = b.alloc(1000);
        let inside = CUdeviceptr(memory.0 + 500);
        b.value("start", number(b, Attribute::RANGE_START_ADDR, inside) == memory.0);
        b.value("bytes", number(b, Attribute::RANGE_SIZE, inside));
        b.value("pointer", number(b, Attribute::DEVICE_POINTER, inside) == inside.0);
        b.free(memory);
    }),
    check("how it can be shared", "ok ipc=1 ok files=0 ok pool=0", |b| {
        let memory = b.alloc(1000);
        b.value("ipc", number(b, Attribute::IS_LEGACY_CUDA_IPC_CAPABLE, memory));
        b.value("files", number(b, Attribute::ALLOWED_HANDLE_TYPES, memory));
        b.value("pool", number(b, Attribute::MEMPOOL_HANDLE, memory));
        b.free(memory);
    }),
    check("numbers of buffers", "ok ok differ=true", |b| {
        let (one, two) = (b.alloc(1000), b.alloc(1000));
        let numbers = (number(b, Attribute::BUFFER_ID, one), number(b, Attribute::BUFFER_ID, two));
        b.value("differ", numbers.0 != numbers.1);
        b.free(one);
        b.free(two);
    }),
    check("of no memory", "INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        number(b, Attribute::MEMORY_TYPE, CUdeviceptr(0));
        number(b, Attribute::CONTEXT, CUdeviceptr(0x1000));
        let local = 5_u64;
        number(b, Attribute::MEMORY_TYPE, CUdeviceptr(std::ptr::from_ref(&local).expose_provenance() as u64));
    }),
    check("after the free", "INVALID_VALUE", |b| {
        let memory = b.alloc(64 << 20);
        b.free(memory);
        number(b, Attribute::MEMORY_TYPE, memory);
    }),
    check("errors", "INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let memory = b.alloc(1000);
        b.code(b.cu.cuPointerGetAttribute(std::ptr::null_mut(), Attribute::MEMORY_TYPE, memory));
        number(b, Attribute(999), memory);
        number(b, Attribute::HOST_POINTER, memory);
        b.free(memory);
    }),
    check("several at once", "ok type=2 context=true start=true", |b| {
        let memory = b.alloc(1000);
        let (mut kind, mut context, mut start) = (9_u32, CUcontext::NULL, 0_u64);
        let mut attributes = [Attribute::MEMORY_TYPE, Attribute::CONTEXT, Attribute::RANGE_START_ADDR];
        let mut values = [
            std::ptr::from_mut(&mut kind).cast(),
            std::ptr::from_mut(&mut context).cast(),
            std::ptr::from_mut(&mut start).cast(),
        ];
        b.code(b.cu.cuPointerGetAttributes(3, attributes.as_mut_ptr(), values.as_mut_ptr(), memory));
        b.value("type", kind);
        b.value("context", context == b.context);
        b.value("start", start == memory.0);
        b.free(memory);
    }),
    check("several at once of no memory", "ok type=0 null=true", |b| {
        let (mut kind, mut context) = (9_u32, CUcontext(std::ptr::without_provenance_mut(1)));
        let mut attributes = [Attribute::MEMORY_TYPE, Attribute::CONTEXT];
        let mut values = [std::ptr::from_mut(&mut kind).cast(), std::ptr::from_mut(&mut context).cast()];
        b.code(b.cu.cuPointerGetAttributes(
            2,
            attributes.as_mut_ptr(),
            values.as_mut_ptr(),
            CUdeviceptr(0x1000),
        ));
        b.value("type", kind);
        b.value("null", context.is_null());
    }),
    check("host memory", "ok type=1 ok host=true ok device=true ok managed=0", |b| {
        let bytes = b.pinned(4096);
        let address = CUdeviceptr(bytes.as_ptr().expose_provenance() as u64);
        b.value("type", number(b, Attribute::MEMORY_TYPE, address));
        b.value("host", number(b, Attribute::HOST_POINTER, address) == address.0);
        b.value("device", number(b, Attribute::DEVICE_POINTER, address) == address.0);
        b.value("managed", number(b, Attribute::IS_MANAGED, address));
        b.end_pinned(bytes);
    }),
];
