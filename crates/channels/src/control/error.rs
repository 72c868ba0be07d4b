//! Why a control failed, by name and number, with what to do.

use std::fmt;
use std::io;
use std::os::fd::RawFd;

/// A control that this crate sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Take channels off the GPU.
    Freeze,
    /// Let channels go on.
    Thaw,
    /// Set a group's time slice.
    SetTimeSlice,
    /// Read a group's time slice.
    GetTimeSlice,
    /// Ask which GPU a subdevice is on.
    Identify,
}

impl fmt::Display for Command {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Freeze => "freeze (FIFO_DISABLE_CHANNELS, disable)",
            Self::Thaw => "thaw (FIFO_DISABLE_CHANNELS, enable)",
            Self::SetTimeSlice => "set time slice (SET_TIMESLICE)",
            Self::GetTimeSlice => "get time slice (GET_TIMESLICE)",
            Self::Identify => "ask for a GPU's UUID (GPU_GET_GID_INFO)",
        })
    }
}

/// A status of the driver other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 0x1b
    InsufficientPermissions,
    /// 0x1f
    InvalidArgument,
    /// 0x21
    InvalidChannel,
    /// 0x23
    InvalidClient,
    /// 0x56
    NotSupported,
    /// 0x57
    ObjectNotFound,
    /// Any other.
    Other(u32),
}

impl Status {
    /// The status of a number; None for 0, success.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => return None,
            0x1b => Self::InsufficientPermissions,
            0x1f => Self::InvalidArgument,
            0x21 => Self::InvalidChannel,
            0x23 => Self::InvalidClient,
            0x56 => Self::NotSupported,
            0x57 => Self::ObjectNotFound,
            other => Self::Other(other),
        })
    }

    /// The driver's number.
    pub const fn number(self) -> u32 {
        match self {
            Self::InsufficientPermissions => 0x1b,
            Self::InvalidArgument => 0x1f,
            Self::InvalidChannel => 0x21,
            Self::InvalidClient => 0x23,
            Self::NotSupported => 0x56,
            Self::ObjectNotFound => 0x57,
            Self::Other(number) => number,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = match self {
            Self::InsufficientPermissions => "insufficient permissions; this control needs root",
            Self::InvalidArgument => "invalid argument; this driver may lay out its parameters differently",
            Self::InvalidChannel => "invalid channel; it is not scheduled yet, or being freed",
            Self::InvalidClient => {
                "invalid client; it belongs to another nvidiactl file: use a copy of the tenant's own"
            }
            Self::NotSupported => "not supported by this driver or GPU",
            Self::ObjectNotFound => {
                "object not found; it was freed meanwhile: read the tenant's channels again"
            }
            Self::Other(_) => "a status that is not known here",
        };
        write!(out, "status {:#x}, {meaning}", self.number())
    }
}

/// What became of the channels that were already frozen when a freeze failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// All are thawed again: the failed freeze changed nothing.
    Done,
    /// Some may still be frozen: thaw the whole set.
    Failed,
}

impl fmt::Display for Undo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Done => "those frozen before are thawed again, nothing changed",
            Self::Failed => "those frozen before could not all be thawed: thaw the whole set",
        })
    }
}

/// Why a control failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The driver answered with a status.
    #[error("{command} on object {object:#x} of client {client:#x} was refused: {status}")]
    Refused {
        /// What was asked.
        command: Command,
        /// The client.
        client: u32,
        /// The object.
        object: u32,
        /// The answer.
        status: Status,
    },
    /// The call did not reach the driver.
    #[error("{command}: the ioctl on file {file} failed: {source}; is it an open nvidiactl file?")]
    System {
        /// What was asked.
        command: Command,
        /// The file.
        file: RawFd,
        /// The system's error.
        source: io::Error,
    },
    /// One batch of a freeze failed after others had succeeded.
    #[error("batch {batch} of {batches} of a freeze failed; {undo}")]
    Batch {
        /// Which, counted from 1.
        batch: usize,
        /// Of how many.
        batches: usize,
        /// What became of the earlier ones.
        undo: Undo,
        /// Why.
        source: Box<ControlError>,
    },
}

impl ControlError {
    /// The driver's status, if it was the driver that refused.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::System { .. } => None,
            Self::Batch { source, .. } => source.status(),
        }
    }

    /// Whether channels of a failed freeze may still be frozen.
    pub fn left_frozen(&self) -> bool {
        matches!(self, Self::Batch { undo: Undo::Failed, .. })
    }
}
