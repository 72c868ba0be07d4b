//! Physical memory mapped at reserved addresses, and who may touch it.

use cuda::types::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType, CUpointer_attribute, CUstream,
};

use super::vmm::{PIECE, at, create, reserve};
use super::{Check, alone, check};
use crate::bench::Bench;
use crate::bench::words::pattern;
use crate::kernels::FILL;

pub(super) fn access(flags: CUmemAccess_flags) -> CUmemAccessDesc {
    CUmemAccessDesc { location: CUmemLocation { type_: CUmemLocationType::DEVICE, id: 0 }, flags }
}

pub(super) fn map(b: &Bench, address: CUdeviceptr, bytes: usize, handle: CUmemGenericAllocationHandle) {
    b.expect("map", b.cu.cuMemMap(address, bytes, 0, handle, 0));
    b.expect("access", b.cu.cuMemSetAccess(address, bytes, &access(CUmemAccess_flags::READWRITE), 1));
}

/// Reserved, created and mapped memory, whose handle is released: it goes with its mapping.
fn mapped(b: &Bench, bytes: usize) -> CUdeviceptr {
    let (address, handle) = (reserve(b, bytes), create(b, bytes));
    map(b, address, bytes, handle);
    b.expect("release", b.cu.cuMemRelease(handle));
    address
}

pub(super) fn unmap(b: &Bench, address: CUdeviceptr, bytes: usize) {
    b.expect("unmap", b.cu.cuMemUnmap(address, bytes));
    b.expect("unreserve", b.cu.cuMemAddressFree(address, bytes));
}

fn access_flags(b: &Bench, address: CUdeviceptr) -> u64 {
    let location = CUmemLocation { type_: CUmemLocationType::DEVICE, id: 0 };
    let mut flags = 99;
    b.code(b.cu.cuMemGetAccess(&mut flags, &location, address));
    flags
}

