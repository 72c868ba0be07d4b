//! Errors that stay: a kernel that touches what it may not, and what every call says afterwards.
//!
//! On the real driver such an error is the process's, not the context's: other contexts give the same code, and not even a
//! reset of the primary context helps. Only what needs no context still works.

use cuda::types::{CUcontext, CUdeviceptr, CUevent, CUmemAccess_flags, CUstream};

use super::mapping::{access, map};
use super::vmm::{PIECE, create, reserve};
use super::{Check, alone};
use crate::bench::Bench;
use crate::bench::gate::Gate;
use crate::kernels::{ADD, FILL, INCREMENT};

/// Launches a kernel at an address, and records the launch and what synchronising says.
fn poke(b: &Bench, address: u64) {
    b.code(b.launch_function(b.function(FILL), (1, 1), CUstream::NULL, &[address, 1, 1]));
    b.code(b.cu.cuCtxSynchronize());
}

pub(super) const CHECKS: &[Check] = &[
    alone("a null address", "ok ILLEGAL_ADDRESS ILLEGAL_ADDRESS", |b| {
        poke(b, 0);
        b.code(b.cu.cuCtxSynchronize());
    }),
    alone("an address that is nobody's", "ok ILLEGAL_ADDRESS", |b| poke(b, 0x7000_0000_0000)),
    alone("an odd address", "ok MISALIGNED_ADDRESS MISALIGNED_ADDRESS", |b| {
        let memory = b.alloc(64);
        poke(b, memory.0 + 1);
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
    }),
    alone("memory after its free", "ok ILLEGAL_ADDRESS", |b| {
        let memory = b.alloc(64 << 20);
        b.function(FILL);
        b.free(memory);
        poke(b, memory.0);
    }),
    alone("far past the end", "ok ILLEGAL_ADDRESS", |b| {
        let memory = b.alloc(64 << 20);
        poke(b, memory.0 + (1 << 40));
    }),
    alone("reading what is nobody's", "ok ILLEGAL_ADDRESS", |b| {
        let memory = b.alloc(64);
        b.code(b.launch(ADD, CUstream::NULL, &[memory.0, 0x7000_0000_0000, memory.0, 1]));
        b.code(b.cu.cuCtxSynchronize());
    }),
    alone("memory after its unmap", "ok ILLEGAL_ADDRESS", |b| {
        let (address, handle) = (reserve(b, PIECE), create(b, PIECE));
        map(b, address, PIECE, handle);
        b.function(FILL);
        b.expect("unmap", b.cu.cuMemUnmap(address, PIECE));
        poke(b, address.0);
    }),
    alone("memory without access", "ok ILLEGAL_ADDRESS", |b| {
        let (address, handle) = (reserve(b, PIECE), create(b, PIECE));
        b.expect("map", b.cu.cuMemMap(address, PIECE, 0, handle, 0));
        poke(b, address.0);
    }),
    alone("memory that is read-only", "ok ok ok ILLEGAL_ADDRESS", |b| {
        let (address, handle, memory) = (reserve(b, PIECE), create(b, PIECE), b.alloc(64));
        b.expect("map", b.cu.cuMemMap(address, PIECE, 0, handle, 0));
        b.expect("access", b.cu.cuMemSetAccess(address, PIECE, &access(CUmemAccess_flags::READ), 1));
        b.code(b.launch(ADD, CUstream::NULL, &[memory.0, address.0, memory.0, 1]));
        b.code(b.cu.cuCtxSynchronize());
        poke(b, address.0);
    }),
    alone("unmapped under a running kernel", "ok ok ILLEGAL_ADDRESS", |b| {
        let (address, handle, heart) = (reserve(b, PIECE), create(b, PIECE), b.pinned(8));
        map(b, address, PIECE, handle);
        b.expect("set", b.cu.cuMemsetD8_v2(address, 0, PIECE));
        let words = (PIECE / 8) as u64;
        let beat = heart.as_ptr().expose_provenance() as u64;
        b.code(b.launch(INCREMENT, CUstream::NULL, &[address.0, words, 1 << 40, beat]));
        // SAFETY: eight bytes of pinned memory, aligned to a page.
        let beats = unsafe { std::sync::atomic::AtomicU64::from_ptr(heart.as_mut_ptr().cast()) };
        let began = std::time::Instant::now();
        while beats.load(std::sync::atomic::Ordering::SeqCst) == 0 && began.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        b.code(b.cu.cuMemUnmap(address, PIECE));
        b.code(b.cu.cuCtxSynchronize());
    }),
    alone(
        "what calls say afterwards",
        "ok ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS",
        |b| {
            let (memory, stream, event) = (b.alloc(64), b.stream(0), b.event(0));
            poke(b, 0);
            b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
            b.code(b.cu.cuMemcpyHtoD_v2(memory, [0_u8; 8].as_ptr().cast(), 8));
            b.code(b.cu.cuStreamQuery(stream));
            b.code(b.cu.cuEventRecord(event, stream));
            b.code(b.cu.cuEventQuery(event));
            b.code(b.launch_function(b.function(FILL), (1, 1), CUstream::NULL, &[memory.0, 1, 1]));
            b.code(b.cu.cuMemFree_v2(memory));
        },
    ),
    alone(
        "what other calls say afterwards",
        "ok ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS ok ILLEGAL_ADDRESS ILLEGAL_ADDRESS ok",
        |b| {
            let (stream, event) = (b.stream(0), b.event(0));
            poke(b, 0);
            b.code(b.cu.cuStreamCreate(&mut CUstream::default(), 0));
            b.code(b.cu.cuEventCreate(&mut CUevent::default(), 0));
            b.code(b.cu.cuMemGetInfo_v2(&mut 0, &mut 0));
            b.code(b.cu.cuCtxGetCurrent(&mut CUcontext::default()));
            b.code(b.cu.cuStreamDestroy_v2(stream));
            b.code(b.cu.cuEventDestroy_v2(event));
            b.code(b.cu.cuDeviceGetCount(&mut 0));
        },
    ),
    // Physical memory belongs to no context.
    alone("memory management afterwards", "ok ILLEGAL_ADDRESS ok ok ok ok", |b| {
        let (address, handle) = (reserve(b, PIECE), create(b, PIECE));
        map(b, address, PIECE, handle);
        poke(b, 0);
        b.code(b.cu.cuMemUnmap(address, PIECE));
        b.code(b.cu.cuMemRelease(handle));
        b.code(b.cu.cuMemAddressFree(address, PIECE));
        b.code(b.cu.cuMemAddressReserve(&mut CUdeviceptr(0), PIECE, 0, CUdeviceptr(0), 0));
    }),
    alone("work behind the error", "ok ok ILLEGAL_ADDRESS ILLEGAL_ADDRESS", |b| {
        let (memory, stream) = (b.alloc(64), b.stream(1));
        b.function(FILL);
        let gate = Gate::close(b, stream);
        b.code(b.launch_function(b.function(FILL), (1, 1), stream, &[0, 1, 1]));
        b.code(b.cu.cuMemsetD8Async(memory, 1, 8, stream));
        gate.open();
        b.code(b.cu.cuStreamSynchronize(stream));
        b.code(b.cu.cuStreamSynchronize(stream));
        std::mem::forget(gate);
    }),
    alone("another context of the process", "ok ILLEGAL_ADDRESS ILLEGAL_ADDRESS ILLEGAL_ADDRESS", |b| {
        let mut other = CUcontext::NULL;
        b.expect("create", b.cu.cuCtxCreate_v2(&mut other, 0, b.device));
        b.expect("pop", b.cu.cuCtxPopCurrent_v2(std::ptr::null_mut()));
        poke(b, 0);
        b.expect("push", b.cu.cuCtxPushCurrent_v2(other));
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
        b.code(b.cu.cuCtxSynchronize());
    }),
    alone("a context destroyed with its error", "ILLEGAL_ADDRESS ok ok ILLEGAL_ADDRESS", |b| {
        let mut other = CUcontext::NULL;
        b.expect("create", b.cu.cuCtxCreate_v2(&mut other, 0, b.device));
        let function = b.function_in(b.module(FILL), FILL);
        b.expect("launch", b.launch_function(function, (1, 1), CUstream::NULL, &[0, 1, 1]));
        b.code(b.cu.cuCtxSynchronize());
        b.code(b.cu.cuCtxDestroy_v2(other));
        b.code(b.cu.cuCtxSetCurrent(b.context));
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
    }),
    alone("another context made afterwards", "ok ILLEGAL_ADDRESS ILLEGAL_ADDRESS", |b| {
        poke(b, 0);
        b.code(b.cu.cuCtxCreate_v2(&mut CUcontext::default(), 0, b.device));
    }),
    alone("the primary context reset", "ok ILLEGAL_ADDRESS ok active=0 ILLEGAL_ADDRESS null=true", |b| {
        poke(b, 0);
        b.code(b.cu.cuDevicePrimaryCtxReset_v2(b.device));
        let (mut flags, mut active) = (9, 9);
        b.expect("state", b.cu.cuDevicePrimaryCtxGetState(b.device, &mut flags, &mut active));
        b.value("active", active);
        let mut context = CUcontext::NULL;
        b.code(b.cu.cuDevicePrimaryCtxRetain(&mut context, b.device));
        b.value("null", context.is_null());
    }),
    alone("the primary context released", "ok ILLEGAL_ADDRESS ok ILLEGAL_ADDRESS", |b| {
        poke(b, 0);
        b.code(b.cu.cuDevicePrimaryCtxRelease_v2(b.device));
        b.code(b.cu.cuDevicePrimaryCtxRetain(&mut CUcontext::default(), b.device));
    }),
    alone("another process goes on", "ok ILLEGAL_ADDRESS child=true", |b| {
        poke(b, 0);
        let own = std::env::current_exe();
        let healthy =
            own.and_then(|own| std::process::Command::new(own).args(["part", "kernels", "0", "1"]).output());
        b.value(
            "child",
            healthy.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("right right")),
        );
    }),
];
