//! Physical memory and reserved addresses.

use cuda::types::{
    CUdevice, CUdeviceptr, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle,
};

use super::{Check, alone, check};
use crate::bench::Bench;

/// The granularity of device memory.
pub(super) const PIECE: usize = 2 << 20;

/// Memory of the first device, that files can share.
pub(super) fn prop() -> CUmemAllocationProp {
    CUmemAllocationProp::on_device(CUdevice(0), CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR)
}

pub(super) fn reserve(b: &Bench, bytes: usize) -> CUdeviceptr {
    let mut address = CUdeviceptr(0);
    b.expect("reserve", b.cu.cuMemAddressReserve(&mut address, bytes, 0, CUdeviceptr(0), 0));
    address
}

pub(super) fn create(b: &Bench, bytes: usize) -> CUmemGenericAllocationHandle {
    let mut handle = CUmemGenericAllocationHandle(0);
    b.expect("create", b.cu.cuMemCreate(&mut handle, bytes, &prop(), 0));
    handle
}

pub(super) fn at(address: CUdeviceptr, offset: usize) -> CUdeviceptr {
    CUdeviceptr(address.0 + offset as u64)
}

pub(super) const CHECKS: &[Check] = &[
    check("granularity", "ok 2097152 ok 2097152 INVALID_VALUE INVALID_VALUE", |b| {
        for option in
            [CUmemAllocationGranularity_flags::MINIMUM, CUmemAllocationGranularity_flags::RECOMMENDED]
        {
            let mut bytes = 0;
            b.code(b.cu.cuMemGetAllocationGranularity(&mut bytes, &prop(), option));
            b.say(bytes);
        }
        let minimum = CUmemAllocationGranularity_flags::MINIMUM;
        b.code(b.cu.cuMemGetAllocationGranularity(std::ptr::null_mut(), &prop(), minimum));
        b.code(b.cu.cuMemGetAllocationGranularity(&mut 0, std::ptr::null(), minimum));
    }),
    check("reserve and free", "ok aligned=true ok INVALID_VALUE", |b| {
        let mut address = CUdeviceptr(0);
        b.code(b.cu.cuMemAddressReserve(&mut address, 4 * PIECE, 0, CUdeviceptr(0), 0));
        b.value("aligned", address.0.is_multiple_of(PIECE as u64));
        b.code(b.cu.cuMemAddressFree(address, 4 * PIECE));
        b.code(b.cu.cuMemAddressFree(address, 4 * PIECE));
    }),
    check("reserve at an alignment", "ok aligned=true", |b| {
        let mut address = CUdeviceptr(0);
        b.code(b.cu.cuMemAddressReserve(&mut address, PIECE, 64 * PIECE, CUdeviceptr(0), 0));
        b.value("aligned", address.0.is_multiple_of(64 * PIECE as u64));
        b.expect("unreserve", b.cu.cuMemAddressFree(address, PIECE));
    }),
    check("reserve at a wish", "ok same=true", |b| {
        let wish = reserve(b, 16 * PIECE);
        b.expect("unreserve", b.cu.cuMemAddressFree(wish, 16 * PIECE));
        let mut address = CUdeviceptr(0);
        b.code(b.cu.cuMemAddressReserve(&mut address, 16 * PIECE, 0, wish, 0));
        b.value("same", address == wish);
        b.expect("unreserve", b.cu.cuMemAddressFree(address, 16 * PIECE));
    }),
    check("reserve errors", "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let mut address = CUdeviceptr(0);
        b.code(b.cu.cuMemAddressReserve(&mut address, 0, 0, CUdeviceptr(0), 0));
        b.code(b.cu.cuMemAddressReserve(&mut address, 5000, 0, CUdeviceptr(0), 0));
        b.code(b.cu.cuMemAddressReserve(&mut address, PIECE, 3, CUdeviceptr(0), 0));
        b.code(b.cu.cuMemAddressReserve(&mut address, PIECE, 0, CUdeviceptr(0), 1));
        b.code(b.cu.cuMemAddressReserve(std::ptr::null_mut(), PIECE, 0, CUdeviceptr(0), 0));
    }),
    check("free addresses wrongly", "INVALID_VALUE INVALID_VALUE INVALID_VALUE ok", |b| {
        let address = reserve(b, 4 * PIECE);
        b.code(b.cu.cuMemAddressFree(CUdeviceptr(0x1000), PIECE));
        b.code(b.cu.cuMemAddressFree(at(address, PIECE), PIECE));
        b.code(b.cu.cuMemAddressFree(address, PIECE));
        b.code(b.cu.cuMemAddressFree(address, 4 * PIECE));
    }),
    check("create and release", "ok ok", |b| {
        let mut handle = CUmemGenericAllocationHandle(0);
        b.code(b.cu.cuMemCreate(&mut handle, PIECE, &prop(), 0));
        b.code(b.cu.cuMemRelease(handle));
    }),
    check(
        "create errors",
        "INVALID_VALUE INVALID_VALUE INVALID_VALUE INVALID_DEVICE INVALID_VALUE INVALID_VALUE OUT_OF_MEMORY",
        |b| {
            let (mut handle, mut other) = (CUmemGenericAllocationHandle(0), prop());
            b.code(b.cu.cuMemCreate(&mut handle, 0, &prop(), 0));
            b.code(b.cu.cuMemCreate(&mut handle, 4096, &prop(), 0));
            b.code(b.cu.cuMemCreate(&mut handle, PIECE, std::ptr::null(), 0));
            other.location.id = 99;
            b.code(b.cu.cuMemCreate(&mut handle, PIECE, &other, 0));
            b.code(b.cu.cuMemCreate(&mut handle, PIECE, &prop(), 1));
            b.code(b.cu.cuMemCreate(std::ptr::null_mut(), PIECE, &prop(), 0));
            b.code(b.cu.cuMemCreate(&mut handle, 1 << 50, &prop(), 0));
        },
    ),
    check("properties of a handle", "ok same=true ok", |b| {
        let handle = create(b, PIECE);
        let mut found = prop();
        found.location.id = 99;
        b.code(b.cu.cuMemGetAllocationPropertiesFromHandle(&mut found, handle));
        b.value("same", found == prop());
        b.code(b.cu.cuMemRelease(handle));
    }),
    check("memory is taken and given back", "taken=true back=true", |b| {
        let free = || {
            let (mut free, mut total) = (0, 0);
            b.expect("info", b.cu.cuMemGetInfo_v2(&mut free, &mut total));
            free
        };
        let before = free();
        let handle = create(b, 128 * PIECE);
        b.value("taken", before - free() == 128 * PIECE);
        b.expect("release", b.cu.cuMemRelease(handle));
        b.value("back", free() == before);
    }),
    alone("release twice", "ok INVALID_VALUE", |b| {
        let handle = create(b, PIECE);
        b.code(b.cu.cuMemRelease(handle));
        b.code(b.cu.cuMemRelease(handle));
    }),
    alone("release what is no handle", "INVALID_VALUE", |b| {
        b.code(b.cu.cuMemRelease(CUmemGenericAllocationHandle(0)));
    }),
];
