//! Types of the driver's interface that the `cuda` crate lacks, with the layout that programs expect.

#![allow(non_camel_case_types)] // The driver's names.

use std::ffi::c_void;
use std::mem::size_of;

use cuda::types::{CUcontext, CUdeviceptr, CUevent, CUfunction, CUmemLocation, CUstream};

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) struct $name(pub(crate) *mut c_void);
    )*};
}

opaque! {
    /// A graph.
    CUgraph;
    /// A graph that can be launched.
    CUgraphExec;
    /// A node of a graph.
    CUgraphNode;
    /// A pool for stream-ordered allocation.
    CUmemoryPool;
    /// A module that belongs to no context.
    CUlibrary;
    /// A kernel of a library.
    CUkernel;
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) u64);
    )*};
}

numbers! {
    /// A library, known to this process alone.
    LibraryId;
    /// A kernel of a library, known to this process alone.
    KernelId;
}

pub(crate) const CU_MEMORYTYPE_HOST: u32 = 1;
pub(crate) const CU_MEMORYTYPE_DEVICE: u32 = 2;
pub(crate) const CU_MEMORYTYPE_ARRAY: u32 = 3;
pub(crate) const CU_MEMORYTYPE_UNIFIED: u32 = 4;

/// A copy of rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_MEMCPY2D {
    pub(crate) source: Side2D,
    pub(crate) target: Side2D,
    pub(crate) width_bytes: u64,
    pub(crate) height: u64,
}

/// One side of a copy of rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Side2D {
    pub(crate) x_bytes: u64,
    pub(crate) y: u64,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: u64,
}

/// A copy of layers of rows. The form for peers has a context where this one has a reserved word.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_MEMCPY3D {
    pub(crate) source: Side3D,
    pub(crate) target: Side3D,
    pub(crate) width_bytes: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// One side of a copy of layers.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Side3D {
    pub(crate) x_bytes: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    pub(crate) level: u64,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) context: CUcontext,
    pub(crate) pitch: u64,
    pub(crate) height: u64,
}

/// How a kernel is launched.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUlaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: CUstream,
    pub(crate) attributes: *const CUlaunchAttribute,
    pub(crate) attribute_count: u32,
}

/// An attribute of a launch.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct CUlaunchAttribute {
    pub(crate) id: u32,
    pub(crate) padding: u32,
    pub(crate) value: [u32; 16],
}

/// What a kernel node launches: the form of CUDA 12; the older one ends before `kernel`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_KERNEL_NODE_PARAMS {
    pub(crate) launch: CUDA_KERNEL_NODE_PARAMS_v1,
    pub(crate) kernel: CUkernel,
    pub(crate) context: CUcontext,
}

/// What a kernel node launches: the older form.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_KERNEL_NODE_PARAMS_v1 {
    pub(crate) function: CUfunction,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) parameters: *const *const c_void,
    pub(crate) extra: *const *const c_void,
}

/// What a memset node sets.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_MEMSET_NODE_PARAMS {
    pub(crate) address: CUdeviceptr,
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    pub(crate) element_bytes: u32,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// A function of the program.
pub(crate) type CUhostFn = unsafe extern "C" fn(*mut c_void);
/// A function of the program that is told the state of a stream.
pub(crate) type CUstreamCallback = unsafe extern "C" fn(CUstream, cuda::CUresult, *mut c_void);

/// What a host node calls.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_HOST_NODE_PARAMS {
    pub(crate) function: Option<CUhostFn>,
    pub(crate) data: *mut c_void,
}

/// A node of any type.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUgraphNodeParams {
    pub(crate) kind: u32,
    pub(crate) reserved: [u32; 3],
    pub(crate) of: NodeParams,
    pub(crate) reserved_end: u64,
}

/// What a node of any type does.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union NodeParams {
    pub(crate) kernel: CUDA_KERNEL_NODE_PARAMS,
    pub(crate) copy: CopyNodeParams,
    pub(crate) memset: MemsetNodeParams,
    pub(crate) host: CUDA_HOST_NODE_PARAMS,
    pub(crate) child: CUgraph,
    pub(crate) event: CUevent,
    pub(crate) padding: [u64; 29],
}

/// A copy in a node of any type.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CopyNodeParams {
    pub(crate) flags: i32,
    pub(crate) reserved: i32,
    pub(crate) context: CUcontext,
    pub(crate) copy: CUDA_MEMCPY3D,
}

/// A memset in a node of any type.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemsetNodeParams {
    pub(crate) memset: CUDA_MEMSET_NODE_PARAMS,
    pub(crate) context: CUcontext,
}

/// What `cuGraphInstantiateWithParams` takes, and what it found.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub(crate) flags: u64,
    pub(crate) upload_stream: CUstream,
    pub(crate) error_node: CUgraphNode,
    pub(crate) result: u32,
}

/// What `cuGraphExecUpdate` found.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUgraphExecUpdateResultInfo {
    pub(crate) result: u32,
    pub(crate) error_node: CUgraphNode,
    pub(crate) error_from_node: CUgraphNode,
}

/// What an edge of a graph means beyond order.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CUgraphEdgeData {
    pub(crate) bytes: [u8; 8],
}

/// What kind of pool `cuMemPoolCreate` makes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUmemPoolProps {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: CUmemLocation,
    pub(crate) security: u64,
    pub(crate) bytes_max: u64,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}

/// One operation of `cuStreamBatchMemOp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUstreamBatchMemOpParams {
    pub(crate) operation: u32,
    pub(crate) address: CUdeviceptr,
    pub(crate) value: u64,
    pub(crate) flags: u32,
    pub(crate) padding: [u64; 2],
}

/// A name that another process opens memory by.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUipcMemHandle {
    pub(crate) bytes: [u8; 64],
}

/// What a device is, in the form of the first versions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUdevprop {
    pub(crate) numbers: [i32; 14],
}

/// How `cuCtxCreate_v4` makes a context.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUctxCreateParams {
    pub(crate) affinity: u64,
    pub(crate) affinity_count: i32,
    pub(crate) interop: u64,
}

// The driver's layouts on 64-bit Linux.
const _: () = {
    assert!(size_of::<CUDA_MEMCPY2D>() == 128);
    assert!(size_of::<CUDA_MEMCPY3D>() == 200);
    assert!(size_of::<CUlaunchConfig>() == 56);
    assert!(size_of::<CUlaunchAttribute>() == 72);
    assert!(size_of::<CUDA_KERNEL_NODE_PARAMS_v1>() == 56);
    assert!(size_of::<CUDA_KERNEL_NODE_PARAMS>() == 72);
    assert!(size_of::<CUDA_MEMSET_NODE_PARAMS>() == 40);
    assert!(size_of::<CUDA_HOST_NODE_PARAMS>() == 16);
    assert!(size_of::<CUgraphNodeParams>() == 256);
    assert!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>() == 32);
    assert!(size_of::<CUgraphExecUpdateResultInfo>() == 24);
    assert!(size_of::<CUmemPoolProps>() == 88);
    assert!(size_of::<CUstreamBatchMemOpParams>() == 48);
    assert!(size_of::<CUdevprop>() == 56);
};
