//! Moving some handles out and others in, both at once: the words of it. `run` is how it goes.
//!
//! A handle out: copy (of what changed, where that is known), have the keeper record that, ask the tenant to unmap, drop our
//! import; its bytes are room then. A handle in: once there is room, ask the tenant to create memory, import it, copy, and
//! have that recorded, which gives the arena space back and may let further handles out. So each side makes way for the
//! other, and bytes on the device never exceed what they may be. What ends in the same round is recorded at once.
//!
//! Where tenants trust each other, memory is not released and made anew: what one has unmapped is filled with another's bytes, and
//! that one's tenant takes it ([`crate::mover::passing`]).
//!
//! With a cellar, a handle that is there is fetched into the arena before it comes in, and where the arena is full, what is
//! needed last goes to the cellar (`run/cellar`).

mod late;
pub(crate) mod patience;
pub(crate) mod requests;
mod run;
#[cfg(test)]
mod tests;
pub mod times;

use crate::arena::ArenaError;
use crate::device::DeviceError;
use crate::mover::clean::AuditError;
use crate::mover::homes::Question;
use crate::{HandleKey, Owner};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use times::Times;

/// Handles in one request to a tenant: a message carries as many files.
pub const HANDLES_PER_REQUEST_MAX: usize = 64;

/// What is to be moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// These leave the device, in this order. Their tenants are frozen.
    pub out: Vec<HandleKey>,
    /// These come to the device, in this order, but that others go first where one has no room yet and nothing else comes in.
    /// Their tenants are frozen.
    pub into: Vec<HandleKey>,
    /// Device bytes that `into` may use before anything has left.
    pub room_bytes: u64,
    /// How long to wait while nothing at all moves.
    pub deadline: Duration,
}

/// The tenant is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tenant is gone")]
pub struct Gone;

/// How requests reach tenants. Sending must not wait; answers come as [`Reply`]. No more than
/// [`HANDLES_PER_REQUEST_MAX`] handles in one call.
pub trait Tenants {
    /// Asks a tenant to unmap these handles and release their memory.
    fn unmap(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone>;

    /// Asks a tenant to put new memory under these handles.
    fn create(&mut self, owner: Owner, handles: &[u64]) -> Result<(), Gone>;

    /// Asks a tenant to put the memory of these files under these handles. It is whole.
    fn take(&mut self, owner: Owner, handles: &[(u64, Arc<OwnedFd>)]) -> Result<(), Gone>;
}

/// What tenants answer, and what happens to them meanwhile.
#[derive(Debug)]
pub enum Reply {
    /// The tenant holds no memory for these any more.
    Unmapped {
        /// Who.
        owner: Owner,
        /// Which ones.
        handles: Vec<u64>,
    },
    /// New memory lies under these.
    Created {
        /// Who.
        owner: Owner,
        /// Which ones.
        handles: Vec<u64>,
        /// Their files, in the same order.
        files: Vec<OwnedFd>,
    },
    /// The memory that was sent lies under these.
    Taken {
        /// Who.
        owner: Owner,
        /// Which ones.
        handles: Vec<u64>,
    },
    /// It did not work; these are as they were before.
    Failed {
        /// Who.
        owner: Owner,
        /// Which ones.
        handles: Vec<u64>,
        /// The CUDA error code.
        code: u32,
        /// The call that failed.
        call: String,
    },
    /// The tenant is no longer there.
    Gone {
        /// Who.
        owner: Owner,
    },
    /// The tenant has freed these; it holds nothing of them any more.
    Freed {
        /// Who.
        owner: Owner,
        /// Which ones.
        handles: Vec<u64>,
    },
    /// The tenant has memory for these in another home, mapped nowhere.
    Prepared {
        /// Who.
        owner: Owner,
        /// Which ones.
        questions: Vec<Question>,
        /// Their files, in the same order.
        files: Vec<OwnedFd>,
    },
    /// What was prepared lies under the addresses of these.
    Exchanged {
        /// Who.
        owner: Owner,
        /// Which ones.
        questions: Vec<Question>,
    },
    /// These stay where they are: preparing or exchanging failed.
    Stayed {
        /// Who.
        owner: Owner,
        /// Which ones.
        questions: Vec<Question>,
        /// The CUDA error code.
        code: u32,
        /// The call that failed.
        call: String,
    },
}

/// What a handle was waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The hash of its blocks.
    Hash,
    /// The copy out.
    CopyOut,
    /// The tenant's answer to an unmap.
    Unmap,
    /// The tenant's answer to a create.
    Create,
    /// The copy in.
    CopyIn,
    /// The tenant's answer to a take.
    Take,
    /// The cellar.
    Fetch,
    /// The tenant's answer to an unmap of memory that could not be filled.
    BackOut,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Hash => "the hash of its blocks",
            Step::CopyOut => "the copy out",
            Step::Unmap => "the tenant to unmap it",
            Step::Create => "the tenant to create memory for it",
            Step::CopyIn => "the copy in",
            Step::Take => "the tenant to take memory for it",
            Step::Fetch => "the cellar",
            Step::BackOut => "the tenant to unmap memory that could not be filled",
        })
    }
}

