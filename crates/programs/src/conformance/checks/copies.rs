//! Copies between host and device, along rows and layers, at once and in streams.

use cuda::types::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CU_STREAM_NON_BLOCKING, CUDA_MEMCPY2D,
    CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUstream,
};

use super::{Check, check};
use crate::api::Zeroed;
use crate::bench::Bench;
use crate::bench::words::{fresh, pattern};

/// Sizes around the places where copies are cut.
const SIZES: [usize; 9] = [1, 3, 4, 511, 512, 513, 4097, 65_536, (1 << 20) + 7];

/// Rows from the host to the device and the other way round, at pitches.
fn rows(
    to_device: bool,
    host: *mut u8,
    host_pitch: u64,
    device: CUdeviceptr,
    device_pitch: u64,
) -> CUDA_MEMCPY2D {
    let host = host.expose_provenance() as u64;
    let mut copy = CUDA_MEMCPY2D::zeroed();
    if to_device {
        (copy.source.kind, copy.source.host, copy.source.pitch) = (CU_MEMORYTYPE_HOST, host, host_pitch);
        (copy.target.kind, copy.target.device, copy.target.pitch) =
            (CU_MEMORYTYPE_DEVICE, device.0, device_pitch);
    } else {
        (copy.target.kind, copy.target.host, copy.target.pitch) = (CU_MEMORYTYPE_HOST, host, host_pitch);
        (copy.source.kind, copy.source.device, copy.source.pitch) =
            (CU_MEMORYTYPE_DEVICE, device.0, device_pitch);
    }
    copy
}

fn address_of(bytes: &[u8]) -> CUdeviceptr {
    CUdeviceptr(bytes.as_ptr().expose_provenance() as u64)
}

/// There and back for every size, with a copy inside the device between; the sizes that came back wrong.
fn wrong_sizes(b: &Bench, there_and_back: impl Fn(CUdeviceptr, CUdeviceptr, &mut [u8])) -> String {
    let (one, two) = (b.alloc(2 << 20), b.alloc(2 << 20));
    let mut wrong = Vec::new();
    for size in SIZES {
        let sent = pattern(size as u64, size);
        let mut bytes = sent.clone();
        there_and_back(one, two, &mut bytes);
        if bytes != sent {
            wrong.push(size.to_string());
        }
    }
    b.free(one);
    b.free(two);
    if wrong.is_empty() { "none".to_owned() } else { wrong.join(",") }
}

