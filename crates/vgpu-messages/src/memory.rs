//! Device memory: plain and pitched allocation, virtual addresses, physical handles, sharing.

use serde::{Deserialize, Serialize};

use crate::ids::*;

/// Requests about device memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryRequest {
    /// `cuMemAlloc`. Answered by [`Address`](crate::Answer::Address).
    Alloc {
        /// In which context.
        context: ContextId,
        /// How many bytes.
        bytes: u64,
    },
    /// `cuMemAllocPitch`. Answered by [`Pitched`](crate::Answer::Pitched).
    AllocPitch {
        /// In which context.
        context: ContextId,
        /// Bytes of a row.
        width_bytes: u64,
        /// Rows.
        height: u64,
        /// Bytes of an element: 4, 8 or 16.
        element_bytes: u32,
    },
    /// `cuMemFree`: waits for the work of the memory's device. Also for memory from pools.
    Free {
        /// The current context.
        context: ContextId,
        /// Where it begins.
        address: Address,
    },
    /// `cuMemGetInfo`. Answered by [`Memory`](crate::Answer::Memory).
    Info(ContextId),
    /// `cuMemGetAddressRange`. Answered by [`Range`](crate::Answer::Range).
    AddressRange {
        /// The current context.
        context: ContextId,
        /// Any address in it.
        address: Address,
    },
    /// What `cuPointerGetAttribute` tells. Answered by [`Pointer`](crate::Answer::Pointer), also for unknown addresses.
    Pointer(Address),
    /// `cuMemAddressReserve`. Answered by [`Address`](crate::Answer::Address).
    Reserve {
        /// A multiple of the granularity.
        bytes: u64,
        /// A power of two, or 0.
        alignment: u64,
        /// A wish, or 0.
        hint: u64,
    },
    /// `cuMemAddressFree`.
    Unreserve {
        /// Where the reservation begins.
        address: Address,
        /// Its size.
        bytes: u64,
    },
    /// `cuMemCreate`. Answered by [`Handle`](crate::Answer::Handle).
    Create {
        /// A multiple of the granularity.
        bytes: u64,
        /// What kind.
        properties: HandleProperties,
    },
    /// `cuMemRelease`.
    Release(HandleId),
    /// `cuMemMap`.
    Map {
        /// Where.
        address: Address,
        /// How much.
        bytes: u64,
        /// From where in the handle.
        offset: u64,
        /// What.
        handle: HandleId,
    },
    /// `cuMemUnmap`.
    Unmap {
        /// Where.
        address: Address,
        /// How much.
        bytes: u64,
    },
    /// `cuMemSetAccess`.
    SetAccess {
        /// Where.
        address: Address,
        /// How much.
        bytes: u64,
        /// Who may do what.
        access: Vec<(Location, Access)>,
    },
    /// `cuMemGetAccess`. Answered by [`Access`](crate::Answer::Access).
    GetAccess {
        /// Where.
        address: Address,
        /// Who.
        location: Location,
    },
    /// `cuMemExportToShareableHandle`. The file is attached to [`File`](crate::Answer::File).
    Export(HandleId),
    /// `cuMemImportFromShareableHandle`, with the file attached. Answered by [`Handle`](crate::Answer::Handle).
    Import,
    /// `cuMemRetainAllocationHandle`. Answered by [`Handle`](crate::Answer::Handle).
    Retain(Address),
    /// `cuMemGetAllocationPropertiesFromHandle`. Answered by [`HandleProperties`](crate::Answer::HandleProperties).
    Properties(HandleId),
    /// `cuMemGetAllocationGranularity`. Answered by [`Number`](crate::Answer::Number).
    Granularity(HandleProperties),
    /// `cuIpcGetMemHandle`. Answered by [`Number`](crate::Answer::Number), which goes into the 64 bytes.
    IpcExport(Address),
    /// `cuIpcOpenMemHandle`. Answered by [`Address`](crate::Answer::Address).
    IpcOpen {
        /// The current context.
        context: ContextId,
        /// What the other process was told.
        token: u64,
    },
    /// `cuIpcCloseMemHandle`.
    IpcClose(Address),
}

/// A place of memory, or of who accesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Location {
    /// A GPU.
    Device(DeviceId),
    /// The host: `CU_MEM_LOCATION_TYPE_HOST` and its NUMA kinds.
    Host,
    /// Anything else the program wrote: its type and id.
    Other(u32, i32),
}

/// What may be done with a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Access {
    /// Nothing.
    #[default]
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// What kind of physical allocation: `CUmemAllocationProp`, field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandleProperties {
    /// `CUmemAllocationType`: 1 is pinned.
    pub kind: u32,
    /// `CUmemAllocationHandleType` bits: 1 is a file.
    pub handle_types: u32,
    /// Where.
    pub location: Location,
    /// Compression, RDMA, usage: as the program wrote them.
    pub flags: [u8; 8],
}

/// What kind of memory an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PointerKind {
    /// None that the device knows.
    Unknown,
    /// Device memory, mapped.
    Device,
    /// Reserved addresses with nothing mapped.
    Reserved,
    /// Host memory that the device knows.
    Host,
}

/// What is known of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointerFacts {
    /// Whose memory it is.
    pub kind: PointerKind,
    /// The context it was allocated in; None for memory from `cuMemCreate` and pools.
    pub context: Option<ContextId>,
    /// The GPU that holds it.
    pub device: Option<DeviceId>,
    /// Where the device reaches it.
    pub device_address: Option<Address>,
    /// Where the host reaches it.
    pub host_address: Option<u64>,
    /// Unique to the allocation.
    pub buffer_id: u64,
    /// Where its range begins: the allocation, the reservation, or the host range.
    pub range_start: u64,
    /// The size of that.
    pub range_bytes: u64,
    /// Where its mapping begins, for VMM memory.
    pub mapping_start: u64,
    /// The size of that.
    pub mapping_bytes: u64,
    /// Handle types it may be exported as; 0 for other memory than VMM.
    pub handle_types: u32,
    /// From a pool.
    pub pool: Option<PoolId>,
    /// Whether `cuIpcGetMemHandle` takes it.
    pub ipc_capable: bool,
}