/// Why a handle was not moved. It is where it was, unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// No such handle.
    #[error("the mover does not know it")]
    Unknown,
    /// It was to leave the device, but is in the arena.
    #[error("it is not on the device")]
    NotResident,
    /// It was to come to the device, but is there.
    #[error("it is on the device already")]
    NotAway,
    /// An earlier move of it was given up and has not ended.
    #[error("an earlier move of it has not ended: its tenant or the device has not answered")]
    Unsettled,
    /// The copy to the host failed.
    #[error("the copy out failed: {0}")]
    CopyOut(DeviceError),
    /// The tenant's new memory could not be imported.
    #[error("the import of its new memory failed: {0}")]
    Import(DeviceError),
    /// The tenant sent no file for its new memory.
    #[error("its tenant sent no file for its new memory")]
    NoFile,
    /// The copy to the device failed.
    #[error("the copy in failed: {0}")]
    CopyIn(DeviceError),
    /// The keeper gave no space, or did not record a step. If the connection to it has failed, and the handle was in the
    /// middle of its way, it stays there, and its tenant must not run.
    #[error(transparent)]
    Keeper(ArenaError),
    /// The tenant could not unmap or create.
    #[error("its tenant failed at {call} with CUDA error {code}")]
    TenantFailed {
        /// The CUDA error code.
        code: u32,
        /// The call that failed.
        call: String,
    },
    /// It could not be fetched from the cellar, where it still is.
    #[error("it cannot be fetched from the cellar now: {0}")]
    NotFetched(String),
    /// It is in the cellar, and cannot be had from there any more. Its tenant has to be ended.
    #[error("{0}: end its tenant")]
    Lost(String),
    /// It could not be brought in, and then the tenant could not unmap its empty memory either. The bytes are in the
    /// arena, but the tenant has memory mapped that must not be used: it has to be ended.
    #[error("{why}; then its tenant failed at {call} with CUDA error {code}: end that tenant")]
    NotBackedOut {
        /// Why it could not be brought in.
        why: Box<MoveError>,
        /// The CUDA error code.
        code: u32,
        /// The call that failed.
        call: String,
    },
    /// Nothing moved for too long. The move of this handle has not ended; what comes late is for [`crate::Mover::late`].
    #[error("nothing moved for {} ms while it waited for {step}", after.as_millis())]
    Deadline {
        /// What it waited for.
        step: Step,
        /// How long.
        after: Duration,
    },
    /// Its turn did not come before the exchange ended.
    #[error("the exchange ended before its turn")]
    NotStarted,
    /// It was begun, and nobody knows of an end ([`Outcome::lost_sight_of`]).
    #[error("it was lost sight of on its way, which is a mistake of rota's")]
    LostSight,
}

