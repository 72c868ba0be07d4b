//! How things are, in full: what `rota describe`, `rota status` and `rota config show` print. Keys in JSON are stable; bytes
//! and nanoseconds are integers.

use crate::{Gpu, Hints, Statistics, TenantId, TenantState, Terms};
use serde::{Deserialize, Serialize};

/// All about a job, a tenant or a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// [`crate::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The GPU that was asked for.
    pub gpu: Option<GpuView>,
    /// The jobs that were asked for: one, or those of a GPU.
    pub jobs: Vec<JobView>,
}

/// A GPU, in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuView {
    /// Its index.
    pub index: u32,
    /// Its UUID, as `GPU-…`.
    pub uuid: String,
    /// Its name by the driver.
    pub name: String,
    /// Its size as the daemon treats it.
    pub capacity_bytes: u64,
    /// What tenants hold on it now: mapped memory and contexts.
    pub used_bytes: u64,
    /// What is kept for the daemon's own context and for the driver's tables of the arena.
    pub reserve_bytes: u64,
    /// What is in use outside of rota: by other programs, and by nobody who is seen.
    pub unmanaged_bytes: u64,
    /// Pinned host memory for what is away.
    pub arena_bytes: u64,
    /// How much of the arena is taken by what is away.
    pub arena_used_bytes: u64,
    /// How much of the rest has clean copies, which make room for whatever needs it.
    pub arena_clean_bytes: u64,
    /// For a GPU in software: the folder of its virtual machine.
    pub vgpu: Option<String>,
    /// The process whose turn it is.
    pub turn_of_pid: Option<u32>,
    /// What counts more where latency-critical programs and others meet: `latency`, `balanced` or `throughput`.
    pub favour: String,
    /// What best-effort programs get of the time beside latency-critical ones, in millionths.
    pub be_guarantee_millionths: u32,
    /// What stays on it, whoever's turn it is: reserved, or pinned.
    pub stays_bytes: u64,
    /// When it was latency-critical programs' first, and what that took from others.
    pub lc_mode: LcMode,
}

/// LC mode of a GPU: on while somebody latency-critical uses it, and for some time after (`lc_linger`), so that it does not
/// change with every request. What it was since the worker that shares the GPU began to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LcMode {
    /// For how long it has been on; none while it is off.
    pub on_for_ns: Option<u64>,
    /// How often it began.
    pub begun: u64,
    /// For how long it was on, all together.
    pub lasted_ns: u64,
    /// For how much of that no best-effort program could run, though one had work.
    pub held_back_ns: u64,
    /// How often it took a best-effort program off the GPU.
    pub freezes: u64,
    /// How long it took to take best-effort programs off and to put them on: GPU time that nobody had.
    pub switching_ns: u64,
}

/// A job, in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its name.
    pub job: String,
    /// Whose it is.
    pub uid: u32,
    /// Its terms.
    pub terms: Terms,
    /// Is it paused?
    pub paused: bool,
    /// Why its last program was sent to the GPU that it is on, if it was.
    pub placed: Option<String>,
    /// The process that `rota run` became, while it lives.
    pub root_pid: Option<u32>,
    /// Since when it is there.
    pub age_ns: u64,
    /// What it has, on all its GPUs: memory, wherever it lies just now, and contexts.
    pub used_bytes: u64,
    /// How long it had the GPU, all its tenants together.
    pub ran_ns: u64,
    /// Its tenants, or the one that was asked for.
    pub tenants: Vec<TenantView>,
}

