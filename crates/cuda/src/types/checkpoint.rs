//! The driver's checkpoint of another process.

use super::size_of;

/// How a process stands.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CUprocessState(pub u32);

#[allow(missing_docs)] // The driver's names.
impl CUprocessState {
    pub const RUNNING: Self = Self(0);
    pub const LOCKED: Self = Self(1);
    pub const CHECKPOINTED: Self = Self(2);
    pub const FAILED: Self = Self(3);
}

/// What `cuCheckpointProcessLock` takes; all others of its family may be given none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUcheckpointLockArgs {
    /// How long it may wait for work; 0 is for ever.
    pub timeout_ms: u32,
    /// Zero.
    pub reserved0: u32,
    /// Zeros.
    pub reserved1: [u64; 7],
}

const _: () = assert!(size_of::<CUcheckpointLockArgs>() == 64);
