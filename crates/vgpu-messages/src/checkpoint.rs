//! The driver's checkpoint of another process.

use serde::{Deserialize, Serialize};

/// One step of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointStep {
    /// How does it stand? Answered by [`Number`](crate::Answer::Number), as `CUprocessState` counts.
    State,
    /// Its calls wait from now on, once its work is done; refused if that is not so in time.
    Lock {
        /// How long to wait for its work, in device time; 0 is for ever.
        timeout_nanos: u64,
    },
    /// What it has on the GPUs goes to the host.
    Out,
    /// And comes back.
    In,
    /// Its calls go on.
    Unlock,
}
