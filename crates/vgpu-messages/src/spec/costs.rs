//! What things cost. The defaults are near to what was measured on an H200, but for contexts, which would hold tests up.

use serde::Deserialize;

use crate::quantity::{Nanos, Rate};

/// What things cost in device time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// From one compute group to another, both in the middle of a kernel.
    pub switch: Nanos,
    /// The share of it that saves the first.
    pub switch_save: f64,
    /// The share of it that loads the second. What is left restores its kernel, within its slice: a slice that is not
    /// longer makes no progress.
    pub switch_load: f64,
    /// The time slice of a new compute group.
    pub slice: Nanos,
    /// To take a process's compute channels off.
    pub freeze_compute: Nanos,
    /// To take more than the compute channels off.
    pub freeze_all: Nanos,
    /// To put channels back.
    pub thaw: Nanos,
    /// Any other RM call.
    pub control: Nanos,
    /// Making a context.
    pub context: Nanos,
    /// Giving back a process's memory and channels at its end.
    pub teardown: Nanos,
    /// The start of a kernel.
    pub launch: Nanos,
    /// The start of a copy.
    pub copy: Nanos,
    /// Pinning host memory: bytes a second.
    pub pin_rate: Rate,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            switch: Nanos(230_000),
            switch_save: 0.35,
            switch_load: 0.35,
            slice: Nanos(2_048_000),
            freeze_compute: Nanos(600_000),
            freeze_all: Nanos(1_000_000),
            thaw: Nanos(330_000),
            control: Nanos(20_000),
            context: Nanos(20_000_000),
            teardown: Nanos(20_000_000),
            launch: Nanos(5_000),
            copy: Nanos(5_000),
            pin_rate: Rate(16 << 30),
        }
    }
}
