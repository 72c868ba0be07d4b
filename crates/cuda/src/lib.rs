//! The CUDA driver's binary interface, as rota uses it.
//!
//! - [`types`]: the types of the interface, with their layouts.
//! - [`error`]: result codes.
//! - [`table`]: every public driver function, and which one `cuGetProcAddress` chooses.
//! - [`library`]: finding and opening the real `libcuda.so.1`, also from within a library of that name.
//! - [`driver`]: the functions rota calls itself, typed.
//!
//! Nothing here knows about tenants, turns or the daemon. Names of types, constants and functions are the driver's own.

pub mod driver;
pub mod error;
pub mod library;
pub mod table;
pub mod types;

pub use driver::Driver;
pub use error::{CUresult, CudaError};
pub use library::Library;
