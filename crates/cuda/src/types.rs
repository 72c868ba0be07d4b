//! The types that driver calls of rota take, with the layout the driver expects.
//!
//! Names are the driver's. Its enums are plain integers here, because a newer driver may hand out values
//! that are not listed. Only what rota, its virtual GPU and its programs use is here; handles, integers and what the
//! project calls everywhere in this file, larger structures by subject below it.

#![allow(non_camel_case_types)] // The driver's names.

mod checkpoint;
mod copy;
mod device;
mod graph;
mod launch;
mod memory;

pub use checkpoint::*;
pub use copy::*;
pub use device::*;
pub use graph::*;
pub use launch::*;
pub use memory::*;

use std::ffi::c_void;
use std::fmt;
use std::mem::{offset_of, size_of};

/// A device by its ordinal in this process.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CUdevice(pub i32);

/// An address in device memory (or mapped host memory).
#[repr(transparent)]
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CUdeviceptr(pub u64);

impl fmt::Debug for CUdeviceptr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUdeviceptr({:#x})", self.0)
    }
}

/// A physical allocation of device memory, made by `cuMemCreate` or imported.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct CUmemGenericAllocationHandle(pub u64);

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub struct $name(pub *mut c_void);

        impl $name {
            /// The null handle.
            pub const NULL: $name = $name(std::ptr::null_mut());

            /// Whether this is the null handle.
            pub fn is_null(self) -> bool {
                self.0.is_null()
            }
        }

        // SAFETY: a handle is a name for an object of the driver, and is never dereferenced here; the
        // driver accepts handles from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Default for $name {
            fn default() -> Self {
                Self::NULL
            }
        }
    )*};
}

opaque! {
    /// A context.
    CUcontext;
    /// A stream; the null handle is the default stream.
    CUstream;
    /// An event.
    CUevent;
    /// A loaded module.
    CUmodule;
    /// A kernel of a module.
    CUfunction;
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

/// The stream that is the context's shared default stream, in any function.
pub const CU_STREAM_LEGACY: CUstream = CUstream(std::ptr::without_provenance_mut(1));
/// The stream that is the calling thread's own default stream, in any function.
pub const CU_STREAM_PER_THREAD: CUstream = CUstream(std::ptr::without_provenance_mut(2));

/// A device's unique id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct CUuuid {
    /// The id, in the order in which it is printed.
    pub bytes: [u8; 16],
}

impl fmt::Display for CUuuid {
    /// As NVML and `nvidia-smi` print it: `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (index, byte) in self.bytes.iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

macro_rules! integers {
    ($($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $constant:ident = $value:literal,)* })*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$value_doc])* pub const $constant: $name = $name($value);)*
        }
    )*};
}

