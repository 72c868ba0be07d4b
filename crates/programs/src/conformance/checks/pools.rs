//! Stream-ordered memory and its pools.

use cuda::types::{
    CUdeviceptr, CUmemLocation, CUmemLocationType, CUmemPoolProps, CUmemoryPool, CUpointer_attribute,
    CUstream,
};

use super::{Check, alone, check};
use crate::api::Zeroed;
use crate::bench::Bench;
use crate::kernels::FILL;

/// Attributes of a pool, by their numbers in the driver's interface.
const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_CURRENT: u32 = 5;
const USED_CURRENT: u32 = 7;
const USED_HIGH: u32 = 8;

fn attribute(b: &Bench, pool: CUmemoryPool, attribute: u32) -> u64 {
    let mut value = 0_u64;
    b.expect("attribute", b.cu.cuMemPoolGetAttribute(pool, attribute, std::ptr::from_mut(&mut value).cast()));
    value
}

fn default_pool(b: &Bench) -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    b.expect("default", b.cu.cuDeviceGetDefaultMemPool(&mut pool, b.device));
    pool
}

fn props() -> CUmemPoolProps {
    let mut props = CUmemPoolProps::zeroed();
    props.kind = 1;
    props.location = CUmemLocation { type_: CUmemLocationType::DEVICE, id: 0 };
    props
}

fn create(b: &Bench) -> CUmemoryPool {
    let mut pool = CUmemoryPool::NULL;
    b.expect("create", b.cu.cuMemPoolCreate(&mut pool, &props()));
    pool
}

