//! Allocations of the program as memory that can be taken off the device and put back under the same addresses.
//!
//! `cuMemAlloc` reserves an address and maps one physical allocation there, of which the daemon gets a copy. The program
//! sees what it asked for: its own sizes, and the shared GPU as its own.
//!
//! - [`table`]: which addresses are rota's; pure bookkeeping.
//! - [`physical`]: the driver's calls that make, map, export and release memory.
//! - [`allocation`]: `cuMemAlloc`, `cuMemFree`.
//! - [`query`]: what the program is told about sizes.
//! - [`context`]: the end of a context, which ends its allocations.
//! - [`native`]: the real driver's functions behind the overrides.
//!
//! Without a session, and for other GPUs, every override is the real driver's function.

mod allocation;
mod context;
mod native;
pub(crate) mod physical;
mod query;
mod table;

pub(crate) use table::Table;
