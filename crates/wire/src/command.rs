//! What people ask of the daemon, and its answers: terms of jobs, and how things are. Keys in JSON are stable; bytes and
//! nanoseconds are integers.
//!
//! The commands about jobs name them as people do: by the job's name, which is its user's own.

use crate::quantity::{Memory, Share};
use crate::{Gpu, TenantId, TenantState};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Begin a job, or join one of this name. The process that asks is its first: the job is there as long as that lives,
    /// or any tenant of it. Answered by `Opened`.
    Open(JobRequest),
    /// Change the terms of a job while it runs. Answered by `Described`.
    Set {
        /// The job's name.
        job: String,
        /// What is to be different.
        change: Change,
    },
    /// A job is not to run until it is resumed. Answered by `Described`.
    Pause {
        /// The job's name.
        job: String,
    },
    /// A paused job may run again. Answered by `Described`.
    Resume {
        /// The job's name.
        job: String,
    },
    /// All about a job (by its name), a tenant (by its process) or a GPU (by its index or the beginning of its UUID).
    /// Answered by `Described`.
    Describe {
        /// What it is called.
        what: String,
    },
    /// How the daemon is. Answered by `Status`.
    Status,
    /// The settings in force, and where each comes from. Answered by `Settings`.
    Settings,
}

/// A job that is to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Its name.
    pub name: String,
    /// Terms that it must have: it does not join a job that has others.
    pub asked: Change,
    /// Terms that it gets where it begins, and nothing else was asked for.
    pub usual: Change,
}

/// Latency-critical or best-effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// Has the GPU at once.
    #[serde(rename = "lc")]
    LatencyCritical,
    /// Has the rest.
    #[default]
    #[serde(rename = "be")]
    BestEffort,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LatencyCritical => "lc",
            Self::BestEffort => "be",
        })
    }
}

/// How much a job matters, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Before all others.
    Realtime,
    /// Before most.
    High,
    /// As most.
    #[default]
    Normal,
    /// After most.
    Low,
    /// When nobody else wants.
    Idle,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Realtime => "realtime",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Idle => "idle",
        })
    }
}

/// The terms of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Its share among its user's jobs.
    pub weight: u32,
    /// One of two.
    pub class: Class,
    /// One of five; counts where the daemon's policy is `priority`.
    pub priority: Priority,
    /// What it may have on a GPU, contexts included.
    pub memory_max_bytes: Option<u64>,
    /// What it may have of a GPU's time, in millionths.
    pub cores_max_millionths: Option<u32>,
    /// How soon its requests are to be served.
    pub slo_ns: Option<u64>,
    /// Does memory that is short make it wait? Else it is out of memory.
    pub wait: bool,
}

/// Terms that are asked for. What is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// See [`Terms::weight`].
    pub weight: Option<u32>,
    /// See [`Terms::class`].
    pub class: Option<Class>,
    /// See [`Terms::priority`].
    pub priority: Option<Priority>,
    /// See [`Terms::memory_max_bytes`]; all of a GPU's is no limit.
    pub memory: Option<Memory>,
    /// See [`Terms::cores_max_millionths`]; all of it is no limit.
    pub cores_millionths: Option<u32>,
    /// See [`Terms::slo_ns`].
    pub slo_ns: Option<u64>,
    /// See [`Terms::wait`].
    pub wait: Option<bool>,
}

impl Change {
    /// Changes nothing?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, and where they say nothing, those.
    pub fn or(self, other: Self) -> Self {
        Self {
            weight: self.weight.or(other.weight),
            class: self.class.or(other.class),
            priority: self.priority.or(other.priority),
            memory: self.memory.or(other.memory),
            cores_millionths: self.cores_millionths.or(other.cores_millionths),
            slo_ns: self.slo_ns.or(other.slo_ns),
            wait: self.wait.or(other.wait),
        }
    }

