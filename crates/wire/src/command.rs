//! What people ask of the daemon, and its answers.
//!
//! The commands about jobs name them as people do: by the job's name, which is its user's own.

use crate::{Change, Description, Gpu, JobMemory, Setting, Status, Terms};
use serde::{Deserialize, Serialize};

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
    /// The memory of a job, for a program of it that looks at GPUs. Answered by `Memory`.
    Memory {
        /// The job's name.
        job: String,
    },
    /// As `Pause`; and what is left of the job on the GPU, its contexts, is put away too.
    PauseDeep {
        /// The job's name.
        job: String,
    },
    /// What became of `PauseDeep`, once that is known: answered by `Described` when nothing of the job is on the GPU, and by
    /// `Refused` where something stays there.
    AwaitDeep {
        /// The job's name.
        job: String,
    },
}

/// A job that is to begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Its name.
    pub name: String,
    /// Terms that it must have: it does not join a job that has others.
    pub asked: Change,
    /// Terms that it gets where it begins, and nothing else was asked for.
    pub usual: Change,
    /// The GPUs for this program.
    pub gpus: GpuChoice,
    /// How long its programs may wait at the door before they give up; None is for ever.
    pub timeout_ns: Option<u64>,
}

/// The GPUs that a program wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuChoice {
    /// One, as nothing else was said.
    #[default]
    Usual,
    /// So many.
    Count(u16),
    /// All that are shared, or that its user may have.
    All,
    /// These: each an index, or the beginning of a UUID.
    Named(Vec<String>),
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
    /// The memory of a job.
    Memory(JobMemory),
}

/// A job that a program may be started in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The GPUs for this program: one or more.
    pub gpus: Vec<Gpu>,
    /// How many programs are there already, those at the door included.
    pub others: u32,
    /// Its terms, by all rules.
    pub terms: Terms,
}
