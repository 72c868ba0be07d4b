//! Stream-ordered allocation.

use serde::{Deserialize, Serialize};

use crate::ids::*;
use crate::memory::{Access, Location};
use crate::stream::StreamRef;

/// Requests about pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolRequest {
    /// `cuMemPoolCreate`. Answered by [`Pool`](crate::Answer::Pool).
    Create {
        /// Where its memory lies.
        location: Location,
        /// `CUmemAllocationHandleType` bits.
        handle_types: u32,
        /// The most bytes it may have; 0: no bound.
        bytes_max: u64,
    },
    /// `cuMemPoolDestroy`.
    Destroy(PoolId),
    /// `cuDeviceGetDefaultMemPool`. Answered by [`Pool`](crate::Answer::Pool).
    Default(DeviceId),
    /// `cuDeviceGetMemPool`. Answered by [`Pool`](crate::Answer::Pool).
    Current(DeviceId),
    /// `cuDeviceSetMemPool`.
    SetCurrent {
        /// Of which GPU.
        device: DeviceId,
        /// Which.
        pool: PoolId,
    },
    /// `cuMemPoolTrimTo`.
    Trim {
        /// Which.
        pool: PoolId,
        /// How much it may keep.
        keep_bytes: u64,
    },
    /// `cuMemPoolGetAttribute`, by the driver's number. Answered by [`Number`](crate::Answer::Number).
    GetAttribute {
        /// Which.
        pool: PoolId,
        /// `CUmemPool_attribute`.
        attribute: u32,
    },
    /// `cuMemPoolSetAttribute`.
    SetAttribute {
        /// Which.
        pool: PoolId,
        /// `CUmemPool_attribute`.
        attribute: u32,
        /// The value.
        value: u64,
    },
    /// `cuMemPoolSetAccess`.
    SetAccess {
        /// Which.
        pool: PoolId,
        /// Who may do what.
        access: Vec<(Location, Access)>,
    },
    /// `cuMemPoolGetAccess`. Answered by [`Access`](crate::Answer::Access).
    GetAccess {
        /// Which.
        pool: PoolId,
        /// Who.
        location: Location,
    },
    /// `cuMemAllocAsync` (the device's current pool) and `cuMemAllocFromPoolAsync`. Answered by
    /// [`Address`](crate::Answer::Address).
    Alloc {
        /// The current context.
        context: ContextId,
        /// In the order of this stream.
        stream: StreamRef,
        /// None: the current pool of the context's device.
        pool: Option<PoolId>,
        /// How much.
        bytes: u64,
    },
    /// `cuMemFreeAsync`.
    Free {
        /// The current context.
        context: ContextId,
        /// In the order of this stream.
        stream: StreamRef,
        /// Where it begins.
        address: Address,
    },
}
