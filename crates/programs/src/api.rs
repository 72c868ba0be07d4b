//! The driver functions that the programs call, looked up by symbol in `libcuda.so.1`.
//!
//! The library is opened by its bare name, as every CUDA program does it: whatever stands in front of the real
//! driver (LD_PRELOAD) or in its place (LD_LIBRARY_PATH) is what is called.
//!
//! The methods are not marked `unsafe`, although the driver trusts its arguments: the programs here are what C
//! programs would be, and misuse is what some of them are for. What keeps them in order: nothing here leaves this crate; host
//! pointers are those of living locals or of memory that lives as long as the process; and handles are those that
//! the driver gave out, or null ones that it checks.

mod zeroed;

pub(crate) use zeroed::Zeroed;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cuda::types::*;
use cuda::{CUresult, Library};

/// Why there is no driver to call.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The library cannot be opened.
    #[error(
        "there is no CUDA driver: install one, or set LD_LIBRARY_PATH to a folder with a virtual GPU's libcuda.so.1"
    )]
    Library(#[from] cuda::library::LibraryError),
    /// A function is not exported.
    #[error("libcuda.so.1 does not export {0}, which this program calls: the driver is older than CUDA 12.5")]
    Missing(&'static str),
}

macro_rules! api {
    ($($symbol:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        /// The driver's functions.
        #[allow(non_snake_case)] // The driver's names.
        pub(crate) struct Api {
            $($symbol: unsafe extern "C" fn($($type),*) -> CUresult,)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments)] // The driver's names and signatures.
        impl Api {
            /// Opens `libcuda.so.1` and takes every function from it.
            pub(crate) fn open() -> Result<Api, ApiError> {
                let library = Library::open(cuda::library::SONAME)?;
                Ok(Api {
                    $($symbol: {
                        let name = CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes());
                        let address = name.ok().and_then(|name| library.symbol(name));
                        let address = address.ok_or(ApiError::Missing(stringify!($symbol)))?;
                        // SAFETY: the driver exports this symbol with this signature.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) -> CUresult,
                            >(address.as_ptr())
                        }
                    },)*
                })
            }

            $(
                pub(crate) fn $symbol(&self, $($argument: $type),*) -> CUresult {
                    // SAFETY: what the callers in this crate keep to: the module's documentation.
                    unsafe { (self.$symbol)($($argument),*) }
                }
            )*

            /// The symbols that the programs call.
            #[cfg(test)]
            const SYMBOLS: &'static [&'static str] = &[$(stringify!($symbol)),*];
        }
    };
}

api! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuGetErrorName(code: CUresult, text: *mut *const c_char);
    cuGetErrorString(code: CUresult, text: *mut *const c_char);
    cuGetProcAddress(name: *const c_char, found: *mut *mut c_void, version: c_int, flags: u64);
    cuGetProcAddress_v2(name: *const c_char, found: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_uint);

    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(text: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    cuDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetByPCIBusId(device: *mut CUdevice, text: *const c_char);
    cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxReset_v2(device: CUdevice);
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint);
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool);

    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    cuCtxDestroy_v2(context: CUcontext);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuCtxGetDevice(device: *mut CUdevice);
    cuCtxGetFlags(flags: *mut c_uint);
    cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint);
    cuCtxGetId(context: CUcontext, id: *mut u64);
    cuCtxGetLimit(value: *mut usize, limit: c_uint);
    cuCtxSetLimit(limit: c_uint, value: usize);
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    cuCtxSynchronize();
    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);

    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr);
    cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
    cuPointerGetAttributes(
        count: c_uint, attributes: *mut CUpointer_attribute, values: *mut *mut c_void, address: CUdeviceptr,
    );

    cuMemHostAlloc(host: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemAllocHost_v2(host: *mut *mut c_void, bytes: usize);
    cuMemFreeHost(host: *mut c_void);
    cuMemHostRegister_v2(host: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(host: *mut c_void);
    cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, host: *mut c_void, flags: c_uint);
    cuMemHostGetFlags(flags: *mut c_uint, host: *mut c_void);

    cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
    cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyPeer(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize);
    cuMemcpyPeerAsync(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
        stream: CUstream,
    );
    cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize);
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D);
    cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D);
    cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D);
    cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream);

    cuMemsetD8_v2(to: CUdeviceptr, value: u8, count: usize);
    cuMemsetD16_v2(to: CUdeviceptr, value: u16, count: usize);
    cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize);
    cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
    cuMemsetD2D8_v2(to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D16_v2(to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize);
    cuMemsetD2D32_v2(to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize);
    cuMemsetD2D8Async(to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream);

    cuMemAddressReserve(address: *mut CUdeviceptr, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: u64);
    cuMemAddressFree(address: CUdeviceptr, bytes: usize);
    cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, prop: *const CUmemAllocationProp, flags: u64);
    cuMemRelease(handle: CUmemGenericAllocationHandle);
    cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
    cuMemUnmap(address: CUdeviceptr, bytes: usize);
    cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, address: CUdeviceptr);
    cuMemGetAllocationGranularity(
        bytes: *mut usize, prop: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags,
    );
    cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
    cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void);
    cuMemExportToShareableHandle(
        shared: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: u64,
    );
    cuMemImportFromShareableHandle(
        handle: *mut CUmemGenericAllocationHandle, shared: *mut c_void, kind: CUmemAllocationHandleType,
    );

    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);

    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamQuery(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    cuStreamGetFlags(stream: CUstream, flags: *mut c_uint);
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    cuStreamAddCallback(stream: CUstream, function: CUstreamCallback, data: *mut c_void, flags: c_uint);
    cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);
    cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
    cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);

    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint);
    cuEventQuery(event: CUevent);
    cuEventSynchronize(event: CUevent);
    cuEventElapsedTime(milliseconds: *mut f32, begin: CUevent, end: CUevent);

    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void,
    );
    cuModuleUnload(module: CUmodule);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule);
    cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    cuLibraryLoadData(
        library: *mut CUlibrary, code: *const c_void, jit_options: *mut c_uint, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
    );
    cuLibraryUnload(library: CUlibrary);
    cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary);
    cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
    cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction);
    cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int);
    cuFuncGetName(text: *mut *const c_char, function: CUfunction);
    cuFuncGetModule(module: *mut CUmodule, function: CUfunction);
    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: CUfunction, block: c_int, shared_bytes: usize,
    );
    cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    );
    cuLaunchKernelEx(
        config: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    );
    cuLaunchCooperativeKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, parameters: *mut *mut c_void,
    );

    cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    cuStreamIsCapturing(stream: CUstream, status: *mut c_uint);
    cuStreamGetCaptureInfo_v2(
        stream: CUstream, status: *mut c_uint, id: *mut u64, graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode, count: *mut usize,
    );
    cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
    cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    cuGraphDestroy(graph: CUgraph);
    cuGraphClone(clone: *mut CUgraph, graph: CUgraph);
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint);
    cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize);
    cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    );
    cuGraphAddMemsetNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext,
    );
    cuGraphAddMemcpyNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D,
        context: CUcontext,
    );
    cuGraphAddHostNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        params: *const CUDA_HOST_NODE_PARAMS,
    );
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphUpload(exec: CUgraphExec, stream: CUstream);
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    cuGraphExecDestroy(exec: CUgraphExec);
}

#[cfg(test)]
mod tests {
    use super::Api;

    #[test]
    fn every_function_is_the_drivers() {
        for symbol in Api::SYMBOLS {
            assert!(cuda::table::by_symbol(symbol).is_some(), "{symbol}");
        }
    }
}
