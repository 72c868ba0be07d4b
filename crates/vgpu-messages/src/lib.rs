//! What a program's driver library and the virtual device say to each other.
//!
//! The virtual GPUs live in one process, `vgpud`; every program's `libcuda.so.1` turns each driver call into one
//! [`Request`] and waits for its [`Reply`]. Here are the messages, the description of the machine ([`Spec`]) and
//! where both are found ([`Directory`]). Messages travel on a [`wire::Connection`]. No state, no decisions.
//!
//! | module | subject |
//! |---|---|
//! | [`request`], [`answer`] | the families of requests, and what is answered |
//! | [`ids`] | names of contexts, streams, memory … |
//! | [`memory`], [`host`], [`pool`] | allocation, mapping, sharing; host ranges; stream-ordered allocation |
//! | [`stream`], [`work`], [`graph`] | order; what a stream or a graph can be given to do |
//! | [`module`] | PTX text and its entries |
//! | [`device`], [`figures`] | what a GPU is, and what it is doing |
//! | [`spec`], [`place`] | the machine's description, and its directory |
//! | [`start`] | how a program reaches the device, and starts it |
//! | [`enter`] | what puts a process on a virtual machine |

pub mod answer;
pub mod checkpoint;
pub mod device;
pub mod enter;
pub mod figures;
pub mod graph;
pub mod host;
pub mod ids;
pub mod memory;
pub mod module;
pub mod place;
pub mod pool;
pub mod quantity;
pub mod request;
pub mod spec;
pub mod start;
pub mod stream;
pub mod work;

pub use answer::{Answer, Callback, Code, Refusal, Reply};
pub use device::{ComputeMode, DeviceDescription};
pub use ids::*;
pub use place::Directory;
pub use request::Request;
pub use spec::Spec;

/// Version of the messages. Both sides must agree.
pub const VERSION: u32 = 2;

/// The unit of physical memory and of mappings.
pub const GRANULARITY_BYTES: u64 = 2 << 20;

/// The unit of `cuMemAlloc` within a granule: sizes are rounded up to it.
pub const ALLOCATION_ALIGNMENT_BYTES: u64 = 512;

/// The longest PTX text of a module.
pub const MODULE_BYTES_MAX: u64 = 16 << 20;

/// The most parameter bytes of a kernel.
pub const PARAMETER_BYTES_MAX: usize = 32 * 1024;
