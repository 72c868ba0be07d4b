//! Setting memory to a value.

use cuda::types::{CUdeviceptr, CUstream};

use super::{Check, check};
use crate::bench::words::fresh;

pub(super) const CHECKS: &[Check] = &[
    check("bytes", "ok bytes=0000050505050000", |b| {
        let memory = b.alloc_with(&[0; 8]);
        b.code(b.cu.cuMemsetD8_v2(CUdeviceptr(memory.0 + 2), 5, 4));
        b.bytes("bytes", &b.read(memory, 8));
        b.free(memory);
    }),
    check("words of 16 bits", "ok bytes=0000341234120000", |b| {
        let memory = b.alloc_with(&[0; 8]);
        b.code(b.cu.cuMemsetD16_v2(CUdeviceptr(memory.0 + 2), 0x1234, 2));
        b.bytes("bytes", &b.read(memory, 8));
        b.free(memory);
    }),
    check("words of 32 bits", "ok bytes=000000007856341278563412", |b| {
        let memory = b.alloc_with(&[0; 12]);
        b.code(b.cu.cuMemsetD32_v2(CUdeviceptr(memory.0 + 4), 0x1234_5678, 2));
        b.bytes("bytes", &b.read(memory, 12));
        b.free(memory);
    }),
    check("a large one", "ok right=true", |b| {
        let bytes = (4 << 20) + 3;
        let memory = b.alloc(bytes);
        b.code(b.cu.cuMemsetD8_v2(memory, 0x77, bytes));
        b.value("right", b.read(memory, bytes).iter().all(|byte| *byte == 0x77));
        b.free(memory);
    }),
    // Nothing is always allowed, wherever.
    check("nothing", "ok ok ok ok", |b| {
        let memory = b.alloc(64);
        b.code(b.cu.cuMemsetD8_v2(memory, 1, 0));
        b.code(b.cu.cuMemsetD32_v2(memory, 1, 0));
        b.code(b.cu.cuMemsetD2D8_v2(memory, 16, 1, 0, 2));
        b.code(b.cu.cuMemsetD8_v2(CUdeviceptr(0x1000), 1, 0));
        b.free(memory);
    }),
    check("at odd addresses", "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE ok", |b| {
        let memory = b.alloc(64);
        b.code(b.cu.cuMemsetD16_v2(CUdeviceptr(memory.0 + 1), 1, 1));
        b.code(b.cu.cuMemsetD32_v2(CUdeviceptr(memory.0 + 2), 1, 1));
        b.code(b.cu.cuMemsetD32Async(CUdeviceptr(memory.0 + 1), 1, 1, CUstream::NULL));
        b.code(b.cu.cuMemsetD2D32_v2(CUdeviceptr(memory.0 + 2), 16, 1, 1, 2));
        b.code(b.cu.cuMemsetD8_v2(CUdeviceptr(memory.0 + 1), 1, 1));
        b.free(memory);
    }),
    check("past the end", "INVALID_VALUE INVALID_VALUE INVALID_VALUE ok", |b| {
        let memory = b.alloc(32 << 20);
        let near = CUdeviceptr(memory.0 + (32 << 20) - 4096);
        b.code(b.cu.cuMemsetD8_v2(near, 1, 4097));
        b.code(b.cu.cuMemsetD32_v2(near, 1, 1025));
        b.code(b.cu.cuMemsetD8Async(near, 1, 8192, CUstream::NULL));
        b.code(b.cu.cuMemsetD8_v2(near, 1, 4096));
        b.free(memory);
    }),
    check("memory that is not the device's", "INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        b.code(b.cu.cuMemsetD8_v2(CUdeviceptr(0), 1, 1));
        b.code(b.cu.cuMemsetD8_v2(CUdeviceptr(0x1000), 1, 1));
        b.code(b.cu.cuMemsetD8Async(CUdeviceptr(0x1000), 1, 1, CUstream::NULL));
    }),
    check("after the free", "INVALID_VALUE", |b| {
        let memory = b.alloc(64 << 20);
        b.free(memory);
        b.code(b.cu.cuMemsetD8_v2(memory, 1, 1));
    }),
    check("host memory", "ok bytes=0909", |b| {
        let bytes = b.pinned(2);
        b.code(b.cu.cuMemsetD8_v2(CUdeviceptr(bytes.as_ptr().expose_provenance() as u64), 9, 2));
        b.synchronize();
        b.bytes("bytes", &fresh(bytes));
        b.end_pinned(bytes);
    }),
    check("rows", "ok ok ok bytes=01010202010102020303030300000000", |b| {
        let memory = b.alloc_with(&[0; 16]);
        b.code(b.cu.cuMemsetD2D8_v2(memory, 4, 1, 2, 2));
        b.code(b.cu.cuMemsetD2D16_v2(CUdeviceptr(memory.0 + 2), 4, 0x0202, 1, 2));
        b.code(b.cu.cuMemsetD2D32_v2(CUdeviceptr(memory.0 + 8), 4, 0x0303_0303, 1, 1));
        b.bytes("bytes", &b.read(memory, 16));
        b.free(memory);
    }),
    check("rows of errors", "INVALID_VALUE INVALID_VALUE ok", |b| {
        let memory = b.alloc(4096);
        b.code(b.cu.cuMemsetD2D8_v2(memory, 4, 1, 5, 2));
        b.code(b.cu.cuMemsetD2D32_v2(memory, 6, 1, 1, 2));
        b.code(b.cu.cuMemsetD2D8_v2(memory, 4, 1, 2, 0));
        b.free(memory);
    }),
    check("in a stream", "ok ok ok ok ok bytes=0202020203030202", |b| {
        let (memory, stream) = (b.alloc(8), b.stream(0));
        b.code(b.cu.cuMemsetD8Async(memory, 1, 8, stream));
        b.code(b.cu.cuMemsetD32Async(memory, 0x0202_0202, 2, stream));
        b.code(b.cu.cuMemsetD16Async(CUdeviceptr(memory.0 + 4), 0x0303, 1, stream));
        b.code(b.cu.cuMemsetD2D8Async(memory, 4, 2, 2, 1, stream));
        b.code(b.cu.cuStreamSynchronize(stream));
        b.bytes("bytes", &b.read(memory, 8));
        b.free(memory);
        b.end_stream(stream);
    }),
];
