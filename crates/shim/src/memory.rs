//! Allocations of the program as memory that can be taken off the device and put back under the same addresses.
//!
//! `cuMemAlloc` reserves an address and maps one physical allocation there, of which the daemon gets a copy. The program
//! sees what it asked for: its own sizes, and the shared GPU as its own.
//!
//! - [`table`]: which addresses are rota's; pure bookkeeping.
//! - [`physical`]: the driver's calls that make, map, export and release memory.
//! - [`allocation`]: `cuMemAlloc`, `cuMemFree`.
//! - [`query`]: what the program is told about sizes.
//! - [`second_reference`]: calls that would hand out something else than an address, and are refused.
//! - [`context`]: the end of a context, which ends its allocations.
//! - [`native`]: the real driver's functions behind the overrides.
//!
//! Without a session, and for other GPUs, every override is the real driver's function.

mod allocation;
mod context;
mod native;
pub(crate) mod physical;
mod query;
mod second_reference;
mod table;

use cuda::CUresult;

use crate::session;

pub(crate) use table::Table;

/// Asks the driver about an address at a moment when memory lies there: otherwise it knows nothing about it.
fn while_mapped(call: impl Fn() -> CUresult) -> CUresult {
    match session::current() {
        Some(session) => session.gate.pass(call),
        None => call(),
    }
}
