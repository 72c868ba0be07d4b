//! Of a program that has ended nothing is asked: its number may be another's by then.

use super::{CheckpointError, Checkpoints, GET_STATE, Standing, Step};
use keeper::Process;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Asks about one program, as long as it is there, and remembers how long its steps took.
#[derive(Debug)]
pub struct Watched {
    checkpoints: Arc<dyn Checkpoints>,
    life: OwnedFd,
    taken: Mutex<Vec<(Step, Duration)>>,
}

impl Watched {
    /// To ask about this program.
    pub fn new(checkpoints: Arc<dyn Checkpoints>, program: Process) -> Result<Self, CheckpointError> {
        let pid = i32::try_from(program.pid).ok().and_then(Pid::from_raw).ok_or(CheckpointError::Gone)?;
        let life = pidfd_open(pid, PidfdFlags::empty()).map_err(|cause| match cause {
            Errno::SRCH => CheckpointError::Gone,
            cause => CheckpointError::NoHelper { call: GET_STATE, cause: cause.to_string() },
        })?;
        // Looked at second: so what is watched is the one that is meant.
        match Process::find(program.pid) {
            Some(found) if found == program => Ok(Self { checkpoints, life, taken: Mutex::default() }),
            _ => Err(CheckpointError::Gone),
        }
    }

    /// What was done so far, and how long the driver took.
    pub fn taken(&self) -> Vec<(Step, Duration)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_there(&self) -> Result<(), CheckpointError> {
        let mut end = [PollFd::new(&self.life, PollFlags::IN)];
        match rustix::event::poll(&mut end, Some(&Timespec::default())) {
            Ok(1..) => Err(CheckpointError::Gone),
            _ => Ok(()),
        }
    }
}

impl Checkpoints for Watched {
    fn standing(&self, program: Process) -> Result<Standing, CheckpointError> {
        self.is_there()?;
        self.checkpoints.standing(program)
    }

    fn take(&self, program: Process, step: Step) -> Result<Duration, CheckpointError> {
        self.is_there()?;
        let took = self.checkpoints.take(program, step)?;
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).push((step, took));
        Ok(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[derive(Debug)]
    struct Willing;

    const TOOK: Duration = Duration::from_millis(7);

    impl Checkpoints for Willing {
        fn standing(&self, _: Process) -> Result<Standing, CheckpointError> {
            Ok(Standing::Running)
        }

        fn take(&self, _: Process, _: Step) -> Result<Duration, CheckpointError> {
            Ok(TOOK)
        }
    }

    #[test]
    fn nothing_is_asked_about_one_that_has_ended() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let program = Process::find(child.id()).unwrap();
        let watched = Watched::new(Arc::new(Willing), program).unwrap();
        assert_eq!(watched.standing(program), Ok(Standing::Running));
        assert_eq!(watched.take(program, Step::Lock), Ok(TOOK));
        assert_eq!(watched.taken(), [(Step::Lock, TOOK)]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(watched.standing(program), Err(CheckpointError::Gone));
        assert_eq!(watched.take(program, Step::Lock), Err(CheckpointError::Gone));
    }

    #[test]
    fn nothing_is_asked_about_another_that_has_its_number() {
        let this = Process::this();
        assert!(Watched::new(Arc::new(Willing), this).is_ok());
        let earlier = Process { start_ticks: this.start_ticks - 1, ..this };
        for other in [earlier, Process { pid: 0, start_ticks: 1 }] {
            assert!(matches!(Watched::new(Arc::new(Willing), other), Err(CheckpointError::Gone)));
        }
    }
}
