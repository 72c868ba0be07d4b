//! Of a program that has ended nothing is asked: its number may be another's by then.

use super::{CheckpointError, Checkpoints, GET_STATE, Standing, Step};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Asks about one program, as long as it is there.
#[derive(Debug)]
pub struct Watched {
    checkpoints: Arc<dyn Checkpoints>,
    life: OwnedFd,
}

impl Watched {
    /// To ask about this program.
    pub fn new(checkpoints: Arc<dyn Checkpoints>, pid: u32) -> Result<Self, CheckpointError> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(CheckpointError::Gone)?;
        let life = pidfd_open(pid, PidfdFlags::empty()).map_err(|cause| match cause {
            Errno::SRCH => CheckpointError::Gone,
            cause => CheckpointError::NoHelper { call: GET_STATE, cause: cause.to_string() },
        })?;
        Ok(Self { checkpoints, life })
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
    fn standing(&self, pid: u32) -> Result<Standing, CheckpointError> {
        self.is_there()?;
        self.checkpoints.standing(pid)
    }

    fn take(&self, pid: u32, step: Step) -> Result<(), CheckpointError> {
        self.is_there()?;
        self.checkpoints.take(pid, step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[derive(Debug)]
    struct Willing;

    impl Checkpoints for Willing {
        fn standing(&self, _: u32) -> Result<Standing, CheckpointError> {
            Ok(Standing::Running)
        }

        fn take(&self, _: u32, _: Step) -> Result<(), CheckpointError> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_asked_about_one_that_has_ended() {
        let mut program = Command::new("sleep").arg("600").spawn().unwrap();
        let watched = Watched::new(Arc::new(Willing), program.id()).unwrap();
        assert_eq!(watched.standing(program.id()), Ok(Standing::Running));
        assert_eq!(watched.take(program.id(), Step::Lock), Ok(()));
        program.kill().unwrap();
        program.wait().unwrap();
        assert_eq!(watched.standing(program.id()), Err(CheckpointError::Gone));
        assert_eq!(watched.take(program.id(), Step::Lock), Err(CheckpointError::Gone));
        assert!(matches!(Watched::new(Arc::new(Willing), 0), Err(CheckpointError::Gone)));
    }
}
