//! The misuses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cuda::types::{
    CU_STREAM_NON_BLOCKING, CUcontext, CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType, CUstream,
};

use crate::bench::Bench;
use crate::kernels::{FILL, INCREMENT};

/// One misuse.
pub(super) struct Deed {
    pub(super) name: &'static str,
    pub(super) commit: fn(&Bench),
}

/// The granularity of device memory.
const PIECE: usize = 2 << 20;
/// How long to wait for a kernel to begin.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(20);

/// Memory mapped with this access.
fn mapped(b: &Bench, flags: CUmemAccess_flags) -> (CUdeviceptr, CUmemGenericAllocationHandle) {
    let (mut address, mut handle) = (CUdeviceptr(0), CUmemGenericAllocationHandle(0));
    let prop = CUmemAllocationProp::on_device(b.device, CUmemAllocationHandleType::NONE);
    b.expect("reserve", b.cu.cuMemAddressReserve(&mut address, PIECE, 0, CUdeviceptr(0), 0));
    b.expect("create", b.cu.cuMemCreate(&mut handle, PIECE, &prop, 0));
    b.expect("map", b.cu.cuMemMap(address, PIECE, 0, handle, 0));
    let access =
        CUmemAccessDesc { location: CUmemLocation { type_: CUmemLocationType::DEVICE, id: 0 }, flags };
    b.expect("access", b.cu.cuMemSetAccess(address, PIECE, &access, 1));
    (address, handle)
}

/// Runs a kernel at an address and waits for it.
fn poke(b: &Bench, address: u64) {
    b.code(b.launch_function(b.function(FILL), (1, 1), CUstream::NULL, &[address, 1, 1]));
    b.code(b.cu.cuCtxSynchronize());
}

/// Starts a kernel that goes over memory for so many rounds, and waits until it runs.
fn long_kernel(b: &Bench, address: CUdeviceptr, rounds: u64, stream: CUstream) {
    let heart = b.pinned(8);
    let beat = heart.as_ptr().expose_provenance() as u64;
    b.expect("launch", b.launch(INCREMENT, stream, &[address.0, (PIECE / 8) as u64, rounds, beat]));
    // SAFETY: eight bytes of pinned memory, aligned to a page, that are never freed.
    let beats = unsafe { AtomicU64::from_ptr(heart.as_mut_ptr().cast()) };
    let began = Instant::now();
    while beats.load(Ordering::SeqCst) == 0 && began.elapsed() < BEGIN_TIME_MAX {
        std::thread::yield_now();
    }
}

pub(super) const DEEDS: &[Deed] = &[
    Deed { name: "kernel on memory that nobody has", commit: |b| poke(b, 0x7000_0000_0000) },
    Deed {
        name: "kernel on memory that was unmapped",
        commit: |b| {
            let (address, _) = mapped(b, CUmemAccess_flags::READWRITE);
            b.function(FILL);
            b.code(b.cu.cuMemUnmap(address, PIECE));
            poke(b, address.0);
        },
    },
    Deed {
        name: "copy on memory that was unmapped",
        commit: |b| {
            let (address, _) = mapped(b, CUmemAccess_flags::READWRITE);
            b.code(b.cu.cuMemUnmap(address, PIECE));
            b.code(b.cu.cuMemsetD8_v2(address, 1, 8));
        },
    },
    Deed {
        name: "kernel after the free",
        commit: |b| {
            let memory = b.alloc(64 << 20);
            b.function(FILL);
            b.code(b.cu.cuMemFree_v2(memory));
            poke(b, memory.0);
        },
    },
    Deed {
        name: "copy after the free",
        commit: |b| {
            let memory = b.alloc(64 << 20);
            b.code(b.cu.cuMemFree_v2(memory));
            b.code(b.cu.cuMemcpyHtoD_v2(memory, [0_u8; 8].as_ptr().cast(), 8));
        },
    },
    Deed {
        name: "freed twice",
        commit: |b| {
            let memory = b.alloc(4096);
            b.code(b.cu.cuMemFree_v2(memory));
            b.code(b.cu.cuMemFree_v2(memory));
        },
    },
    Deed {
        name: "unmapped under a running kernel",
        commit: |b| {
            let (address, _) = mapped(b, CUmemAccess_flags::READWRITE);
            long_kernel(b, address, 1 << 40, CUstream::NULL);
            b.code(b.cu.cuMemUnmap(address, PIECE));
            b.code(b.cu.cuCtxSynchronize());
        },
    },
    Deed {
        name: "write to memory that is read-only",
        commit: |b| {
            let (address, _) = mapped(b, CUmemAccess_flags::READ);
            poke(b, address.0);
        },
    },
    Deed {
        name: "memory of a device that is not there",
        commit: |b| {
            let prop = CUmemAllocationProp::on_device(CUdevice(99), CUmemAllocationHandleType::NONE);
            b.code(b.cu.cuMemCreate(&mut CUmemGenericAllocationHandle(0), PIECE, &prop, 0));
        },
    },
    Deed {
        name: "stream of another context",
        commit: |b| {
            let (memory, stream) = (b.alloc(64), b.stream(0));
            let mut other = CUcontext::NULL;
            b.expect("create", b.cu.cuCtxCreate_v2(&mut other, 0, b.device));
            let function = b.function_in(b.module(FILL), FILL);
            b.code(b.launch_function(function, (1, 1), stream, &[memory.0, 1, 1]));
        },
    },
    Deed {
        name: "kernel past the end of its memory",
        commit: |b| {
            let memory = b.alloc(512);
            poke(b, memory.0 + 512);
        },
    },
    Deed {
        name: "freed under a running kernel",
        commit: |b| {
            let (memory, stream) = (b.alloc(PIECE), b.stream(CU_STREAM_NON_BLOCKING));
            b.expect("set", b.cu.cuMemsetD8_v2(memory, 0, PIECE));
            long_kernel(b, memory, 2000, stream);
            b.code(b.cu.cuMemFree_v2(memory));
            b.code(b.cu.cuCtxSynchronize());
        },
    },
];
