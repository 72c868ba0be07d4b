//! Structures of the driver with every field zero, to be filled in where it matters.

use cuda::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUlaunchConfig, CUmemPoolProps};

/// A structure of which every field may be zero, zeroed.
pub(crate) trait Zeroed: Sized {
    /// All bytes zero.
    fn zeroed() -> Self {
        // SAFETY: implemented only for structures of integers and raw pointers, which may be zero.
        unsafe { std::mem::zeroed() }
    }
}

impl Zeroed for CUDA_MEMCPY2D {}
impl Zeroed for CUDA_MEMCPY3D {}
impl Zeroed for CUmemPoolProps {}
impl Zeroed for CUlaunchConfig {}
