//! Host memory that the device knows. The client allocates and maps it; the device only learns of the range.

use serde::{Deserialize, Serialize};

use crate::ids::*;

/// Requests about host ranges. Addresses are those of the asking process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostRequest {
    /// `cuMemHostRegister`, and `cuMemHostAlloc` after the client has allocated. The device address of a range is its host
    /// address. Costs time by its size.
    Register {
        /// The current context.
        context: ContextId,
        /// Where.
        address: u64,
        /// How much.
        bytes: u64,
        /// The flags as the driver function takes them.
        flags: u32,
        /// By `cuMemHostAlloc` or `cuMemAllocHost`, not `cuMemHostRegister`.
        allocated: bool,
    },
    /// `cuMemHostUnregister`, and `cuMemFreeHost` before the client frees; waits for the work that uses it in the second
    /// case.
    Unregister {
        /// Where it begins.
        address: u64,
        /// By `cuMemFreeHost`.
        allocated: bool,
    },
    /// `cuMemHostGetDevicePointer`. Answered by [`Address`](crate::Answer::Address).
    DeviceAddress(u64),
    /// `cuMemHostGetFlags`. Answered by [`Number`](crate::Answer::Number).
    Flags(u64),
}
