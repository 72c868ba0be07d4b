//! What a stream can be given to do.

use serde::{Deserialize, Serialize};

use crate::ids::*;
use crate::stream::StreamRef;

/// Gives work to a stream. Answered by [`Done`](crate::Answer::Done) when the driver function may return: at once, or,
/// for `blocking` work and copies with pageable host memory, when it is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkRequest {
    /// The current context.
    pub context: ContextId,
    /// In the order of this stream. If it is being captured, the work becomes a node.
    pub stream: StreamRef,
    /// What.
    pub work: Work,
    /// Answer when it is done. For the functions without `Async` in their name: copies between host and device.
    pub blocking: bool,
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Copies bytes.
    Copy(Copy),
    /// Sets memory.
    Memset(Memset),
    /// Runs a kernel.
    Launch(Launch),
    /// Calls the program back.
    Host(HostCall),
    /// `cuEventRecord`.
    Record(EventId),
    /// `cuStreamWaitEvent`.
    WaitEvent(EventId),
    /// `cuStreamWaitValue32` and 64.
    WaitValue {
        /// Where the value is: device memory, or a registered host range.
        address: Address,
        /// What it is compared with.
        value: u64,
        /// 64 bits, not 32.
        wide: bool,
        /// `CUstreamWaitValue_flags`: 0 ≥ (cyclic), 1 =, 2 &, 3 nor.
        flags: u32,
    },
    /// `cuStreamWriteValue32` and 64.
    WriteValue {
        /// Where.
        address: Address,
        /// What.
        value: u64,
        /// 64 bits, not 32.
        wide: bool,
    },
}

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The host, at this address of the process.
    Host(u64),
    /// The device: an address that has to be known there.
    Device(u64),
    /// Wherever the address is known; the host, if nowhere (`CU_MEMORYTYPE_UNIFIED`, `cuMemcpy`).
    Either(u64),
}

/// A copy of a box of bytes; of a line, when `height` and `depth` are 1. Addresses include the offsets that the driver's
/// structures name apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// From.
    pub source: Place,
    /// To.
    pub target: Place,
    /// Bytes of a row.
    pub width_bytes: u64,
    /// Rows.
    pub height: u64,
    /// Slices.
    pub depth: u64,
    /// Bytes from row to row; anything when there is one row.
    pub source_pitch: u64,
    /// Bytes from slice to slice; anything when there is one slice.
    pub source_slice: u64,
    /// The same of the target.
    pub target_pitch: u64,
    /// The same of the target.
    pub target_slice: u64,
}

impl Copy {
    /// A line of bytes.
    pub fn line(source: Place, target: Place, bytes: u64) -> Self {
        Self {
            source,
            target,
            width_bytes: bytes,
            height: 1,
            depth: 1,
            source_pitch: 0,
            source_slice: 0,
            target_pitch: 0,
            target_slice: 0,
        }
    }
}

/// Sets memory to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memset {
    /// Where.
    pub address: Address,
    /// The value.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element_bytes: u32,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Bytes from row to row; anything when there is one row.
    pub pitch: u64,
}

/// Runs a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Which.
    pub function: FunctionId,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// The parameters, each at its offset in the entry's layout.
    pub parameters: Vec<u8>,
    /// All blocks have to fit at once.
    pub cooperative: bool,
}

/// A function of the program to be called on its callback connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCall {
    /// Its address.
    pub function: u64,
    /// Its argument.
    pub data: u64,
    /// `cuStreamAddCallback`: the stream as the program named it; None for `cuLaunchHostFunc`.
    pub stream: Option<u64>,
}