integers! {
    /// Where memory lies.
    CUmemLocationType {
        /// On the device with the given ordinal.
        DEVICE = 1,
        /// On the host.
        HOST = 2,
        /// On the host's NUMA node with the given id.
        HOST_NUMA = 3,
        /// On the NUMA node of the calling thread.
        HOST_NUMA_CURRENT = 4,
    }
    /// The kind of a physical allocation.
    CUmemAllocationType {
        /// Stays where it is.
        PINNED = 1,
        /// May be moved by the driver.
        MANAGED = 2,
    }
    /// How a physical allocation can be shared; a set of bits.
    CUmemAllocationHandleType {
        /// Not at all.
        NONE = 0,
        /// As a file descriptor.
        POSIX_FILE_DESCRIPTOR = 1,
        /// Over NVLink between nodes.
        FABRIC = 8,
    }
    /// Who may do what with a mapping.
    CUmemAccess_flags {
        /// No access.
        NONE = 0,
        /// Read.
        READ = 1,
        /// Read and write.
        READWRITE = 3,
    }
    /// Which granularity is asked for.
    CUmemAllocationGranularity_flags {
        /// The smallest possible.
        MINIMUM = 0,
        /// The one for best performance.
        RECOMMENDED = 1,
    }
    /// What to ask about a device.
    CUdevice_attribute {
        /// Number of multiprocessors.
        MULTIPROCESSOR_COUNT = 16,
        /// Who may use it: 0 anybody, 2 nobody, 3 one process.
        COMPUTE_MODE = 20,
        /// The NUMA node of the host that is nearest to it; -1 where there are none.
        HOST_NUMA_ID = 134,
        /// PCI bus number.
        PCI_BUS_ID = 33,
        /// PCI device number.
        PCI_DEVICE_ID = 34,
        /// Number of copy engines.
        ASYNC_ENGINE_COUNT = 40,
        /// PCI domain number.
        PCI_DOMAIN_ID = 50,
        /// Major compute capability.
        COMPUTE_CAPABILITY_MAJOR = 75,
        /// Minor compute capability.
        COMPUTE_CAPABILITY_MINOR = 76,
        /// Whether physical allocations and mappings can be made separately.
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
        /// Whether physical allocations can be shared as file descriptors.
        HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
        /// Whether physical allocations can be made for RDMA.
        GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
    }
    /// What to ask about a pointer.
    CUpointer_attribute {
        /// The context it belongs to.
        CONTEXT = 1,
        /// Host or device memory.
        MEMORY_TYPE = 2,
        /// The address kernels use.
        DEVICE_POINTER = 3,
        /// The address the host uses.
        HOST_POINTER = 4,
        /// Tokens for a third party's peer access.
        P2P_TOKENS = 5,
        /// Whether copies synchronise.
        SYNC_MEMOPS = 6,
        /// A number unique to the allocation.
        BUFFER_ID = 7,
        /// Whether it is managed memory.
        IS_MANAGED = 8,
        /// The device's ordinal.
        DEVICE_ORDINAL = 9,
        /// Whether it can be shared by `cuIpcGetMemHandle`.
        IS_LEGACY_CUDA_IPC_CAPABLE = 10,
        /// Where its range starts.
        RANGE_START_ADDR = 11,
        /// How large its range is.
        RANGE_SIZE = 12,
        /// Whether it is mapped.
        MAPPED = 13,
        /// How it can be shared.
        ALLOWED_HANDLE_TYPES = 14,
        /// Whether it can be registered for RDMA.
        IS_GPU_DIRECT_RDMA_CAPABLE = 15,
        /// What the current context may do with it.
        ACCESS_FLAGS = 16,
        /// The pool it was allocated from.
        MEMPOOL_HANDLE = 17,
        /// How large its mapping is.
        MAPPING_SIZE = 18,
        /// Where its mapping starts.
        MAPPING_BASE_ADDR = 19,
        /// A number unique to the physical allocation.
        MEMORY_BLOCK_ID = 20,
        /// Whether hardware can decompress into it.
        IS_HW_DECOMPRESS_CAPABLE = 21,
    }
    /// How a thread's calls behave while some stream is being captured.
    CUstreamCaptureMode {
        /// Unsafe calls are refused during any capture.
        GLOBAL = 0,
        /// Unsafe calls are refused during this thread's captures.
        THREAD_LOCAL = 1,
        /// Nothing is refused.
        RELAXED = 2,
    }
    /// What `cuGetProcAddress_v2` found.
    CUdriverProcAddressQueryResult {
        /// The function.
        SUCCESS = 0,
        /// No function of this name.
        SYMBOL_NOT_FOUND = 1,
        /// Only functions newer than the version asked for.
        VERSION_NOT_SUFFICIENT = 2,
    }
}

