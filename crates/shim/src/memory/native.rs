//! The real driver's functions that are overridden or seldom called, by their names.
//!
//! They are found one by one, so that a program runs natively also on a driver that lacks what rota needs.

use std::ffi::{CStr, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use cuda::CUresult;
use cuda::types::{
    CUcontext, CUdevice, CUdeviceptr, CUgraph, CUipcMemHandle, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemPoolProps, CUmemoryPool,
    CUpointer_attribute, CUstream, CUstreamCaptureMode,
};

use crate::demand::Inside;
use crate::forward::real;

macro_rules! native {
    ($inside:expr; $($symbol:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// The real driver's function of this name.
        ///
        /// # Safety
        /// The driver's own conditions.
        #[allow(non_snake_case)] // The driver's names.
        pub(crate) unsafe fn $symbol($($argument: $type),*) -> CUresult {
            type Function = unsafe extern "C" fn($($type),*) -> CUresult;
            static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            const SYMBOL: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                Ok(symbol) => symbol,
                Err(_) => unreachable!(),
            };
            let _inside: Option<Inside> = $inside;
            match address(&ADDRESS, SYMBOL) {
                // SAFETY: the driver exports this symbol with this signature; the conditions are the caller's.
                Ok(address) => unsafe { std::mem::transmute::<*mut c_void, Function>(address)($($argument),*) },
                Err(missing) => missing,
            }
        }
    )*};
}

// They may use the GPU, or wait for it.
native! {
    Some(Inside::enter());
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemAllocPitch_v2(
        address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint
    );
    cuMemFree_v2(address: CUdeviceptr);
    cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
    cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    cuArrayCreate_v2(array: *mut *mut c_void, description: *const c_void);
    cuArray3DCreate_v2(array: *mut *mut c_void, description: *const c_void);
    cuMipmappedArrayCreate(array: *mut *mut c_void, description: *const c_void, levels: c_uint);
    cuArrayDestroy(array: *mut c_void);
    cuMipmappedArrayDestroy(array: *mut c_void);
    cuGraphAddMemAllocNode(
        node: *mut *mut c_void, graph: CUgraph, after: *const c_void, count: usize, params: *mut c_void
    );
    cuStreamBeginCapture(stream: CUstream);
    cuStreamBeginCapture_ptsz(stream: CUstream);
    cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
    cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: CUstreamCaptureMode);
    cuStreamBeginCaptureToGraph(
        stream: CUstream, graph: CUgraph, after: *const c_void, data: *const c_void, count: usize,
        mode: CUstreamCaptureMode
    );
    cuStreamBeginCaptureToGraph_ptsz(
        stream: CUstream, graph: CUgraph, after: *const c_void, data: *const c_void, count: usize,
        mode: CUstreamCaptureMode
    );
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph);
    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemAllocAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemAllocFromPoolAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream);
    cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolSetAccess(pool: CUmemoryPool, access: *const c_void, count: usize);
    cuMemPoolTrimTo(pool: CUmemoryPool, bytes: usize);
}

// They do not, or the caller says so.
native! {
    None;
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr);
    cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
    cuPointerGetAttributes(
        count: c_uint, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, address: CUdeviceptr
    );
    cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
    cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void);
    cuMemGetHandleForAddressRange(
        handle: *mut c_void, address: CUdeviceptr, bytes: usize, kind: c_int, flags: c_ulonglong
    );
    cuIpcGetMemHandle(name: *mut CUipcMemHandle, address: CUdeviceptr);
    cuIpcOpenMemHandle(address: *mut CUdeviceptr, name: CUipcMemHandle, flags: c_uint);
    cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, name: CUipcMemHandle, flags: c_uint);
    cuIpcCloseMemHandle(address: CUdeviceptr);
    cuMulticastBindAddr(
        multicast: CUmemGenericAllocationHandle, offset: usize, address: CUdeviceptr, bytes: usize, flags: c_ulonglong
    );
    cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle, bytes: usize, wanted: *const CUmemAllocationProp, flags: c_ulonglong
    );
    cuMemRelease(handle: CUmemGenericAllocationHandle);
    cuMemMap(
        address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong
    );
    cuMemUnmap(address: CUdeviceptr, bytes: usize);
    cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    cuMemAddressFree(address: CUdeviceptr, bytes: usize);
    cuMemGetAllocationPropertiesFromHandle(found: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
    cuMemExportToShareableHandle(
        shared: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: c_ulonglong
    );
    cuMulticastBindMem(
        multicast: CUmemGenericAllocationHandle, offset: usize, memory: CUmemGenericAllocationHandle,
        memory_offset: usize, bytes: usize, flags: c_ulonglong
    );
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuCtxDestroy(context: CUcontext);
    cuCtxDestroy_v2(context: CUcontext);
    cuCtxDetach(context: CUcontext);
    cuDevicePrimaryCtxReset(device: CUdevice);
    cuDevicePrimaryCtxReset_v2(device: CUdevice);
    cuDevicePrimaryCtxRelease(device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuGreenCtxDestroy(green: *mut c_void);
    cuCtxFromGreenCtx(context: *mut CUcontext, green: *mut c_void);
    cuStreamIsCapturing(stream: CUstream, status: *mut c_int);
    cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut c_int);
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    cuStreamGetCtx_ptsz(stream: CUstream, context: *mut CUcontext);
    cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_int, value: *mut c_void);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool);
    cuMemSetMemPool(location: *mut CUmemLocation, kind: c_int, pool: CUmemoryPool);
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
}

fn address(cached: &AtomicPtr<c_void>, symbol: &CStr) -> Result<*mut c_void, CUresult> {
    let mut address = cached.load(Relaxed);
    if address.is_null() {
        let library = real::library().ok_or(CUresult::NOT_INITIALIZED)?;
        address = library.symbol(symbol).ok_or(CUresult::NOT_FOUND)?.as_ptr();
        cached.store(address, Relaxed);
    }
    Ok(address)
}
