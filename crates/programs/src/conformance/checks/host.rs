//! Pinned host memory: made by the driver, or the program's own and registered.

use std::ffi::c_void;

use cuda::types::{CUdeviceptr, CUstream};

use super::{Check, check};
use crate::bench::words::fresh;
use crate::kernels::FILL;

/// Pages of the program's own, that nobody else lies in.
struct Pages(Vec<u8>);

/// The page size that registration counts in.
const PAGE: usize = 4096;

impl Pages {
    fn new(count: usize) -> Pages {
        Pages(vec![0; (count + 1) * PAGE])
    }

    /// Where the first page begins.
    fn at(&mut self, offset: usize) -> *mut c_void {
        let skip = self.0.as_ptr().align_offset(PAGE);
        self.0[skip + offset..].as_mut_ptr().cast()
    }

    /// The pages' bytes, as whoever wrote them left them.
    fn bytes(&mut self, offset: usize, count: usize) -> Vec<u8> {
        let skip = self.0.as_ptr().align_offset(PAGE);
        fresh(&mut self.0[skip + offset..][..count])
    }
}

pub(super) const CHECKS: &[Check] = &[
    check("allocate and free", "ok null=false aligned=true ok", |b| {
        let mut host: *mut c_void = std::ptr::null_mut();
        b.code(b.cu.cuMemHostAlloc(&mut host, 100, 0));
        b.value("null", host.is_null());
        b.value("aligned", host.addr().is_multiple_of(512));
        b.code(b.cu.cuMemFreeHost(host));
    }),
    check("allocate the old way", "ok ok flags=2 ok", |b| {
        let (mut host, mut flags) = (std::ptr::null_mut(), 99);
        b.code(b.cu.cuMemAllocHost_v2(&mut host, 100));
        b.code(b.cu.cuMemHostGetFlags(&mut flags, host));
        b.value("flags", flags);
        b.code(b.cu.cuMemFreeHost(host));
    }),
    // No bytes are allowed here, unlike for device memory; so they are for stream-ordered memory.
    check("allocate nothing", "ok INVALID_VALUE INVALID_VALUE", |b| {
        let mut host: *mut c_void = std::ptr::null_mut();
        b.code(b.cu.cuMemHostAlloc(&mut host, 0, 0));
        b.code(b.cu.cuMemHostAlloc(std::ptr::null_mut(), 100, 0));
        b.code(b.cu.cuMemHostAlloc(&mut host, 100, 0x100));
    }),
    // Host memory is mapped for kernels whether one asks for it or not.
    check("flags", "2 3 2 6", |b| {
        for asked in [0, 1, 2, 4] {
            let (mut host, mut flags) = (std::ptr::null_mut(), 99);
            b.expect("alloc", b.cu.cuMemHostAlloc(&mut host, 100, asked));
            b.expect("get", b.cu.cuMemHostGetFlags(&mut flags, host));
            b.say(flags);
            b.expect("free", b.cu.cuMemFreeHost(host));
        }
    }),
    check("free what is not allocated", "ok INVALID_VALUE INVALID_VALUE", |b| {
        let mut local = 0_u64;
        b.code(b.cu.cuMemFreeHost(std::ptr::null_mut()));
        b.code(b.cu.cuMemFreeHost(std::ptr::from_mut(&mut local).cast()));
        let bytes = b.pinned(PAGE);
        b.code(b.cu.cuMemFreeHost(bytes[64..].as_mut_ptr().cast()));
        b.end_pinned(bytes);
    }),
    check("address for kernels", "ok same=true ok INVALID_VALUE INVALID_VALUE", |b| {
        let bytes = b.pinned(PAGE);
        let (host, mut address, mut local) = (bytes.as_mut_ptr(), CUdeviceptr(0), 0_u64);
        b.code(b.cu.cuMemHostGetDevicePointer_v2(&mut address, host.cast(), 0));
        b.value("same", address.0 == host.expose_provenance() as u64);
        b.code(b.cu.cuMemHostGetDevicePointer_v2(&mut address, bytes[64..].as_mut_ptr().cast(), 0));
        b.code(b.cu.cuMemHostGetDevicePointer_v2(&mut address, host.cast(), 7));
        b.code(b.cu.cuMemHostGetDevicePointer_v2(&mut address, std::ptr::from_mut(&mut local).cast(), 0));
        b.end_pinned(bytes);
    }),
    check("a kernel writes it", "ok ok bytes=07000000000000000700000000000000", |b| {
        let bytes = b.pinned(16);
        b.code(b.launch(FILL, CUstream::NULL, &[bytes.as_ptr().expose_provenance() as u64, 2, 7]));
        b.code(b.cu.cuCtxSynchronize());
        b.bytes("bytes", &fresh(bytes));
        b.end_pinned(bytes);
    }),
    check("register and unregister", "ok ok HOST_MEMORY_NOT_REGISTERED", |b| {
        let mut pages = Pages::new(4);
        b.code(b.cu.cuMemHostRegister_v2(pages.at(0), 4 * PAGE, 0));
        b.code(b.cu.cuMemHostUnregister(pages.at(0)));
        b.code(b.cu.cuMemHostUnregister(pages.at(0)));
    }),
    check("register twice", "ok HOST_MEMORY_ALREADY_REGISTERED HOST_MEMORY_ALREADY_REGISTERED ok ok", |b| {
        let mut pages = Pages::new(4);
        b.code(b.cu.cuMemHostRegister_v2(pages.at(0), 2 * PAGE, 0));
        b.code(b.cu.cuMemHostRegister_v2(pages.at(0), 2 * PAGE, 0));
        b.code(b.cu.cuMemHostRegister_v2(pages.at(PAGE), 2 * PAGE, 0));
        b.code(b.cu.cuMemHostRegister_v2(pages.at(2 * PAGE), PAGE, 0));
        b.expect("unregister", b.cu.cuMemHostUnregister(pages.at(2 * PAGE)));
        b.code(b.cu.cuMemHostUnregister(pages.at(0)));
    }),
    check("register errors", "INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let mut pages = Pages::new(2);
        b.code(b.cu.cuMemHostRegister_v2(std::ptr::null_mut(), PAGE, 0));
        b.code(b.cu.cuMemHostRegister_v2(pages.at(0), 0, 0));
        b.code(b.cu.cuMemHostRegister_v2(pages.at(0), PAGE, 0x100));
    }),
    // Two registrations may share a page, as long as their bytes are apart.
    check("register parts of a page", "ok ok HOST_MEMORY_ALREADY_REGISTERED ok ok", |b| {
        let mut pages = Pages::new(2);
        b.code(b.cu.cuMemHostRegister_v2(pages.at(100), 200, 0));
        b.code(b.cu.cuMemHostRegister_v2(pages.at(1000), 200, 0));
        b.code(b.cu.cuMemHostRegister_v2(pages.at(1100), 200, 0));
        b.code(b.cu.cuMemHostUnregister(pages.at(100)));
        b.code(b.cu.cuMemHostUnregister(pages.at(1000)));
    }),
    check("unregister the middle", "INVALID_VALUE ok", |b| {
        let mut pages = Pages::new(4);
        b.expect("register", b.cu.cuMemHostRegister_v2(pages.at(0), 2 * PAGE, 0));
        b.code(b.cu.cuMemHostUnregister(pages.at(PAGE)));
        b.code(b.cu.cuMemHostUnregister(pages.at(0)));
    }),
    check("unregister what the driver made", "INVALID_VALUE ok", |b| {
        let mut host: *mut c_void = std::ptr::null_mut();
        b.expect("alloc", b.cu.cuMemHostAlloc(&mut host, PAGE, 0));
        b.code(b.cu.cuMemHostUnregister(host));
        b.code(b.cu.cuMemFreeHost(host));
    }),
    check("free what is registered", "INVALID_VALUE ok", |b| {
        let mut pages = Pages::new(2);
        b.expect("register", b.cu.cuMemHostRegister_v2(pages.at(0), PAGE, 0));
        b.code(b.cu.cuMemFreeHost(pages.at(0)));
        b.code(b.cu.cuMemHostUnregister(pages.at(0)));
    }),
    check(
        "registered memory in a kernel and a copy",
        "ok ok ok ok bytes=09000000000000000900000000000000",
        |b| {
            let (mut pages, memory, mut address) = (Pages::new(2), b.alloc(16), CUdeviceptr(0));
            b.expect("register", b.cu.cuMemHostRegister_v2(pages.at(0), PAGE, 2));
            b.code(b.cu.cuMemHostGetDevicePointer_v2(&mut address, pages.at(0), 0));
            b.code(b.launch(FILL, CUstream::NULL, &[address.0, 2, 9]));
            b.code(b.cu.cuMemcpyHtoDAsync_v2(memory, pages.at(0), 16, CUstream::NULL));
            b.code(b.cu.cuMemcpyDtoHAsync_v2(pages.at(64), memory, 16, CUstream::NULL));
            b.synchronize();
            b.bytes("bytes", &pages.bytes(64, 16));
            b.expect("unregister", b.cu.cuMemHostUnregister(pages.at(0)));
            b.free(memory);
        },
    ),
];