pub(super) const CHECKS: &[Check] = &[
    check("allocate, use, free", "ok ok ok ok word=6", |b| {
        let (stream, keep, mut memory) = (b.stream(0), b.alloc(8), CUdeviceptr(0));
        b.code(b.cu.cuMemAllocAsync(&mut memory, 4096, stream));
        b.expect("fill", b.launch(FILL, stream, &[memory.0, 512, 6]));
        b.code(b.cu.cuMemcpyDtoDAsync_v2(keep, CUdeviceptr(memory.0 + 4088), 8, stream));
        b.code(b.cu.cuMemFreeAsync(memory, stream));
        b.code(b.cu.cuStreamSynchronize(stream));
        b.value("word", b.read_words(keep, 1)[0]);
        b.free(keep);
        b.end_stream(stream);
    }),
    check("allocate errors", "ok INVALID_VALUE OUT_OF_MEMORY", |b| {
        let mut memory = CUdeviceptr(0);
        b.code(b.cu.cuMemAllocAsync(&mut memory, 0, CUstream::NULL));
        b.code(b.cu.cuMemAllocAsync(std::ptr::null_mut(), 64, CUstream::NULL));
        b.code(b.cu.cuMemAllocAsync(&mut memory, 1 << 50, CUstream::NULL));
    }),
    check("free errors", "ok INVALID_VALUE INVALID_VALUE ok", |b| {
        let (stream, mut memory) = (b.stream(0), CUdeviceptr(0));
        b.code(b.cu.cuMemFreeAsync(CUdeviceptr(0), stream));
        b.code(b.cu.cuMemFreeAsync(CUdeviceptr(0x1000), stream));
        b.expect("alloc", b.cu.cuMemAllocAsync(&mut memory, 4096, stream));
        b.code(b.cu.cuMemFreeAsync(CUdeviceptr(memory.0 + 64), stream));
        b.code(b.cu.cuMemFreeAsync(memory, stream));
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.end_stream(stream);
    }),
    alone("free twice in a stream", "ok INVALID_VALUE", |b| {
        let mut memory = CUdeviceptr(0);
        b.expect("alloc", b.cu.cuMemAllocAsync(&mut memory, 4096, CUstream::NULL));
        b.code(b.cu.cuMemFreeAsync(memory, CUstream::NULL));
        b.code(b.cu.cuMemFreeAsync(memory, CUstream::NULL));
    }),
    check("freed at once", "ok ok", |b| {
        let (stream, mut memory) = (b.stream(0), CUdeviceptr(0));
        b.code(b.cu.cuMemAllocAsync(&mut memory, 4096, stream));
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.code(b.cu.cuMemFree_v2(memory));
        b.end_stream(stream);
    }),
    // Both kinds of memory can be freed both ways.
    alone("plain memory freed in a stream", "ok ok", |b| {
        let memory = b.alloc(4096);
        b.code(b.cu.cuMemFreeAsync(memory, CUstream::NULL));
        b.code(b.cu.cuCtxSynchronize());
    }),
    check("range and pool of an allocation", "ok bytes=1000 ok pool=true", |b| {
        let (mut memory, mut bytes, mut pool) = (CUdeviceptr(0), 0, CUmemoryPool::NULL);
        b.expect("alloc", b.cu.cuMemAllocAsync(&mut memory, 1000, CUstream::NULL));
        b.code(b.cu.cuMemGetAddressRange_v2(std::ptr::null_mut(), &mut bytes, memory));
        b.value("bytes", bytes);
        let value = std::ptr::from_mut(&mut pool).cast();
        b.code(b.cu.cuPointerGetAttribute(value, CUpointer_attribute::MEMPOOL_HANDLE, memory));
        b.value("pool", pool == default_pool(b));
        b.expect("free", b.cu.cuMemFreeAsync(memory, CUstream::NULL));
    }),
    check("pools of a device", "ok ok same=true ok other=true ok", |b| {
        let (mut default, mut current) = (CUmemoryPool::NULL, CUmemoryPool::NULL);
        b.code(b.cu.cuDeviceGetDefaultMemPool(&mut default, b.device));
        b.code(b.cu.cuDeviceGetMemPool(&mut current, b.device));
        b.value("same", default == current);
        let pool = create(b);
        b.code(b.cu.cuDeviceSetMemPool(b.device, pool));
        b.expect("get", b.cu.cuDeviceGetMemPool(&mut current, b.device));
        b.value("other", current == pool);
        b.code(b.cu.cuDeviceSetMemPool(b.device, default));
        b.expect("destroy", b.cu.cuMemPoolDestroy(pool));
    }),
    check("a pool of one's own", "ok ok used=5000 ok used=0 ok", |b| {
        let (pool, stream, mut memory) = (create(b), b.stream(0), CUdeviceptr(0));
        b.code(b.cu.cuMemAllocFromPoolAsync(&mut memory, 5000, pool, stream));
        b.code(b.cu.cuStreamSynchronize(stream));
        b.value("used", attribute(b, pool, USED_CURRENT));
        b.code(b.cu.cuMemFreeAsync(memory, stream));
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.value("used", attribute(b, pool, USED_CURRENT));
        b.code(b.cu.cuMemPoolDestroy(pool));
        b.end_stream(stream);
    }),
    check("threshold and trim", "ok 1073741824 reserved=true ok reserved=0", |b| {
        let (pool, stream, mut memory) = (create(b), b.stream(0), CUdeviceptr(0));
        let mut keep = 1_u64 << 30;
        b.code(b.cu.cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, std::ptr::from_mut(&mut keep).cast()));
        b.say(attribute(b, pool, RELEASE_THRESHOLD));
        b.expect("alloc", b.cu.cuMemAllocFromPoolAsync(&mut memory, 5 << 20, pool, stream));
        b.expect("free", b.cu.cuMemFreeAsync(memory, stream));
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.value("reserved", attribute(b, pool, RESERVED_CURRENT) >= 5 << 20);
        b.code(b.cu.cuMemPoolTrimTo(pool, 0));
        b.value("reserved", attribute(b, pool, RESERVED_CURRENT));
        b.expect("destroy", b.cu.cuMemPoolDestroy(pool));
        b.end_stream(stream);
    }),
    check("the high mark", "high=3000 ok high=0", |b| {
        let (pool, stream, mut memory, mut zero) = (create(b), b.stream(0), CUdeviceptr(0), 0_u64);
        b.expect("alloc", b.cu.cuMemAllocFromPoolAsync(&mut memory, 3000, pool, stream));
        b.expect("free", b.cu.cuMemFreeAsync(memory, stream));
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.value("high", attribute(b, pool, USED_HIGH));
        b.code(b.cu.cuMemPoolSetAttribute(pool, USED_HIGH, std::ptr::from_mut(&mut zero).cast()));
        b.value("high", attribute(b, pool, USED_HIGH));
        b.expect("destroy", b.cu.cuMemPoolDestroy(pool));
        b.end_stream(stream);
    }),
    check("pool errors", "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let (mut pool, mut other) = (CUmemoryPool::NULL, props());
        b.code(b.cu.cuMemPoolCreate(std::ptr::null_mut(), &props()));
        b.code(b.cu.cuMemPoolCreate(&mut pool, std::ptr::null()));
        other.location.id = 99;
        b.code(b.cu.cuMemPoolCreate(&mut pool, &other));
        b.code(b.cu.cuMemPoolDestroy(CUmemoryPool::NULL));
        b.code(b.cu.cuMemPoolDestroy(default_pool(b)));
    }),
    check("memory comes again in order", "right=true", |b| {
        let stream = b.stream(0);
        let mut right = true;
        for round in 0..50 {
            let (mut one, mut two) = (CUdeviceptr(0), CUdeviceptr(0));
            b.expect("alloc", b.cu.cuMemAllocAsync(&mut one, 100_000, stream));
            b.expect("alloc", b.cu.cuMemAllocAsync(&mut two, 50_000, stream));
            b.run(FILL, stream, &[one.0, 12_500, round]);
            b.run(FILL, stream, &[two.0, 6_250, round + 1000]);
            right &= b.read_words(CUdeviceptr(one.0 + 99_992), 1) == [round];
            right &= b.read_words(two, 1) == [round + 1000];
            b.expect("free", b.cu.cuMemFreeAsync(two, stream));
            b.expect("free", b.cu.cuMemFreeAsync(one, stream));
        }
        b.value("right", right);
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.end_stream(stream);
    }),
];
