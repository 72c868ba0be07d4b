//! A driver that refuses to put programs away, and remembers what it was asked for.

use keeper::Process;
use rota_daemon::checkpoints::{CheckpointError, Checkpoints, Standing, Step};
use std::sync::Mutex;
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Refusing {
    asked: Mutex<Vec<(u32, Step)>>,
    standing: Mutex<Option<Standing>>,
}

impl Refusing {
    /// What it was asked for so far.
    pub(crate) fn asked(&self) -> Vec<(u32, Step)> {
        self.asked.lock().unwrap().clone()
    }

    /// From now on every program stands so.
    pub(crate) fn say_that_all_are(&self, standing: Standing) {
        *self.standing.lock().unwrap() = Some(standing);
    }
}

impl Checkpoints for Refusing {
    fn standing(&self, _: Process) -> Result<Standing, CheckpointError> {
        Ok(self.standing.lock().unwrap().unwrap_or(Standing::Running))
    }

    fn take(&self, program: Process, step: Step) -> Result<Duration, CheckpointError> {
        self.asked.lock().unwrap().push((program.pid, step));
        Err(CheckpointError::Refused { call: "cuCheckpointProcessLock", code: cuda::CUresult::NOT_READY })
    }
}
