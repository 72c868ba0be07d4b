//! Devices in the form of the first versions, and how contexts are made.

#![allow(missing_docs)] // The fields are the driver's, and their names say what they are.

use std::mem::size_of;

/// What a device is, in the form of the first versions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUdevprop {
    pub numbers: [i32; 14],
}

/// How `cuCtxCreate_v4` makes a context.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUctxCreateParams {
    pub affinity: u64,
    pub affinity_count: i32,
    pub interop: u64,
}

// The driver's layouts on 64-bit Linux.
const _: () = {
    assert!(size_of::<CUdevprop>() == 56);
};
