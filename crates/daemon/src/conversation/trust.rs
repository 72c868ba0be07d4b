//! Whose memory a program may have.
//!
//! Whoever had memory may have kept a way to it, and would see what the next one has there. So it is passed on only between
//! programs that could look into each other anyway: of one user, in one user namespace and one PID namespace. All of that is the
//! kernel's word.

use super::{AT_ONCE, dies};
use mover::Domain;
use rustix::process::Pid;
use std::os::fd::OwnedFd;

/// Where a process belongs, of which this is a pidfd. None if the kernel does not say: then it is alone.
pub(super) fn domain(pid: Pid, uid: u32, watch: &OwnedFd) -> Option<Domain> {
    let space = |kind: &str| {
        let path = format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero());
        rustix::fs::stat(path).ok().map(|found| found.st_ino)
    };
    let domain = Domain([u64::from(uid), space("user")?, space("pid")?]);
    // Only now: as long as the process has not ended, its number is nobody else's.
    (!dies(watch, Some(AT_ONCE))).then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::super::watch;
    use super::*;
    use std::process::Command;

    #[test]
    fn processes_of_one_user_belong_together_and_the_dead_nowhere() {
        let own = rustix::process::getpid();
        let here = domain(own, 7, &watch(own).unwrap()).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let its = watch(pid).unwrap();
        assert_eq!(domain(pid, 7, &its), Some(here));
        assert_ne!(domain(pid, 8, &its), Some(here));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(domain(own, 7, &its), None, "its number may be another's");
    }
}
