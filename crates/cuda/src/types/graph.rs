//! What the nodes of a graph do, and what is said about whole graphs.

#![allow(missing_docs)] // The fields are the driver's, and their names say what they are.

use super::{
    CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphNode, CUhostFn, CUkernel,
    CUstream,
};
use std::ffi::c_void;
use std::mem::size_of;

/// What a kernel node launches: the form of CUDA 12; the older one ends before `kernel`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    pub launch: CUDA_KERNEL_NODE_PARAMS_v1,
    pub kernel: CUkernel,
    pub context: CUcontext,
}

/// What a kernel node launches: the older form.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    pub function: CUfunction,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub parameters: *const *const c_void,
    pub extra: *const *const c_void,
}

/// What a memset node sets.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    pub address: CUdeviceptr,
    pub pitch: u64,
    pub value: u32,
    pub element_bytes: u32,
    pub width: u64,
    pub height: u64,
}

/// What a host node calls.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_HOST_NODE_PARAMS {
    pub function: Option<CUhostFn>,
    pub data: *mut c_void,
}

/// A node of any type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUgraphNodeParams {
    pub kind: u32,
    pub reserved: [u32; 3],
    pub of: NodeParams,
    pub reserved_end: u64,
}

/// What a node of any type does.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NodeParams {
    pub kernel: CUDA_KERNEL_NODE_PARAMS,
    pub copy: CopyNodeParams,
    pub memset: MemsetNodeParams,
    pub host: CUDA_HOST_NODE_PARAMS,
    pub child: CUgraph,
    pub event: CUevent,
    pub padding: [u64; 29],
}

/// A copy in a node of any type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CopyNodeParams {
    pub flags: i32,
    pub reserved: i32,
    pub context: CUcontext,
    pub copy: CUDA_MEMCPY3D,
}

/// A memset in a node of any type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemsetNodeParams {
    pub memset: CUDA_MEMSET_NODE_PARAMS,
    pub context: CUcontext,
}

/// What `cuGraphInstantiateWithParams` takes, and what it found.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub flags: u64,
    pub upload_stream: CUstream,
    pub error_node: CUgraphNode,
    pub result: u32,
}

/// What `cuGraphExecUpdate` found.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUgraphExecUpdateResultInfo {
    pub result: u32,
    pub error_node: CUgraphNode,
    pub error_from_node: CUgraphNode,
}

/// What an edge of a graph means beyond order.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CUgraphEdgeData {
    pub bytes: [u8; 8],
}

// The driver's layouts on 64-bit Linux.
const _: () = {
    assert!(size_of::<CUDA_KERNEL_NODE_PARAMS>() == 72);
    assert!(size_of::<CUDA_KERNEL_NODE_PARAMS_v1>() == 56);
    assert!(size_of::<CUDA_MEMSET_NODE_PARAMS>() == 40);
    assert!(size_of::<CUDA_HOST_NODE_PARAMS>() == 16);
    assert!(size_of::<CUgraphNodeParams>() == 256);
    assert!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>() == 32);
    assert!(size_of::<CUgraphExecUpdateResultInfo>() == 24);
};
