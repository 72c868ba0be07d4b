//! Hints: word that a request of a latency-critical program is about to come, and what became of it.

use serde::{Deserialize, Serialize};

/// Who gives a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HintSource {
    /// The program itself.
    Sdk,
    /// The shim, which saw the program's input go to the device.
    Shim,
}

/// What became of a tenant's hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// Given by the program.
    pub sdk: u64,
    /// Given by the shim, which saw an input go to the device.
    pub shim: u64,
    /// Made by the daemon, from the rhythm of past requests.
    pub forecast: u64,
    /// The request found the GPU free.
    pub good: u64,
    /// The request came before it was expected, and found the GPU busy.
    pub early: u64,
    /// The request came long after it was expected, and found the GPU free.
    pub late: u64,
    /// No request came.
    #[serde(rename = "false")]
    pub false_: u64,
    /// The hint was not honoured.
    pub missed: u64,
    /// The hint never reached the daemon, because its socket was full.
    pub dropped: u64,
    /// Warm-up kernels launched for it.
    pub warm_ups: u64,
    /// And those that could not be.
    pub warm_ups_failed: u64,
    /// Of those that were launched, how many by a thread that was awake for it.
    pub warm_ups_awaited: u64,
    /// The time between requests by which the next one is forecast; none while none is.
    pub rhythm_ns: Option<u64>,
}
