//! Before and just after `cuInit`, without a context.

use std::ffi::c_void;

use cuda::types::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmodule, CUstream,
};

use super::{Check, bare};
use crate::kernels::FILL;

pub(super) const CHECKS: &[Check] = &[
    bare("nothing works before", "NOT_INITIALIZED NOT_INITIALIZED NOT_INITIALIZED NOT_INITIALIZED", |b| {
        let (mut count, mut device) = (0, CUdevice(0));
        b.code(b.cu.cuDeviceGetCount(&mut count));
        b.code(b.cu.cuDeviceGet(&mut device, 0));
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 1024));
        b.code(b.cu.cuCtxGetCurrent(&mut CUcontext::default()));
    }),
    bare("version is known before", "ok some=true", |b| {
        let mut version = 0;
        b.code(b.cu.cuDriverGetVersion(&mut version));
        b.value("some", version >= 12_000);
    }),
    bare("version without a place", "INVALID_VALUE", |b| {
        b.code(b.cu.cuDriverGetVersion(std::ptr::null_mut()));
    }),
    bare("flags", "INVALID_VALUE NOT_INITIALIZED ok", |b| {
        b.code(b.cu.cuInit(1));
        b.code(b.cu.cuDeviceGetCount(&mut 0));
        b.code(b.cu.cuInit(0));
    }),
    bare("twice", "ok ok ok", |b| {
        b.code(b.cu.cuInit(0));
        b.code(b.cu.cuInit(0));
        b.code(b.cu.cuDeviceGetCount(&mut 0));
    }),
    // Whether an address is known is looked at before the context.
    bare("memory without a context", "INVALID_CONTEXT INVALID_VALUE INVALID_CONTEXT INVALID_CONTEXT", |b| {
        b.expect("init", b.cu.cuInit(0));
        b.code(b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 1024));
        b.code(b.cu.cuMemFree_v2(CUdeviceptr(0x1000)));
        let (mut free, mut total) = (0, 0);
        b.code(b.cu.cuMemGetInfo_v2(&mut free, &mut total));
        let mut host: *mut c_void = std::ptr::null_mut();
        b.code(b.cu.cuMemHostAlloc(&mut host, 4096, 0));
    }),
    bare("work without a context", "INVALID_CONTEXT INVALID_CONTEXT INVALID_CONTEXT INVALID_CONTEXT", |b| {
        b.expect("init", b.cu.cuInit(0));
        b.code(b.cu.cuStreamCreate(&mut CUstream::default(), 0));
        b.code(b.cu.cuEventCreate(&mut CUevent::default(), 0));
        b.code(b.cu.cuModuleLoadData(&mut CUmodule::default(), FILL.ptx.as_ptr().cast()));
        b.code(b.cu.cuMemsetD8_v2(CUdeviceptr(0x1000), 0, 1));
    }),
    bare(
        "the context without a context",
        "INVALID_CONTEXT INVALID_CONTEXT INVALID_CONTEXT ok null=true",
        |b| {
            b.expect("init", b.cu.cuInit(0));
            b.code(b.cu.cuCtxGetDevice(&mut CUdevice(0)));
            b.code(b.cu.cuCtxSynchronize());
            let mut context = CUcontext(std::ptr::without_provenance_mut(1));
            b.code(b.cu.cuCtxPopCurrent_v2(&mut context));
            b.code(b.cu.cuCtxGetCurrent(&mut context));
            b.value("null", context.is_null());
        },
    ),
    bare("physical memory without a context", "ok ok ok ok", |b| {
        b.expect("init", b.cu.cuInit(0));
        let (mut address, mut handle) = (CUdeviceptr(0), CUmemGenericAllocationHandle(0));
        let prop = CUmemAllocationProp::on_device(CUdevice(0), CUmemAllocationHandleType::NONE);
        b.code(b.cu.cuMemAddressReserve(&mut address, 2 << 20, 0, CUdeviceptr(0), 0));
        b.code(b.cu.cuMemCreate(&mut handle, 2 << 20, &prop, 0));
        b.code(b.cu.cuMemRelease(handle));
        b.code(b.cu.cuMemAddressFree(address, 2 << 20));
    }),
];
