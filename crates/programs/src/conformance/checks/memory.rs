//! Plain and pitched device memory.

use cuda::types::CUdeviceptr;

use super::{Check, check};
use crate::bench::Bench;
use crate::bench::words::pattern;

/// Free device memory, as the driver says it.
fn free_bytes(b: &Bench) -> usize {
    let (mut free, mut total) = (0, 0);
    b.expect("info", b.cu.cuMemGetInfo_v2(&mut free, &mut total));
    free
}

pub(super) const CHECKS: &[Check] = &[
    check("allocate and free", "ok null=false aligned=true ok", |b| {
        let mut memory = CUdeviceptr(0);
        b.code(b.cu.cuMemAlloc_v2(&mut memory, 1));
        b.value("null", memory.0 == 0);
        b.value("aligned", memory.0.is_multiple_of(256));
        b.code(b.cu.cuMemFree_v2(memory));
    }),
    check("allocate nothing", "INVALID_VALUE INVALID_VALUE", |b| {
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 0));
        b.code(b.cu.cuMemAlloc_v2(std::ptr::null_mut(), 64));
    }),
    check("allocate too much", "OUT_OF_MEMORY OUT_OF_MEMORY OUT_OF_MEMORY ok", |b| {
        let mut total = 0;
        b.expect("total", b.cu.cuDeviceTotalMem_v2(&mut total, b.device));
        let mut memory = CUdeviceptr(0);
        b.code(b.cu.cuMemAlloc_v2(&mut memory, total + 1));
        b.code(b.cu.cuMemAlloc_v2(&mut memory, 1 << 50));
        b.code(b.cu.cuMemAlloc_v2(&mut memory, usize::MAX));
        b.code(b.cu.cuMemAlloc_v2(&mut memory, 64));
        b.free(memory);
    }),
    check("free what is not allocated", "ok INVALID_VALUE INVALID_VALUE", |b| {
        b.code(b.cu.cuMemFree_v2(CUdeviceptr(0)));
        b.code(b.cu.cuMemFree_v2(CUdeviceptr(0x1000)));
        b.code(b.cu.cuMemFree_v2(CUdeviceptr(u64::MAX)));
    }),
    check("free the middle", "INVALID_VALUE INVALID_VALUE ok", |b| {
        let memory = b.alloc(4096);
        b.code(b.cu.cuMemFree_v2(CUdeviceptr(memory.0 + 1)));
        b.code(b.cu.cuMemFree_v2(CUdeviceptr(memory.0 + 512)));
        b.code(b.cu.cuMemFree_v2(memory));
    }),
    check("free twice", "ok INVALID_VALUE", |b| {
        let memory = b.alloc(4096);
        b.code(b.cu.cuMemFree_v2(memory));
        b.code(b.cu.cuMemFree_v2(memory));
    }),
    check("free a large one twice", "ok INVALID_VALUE", |b| {
        let memory = b.alloc(64 << 20);
        b.code(b.cu.cuMemFree_v2(memory));
        b.code(b.cu.cuMemFree_v2(memory));
    }),
    check("many small ones", "apart=true right=true", |b| {
        let all: Vec<CUdeviceptr> = (0..64).map(|index| b.alloc_with(&pattern(index, 100))).collect();
        let mut sorted = all.clone();
        sorted.sort();
        b.value("apart", sorted.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 100));
        for memory in all.iter().step_by(2) {
            b.free(*memory);
        }
        let kept = all.iter().zip(0..).skip(1).step_by(2);
        b.value("right", kept.clone().all(|(memory, seed)| b.read(*memory, 100) == pattern(seed, 100)));
        for (memory, _) in kept {
            b.free(*memory);
        }
    }),
    check("information", "ok less=true within=true ok ok", |b| {
        let (mut free, mut total, mut device) = (0, 0, 0);
        b.code(b.cu.cuMemGetInfo_v2(&mut free, &mut total));
        b.expect("total", b.cu.cuDeviceTotalMem_v2(&mut device, b.device));
        b.value("less", 0 < free && free <= total);
        b.value("within", total <= device);
        b.code(b.cu.cuMemGetInfo_v2(&mut free, std::ptr::null_mut()));
        b.code(b.cu.cuMemGetInfo_v2(std::ptr::null_mut(), &mut total));
    }),
    check("information follows", "taken=true back=true", |b| {
        let before = free_bytes(b);
        let memory = b.alloc(256 << 20);
        b.value("taken", before - free_bytes(b) == 256 << 20);
        b.free(memory);
        b.value("back", free_bytes(b) == before);
    }),
    check("range", "ok base=true bytes=1000 ok base=true ok ok", |b| {
        let memory = b.alloc(1000);
        let (mut base, mut bytes) = (CUdeviceptr(0), 0);
        b.code(b.cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, memory));
        b.value("base", base == memory);
        b.value("bytes", bytes);
        b.code(b.cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, CUdeviceptr(memory.0 + 999)));
        b.value("base", base == memory);
        b.code(b.cu.cuMemGetAddressRange_v2(std::ptr::null_mut(), &mut bytes, memory));
        b.code(b.cu.cuMemGetAddressRange_v2(&mut base, std::ptr::null_mut(), memory));
        b.free(memory);
    }),
    check("range of nothing", "NOT_FOUND NOT_FOUND NOT_FOUND", |b| {
        let memory = b.alloc(1000);
        let (mut base, mut bytes) = (CUdeviceptr(0), 0);
        b.code(b.cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, CUdeviceptr(0)));
        b.code(b.cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, CUdeviceptr(0x1000)));
        b.code(b.cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, CUdeviceptr(memory.0 + 1000)));
        b.free(memory);
    }),
    check("range after the free", "NOT_FOUND", |b| {
        let memory = b.alloc(32 << 20);
        b.free(memory);
        b.code(b.cu.cuMemGetAddressRange_v2(&mut CUdeviceptr(0), &mut 0, memory));
    }),
    check("pitched", "ok 512 ok 512 ok 1024 ok 512", |b| {
        for (width, height, element) in [(100, 10, 4), (512, 1, 8), (513, 3, 16), (1, 1, 4)] {
            let (mut memory, mut pitch) = (CUdeviceptr(0), 0);
            b.code(b.cu.cuMemAllocPitch_v2(&mut memory, &mut pitch, width, height, element));
            b.say(pitch);
            b.free(memory);
        }
    }),
    check("pitched range", "ok bytes=5120", |b| {
        let (mut memory, mut pitch, mut base, mut bytes) = (CUdeviceptr(0), 0, CUdeviceptr(0), 0);
        b.expect("pitch", b.cu.cuMemAllocPitch_v2(&mut memory, &mut pitch, 100, 10, 4));
        b.code(b.cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, memory));
        b.value("bytes", bytes);
        b.free(memory);
    }),
    check(
        "pitched errors",
        "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE OUT_OF_MEMORY",
        |b| {
            let (mut memory, mut pitch) = (CUdeviceptr(0), 0);
            b.code(b.cu.cuMemAllocPitch_v2(&mut memory, &mut pitch, 100, 10, 3));
            b.code(b.cu.cuMemAllocPitch_v2(&mut memory, &mut pitch, 0, 10, 4));
            b.code(b.cu.cuMemAllocPitch_v2(&mut memory, &mut pitch, 100, 0, 4));
            b.code(b.cu.cuMemAllocPitch_v2(std::ptr::null_mut(), &mut pitch, 100, 10, 4));
            b.code(b.cu.cuMemAllocPitch_v2(&mut memory, std::ptr::null_mut(), 100, 10, 4));
            b.code(b.cu.cuMemAllocPitch_v2(&mut memory, &mut pitch, 1 << 30, 1 << 20, 4));
        },
    ),
];
