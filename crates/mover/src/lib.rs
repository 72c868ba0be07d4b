//! The memory server inside the daemon: it moves tenants' memory between the device and pinned host memory.
//!
//! - [`device`]: what is needed of a GPU; [`CudaDevice`] is the real one, `fake_device` one in plain memory.
//! - [`arena`]: pinned host memory for what is away. It is the keeper's, and so is the index of what is in it.
//! - [`mover`]: where the bytes of each handle are, and that they are always somewhere; copies of what came back.
//! - [`Pace`]: how fast copies go.
//! - [`exchange`]: moving handles out and others in, both at once.
//!
//! One thread owns a [`Mover`] and calls it; only the arena is registered by a thread of its own. Nothing here decides
//! who moves or when, and nothing here knows sockets: the daemon passes requests on ([`Tenants`]) and hands the
//! answers in ([`Reply`]).

pub mod arena;
pub mod cuda_device;
pub mod device;
pub mod exchange;
#[cfg(any(test, feature = "fake"))]
pub mod fake_device;
pub mod mover;
mod pace;
#[cfg(test)]
mod test_keeper;

pub use arena::{Arena, ArenaError, HeldBack};
pub use cuda_device::CudaDevice;
pub use device::{Device, DeviceError, Registrar};
pub use exchange::{Gone, MoveError, Outcome, Plan, Reply, Span, Step, Stuck, Tenants};
pub use mover::adoption::{AdoptError, Adoption, Reported, ReportedMemory};
pub use mover::clean::{AuditError, CleanCopies, CleanError};
pub use mover::homes::{Home, Question, Settled};
pub use mover::looks::Look;
pub use mover::passing::Domain;
pub use mover::{Mover, MoverError};
pub use pace::Pace;

use std::fmt;

/// The unit of moving: sizes of handles are multiples of it, and arena space is handed out in it.
pub const BLOCK_BYTES: u64 = 2 << 20;

/// A tenant's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u32);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tenant {}", self.0)
    }
}

/// A handle of a tenant, by the name that the tenant gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleKey {
    /// Whose it is.
    pub owner: Owner,
    /// Which one of that tenant.
    pub handle: u64,
}

impl fmt::Display for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle {} of {}", self.handle, self.owner)
    }
}
