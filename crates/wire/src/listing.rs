//! Who is there: the answer behind `rota ps`, with stable keys.

use crate::{Hints, Statistics, TenantId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of the JSON form of [`Listing`].
pub const SCHEMA_VERSION: u32 = 1;

/// GPUs and tenants, as the daemon sees them now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The GPUs that the daemon shares.
    pub gpus: Vec<Gpu>,
    /// The tenants, in the order they came.
    pub tenants: Vec<Tenant>,
    /// Processes that use these GPUs and are no tenants, those that hold most first.
    pub unmanaged: Vec<Unmanaged>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its UUID, as `GPU-…`.
    pub uuid: String,
    /// Its name by the driver.
    pub name: String,
    /// Its size as the daemon treats it.
    pub capacity_bytes: u64,
    /// What tenants hold on it now: mapped memory and contexts.
    pub used_bytes: u64,
    /// Pinned host memory for what is away, of all GPUs together.
    pub arena_bytes: u64,
    /// How much of the arena is taken by what is away.
    pub arena_used_bytes: u64,
    /// How much of the rest has clean copies, which make room for whatever needs it.
    pub arena_clean_bytes: u64,
    /// For a GPU in software: the folder of its virtual machine. None for a real one.
    pub vgpu: Option<String>,
    /// For how long it has been latency-critical programs' first; none while it is not. More of that is in [`crate::LcMode`].
    pub lc_mode_for_ns: Option<u64>,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its number in this daemon.
    pub tenant: TenantId,
    /// Its process.
    pub pid: u32,
    /// UUID of the GPU that it uses.
    pub gpu: String,
    /// Its job.
    pub job: String,
    /// The program's name.
    pub program: String,
    /// What it is doing.
    pub state: TenantState,
    /// Its memory on the device, without its context.
    pub resident_bytes: u64,
    /// Its memory in the arena.
    pub away_bytes: u64,
    /// How many turns it has had.
    pub turns: u64,
    /// For how long it has waited for its next turn, in nanoseconds; 0 while it runs.
    pub waiting_ns: u64,
    /// Its place among those who wait for turns on its GPU, or at the door, from 1; none if it does not wait, or nobody knows.
    pub place: Option<u32>,
    /// How many wait there; none if it does not.
    pub places: Option<u32>,
    /// About how long it will wait still, if that can be said.
    pub forecast_ns: Option<u64>,
    /// Its memory that lies in the host's for good, because the GPU cannot have it.
    pub host_bytes: u64,
    /// What became of its hints; none for one that is not latency-critical and has given none.
    pub hints: Option<Hints>,
    /// What it went through; none at the door, or where there are too many for one answer.
    pub statistics: Option<Statistics>,
    /// Does its memory stay on the GPU, because its job reserved it?
    pub reserved: bool,
    /// Why it has not come back, if it was put away whole (`rota pause --deep`) and its job goes on.
    pub not_back: Option<NotBack>,
    /// Why its context is on the GPU still, if its job is paused and was to give up its contexts too (`rota pause --deep`).
    pub not_deep: Option<NotDeep>,
}

/// Why a program that was put away whole has not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotBack {
    /// There is no room for its context.
    NoRoom,
    /// It was tried, and will be again; `rota describe` says what was wrong.
    Failed,
}

impl fmt::Display for NotBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NoRoom => "no room to come back",
            Self::Failed => "cannot come back, tried again",
        })
    }
}

/// Why the context of a program whose job was to give up its contexts is on the GPU still; `rota describe` says it in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotDeep {
    /// It is on its way out, or waits for something.
    Yet,
    /// The program has given the GPU work that nobody has waited for.
    Work,
    /// A thread of the program did not leave the driver.
    Calls,
    /// It shares memory with other processes or devices.
    Shared,
    /// Its memory is reserved.
    Reserved,
    /// The program is stopped.
    Stopped,
    /// The driver refused.
    Driver,
    /// Something else was in the way.
    Other,
    /// How it stands is not known.
    Unknown,
}

impl fmt::Display for NotDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yet => "not deep yet",
            Self::Work => "not deep: work nobody waited for",
            Self::Calls => "not deep: inside of the driver",
            Self::Shared => "not deep: shares memory",
            Self::Reserved => "not deep: memory is reserved",
            Self::Stopped => "not deep: it is stopped",
            Self::Driver => "not deep: the driver refused",
            Self::Other => "not deep: see rota describe",
            Self::Unknown => "not known whether deep",
        })
    }
}

/// A process that uses a GPU past rota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmanaged {
    /// Which.
    pub pid: u32,
    /// UUID of the GPU.
    pub gpu: String,
    /// What it holds there.
    pub bytes: u64,
    /// The program's name, if that can be told.
    pub program: String,
    /// The job whose process started it: then it lost the shim on its way. None for a stranger.
    pub job: Option<String>,
}

/// What a tenant is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantState {
    /// Connected; it has no context yet, so there is nothing to take turns with.
    Joined,
    /// It has its turn.
    Running,
    /// Frozen, all of its memory on the device.
    Frozen,
    /// Frozen, and its memory is on its way out or in.
    Moving,
    /// Frozen, and some or all of its memory in the arena.
    Away,
    /// Frozen until its job is resumed.
    Paused,
    /// At the door: it will be let in when there is room for its context.
    Queued,
}

impl fmt::Display for TenantState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Joined => "joined",
            Self::Running => "running",
            Self::Frozen => "frozen",
            Self::Moving => "moving",
            Self::Away => "away",
            Self::Paused => "paused",
            Self::Queued => "queued",
        })
    }
}
