//! The driver's own checkpoint of a program: what it has on the GPU goes into its own memory, and comes back.
//!
//! Each step takes the driver's answer as it is. As a value, so that tests have their own driver. The worker has none in
//! itself for this: see [`helper`].

pub mod helper;
pub mod watched;

use cuda::types::{CUcheckpointLockArgs, CUprocessState};
use cuda::{CUresult, Driver};
use keeper::Process;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GET_STATE: &str = "cuCheckpointProcessGetState";
/// How long a program's work may take to end before it counts as not locked.
pub const LOCK_WITHIN: Duration = Duration::from_secs(3);

/// How a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its calls go on.
    Running,
    /// Its calls of the driver wait.
    Locked,
    /// And it has nothing on any GPU.
    Out,
    /// A step has failed so that it cannot go on.
    Failed,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// From running to locked.
    Lock,
    /// From locked to out.
    Out,
    /// From out to locked.
    In,
    /// From locked to running.
    Unlock,
}

impl Step {
    /// The driver's name for it.
    pub fn call(self) -> &'static str {
        match self {
            Step::Lock => "cuCheckpointProcessLock",
            Step::Out => "cuCheckpointProcessCheckpoint",
            Step::In => "cuCheckpointProcessRestore",
            Step::Unlock => "cuCheckpointProcessUnlock",
        }
    }
}

/// Why a step was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The driver has no such function.
    #[error("this driver has no checkpoints of programs: one of version 570 or later has")]
    NotThere,
    /// It refused.
    #[error("{call} answers {code}{}", hint(*code))]
    Refused {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: CUresult,
    },
    /// It says what nobody knows.
    #[error("the driver says that the program is in state {0}, which is not known")]
    Unknown(u32),
    /// It did not answer, and is not waited for any more.
    #[error("{call} has not answered for {seconds} s")]
    Unanswered {
        /// The function.
        call: &'static str,
        /// As long.
        seconds: u64,
    },
    /// Nobody could be started to ask it, or watch the program meanwhile: nothing was done.
    #[error("no process can be had for {call}: {cause}")]
    NoHelper {
        /// The function.
        call: &'static str,
        /// Why not.
        cause: String,
    },
    /// Nothing was asked about a program that is not there any more.
    #[error("the program has ended")]
    Gone,
    /// Whoever asked it has ended, and has not said what it answered.
    #[error(
        "{call}: the process that asked for it has ended ({how}) without an answer; its messages are above"
    )]
    Silent {
        /// The function.
        call: &'static str,
        /// How it ended.
        how: String,
    },
}

fn hint(code: CUresult) -> &'static str {
    match code {
        CUresult::NOT_READY => ": the program has work on the GPU that does not end while it is paused",
        CUresult::NOT_SUPPORTED => ": the program has something that the driver cannot put away",
        CUresult::NOT_PERMITTED => {
            ": rotad may not do that to this program; it has to be of the same user, or root's"
        }
        CUresult::OUT_OF_MEMORY => ": the GPU is full, perhaps of programs outside of rota",
        _ => "",
    }
}

/// Who does it.
pub trait Checkpoints: Send + Sync + std::fmt::Debug {
    /// How a program stands.
    fn standing(&self, program: Process) -> Result<Standing, CheckpointError>;

    /// Takes a step, and waits until that is done. Returns how long the driver took.
    fn take(&self, program: Process, step: Step) -> Result<Duration, CheckpointError>;
}

/// By the driver.
#[derive(Debug)]
pub struct ByDriver(pub Arc<Driver>);

impl Checkpoints for ByDriver {
    fn standing(&self, program: Process) -> Result<Standing, CheckpointError> {
        let call = self.0.cuCheckpointProcessGetState.ok_or(CheckpointError::NotThere)?;
        let mut state = CUprocessState::default();
        // SAFETY: `state` is a place for the result.
        check(GET_STATE, unsafe { call(program.pid as i32, &mut state) })?;
        match state {
            CUprocessState::RUNNING => Ok(Standing::Running),
            CUprocessState::LOCKED => Ok(Standing::Locked),
            CUprocessState::CHECKPOINTED => Ok(Standing::Out),
            CUprocessState::FAILED => Ok(Standing::Failed),
            CUprocessState(other) => Err(CheckpointError::Unknown(other)),
        }
    }

    fn take(&self, program: Process, step: Step) -> Result<Duration, CheckpointError> {
        let (driver, pid, none) = (&self.0, program.pid as i32, std::ptr::null_mut());
        let begin = Instant::now();
        let mut given =
            CUcheckpointLockArgs { timeout_ms: LOCK_WITHIN.as_millis() as u32, ..Default::default() };
        // SAFETY: what is given is alive until the call returns, or is nothing, which all but the first allow.
        let code = unsafe {
            match step {
                Step::Lock => driver.cuCheckpointProcessLock.map(|call| call(pid, &mut given)),
                Step::Out => driver.cuCheckpointProcessCheckpoint.map(|call| call(pid, none)),
                Step::In => driver.cuCheckpointProcessRestore.map(|call| call(pid, none)),
                Step::Unlock => driver.cuCheckpointProcessUnlock.map(|call| call(pid, none)),
            }
        };
        check(step.call(), code.ok_or(CheckpointError::NotThere)?)?;
        Ok(begin.elapsed())
    }
}

fn check(call: &'static str, code: CUresult) -> Result<(), CheckpointError> {
    code.ok().map_err(|_| CheckpointError::Refused { call, code })
}