pub(super) const CHECKS: &[Check] = &[
    check("map, use, unmap", "ok ok right=true ok ok", |b| {
        let (address, handle, sent) = (reserve(b, PIECE), create(b, PIECE), pattern(1, 10_000));
        b.code(b.cu.cuMemMap(address, PIECE, 0, handle, 0));
        b.code(b.cu.cuMemSetAccess(address, PIECE, &access(CUmemAccess_flags::READWRITE), 1));
        b.write(at(address, 77), &sent);
        b.value("right", b.read(at(address, 77), 10_000) == sent);
        b.code(b.cu.cuMemUnmap(address, PIECE));
        b.code(b.cu.cuMemRelease(handle));
        b.expect("unreserve", b.cu.cuMemAddressFree(address, PIECE));
    }),
    check("a kernel on it", "ok ok word=5", |b| {
        let address = mapped(b, PIECE);
        b.code(b.launch(FILL, CUstream::NULL, &[address.0, (PIECE / 8) as u64, 5]));
        b.code(b.cu.cuCtxSynchronize());
        b.value("word", b.read_words(at(address, PIECE - 8), 1)[0]);
        unmap(b, address, PIECE);
    }),
    check("released first, unmapped later", "ok right=true ok", |b| {
        let (address, handle, sent) = (reserve(b, PIECE), create(b, PIECE), pattern(2, 1000));
        map(b, address, PIECE, handle);
        b.write(address, &sent);
        b.code(b.cu.cuMemRelease(handle));
        b.value("right", b.read(address, 1000) == sent);
        b.code(b.cu.cuMemUnmap(address, PIECE));
        b.expect("unreserve", b.cu.cuMemAddressFree(address, PIECE));
    }),
    check("unmapped and mapped elsewhere", "right=true", |b| {
        let (one, two, handle, sent) =
            (reserve(b, PIECE), reserve(b, PIECE), create(b, PIECE), pattern(3, 1000));
        map(b, one, PIECE, handle);
        b.write(one, &sent);
        unmap(b, one, PIECE);
        map(b, two, PIECE, handle);
        b.value("right", b.read(two, 1000) == sent);
        unmap(b, two, PIECE);
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
    check("mapped twice", "ok right=true", |b| {
        let (one, two, handle, sent) =
            (reserve(b, PIECE), reserve(b, PIECE), create(b, PIECE), pattern(4, 1000));
        map(b, one, PIECE, handle);
        map(b, two, PIECE, handle);
        b.code(b.cu.cuMemcpyHtoD_v2(one, sent.as_ptr().cast(), 1000));
        b.value("right", b.read(two, 1000) == sent);
        unmap(b, one, PIECE);
        unmap(b, two, PIECE);
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
    check("other memory under the same address", "first=true second=true first=true", |b| {
        let (address, one, two) = (reserve(b, PIECE), create(b, PIECE), create(b, PIECE));
        for (handle, seed) in [(one, 1), (two, 2)] {
            map(b, address, PIECE, handle);
            b.write(address, &pattern(seed, 1000));
            b.expect("unmap", b.cu.cuMemUnmap(address, PIECE));
        }
        for (handle, seed, name) in [(one, 1, "first"), (two, 2, "second"), (one, 1, "first")] {
            map(b, address, PIECE, handle);
            b.value(name, b.read(address, 1000) == pattern(seed, 1000));
            b.expect("unmap", b.cu.cuMemUnmap(address, PIECE));
        }
        b.expect("unreserve", b.cu.cuMemAddressFree(address, PIECE));
        b.expect("release", b.cu.cuMemRelease(one));
        b.expect("release", b.cu.cuMemRelease(two));
    }),
    check("two handles side by side", "ok right=true ok", |b| {
        let (address, one, two) = (reserve(b, 2 * PIECE), create(b, PIECE), create(b, PIECE));
        b.expect("map", b.cu.cuMemMap(address, PIECE, 0, one, 0));
        b.expect("map", b.cu.cuMemMap(at(address, PIECE), PIECE, 0, two, 0));
        b.code(b.cu.cuMemSetAccess(address, 2 * PIECE, &access(CUmemAccess_flags::READWRITE), 1));
        let sent = pattern(5, 8192);
        b.write(at(address, PIECE - 4096), &sent);
        b.value("right", b.read(at(address, PIECE - 4096), 8192) == sent);
        b.code(b.cu.cuMemUnmap(address, 2 * PIECE));
        b.expect("unreserve", b.cu.cuMemAddressFree(address, 2 * PIECE));
        b.expect("release", b.cu.cuMemRelease(one));
        b.expect("release", b.cu.cuMemRelease(two));
    }),
    // Another size than the handle's, or a part of it: not wrong but not supported.
    check(
        "map errors",
        "INVALID_VALUE INVALID_VALUE NOT_SUPPORTED INVALID_VALUE NOT_SUPPORTED ok INVALID_VALUE",
        |b| {
            let (address, handle) = (reserve(b, 4 * PIECE), create(b, 2 * PIECE));
            b.code(b.cu.cuMemMap(CUdeviceptr(0x1000), 2 * PIECE, 0, handle, 0));
            b.code(b.cu.cuMemMap(at(address, 4096), 2 * PIECE, 0, handle, 0));
            b.code(b.cu.cuMemMap(address, 4 * PIECE, 0, handle, 0));
            b.code(b.cu.cuMemMap(address, 2 * PIECE, 0, handle, 1));
            b.code(b.cu.cuMemMap(address, 2 * PIECE, PIECE, handle, 0));
            b.code(b.cu.cuMemMap(address, 2 * PIECE, 0, handle, 0));
            b.code(b.cu.cuMemMap(address, 2 * PIECE, 0, handle, 0));
            b.expect("unmap", b.cu.cuMemUnmap(address, 2 * PIECE));
            b.expect("unreserve", b.cu.cuMemAddressFree(address, 4 * PIECE));
            b.expect("release", b.cu.cuMemRelease(handle));
        },
    ),
    check("map a part of a handle", "NOT_SUPPORTED NOT_SUPPORTED", |b| {
        let (address, handle) = (reserve(b, 4 * PIECE), create(b, 2 * PIECE));
        if b.code(b.cu.cuMemMap(address, PIECE, 0, handle, 0)) {
            b.expect("unmap", b.cu.cuMemUnmap(address, PIECE));
        }
        if b.code(b.cu.cuMemMap(address, PIECE, PIECE, handle, 0)) {
            b.expect("unmap", b.cu.cuMemUnmap(address, PIECE));
        }
        b.expect("unreserve", b.cu.cuMemAddressFree(address, 4 * PIECE));
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
    // Where nothing is mapped there is nothing to complain about; a part of a mapping cannot go alone.
    check("unmap errors", "INVALID_VALUE INVALID_VALUE ok ok ok", |b| {
        let (address, handle) = (reserve(b, 4 * PIECE), create(b, 2 * PIECE));
        map(b, address, 2 * PIECE, handle);
        b.code(b.cu.cuMemUnmap(CUdeviceptr(0x1000), PIECE));
        b.code(b.cu.cuMemUnmap(address, PIECE));
        b.code(b.cu.cuMemUnmap(at(address, 2 * PIECE), PIECE));
        b.code(b.cu.cuMemUnmap(address, 2 * PIECE));
        b.code(b.cu.cuMemUnmap(address, 2 * PIECE));
        b.expect("unreserve", b.cu.cuMemAddressFree(address, 4 * PIECE));
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
    check("access can be asked", "ok 0 ok 3 ok 1 INVALID_VALUE", |b| {
        let (address, handle) = (reserve(b, PIECE), create(b, PIECE));
        b.expect("map", b.cu.cuMemMap(address, PIECE, 0, handle, 0));
        b.say(access_flags(b, address));
        b.expect("access", b.cu.cuMemSetAccess(address, PIECE, &access(CUmemAccess_flags::READWRITE), 1));
        b.say(access_flags(b, address));
        b.expect("access", b.cu.cuMemSetAccess(address, PIECE, &access(CUmemAccess_flags::READ), 1));
        b.say(access_flags(b, address));
        unmap(b, address, PIECE);
        access_flags(b, CUdeviceptr(0x1000));
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
    check("access errors", "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let (address, handle) = (reserve(b, 2 * PIECE), create(b, PIECE));
        let write = access(CUmemAccess_flags::READWRITE);
        b.code(b.cu.cuMemSetAccess(address, PIECE, &write, 1));
        b.code(b.cu.cuMemSetAccess(CUdeviceptr(0x1000), PIECE, &write, 1));
        b.expect("map", b.cu.cuMemMap(address, PIECE, 0, handle, 0));
        b.code(b.cu.cuMemSetAccess(address, 2 * PIECE, &write, 1));
        b.code(b.cu.cuMemSetAccess(address, PIECE, &write, 0));
        b.expect("unmap", b.cu.cuMemUnmap(address, PIECE));
        b.expect("unreserve", b.cu.cuMemAddressFree(address, 2 * PIECE));
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
    check("retain by address", "ok same=true ok ok INVALID_VALUE", |b| {
        let (address, handle) = (reserve(b, PIECE), create(b, PIECE));
        map(b, address, PIECE, handle);
        let mut again = CUmemGenericAllocationHandle(0);
        let inside = std::ptr::with_exposed_provenance_mut(address.0 as usize + 4096);
        b.code(b.cu.cuMemRetainAllocationHandle(&mut again, inside));
        b.value("same", again == handle);
        b.code(b.cu.cuMemRelease(again));
        b.code(b.cu.cuMemRelease(handle));
        unmap(b, address, PIECE);
        b.code(b.cu.cuMemRetainAllocationHandle(&mut again, std::ptr::with_exposed_provenance_mut(0x1000)));
    }),
    check(
        "pointer attributes",
        "ok type=2 ok files=1 ok start=true ok bytes=4194304 ok mapping=4194304",
        |b| {
            let address = mapped(b, 2 * PIECE);
            let ask = |attribute| {
                let mut value = 0_u64;
                b.code(b.cu.cuPointerGetAttribute(
                    std::ptr::from_mut(&mut value).cast(),
                    attribute,
                    at(address, 99),
                ));
                value
            };
            b.value("type", ask(CUpointer_attribute::MEMORY_TYPE));
            b.value("files", ask(CUpointer_attribute::ALLOWED_HANDLE_TYPES));
            b.value("start", ask(CUpointer_attribute::RANGE_START_ADDR) == address.0);
            b.value("bytes", ask(CUpointer_attribute::RANGE_SIZE));
            b.value("mapping", ask(CUpointer_attribute::MAPPING_SIZE));
            unmap(b, address, 2 * PIECE);
        },
    ),
    check("range of a mapping", "ok base=true bytes=4194304", |b| {
        let (address, handle) = (reserve(b, 4 * PIECE), create(b, 2 * PIECE));
        map(b, at(address, PIECE), 2 * PIECE, handle);
        let (mut base, mut bytes) = (CUdeviceptr(0), 0);
        b.code(b.cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, at(address, 2 * PIECE)));
        b.value("base", base == at(address, PIECE));
        b.value("bytes", bytes);
        b.expect("unmap", b.cu.cuMemUnmap(at(address, PIECE), 2 * PIECE));
        b.expect("unreserve", b.cu.cuMemAddressFree(address, 4 * PIECE));
        b.expect("release", b.cu.cuMemRelease(handle));
    }),
    check("freed like plain memory", "INVALID_VALUE", |b| {
        let address = mapped(b, PIECE);
        b.code(b.cu.cuMemFree_v2(address));
        unmap(b, address, PIECE);
    }),
    check("copies to what is not mapped", "INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let address = mapped(b, PIECE);
        b.expect("unmap", b.cu.cuMemUnmap(address, PIECE));
        let bytes = [0_u8; 8];
        b.code(b.cu.cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), 8));
        b.code(b.cu.cuMemsetD8_v2(address, 1, 8));
        b.code(b.cu.cuMemsetD8Async(address, 1, 8, CUstream::NULL));
        b.expect("unreserve", b.cu.cuMemAddressFree(address, PIECE));
    }),
    alone("addresses freed under a mapping", "INVALID_VALUE ok", |b| {
        let address = mapped(b, PIECE);
        b.code(b.cu.cuMemAddressFree(address, PIECE));
        b.code(b.cu.cuMemUnmap(address, PIECE));
    }),
    // Copies look at the access when they are called, so the context stays whole; kernels fall into it (family sticky).
    alone("copies without access", "INVALID_VALUE ok INVALID_VALUE ok", |b| {
        let (address, handle) = (reserve(b, PIECE), create(b, PIECE));
        b.expect("map", b.cu.cuMemMap(address, PIECE, 0, handle, 0));
        b.code(b.cu.cuMemsetD8_v2(address, 1, 8));
        b.code(b.cu.cuCtxSynchronize());
        b.code(b.cu.cuMemcpyHtoD_v2(address, [0_u8; 8].as_ptr().cast(), 8));
        b.code(b.cu.cuCtxSynchronize());
    }),
    alone("copies to what is read-only", "ok INVALID_VALUE ok", |b| {
        let (address, handle) = (reserve(b, PIECE), create(b, PIECE));
        b.expect("map", b.cu.cuMemMap(address, PIECE, 0, handle, 0));
        b.expect("access", b.cu.cuMemSetAccess(address, PIECE, &access(CUmemAccess_flags::READ), 1));
        let mut bytes = [0_u8; 8];
        b.code(b.cu.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, 8));
        b.code(b.cu.cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), 8));
        b.code(b.cu.cuCtxSynchronize());
    }),
];
