//! Copies of rows and of layers of rows.

#![allow(missing_docs)] // The fields are the driver's, and their names say what they are.

use super::CUcontext;
use std::mem::size_of;

/// One side of a copy is host memory.
pub const CU_MEMORYTYPE_HOST: u32 = 1;
/// One side of a copy is device memory.
pub const CU_MEMORYTYPE_DEVICE: u32 = 2;
/// One side of a copy is an array.
pub const CU_MEMORYTYPE_ARRAY: u32 = 3;
/// One side of a copy is whatever its address says.
pub const CU_MEMORYTYPE_UNIFIED: u32 = 4;

/// A copy of rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_MEMCPY2D {
    pub source: Side2D,
    pub target: Side2D,
    pub width_bytes: u64,
    pub height: u64,
}

/// One side of a copy of rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Side2D {
    pub x_bytes: u64,
    pub y: u64,
    pub kind: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub pitch: u64,
}

/// A copy of layers of rows. The form for peers has a context where this one has a reserved word.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_MEMCPY3D {
    pub source: Side3D,
    pub target: Side3D,
    pub width_bytes: u64,
    pub height: u64,
    pub depth: u64,
}

/// One side of a copy of layers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Side3D {
    pub x_bytes: u64,
    pub y: u64,
    pub z: u64,
    pub level: u64,
    pub kind: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub context: CUcontext,
    pub pitch: u64,
    pub height: u64,
}

// The driver's layouts on 64-bit Linux.
const _: () = {
    assert!(size_of::<CUDA_MEMCPY2D>() == 128);
    assert!(size_of::<CUDA_MEMCPY3D>() == 200);
};
