//! Why a worker's call came to nothing.

use super::ViewError;
use crate::message::Refusal;
use std::time::Duration;
use wire::WireError;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there.
    #[error("no keeper: {0}")]
    Unreachable(WireError),
    /// Somebody else is there in its place.
    #[error(
        "what answers as the keeper is of user {uid}, who is neither this user nor root: it gets nothing"
    )]
    Stranger {
        /// Whose process it is.
        uid: u32,
    },
    /// The keeper does not want us, or this request.
    #[error(transparent)]
    Refused(Refusal),
    /// No answer in time.
    #[error("the keeper did not answer within {} ms", within.as_millis())]
    Late {
        /// How long it was waited for.
        within: Duration,
    },
    /// Another worker is there, and has been all the time.
    #[error(
        "the keeper still has a worker after {} s, process {pid}: end it; one that was ended gives its pinned memory back \
         first, which takes a while",
        within.as_secs()
    )]
    Busy {
        /// That worker.
        pid: u32,
        /// How long it was waited for.
        within: Duration,
    },
    /// The keeper has ended, and with it all that was away; or it hung up.
    #[error("the keeper is gone, or has hung up; if it has ended, all that was away is lost")]
    Gone,
    /// Another keeper answers than before: that one has ended.
    #[error("the keeper of before is gone, and with it all that was away: this one is process {pid}")]
    OtherKeeper {
        /// The new one.
        pid: u32,
    },
    /// An earlier call failed.
    #[error("the connection to the keeper has ended; reconnect first")]
    Disconnected,
    /// The socket failed, or the request is too long.
    #[error("the connection to the keeper failed: {0}")]
    Wire(WireError),
    /// A segment cannot be mapped.
    #[error(transparent)]
    View(#[from] ViewError),
    /// Something else was answered than what was asked.
    #[error("the keeper's answer does not belong to the request")]
    Strange,
}
