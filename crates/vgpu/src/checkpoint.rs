//! The driver's checkpoint of other processes.

use std::ffi::{c_int, c_void};

use cuda::CUresult;
use cuda::types::{CUcheckpointLockArgs, CUprocessState};
use vgpu_messages::checkpoint::CheckpointStep;
use vgpu_messages::{Answer, Request};

use crate::argument::{In, Out};
use crate::guard::{Outcome, api};
use crate::session::{ask, tell};

const NANOS_PER_MS: u64 = 1_000_000;

fn step(pid: c_int, step: CheckpointStep) -> Outcome {
    tell(Request::Checkpoint { pid, step })
}

api! {
    cuCheckpointProcessGetState(pid: c_int, state: Out<CUprocessState>) {
        state.check()?;
        let request = Request::Checkpoint { pid, step: CheckpointStep::State };
        let number = ask!(request, Answer::Number(number) => number);
        state.set(CUprocessState(u32::try_from(number).map_err(|_| CUresult::UNKNOWN)?))
    }

    cuCheckpointProcessLock(pid: c_int, given: In<CUcheckpointLockArgs>) {
        let timeout_ms = if given.is_null() { 0 } else { given.get()?.timeout_ms };
        step(pid, CheckpointStep::Lock { timeout_nanos: u64::from(timeout_ms) * NANOS_PER_MS })
    }

    cuCheckpointProcessCheckpoint(pid: c_int, _given: In<c_void>) {
        step(pid, CheckpointStep::Out)
    }

    cuCheckpointProcessRestore(pid: c_int, _given: In<c_void>) {
        step(pid, CheckpointStep::In)
    }

    cuCheckpointProcessUnlock(pid: c_int, _given: In<c_void>) {
        step(pid, CheckpointStep::Unlock)
    }
}
