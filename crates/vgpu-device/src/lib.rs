//! The virtual device: GPUs in software, shared by many processes.
//!
//! [`Machine`] is the device, a pure model with its own clock; the `vgpud` executable gives it sockets, files and real time
//! ([`server`]).
//!
//! ```text
//!  program ── libcuda.so.1 (vgpu) ── Request ──> server ──> Machine::handle ──> items ── ready ──> engines
//!                                 <── Reply ───        <── waits, timers <── done ────────────────┘
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`machine`] | all state, the clock, replies that wait |
//! | [`session`] | processes, their files, their end |
//! | [`context`], [`stream`], [`event`], [`submit`], [`start`] | work: from a request to an item to an engine |
//! | [`item`] | what comes after what |
//! | [`engine`] | compute with time slices, the bus |
//! | [`kernels`], [`transfer`] | what runs there, step by step |
//! | [`physical`], [`space`] | bytes; addresses, and every touch checked |
//! | [`memory`], [`pool`], [`host_range`] | allocation, mapping, sharing |
//! | [`module`], [`ptx`], [`graph`] | kernels by name; graphs and capture |
//! | [`rm`] | control files, channel groups, freeze and thaw |
//! | [`faults`], [`misuse`], [`figures`] | what goes wrong on request; what is forgiven but noted; NVML's figures |

mod checkpoint;
mod context;
pub mod engine;
mod event;
mod faults;
mod figures;
mod graph;
pub mod host;
mod host_range;
pub mod item;
pub mod kernels;
pub mod machine;
mod memory;
pub mod misuse;
mod module;
pub mod physical;
mod pool;
pub mod ptx;
pub mod rm;
pub mod server;
pub mod session;
pub mod space;
mod start;
mod stream;
mod submit;
pub mod transfer;

pub use machine::Machine;
pub use session::ConnectionId;

#[cfg(test)]
mod tests;
