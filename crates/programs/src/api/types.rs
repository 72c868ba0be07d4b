//! Types of the driver that the programs use and the `cuda` crate lacks, with the layout the driver expects.

#![allow(non_camel_case_types)] // The driver's names.

use std::ffi::c_void;
use std::mem::size_of;

use cuda::types::{CUcontext, CUdeviceptr, CUfunction, CUmemLocation, CUstream};

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) struct $name(pub(crate) *mut c_void);

        impl $name {
            /// The null handle.
            pub(crate) const NULL: $name = $name(std::ptr::null_mut());
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NULL
            }
        }
    )*};
}

opaque! {
    /// A graph: nodes of work and their order.
    CUgraph;
    /// A graph that can be launched.
    CUgraphExec;
    /// A node of a graph.
    CUgraphNode;
    /// A pool for stream-ordered allocation.
    CUmemoryPool;
    /// A library: a module that belongs to no context.
    CUlibrary;
    /// A kernel of a library.
    CUkernel;
}

/// One side of a copy is host memory.
pub(crate) const CU_MEMORYTYPE_HOST: u32 = 1;
/// One side of a copy is device memory.
pub(crate) const CU_MEMORYTYPE_DEVICE: u32 = 2;
/// One side of a copy is whatever its address says.
pub(crate) const CU_MEMORYTYPE_UNIFIED: u32 = 4;

/// The stream that is the calling thread's own default stream, in any function.
pub(crate) const CU_STREAM_PER_THREAD: CUstream = CUstream(std::ptr::without_provenance_mut(2));
/// The stream that is the context's shared default stream, in any function.
pub(crate) const CU_STREAM_LEGACY: CUstream = CUstream(std::ptr::without_provenance_mut(1));

/// A copy of rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_MEMCPY2D {
    pub(crate) src_x: usize,
    pub(crate) src_y: usize,
    pub(crate) src_type: u32,
    pub(crate) src_host: *const c_void,
    pub(crate) src_device: CUdeviceptr,
    pub(crate) src_array: *mut c_void,
    pub(crate) src_pitch: usize,
    pub(crate) dst_x: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_type: u32,
    pub(crate) dst_host: *mut c_void,
    pub(crate) dst_device: CUdeviceptr,
    pub(crate) dst_array: *mut c_void,
    pub(crate) dst_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// A copy of layers of rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_MEMCPY3D {
    pub(crate) src_x: usize,
    pub(crate) src_y: usize,
    pub(crate) src_z: usize,
    pub(crate) src_lod: usize,
    pub(crate) src_type: u32,
    pub(crate) src_host: *const c_void,
    pub(crate) src_device: CUdeviceptr,
    pub(crate) src_array: *mut c_void,
    pub(crate) src_reserved: *mut c_void,
    pub(crate) src_pitch: usize,
    pub(crate) src_height: usize,
    pub(crate) dst_x: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_z: usize,
    pub(crate) dst_lod: usize,
    pub(crate) dst_type: u32,
    pub(crate) dst_host: *mut c_void,
    pub(crate) dst_device: CUdeviceptr,
    pub(crate) dst_array: *mut c_void,
    pub(crate) dst_reserved: *mut c_void,
    pub(crate) dst_pitch: usize,
    pub(crate) dst_height: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// What a kernel node launches.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_KERNEL_NODE_PARAMS {
    pub(crate) function: CUfunction,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) parameters: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
    pub(crate) kernel: CUkernel,
    pub(crate) context: CUcontext,
}

/// What a memset node sets.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_MEMSET_NODE_PARAMS {
    pub(crate) dst: CUdeviceptr,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) element_size: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// A function of the host that the driver calls.
pub(crate) type CUhostFn = unsafe extern "C" fn(*mut c_void);
/// A function of the host that the driver calls with the state of a stream.
pub(crate) type CUstreamCallback = unsafe extern "C" fn(CUstream, cuda::CUresult, *mut c_void);

/// What a host node calls.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUDA_HOST_NODE_PARAMS {
    pub(crate) function: Option<CUhostFn>,
    pub(crate) data: *mut c_void,
}

/// What kind of pool `cuMemPoolCreate` makes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUmemPoolProps {
    pub(crate) alloc_type: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: CUmemLocation,
    pub(crate) win32_security_attributes: *mut c_void,
    pub(crate) max_size: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}

/// How a kernel is launched.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUlaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: CUstream,
    pub(crate) attributes: *mut c_void,
    pub(crate) attribute_count: u32,
}

// The driver's layouts on 64-bit Linux.
const _: () = {
    assert!(size_of::<CUDA_MEMCPY2D>() == 128);
    assert!(size_of::<CUDA_MEMCPY3D>() == 200);
    assert!(size_of::<CUDA_KERNEL_NODE_PARAMS>() == 72);
    assert!(size_of::<CUDA_MEMSET_NODE_PARAMS>() == 40);
    assert!(size_of::<CUDA_HOST_NODE_PARAMS>() == 16);
    assert!(size_of::<CUmemPoolProps>() == 88);
    assert!(size_of::<CUlaunchConfig>() == 56);
};

/// A structure of which every field may be zero, zeroed.
pub(crate) trait Zeroed: Sized {
    /// All bytes zero.
    fn zeroed() -> Self {
        // SAFETY: implemented only for structures of integers, raw pointers and optional functions, which may be zero.
        unsafe { std::mem::zeroed() }
    }
}

impl Zeroed for CUDA_MEMCPY2D {}
impl Zeroed for CUDA_MEMCPY3D {}
impl Zeroed for CUDA_KERNEL_NODE_PARAMS {}
impl Zeroed for CUDA_MEMSET_NODE_PARAMS {}
impl Zeroed for CUmemPoolProps {}
impl Zeroed for CUlaunchConfig {}