    /// Terms with this change in them, on a GPU of this size.
    pub fn applied_to(&self, terms: &Terms, capacity_bytes: u64) -> Terms {
        let all = Share::ALL.millionths();
        Terms {
            weight: self.weight.unwrap_or(terms.weight),
            class: self.class.unwrap_or(terms.class),
            priority: self.priority.unwrap_or(terms.priority),
            memory_max_bytes: match self.memory {
                None => terms.memory_max_bytes,
                Some(memory) => Some(memory.on(capacity_bytes)).filter(|&bytes| bytes < capacity_bytes),
            },
            cores_max_millionths: match self.cores_millionths {
                None => terms.cores_max_millionths,
                Some(cores) => Some(cores).filter(|&cores| cores < all),
            },
            slo_ns: self.slo_ns.or(terms.slo_ns),
            wait: self.wait.unwrap_or(terms.wait),
        }
    }
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// A job has begun, or was joined.
    Opened(Opened),
    /// All about something.
    Described(Description),
    /// How the daemon is.
    Status(Status),
    /// The settings in force.
    Settings(Vec<Setting>),
    /// It is not done.
    Refused {
        /// Why, for people.
        reason: String,
        /// What to do instead.
        hint: Option<String>,
    },
}

/// A job that a program may be started in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Its GPU.
    pub gpu: Gpu,
    /// How many programs are there already, those at the door included.
    pub others: u32,
    /// Its terms, by all rules.
    pub terms: Terms,
}

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
    /// What the daemon's own context takes.
    pub reserve_bytes: u64,
    /// What programs outside of rota hold, as far as is known.
    pub unmanaged_bytes: u64,
    /// Pinned host memory for what is away.
    pub arena_bytes: u64,
    /// How much of the arena is taken.
    pub arena_used_bytes: u64,
    /// For a GPU in software: the folder of its virtual machine.
    pub vgpu: Option<String>,
    /// The process whose turn it is.
    pub turn_of_pid: Option<u32>,
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
    /// The process that `rota run` became, while it lives.
    pub root_pid: Option<u32>,
    /// Since when it is there.
    pub age_ns: u64,
    /// What it has on the GPU now: memory and contexts.
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
    /// How long it will wait still, if that can be said.
    pub forecast_ns: Option<u64>,
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
    /// What the self-test at its start found.
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

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        weight: 1,
        class: Class::BestEffort,
        priority: Priority::Normal,
        memory_max_bytes: Some(1 << 30),
        cores_max_millionths: Some(300_000),
        slo_ns: None,
        wait: false,
    };

    #[test]
    fn what_is_not_named_stays() {
        assert_eq!(Change::default().applied_to(&TERMS, 8 << 30), TERMS);
        let change =
            Change { weight: Some(3), memory: Some(Memory::Millionths(500_000)), ..Change::default() };
        let expected = Terms { weight: 3, memory_max_bytes: Some(4 << 30), ..TERMS };
        assert_eq!(change.applied_to(&TERMS, 8 << 30), expected);
    }

    #[test]
    fn all_there_is_is_no_limit() {
        let change = Change {
            memory: Some(Memory::Millionths(1_000_000)),
            cores_millionths: Some(1_000_000),
            ..Change::default()
        };
        let open = Terms { memory_max_bytes: None, cores_max_millionths: None, ..TERMS };
        assert_eq!(change.applied_to(&TERMS, 8 << 30), open);
        let more = Change { memory: Some(Memory::Bytes(9 << 30)), ..Change::default() };
        assert_eq!(more.applied_to(&TERMS, 8 << 30).memory_max_bytes, None);
    }

    #[test]
    fn the_first_word_counts() {
        let flag = Change { weight: Some(3), ..Change::default() };
        let environment = Change { weight: Some(5), wait: Some(true), ..Change::default() };
        let both = flag.or(environment);
        assert_eq!((both.weight, both.wait), (Some(3), Some(true)));
        assert!(!both.is_empty() && Change::default().is_empty());
    }
}
