//! Allocations of the program as memory that can be taken off the device and put back under the same addresses.
//!
//! `cuMemAlloc` finds a block in ranges of addresses that are rota's. Under each range lies physical memory, of which the
//! daemon has a copy. The program sees what it asked for: its own sizes, and the shared GPU as its own.
//!
//! - [`heap`]: which addresses of the ranges are free; [`table`]: what the program has there; both pure bookkeeping.
//! - [`allocation`]: `cuMemAlloc`, `cuMemAllocPitch`, `cuMemFree`.
//! - [`created`], [`mapped`]: memory that the program creates and maps itself; the driver's handle changes when it moves,
//!   so the program has a number in its place.
//! - [`pinned`]: what is handed on, and so stays where it is.
//! - [`growth`]: more memory; [`cache`]: memory that nobody has, for a while.
//! - [`probe`]: what the native driver would say; [`captures`]: while streams are captured.
//! - [`kept`]: memory that the driver makes and nobody can move, which is counted.
//! - [`oversize`]: memory that lies in the host's, because the GPU cannot have it.
//! - [`preferred`]: memory that the program would rather have there.
//! - [`taken`]: memory that another program made, and the daemon handed on.
//! - [`physical`]: the driver's calls that make, map, export and release memory.
//! - [`query`]: how much memory the program is told there is; [`pointer`]: what an address is.
//! - [`peers`]: which other GPUs may use it.
//! - [`second_reference`]: calls that hand out something else than an address: the memory stays where it is, or they are
//!   refused.
//! - [`context`]: the end of a context, which ends its allocations.
//! - [`quick`]: a hash for such tables. [`native`]: the real driver's functions behind the overrides.
//!
//! Without a session, and for GPUs that are not shared, every override is the real driver's function.

pub(crate) mod allocation;
pub(crate) mod cache;
pub(crate) mod captures;
mod context;
mod created;
mod growth;
pub(crate) mod heap;
pub(crate) mod kept;
mod mapped;
pub(crate) mod native;
pub(crate) mod oversize;
pub(crate) mod peers;
pub(crate) mod physical;
pub(crate) mod pinned;
mod pointer;
mod preferred;
pub(crate) mod probe;
mod query;
pub(crate) mod quick;
mod second_reference;
pub(crate) mod table;
pub(crate) mod taken;

use cuda::CUresult;

use crate::gate;

pub(crate) use growth::Short;
pub(crate) use kept::Kept;
pub(crate) use table::Table;

/// In a forked child: nothing of the parent's is looked at. What else there is belongs to the session.
pub(crate) fn forget() {
    captures::forget_parent();
    taken::forget();
}

/// Asks the driver about an address at a moment when memory lies there: otherwise it knows nothing about it.
fn while_mapped(call: impl Fn() -> CUresult) -> CUresult {
    gate::pass_all(call)
}

/// Nanoseconds on a clock that only goes forward, by a few milliseconds at a time: it is cheap.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes one time. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
