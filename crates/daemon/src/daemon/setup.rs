//! What the daemon is, as it is told at its start.

use super::deep::ByWhom;
use crate::config::rules;
use crate::resource_manager::ResourceManager;
use std::time::Duration;
use wire::{SelfTest, Setting};

/// The sizes that stay as they are while the daemon runs, and the settings it begins with.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Host memory for what is away, of all GPUs together.
    pub arena_bytes: u64,
    /// The core's. Its deadlines are the daemon's own, see [`crate::executor::deadlines`].
    pub settings: sched::Settings,
    /// By which share of its length a turn varies.
    pub turn_jitter: f64,
    /// Where the variation begins.
    pub seed: u64,
}

/// A GPU that is shared.
#[derive(Clone, Debug)]
pub struct SharedGpu {
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Its size as it is treated.
    pub capacity_bytes: u64,
    /// What is kept for the daemon's own context, and for the driver's tables of the arena.
    pub reserve_bytes: u64,
    /// What a context takes that does nothing yet: what a newcomer's counts as, until NVML says more.
    pub residue_bytes: u64,
    /// What the daemon leaves alone of the device, so that others may have it.
    pub spare_bytes: u64,
    /// How tenants are frozen there.
    pub freezes: Freezes,
}

/// How tenants are frozen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freezes {
    /// Their channels are taken off the GPU, in the middle of a kernel.
    #[default]
    Channels,
    /// They hold their launches back, and what was launched before ends first.
    Launches,
}

/// What the daemon tells people of itself, and what it lets them do.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Its configuration file.
    pub config: Option<String>,
    /// Every setting, with where it comes from.
    pub settings: Vec<Setting>,
    /// What the self-test at the start found.
    pub self_test: Option<SelfTest>,
    /// After how long with nobody there it ends.
    pub idle_exit: Option<Duration>,
    /// What users may ask for.
    pub rules: rules::Rules,
    /// The process that people started, if it is another.
    pub supervisor_pid: Option<u32>,
    /// The process that holds what is away.
    pub keeper_pid: Option<u32>,
    /// How often a worker was started anew.
    pub restarts: u32,
}

/// What the daemon is and how it shares.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The GPUs, in the order in which gangs take them.
    pub gpus: Vec<SharedGpu>,
    /// The folder of their virtual machine, if they are in software.
    pub vgpu: Option<String>,
    /// Sizes and settings.
    pub rules: Rules,
    /// How often to look at which memory of programs larger than their GPU changes, if ever.
    pub rehome: Option<std::time::Duration>,
    /// Whether threads stay awake for moments, where there are processors to spare.
    pub stands_by: bool,
    /// For people.
    pub about: About,
    /// How to freeze.
    pub manager: ResourceManager,
    /// Who puts programs' contexts away, if anybody can.
    pub checkpoints: ByWhom,
}