impl MoveError {
    /// Was it the device that did not do something?
    pub fn is_the_devices(&self) -> bool {
        match self {
            MoveError::CopyOut(_) | MoveError::CopyIn(_) | MoveError::Import(_) => true,
            MoveError::NotBackedOut { why, .. } => why.is_the_devices(),
            _ => false,
        }
    }
}

/// Why an exchange could not go on: nothing was under way and nothing could start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// The next handle to go out does not fit into the arena.
    #[error("{need_bytes} bytes have to go out, but the arena has {free_bytes} free of {ready_bytes}")]
    NoArenaSpace {
        /// The size of that handle.
        need_bytes: u64,
        /// What is free.
        free_bytes: u64,
        /// What is ready in all.
        ready_bytes: u64,
    },
    /// The same, and the cellar did not take what would have made space.
    #[error(
        "{need_bytes} bytes need space in the arena, which has {free_bytes} free, and the cellar takes no more: {why}"
    )]
    NoCellar {
        /// The size of a handle that needs it.
        need_bytes: u64,
        /// What is free.
        free_bytes: u64,
        /// What the cellar said.
        why: String,
    },
    /// The next handle to come in does not fit onto the device.
    #[error("{need_bytes} bytes have to come in, but there is room for {room_bytes} on the device")]
    NoRoom {
        /// The size of that handle.
        need_bytes: u64,
        /// The room there is.
        room_bytes: u64,
    },
}

/// A stretch of time, counted from the start of the exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When the first handle started.
    pub start: Duration,
    /// When the last handle was done.
    pub end: Duration,
}

impl Span {
    /// How long it is.
    pub fn length(self) -> Duration {
        self.end.saturating_sub(self.start)
    }

    /// The speed at which this many bytes went, in bytes per second; zero for no time.
    pub fn bytes_per_second(self, bytes: u64) -> f64 {
        let seconds = self.length().as_secs_f64();
        if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }
    }
}

/// What became of a plan. Every handle of the plan is in exactly one of `moved_out`, `moved_in` and `failed`, unless it
/// is in `freed` or its owner is in `gone`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// These are in the arena now.
    pub moved_out: Vec<HandleKey>,
    /// These are on the device now, complete.
    pub moved_in: Vec<HandleKey>,
    /// These were not moved.
    pub failed: Vec<(HandleKey, MoveError)>,
    /// These were freed by their tenants meanwhile, and are dropped; also such as are not in the plan.
    pub freed: Vec<HandleKey>,
    /// Of these no end was noticed. That is a mistake in this crate: they were looked at again, and are in the list above that is
    /// true of them.
    pub lost_sight_of: Vec<HandleKey>,
    /// These tenants went away meanwhile, and everything of them is dropped.
    pub gone: Vec<Owner>,
    /// These tenants have memory mapped that could neither be filled nor unmapped ([`MoveError::NotBackedOut`], now or
    /// after an earlier exchange), or memory that is lost ([`MoveError::Lost`]). They must not run again: end them.
    pub must_end: Vec<Owner>,
    /// The size of `moved_out`.
    pub bytes_out: u64,
    /// How much of `moved_out` was copied. The arena had the rest already, or it was all zero.
    pub copied_bytes: u64,
    /// How much of that went in short copies, for the sake of what came in.
    pub short_bytes: u64,
    /// The size of `moved_in`.
    pub bytes_in: u64,
    /// How much of `moved_in` came into memory that another tenant had.
    pub passed_bytes: u64,
    /// What went from the arena to the cellar meanwhile.
    pub sunk_bytes: u64,
    /// What came from the cellar to the arena meanwhile.
    pub fetched_bytes: u64,
    /// From the first copy out to the last handle unmapped.
    pub out: Span,
    /// From the first request to create, or the first copy in, to the last handle in.
    pub into: Span,
    /// What the lanes did meanwhile, and what they waited for.
    pub times: Times,
    /// Why it could not go on, if so.
    pub stuck: Option<Stuck>,
    /// What an audit found: hashes that do not say the truth.
    pub audit_errors: Vec<AuditError>,
    /// How much of `moved_out` was called the same by its hashes, and compared by an audit.
    pub compared_bytes: u64,
}