/// A tenant, in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantView {
    /// Its number in this daemon.
    pub tenant: TenantId,
    /// Its process.
    pub pid: u32,
    /// The program's name.
    pub program: String,
    /// The UUID of its GPU.
    pub gpu: String,
    /// What it is doing.
    pub state: TenantState,
    /// Why, for people.
    pub reason: String,
    /// Its memory on the device.
    pub resident_bytes: u64,
    /// Its memory in the arena.
    pub away_bytes: u64,
    /// What its context takes on the device.
    pub context_bytes: u64,
    /// How many turns it has had.
    pub turns: u64,
    /// How long they were, all together.
    pub ran_ns: u64,
    /// For how long it has waited; 0 while it does not.
    pub waiting_ns: u64,
    /// About how long it will wait still, if that can be said.
    pub forecast_ns: Option<u64>,
    /// Of its memory, what has to stay on the device: pinned, or the driver's own.
    pub pinned_bytes: u64,
    /// Its place among those who wait for turns on its GPU, or at the door, from 1; none if it does not wait, or nobody knows.
    pub place: Option<u32>,
    /// How many wait there; none if it does not.
    pub places: Option<u32>,
    /// Its memory that lies in the host's, because the GPU cannot have it.
    pub host_bytes: u64,
    /// What became of its hints; none for one that is not latency-critical and has given none.
    pub hints: Option<Hints>,
    /// What it went through; none at the door, or where there are too many for one answer.
    pub statistics: Option<Statistics>,
    /// Its memory that has changed places between the GPU and the host, both ways together.
    pub rehomed_bytes: u64,
}

/// What a job sees of the machine's memory: its own, as if nobody else were there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMemory {
    /// The GPUs that are shared.
    pub gpus: Vec<MemoryOnGpu>,
    /// Its tenants.
    pub processes: Vec<ProcessOnGpu>,
}

/// A GPU, as a job sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryOnGpu {
    /// Its UUID, as `GPU-…`.
    pub gpu: String,
    /// What the job may have there.
    pub limit_bytes: u64,
    /// What it has there, contexts included, wherever it lies just now.
    pub used_bytes: u64,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessOnGpu {
    /// Which.
    pub pid: u32,
    /// The GPU's UUID.
    pub gpu: String,
    /// What it has there.
    pub bytes: u64,
}

/// How the daemon is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`crate::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Who runs it.
    pub uid: u32,
    /// For how long.
    pub uptime_ns: u64,
    /// Its configuration file.
    pub config: Option<String>,
    /// How the next one is chosen.
    pub policy: String,
    /// The shortest turn.
    pub turn_min_ns: u64,
    /// The longest turn.
    pub turn_max_ns: u64,
    /// After how long with nobody there it ends.
    pub idle_exit_ns: Option<u64>,
    /// What the self-test at its start found; None where programs are not frozen, but their launches held back.
    pub self_test: Option<SelfTest>,
    /// The GPUs that it shares.
    pub gpus: Vec<Gpu>,
    /// Jobs there are.
    pub jobs: u32,
    /// Tenants there are, those at the door not included.
    pub tenants: u32,
    /// Tenants that may run now.
    pub running: u32,
    /// Tenants that wait for a turn, for memory or at the door.
    pub waiting: u32,
    /// The process that shares the GPUs, started anew when it dies.
    pub worker_pid: u32,
    /// How often it was.
    pub worker_restarts: u32,
    /// The process that holds what is away; None where it is gone, or the worker's own.
    pub keeper_pid: Option<u32>,
}

/// What a self-test that went well found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTest {
    /// Rounds of freeze and thaw.
    pub rounds: u32,
    /// The longest freeze.
    pub freeze_max_ns: u64,
    /// The longest time from a thaw until the kernel went on.
    pub thaw_max_ns: u64,
}

impl SelfTest {
    /// The worst of both.
    pub fn slower(self, other: Self) -> Self {
        Self {
            rounds: self.rounds.min(other.rounds),
            freeze_max_ns: self.freeze_max_ns.max(other.freeze_max_ns),
            thaw_max_ns: self.thaw_max_ns.max(other.thaw_max_ns),
        }
    }
}

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name, as in the file.
    pub key: String,
    /// Its value, as in the file.
    pub value: String,
    /// Where it comes from: `default`, `flag`, `environment NAME`, or a file with the line.
    pub origin: String,
}
