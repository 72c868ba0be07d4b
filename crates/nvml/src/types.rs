//! Codes and layouts of NVML's interface.

use std::ffi::c_uint;

/// What a function returns.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return(pub c_uint);

#[allow(missing_docs)] // NVML's names.
impl Return {
    pub const SUCCESS: Self = Self(0);
    pub const UNINITIALIZED: Self = Self(1);
    pub const INVALID_ARGUMENT: Self = Self(2);
    pub const NOT_SUPPORTED: Self = Self(3);
    pub const NOT_FOUND: Self = Self(6);
    pub const INSUFFICIENT_SIZE: Self = Self(7);
    pub const DRIVER_NOT_LOADED: Self = Self(9);
    pub const TIMEOUT: Self = Self(10);
    pub const LIBRARY_NOT_FOUND: Self = Self(12);
    pub const FUNCTION_NOT_FOUND: Self = Self(13);
    pub const GPU_IS_LOST: Self = Self(15);
    pub const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub const UNKNOWN: Self = Self(999);
}

/// Memory of a GPU, by the first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// Not used.
    pub free: u64,
    /// Used, the driver's own included.
    pub used: u64,
}

/// Memory of a GPU, by the second version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryV2 {
    /// Which version: [`version`].
    pub version: c_uint,
    /// All of it.
    pub total: u64,
    /// The driver's own.
    pub reserved: u64,
    /// Not used.
    pub free: u64,
    /// Used by programs.
    pub used: u64,
}

/// A process, by the first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessV1 {
    /// Which.
    pub pid: c_uint,
    /// Its memory on the GPU.
    pub memory: u64,
}

/// A process, by later versions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Which.
    pub pid: c_uint,
    /// Its memory on the GPU; all ones where that is not told.
    pub memory: u64,
    /// Part of the GPU; all ones on a whole one.
    pub gpu_instance: c_uint,
    /// Part of that part.
    pub compute_instance: c_uint,
}

const _: () = {
    assert!(size_of::<Memory>() == 24);
    assert!(size_of::<MemoryV2>() == 40);
    assert!(size_of::<ProcessV1>() == 16);
    assert!(size_of::<Process>() == 24);
};

/// What a structure says its version is: its size, and a number.
pub const fn version<T>(number: c_uint) -> c_uint {
    size_of::<T>() as c_uint | number << 24
}
