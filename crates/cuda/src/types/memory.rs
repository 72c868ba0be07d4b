//! Pools, memory of other processes, and words in memory that a stream waits for or writes.

#![allow(missing_docs)] // The fields are the driver's, and their names say what they are.

use super::{CUdeviceptr, CUmemLocation};
use std::mem::size_of;

/// What kind of pool `cuMemPoolCreate` makes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUmemPoolProps {
    pub kind: u32,
    pub handle_types: u32,
    pub location: CUmemLocation,
    pub security: u64,
    pub bytes_max: u64,
    pub usage: u16,
    pub reserved: [u8; 54],
}

/// One operation of `cuStreamBatchMemOp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUstreamBatchMemOpParams {
    pub operation: u32,
    pub address: CUdeviceptr,
    pub value: u64,
    pub flags: u32,
    pub padding: [u64; 2],
}

/// A name that another process opens memory by.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUipcMemHandle {
    pub bytes: [u8; 64],
}

// The driver's layouts on 64-bit Linux.
const _: () = {
    assert!(size_of::<CUmemPoolProps>() == 88);
    assert!(size_of::<CUstreamBatchMemOpParams>() == 48);
};