/// Flag of `cuStreamCreate`: don't wait for the default stream.
pub const CU_STREAM_NON_BLOCKING: u32 = 1;
/// Flag of `cuEventCreate`: waiting threads sleep.
pub const CU_EVENT_BLOCKING_SYNC: u32 = 1;
/// Flag of `cuEventCreate`: the event keeps no time.
pub const CU_EVENT_DISABLE_TIMING: u32 = 2;
/// Flag of `cuMemHostAlloc`: pinned for all contexts.
pub const CU_MEMHOSTALLOC_PORTABLE: u32 = 1;
/// Flag of `cuMemHostAlloc`: mapped for kernels.
pub const CU_MEMHOSTALLOC_DEVICEMAP: u32 = 2;
/// Flag of `cuMemHostRegister`: pinned for all contexts.
pub const CU_MEMHOSTREGISTER_PORTABLE: u32 = 1;
/// Flag of `cuMemHostRegister`: mapped for kernels.
pub const CU_MEMHOSTREGISTER_DEVICEMAP: u32 = 2;

/// A place for memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CUmemLocation {
    /// What `id` means.
    pub type_: CUmemLocationType,
    /// Device ordinal or NUMA node.
    pub id: i32,
}

/// The last part of [`CUmemAllocationProp`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CUmemAllocationPropFlags {
    /// 1: compressible memory.
    pub compression_type: u8,
    /// 1: can be registered for RDMA.
    pub gpu_direct_rdma_capable: u8,
    /// Bits for special uses.
    pub usage: u16,
    /// Zero.
    pub reserved: [u8; 4],
}

/// What kind of physical allocation `cuMemCreate` makes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CUmemAllocationProp {
    /// Pinned or managed.
    pub type_: CUmemAllocationType,
    /// How it can be shared.
    pub requested_handle_types: CUmemAllocationHandleType,
    /// Where it lies.
    pub location: CUmemLocation,
    /// Null on Linux.
    pub win32_handle_meta_data: *mut c_void,
    /// Further properties.
    pub alloc_flags: CUmemAllocationPropFlags,
}

impl CUmemAllocationProp {
    /// Pinned memory on one device, that can be shared in these ways.
    pub fn on_device(device: CUdevice, handle_types: CUmemAllocationHandleType) -> Self {
        CUmemAllocationProp {
            type_: CUmemAllocationType::PINNED,
            requested_handle_types: handle_types,
            location: CUmemLocation { type_: CUmemLocationType::DEVICE, id: device.0 },
            win32_handle_meta_data: std::ptr::null_mut(),
            alloc_flags: CUmemAllocationPropFlags::default(),
        }
    }
}

/// Who may do what with a mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CUmemAccessDesc {
    /// Who: accesses from this place.
    pub location: CUmemLocation,
    /// What.
    pub flags: CUmemAccess_flags,
}

// The driver's layouts on 64-bit Linux.
const _: () = {
    assert!(size_of::<CUdevice>() == 4);
    assert!(size_of::<CUdeviceptr>() == 8);
    assert!(size_of::<CUmemGenericAllocationHandle>() == 8);
    assert!(size_of::<CUcontext>() == 8);
    assert!(size_of::<CUuuid>() == 16);
    assert!(size_of::<CUmemLocation>() == 8);
    assert!(offset_of!(CUmemLocation, id) == 4);
    assert!(size_of::<CUmemAllocationPropFlags>() == 8);
    assert!(offset_of!(CUmemAllocationPropFlags, gpu_direct_rdma_capable) == 1);
    assert!(offset_of!(CUmemAllocationPropFlags, usage) == 2);
    assert!(size_of::<CUmemAllocationProp>() == 32);
    assert!(offset_of!(CUmemAllocationProp, requested_handle_types) == 4);
    assert!(offset_of!(CUmemAllocationProp, location) == 8);
    assert!(offset_of!(CUmemAllocationProp, win32_handle_meta_data) == 16);
    assert!(offset_of!(CUmemAllocationProp, alloc_flags) == 24);
    assert!(size_of::<CUmemAccessDesc>() == 12);
    assert!(offset_of!(CUmemAccessDesc, flags) == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_printed_like_nvml_prints_it() {
        let bytes = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(CUuuid { bytes }.to_string(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
