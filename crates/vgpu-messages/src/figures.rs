//! What a GPU is doing, as NVML tells it.

use serde::{Deserialize, Serialize};

/// Figures of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// All memory.
    pub memory_total_bytes: u64,
    /// Used, contexts included.
    pub memory_used_bytes: u64,
    /// Share of the last second in which a kernel ran, percent.
    pub compute_busy_percent: u32,
    /// Share of the last second in which a copy ran, percent.
    pub copy_busy_percent: u32,
    /// Processes with a context there.
    pub processes: Vec<ProcessFigures>,
    /// Power now.
    pub power_milliwatts: u32,
    /// Energy since the device started.
    pub energy_millijoules: u64,
    /// Contexts that ended by an error so far, each with its Xid number.
    pub errors: Vec<u32>,
    /// The device is lost (by a fault that was asked for).
    pub lost: bool,
    /// Degrees Celsius.
    pub temperature: u32,
}

/// One process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFigures {
    /// Which.
    pub pid: i32,
    /// Its memory on this GPU, contexts included.
    pub memory_bytes: u64,
    /// Share of the last second in which its kernels ran, percent.
    pub compute_busy_percent: u32,
}