pub(super) const CHECKS: &[Check] = &[
    check("there and back", "wrong=none", |b| {
        let wrong = wrong_sizes(b, |one, two, bytes| {
            b.write(one, bytes);
            b.expect("device", b.cu.cuMemcpyDtoD_v2(two, one, bytes.len()));
            bytes.copy_from_slice(&b.read(two, bytes.len()));
        });
        b.value("wrong", wrong);
    }),
    check("there and back at odd addresses", "wrong=none", |b| {
        let wrong = wrong_sizes(b, |one, two, bytes| {
            b.write(CUdeviceptr(one.0 + 3), bytes);
            let (from, to) = (CUdeviceptr(one.0 + 3), CUdeviceptr(two.0 + 5));
            b.expect("device", b.cu.cuMemcpyDtoD_v2(to, from, bytes.len()));
            bytes.copy_from_slice(&b.read(to, bytes.len()));
        });
        b.value("wrong", wrong);
    }),
    check("there and back in a stream", "wrong=none", |b| {
        let stream = b.stream(CU_STREAM_NON_BLOCKING);
        let wrong = wrong_sizes(b, |one, two, bytes| {
            let (host, count) = (bytes.as_mut_ptr(), bytes.len());
            b.expect("in", b.cu.cuMemcpyHtoDAsync_v2(one, host.cast(), count, stream));
            b.expect("device", b.cu.cuMemcpyDtoDAsync_v2(two, one, count, stream));
            b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
            bytes.fill(0);
            b.expect("out", b.cu.cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), two, count, stream));
            b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        });
        b.end_stream(stream);
        b.value("wrong", wrong);
    }),
    check("there and back in pinned memory", "ok ok ok ok right=true", |b| {
        let (from, to) = (b.pinned(100_000), b.pinned(100_000));
        from.copy_from_slice(&pattern(4, 100_000));
        let (memory, stream) = (b.alloc(100_000), b.stream(CU_STREAM_NON_BLOCKING));
        b.code(b.cu.cuMemcpyHtoDAsync_v2(memory, from.as_ptr().cast(), from.len(), stream));
        b.code(b.cu.cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), memory, to.len(), stream));
        b.code(b.cu.cuStreamSynchronize(stream));
        b.code(b.cu.cuStreamQuery(stream));
        b.value("right", from == to);
        b.free(memory);
        b.end_stream(stream);
        b.end_pinned(from);
        b.end_pinned(to);
    }),
    check("a part", "bytes=00000102030000", |b| {
        let memory = b.alloc_with(&[0; 7]);
        b.write(CUdeviceptr(memory.0 + 2), &[1, 2, 3]);
        b.bytes("bytes", &b.read(memory, 7));
        b.free(memory);
    }),
    check("by address alone", "ok ok ok right=true", |b| {
        let sent = pattern(8, 5000);
        let mut got = vec![0; 5000];
        let (one, two) = (b.alloc(5000), b.alloc(5000));
        b.code(b.cu.cuMemcpy(one, address_of(&sent), 5000));
        b.code(b.cu.cuMemcpy(two, one, 5000));
        b.code(b.cu.cuMemcpy(address_of(&got), two, 5000));
        b.value("right", fresh(&mut got) == sent);
        b.free(one);
        b.free(two);
    }),
    check("by address alone in a stream", "ok ok ok right=true", |b| {
        let (from, to) = (b.pinned(5000), b.pinned(5000));
        from.copy_from_slice(&pattern(9, 5000));
        let (memory, stream) = (b.alloc(5000), b.stream(0));
        b.code(b.cu.cuMemcpyAsync(memory, address_of(from), 5000, stream));
        b.code(b.cu.cuMemcpyAsync(address_of(to), memory, 5000, stream));
        b.code(b.cu.cuStreamSynchronize(stream));
        b.value("right", from == to);
        b.free(memory);
        b.end_stream(stream);
        b.end_pinned(from);
        b.end_pinned(to);
    }),
    check("host to host by address", "ok bytes=0a0b0c", |b| {
        let (from, mut to) = ([10, 11, 12], [0; 3]);
        b.code(b.cu.cuMemcpy(address_of(&to), address_of(&from), 3));
        b.bytes("bytes", &fresh(&mut to));
    }),
    check("nothing", "ok ok ok ok ok ok", |b| {
        let memory = b.alloc(64);
        let mut byte = 0_u8;
        b.code(b.cu.cuMemcpyHtoD_v2(memory, std::ptr::from_ref(&byte).cast(), 0));
        b.code(b.cu.cuMemcpyDtoH_v2(std::ptr::from_mut(&mut byte).cast(), memory, 0));
        b.code(b.cu.cuMemcpyDtoD_v2(memory, memory, 0));
        b.code(b.cu.cuMemcpyHtoDAsync_v2(memory, std::ptr::from_ref(&byte).cast(), 0, CUstream::NULL));
        b.code(b.cu.cuMemcpyHtoD_v2(memory, std::ptr::null(), 0));
        b.code(b.cu.cuMemcpyHtoD_v2(CUdeviceptr(0x1000), std::ptr::from_ref(&byte).cast(), 0));
        b.free(memory);
    }),
    check("null addresses", "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let memory = b.alloc(64);
        let mut byte = 0_u8;
        b.code(b.cu.cuMemcpyHtoD_v2(memory, std::ptr::null(), 1));
        b.code(b.cu.cuMemcpyDtoH_v2(std::ptr::null_mut(), memory, 1));
        b.code(b.cu.cuMemcpyHtoD_v2(CUdeviceptr(0), std::ptr::from_ref(&byte).cast(), 1));
        b.code(b.cu.cuMemcpyDtoH_v2(std::ptr::from_mut(&mut byte).cast(), CUdeviceptr(0), 1));
        b.free(memory);
    }),
    check(
        "memory that is not the device's",
        "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE",
        |b| {
            let memory = b.alloc(64);
            let mut bytes = [0_u8; 8];
            let strange = CUdeviceptr(0x1000);
            b.code(b.cu.cuMemcpyHtoD_v2(strange, bytes.as_ptr().cast(), 8));
            b.code(b.cu.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), strange, 8));
            b.code(b.cu.cuMemcpyDtoD_v2(strange, memory, 8));
            b.code(b.cu.cuMemcpyDtoDAsync_v2(memory, strange, 8, CUstream::NULL));
            b.free(memory);
        },
    ),
    check("past the end of a large one", "INVALID_VALUE INVALID_VALUE INVALID_VALUE ok", |b| {
        let memory = b.alloc(32 << 20);
        let mut bytes = vec![0_u8; 8192];
        let near = CUdeviceptr(memory.0 + (32 << 20) - 4096);
        b.code(b.cu.cuMemcpyHtoD_v2(near, bytes.as_ptr().cast(), 4097));
        b.code(b.cu.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), near, 8192));
        b.code(b.cu.cuMemcpyDtoD_v2(near, memory, 8192));
        b.code(b.cu.cuMemcpyHtoD_v2(near, bytes.as_ptr().cast(), 4096));
        b.free(memory);
    }),
    // To the byte, although the memory under it goes on.
    check("past the end of a small one", "INVALID_VALUE INVALID_VALUE", |b| {
        let memory = b.alloc(100);
        let bytes = vec![0_u8; 8192];
        b.code(b.cu.cuMemcpyHtoD_v2(memory, bytes.as_ptr().cast(), 101));
        b.code(b.cu.cuMemcpyHtoD_v2(memory, bytes.as_ptr().cast(), 513));
        b.free(memory);
    }),
    check("after the free of a large one", "INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let (memory, other) = (b.alloc(64 << 20), b.alloc(64));
        b.free(memory);
        let mut bytes = [0_u8; 8];
        b.code(b.cu.cuMemcpyHtoD_v2(memory, bytes.as_ptr().cast(), 8));
        b.code(b.cu.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory, 8));
        b.code(b.cu.cuMemcpyDtoDAsync_v2(other, memory, 8, CUstream::NULL));
        b.free(other);
    }),
    check("after the free of a small one", "INVALID_VALUE INVALID_VALUE", |b| {
        let (keep, memory) = (b.alloc(1000), b.alloc(1000));
        b.free(memory);
        let mut bytes = [0_u8; 8];
        b.code(b.cu.cuMemcpyHtoD_v2(memory, bytes.as_ptr().cast(), 8));
        b.code(b.cu.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory, 8));
        b.free(keep);
    }),
    // A context that is none is not missed: the addresses say whose they are.
    check("between contexts", "ok ok ok right=true ok", |b| {
        let sent = pattern(11, 3000);
        let (one, two) = (b.alloc_with(&sent), b.alloc(3000));
        b.code(b.cu.cuMemcpyPeer(two, b.context, one, b.context, 3000));
        b.code(b.cu.cuMemcpyPeerAsync(one, b.context, two, b.context, 3000, CUstream::NULL));
        b.code(b.cu.cuCtxSynchronize());
        b.value("right", b.read(one, 3000) == sent);
        b.code(b.cu.cuMemcpyPeer(two, CUcontext::NULL, one, b.context, 3000));
        b.free(one);
        b.free(two);
    }),
    check("rows there and back", "ok ok right=true", |b| {
        let mut sent = pattern(12, 300);
        let (mut memory, mut pitch, mut got) = (CUdeviceptr(0), 0, vec![0_u8; 200]);
        b.expect("pitch", b.cu.cuMemAllocPitch_v2(&mut memory, &mut pitch, 20, 10, 4));
        let mut copy = rows(true, sent.as_mut_ptr(), 30, memory, pitch as u64);
        (copy.width_bytes, copy.height) = (20, 10);
        b.code(b.cu.cuMemcpy2D_v2(&copy));
        let mut copy = rows(false, got.as_mut_ptr(), 20, memory, pitch as u64);
        (copy.width_bytes, copy.height) = (20, 10);
        b.code(b.cu.cuMemcpy2D_v2(&copy));
        let expected: Vec<u8> = sent.chunks(30).flat_map(|row| row[..20].to_vec()).collect();
        b.value("right", got == expected);
        b.free(memory);
    }),
    check("rows from within", "ok ok bytes=111213212223", |b| {
        let mut sent: Vec<u8> = (0..4).flat_map(|y| (0..8).map(move |x| y * 16 + x)).collect();
        let (memory, mut got) = (b.alloc_with(&[0; 64]), [0_u8; 6]);
        let mut copy = rows(true, sent.as_mut_ptr(), 8, memory, 16);
        (
            copy.source.x_bytes,
            copy.source.y,
            copy.target.x_bytes,
            copy.target.y,
            copy.width_bytes,
            copy.height,
        ) = (1, 1, 2, 1, 3, 2);
        b.code(b.cu.cuMemcpy2DUnaligned_v2(&copy));
        let mut copy = rows(false, got.as_mut_ptr(), 3, CUdeviceptr(memory.0 + 18), 16);
        (copy.width_bytes, copy.height) = (3, 2);
        b.code(b.cu.cuMemcpy2D_v2(&copy));
        b.bytes("bytes", &got);
        b.free(memory);
    }),
    check("rows inside the device in a stream", "ok ok right=true", |b| {
        let (one, two, stream) = (b.alloc_with(&pattern(13, 4096)), b.alloc_with(&[0; 4096]), b.stream(0));
        let mut copy = CUDA_MEMCPY2D::zeroed();
        (copy.source.kind, copy.source.device, copy.source.pitch) = (CU_MEMORYTYPE_DEVICE, one.0, 64);
        (copy.target.kind, copy.target.device, copy.target.pitch) = (CU_MEMORYTYPE_UNIFIED, two.0, 128);
        (copy.width_bytes, copy.height) = (48, 32);
        b.code(b.cu.cuMemcpy2DAsync_v2(&copy, stream));
        b.code(b.cu.cuStreamSynchronize(stream));
        let (from, to) = (b.read(one, 2048), b.read(two, 4096));
        let row = |y: usize| {
            to[y * 128..y * 128 + 48] == from[y * 64..y * 64 + 48] && to[y * 128 + 48..][..80] == [0; 80]
        };
        b.value("right", (0..32).all(row));
        b.free(one);
        b.free(two);
        b.end_stream(stream);
    }),
    check("rows of errors", "INVALID_VALUE INVALID_VALUE ok ok INVALID_VALUE INVALID_VALUE", |b| {
        let memory = b.alloc(4096);
        let mut host = [0_u8; 256];
        let mut copy = rows(true, host.as_mut_ptr(), 16, memory, 32);
        (copy.width_bytes, copy.height) = (17, 2);
        b.code(b.cu.cuMemcpy2D_v2(&copy));
        let mut copy = rows(true, host.as_mut_ptr(), 64, memory, 32);
        (copy.width_bytes, copy.height) = (33, 2);
        b.code(b.cu.cuMemcpy2D_v2(&copy));
        (copy.width_bytes, copy.height) = (0, 2);
        b.code(b.cu.cuMemcpy2D_v2(&copy));
        (copy.width_bytes, copy.height) = (16, 0);
        b.code(b.cu.cuMemcpy2D_v2(&copy));
        (copy.width_bytes, copy.height, copy.target.kind) = (16, 2, 77);
        b.code(b.cu.cuMemcpy2D_v2(&copy));
        b.code(b.cu.cuMemcpy2D_v2(std::ptr::null()));
        b.free(memory);
    }),
    check("layers there and back", "ok ok right=true", |b| {
        let mut sent = pattern(14, 4 * 5 * 6);
        let (memory, mut got) = (b.alloc_with(&[0; 8 * 8 * 8]), vec![0_u8; 4 * 5 * 6]);
        let mut copy = CUDA_MEMCPY3D::zeroed();
        (copy.source.kind, copy.source.host, copy.source.pitch, copy.source.height) =
            (CU_MEMORYTYPE_HOST, sent.as_mut_ptr().expose_provenance() as u64, 4, 5);
        (copy.target.kind, copy.target.device, copy.target.pitch, copy.target.height) =
            (CU_MEMORYTYPE_DEVICE, memory.0, 8, 8);
        (copy.target.x_bytes, copy.target.y, copy.target.z) = (1, 2, 1);
        (copy.width_bytes, copy.height, copy.depth) = (4, 5, 6);
        b.code(b.cu.cuMemcpy3D_v2(&copy));
        let mut copy = CUDA_MEMCPY3D::zeroed();
        (copy.target.kind, copy.target.host, copy.target.pitch, copy.target.height) =
            (CU_MEMORYTYPE_HOST, got.as_mut_ptr().expose_provenance() as u64, 4, 5);
        (copy.source.kind, copy.source.device, copy.source.pitch, copy.source.height) =
            (CU_MEMORYTYPE_DEVICE, memory.0, 8, 8);
        (copy.source.x_bytes, copy.source.y, copy.source.z) = (1, 2, 1);
        (copy.width_bytes, copy.height, copy.depth) = (4, 5, 6);
        b.code(b.cu.cuMemcpy3D_v2(&copy));
        b.value("right", got == sent);
        b.free(memory);
    }),
    check("layers in a stream", "ok ok ok right=true", |b| {
        let (one, two, stream) = (b.alloc_with(&pattern(15, 512)), b.alloc_with(&[0; 512]), b.stream(0));
        let mut copy = CUDA_MEMCPY3D::zeroed();
        (copy.source.kind, copy.source.device, copy.source.pitch, copy.source.height) =
            (CU_MEMORYTYPE_DEVICE, one.0, 8, 8);
        (copy.target.kind, copy.target.device, copy.target.pitch, copy.target.height) =
            (CU_MEMORYTYPE_DEVICE, two.0, 8, 8);
        (copy.width_bytes, copy.height, copy.depth) = (8, 8, 8);
        b.code(b.cu.cuMemcpy3DAsync_v2(&copy, stream));
        copy.depth = 0;
        b.code(b.cu.cuMemcpy3DAsync_v2(&copy, stream));
        b.code(b.cu.cuStreamSynchronize(stream));
        b.value("right", b.read(one, 512) == b.read(two, 512));
        b.free(one);
        b.free(two);
        b.end_stream(stream);
    }),
];
