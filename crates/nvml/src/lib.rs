//! NVML, the library that tells what GPUs are doing, as far as rota needs it.
//!
//! | module | subject |
//! |---|---|
//! | `types` | codes and layouts |
//! | `library` | finding and loading the real one, and asking it |
//! | `symbols` | every function that it exports |
//!
//! Its functions take milliseconds and the driver's lock: whoever decides about turns does not call them.

mod library;
mod symbols;
mod types;

pub use library::{Device, MARKER, Nvml, NvmlError, SONAME, SOUGHT, VARIABLE};
pub use symbols::SYMBOLS;
pub use types::{Memory, MemoryV2, Process, ProcessV1, Return, version};
