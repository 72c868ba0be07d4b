//! How a kernel is launched, and functions of the program that the driver calls.

#![allow(missing_docs)] // The fields are the driver's, and their names say what they are.

use super::CUstream;
use crate::CUresult;
use std::ffi::c_void;
use std::mem::size_of;

/// A function of the program.
pub type CUhostFn = unsafe extern "C" fn(*mut c_void);
/// A function of the program that is told the state of a stream.
pub type CUstreamCallback = unsafe extern "C" fn(CUstream, CUresult, *mut c_void);

/// How a kernel is launched.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUlaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: CUstream,
    pub attributes: *const CUlaunchAttribute,
    pub attribute_count: u32,
}

/// An attribute of a launch.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct CUlaunchAttribute {
    pub id: u32,
    pub padding: u32,
    pub value: [u32; 16],
}

// The driver's layouts on 64-bit Linux.
const _: () = {
    assert!(size_of::<CUlaunchConfig>() == 56);
    assert!(size_of::<CUlaunchAttribute>() == 72);
};
