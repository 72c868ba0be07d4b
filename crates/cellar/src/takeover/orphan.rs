//! A file whose last user is gone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Why a file is no orphan.
#[derive(Debug, thiserror::Error)]
pub enum StillAlive {
    /// The process runs, or one of its threads has not come to its end.
    #[error("the process that had the cellar has not ended: wait for it before its file is taken over")]
    Runs,
    /// Nobody can tell.
    #[error("cannot tell whether the process that had the cellar has ended: {0}")]
    Unknown(#[source] io::Error),
}

/// A cellar's file that nobody writes to any more.
///
/// To be killed is not to be dead: a thread in the middle of a write ends when the disk has answered. A process descriptor
/// tells the end of the last thread, and so does having waited for the process.
#[derive(Debug)]
pub struct Orphan(OwnedFd);

impl Orphan {
    /// The file of a process that has ended, by a descriptor of it (`pidfd_open`). Never waits: it is an error if it has
    /// not ended yet.
    pub fn of_process(file: OwnedFd, process: impl AsFd) -> Result<Orphan, StillAlive> {
        let mut process = [PollFd::new(&process, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut process, Some(&at_once)).map_err(|error| StillAlive::Unknown(error.into()))?;
        if process[0].revents().contains(PollFlags::IN) { Ok(Orphan(file)) } else { Err(StillAlive::Runs) }
    }

    /// A file of which the caller knows that nobody writes to it: whoever did was waited for, as a child is, or its cellar was
    /// taken apart.
    pub fn vouched_for(file: OwnedFd) -> Orphan {
        Orphan(file)
    }

    /// The file.
    pub fn into_file(self) -> OwnedFd {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::process::{Command, Stdio};

    #[test]
    fn only_what_the_dead_leave_is_taken() {
        let file = || tempfile::tempfile().expect("a file").into();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let pid = Pid::from_raw(child.id() as i32).expect("a number");
        let process = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
        assert!(matches!(Orphan::of_process(file(), &process), Err(StillAlive::Runs)));
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
        assert!(Orphan::of_process(file(), &process).is_ok());
    }
}
