//! The resource manager: control files, clients and their objects, and the calls on them.
//!
//! Pure: a call changes the objects and says what that means for the engines ([`Effect`]) and how long it takes. Who is frozen
//! is known here; being off the engine is the engines' part.

mod calls;
mod controls;
mod objects;

pub use calls::{Called, Surroundings, call};
pub use objects::{Channel, Group, Object, Rm};

use vgpu_messages::DeviceId;
use vgpu_messages::quantity::Nanos;

use crate::engine::GroupKey;

/// A file that a process got from the device, by a number of ours: the same for all its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u64);

/// The engine type of compute.
pub const ENGINE_COMPUTE: u32 = 1;
/// The first engine type of copies.
pub const ENGINE_COPY: u32 = 9;

/// The status of a call.
pub mod status {
    /// It worked.
    pub const OK: u32 = 0;
    /// The caller may not.
    pub const INSUFFICIENT_PERMISSIONS: u32 = 0x1b;
    /// An argument makes no sense.
    pub const INVALID_ARGUMENT: u32 = 0x1f;
    /// Not the file that the client was made with.
    pub const INVALID_CLIENT: u32 = 0x23;
    /// No such control here.
    pub const NOT_SUPPORTED: u32 = 0x56;
    /// No such object.
    pub const OBJECT_NOT_FOUND: u32 = 0x57;
}

/// What a call means for the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A new group on a GPU's engine.
    Born {
        /// Which.
        group: GroupKey,
        /// Where.
        device: DeviceId,
        /// On which engine.
        engine: u32,
        /// With which slice.
        slice: Nanos,
    },
    /// A group is gone.
    Gone {
        /// Which.
        group: GroupKey,
        /// Where.
        device: DeviceId,
    },
    /// A group has another slice.
    Slice {
        /// Which.
        group: GroupKey,
        /// Where.
        device: DeviceId,
        /// How long.
        slice: Nanos,
    },
}

/// Channels to be taken off or put back, once the call has taken its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grip {
    /// Off; otherwise back.
    pub off: bool,
    /// Which: client and channel.
    pub channels: Vec<(u32, u32)>,
}

#[cfg(test)]
mod tests;
