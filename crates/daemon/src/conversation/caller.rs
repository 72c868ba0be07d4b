//! Who is at the other end of a connection: one process, from the moment the connection was accepted.
//!
//! A number is not a process. Whoever connects may leave its connection to another, end, and wait until its number is a
//! stranger's. So what is found under the number counts only if the watched process has not ended by then.

use super::{AT_ONCE, Ended, dies};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::WatchedPeer;

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Caller(Arc<WatchedPeer>);

impl Caller {
    /// Whoever was watched when its connection was accepted.
    pub(super) fn of(peer: WatchedPeer) -> Result<Self, Ended> {
        let caller = Self(Arc::new(peer));
        // An older kernel's word is about whoever had the number when it was watched. That is at least of the same user.
        if !caller.is_certain() && !Credentials::of(caller.pid()).is_some_and(|its| its.is_of(caller.uid())) {
            return Err(Ended::Died);
        }
        caller.is_there().map(|()| caller)
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.0.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whose it was when it connected.
    pub(super) fn uid(&self) -> u32 {
        self.0.uid.as_raw()
    }

    /// Is the watched process the one that connected, by the kernel's word?
    pub(super) fn is_certain(&self) -> bool {
        self.0.is_certain
    }

    /// Becomes readable when it has ended.
    pub(super) fn watch(&self) -> &OwnedFd {
        &self.0.watch
    }

    /// What was found under its number up to now is its own. An error if it has ended.
    pub(super) fn is_there(&self) -> Result<(), Ended> {
        if dies(self.watch(), Some(AT_ONCE)) { Err(Ended::Died) } else { Ok(()) }
    }

    /// With the time of its start.
    pub(super) fn process(&self) -> Result<keeper::Process, Ended> {
        let process = keeper::Process::find(self.pid()).ok_or(Ended::Died)?;
        self.is_there().map(|()| process)
    }
}

/// What a process may do, by the kernel's word: real, effective, saved and of files, each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) users: Vec<u32>,
    pub(crate) groups: Vec<u32>,
    /// The other groups that it is in.
    pub(crate) further_groups: Vec<u32>,
    /// The capabilities that it can have, as bits.
    pub(crate) capabilities: u64,
}

impl Credentials {
    /// Of whoever has this number.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::in_status(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    /// As `/proc/PID/status` has them.
    pub(crate) fn in_status(status: &str) -> Option<Self> {
        let line = |name: &str| {
            status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
        };
        let numbers = |name: &str| -> Option<Vec<u32>> {
            line(name)?.split_whitespace().map(|number| number.parse().ok()).collect()
        };
        Some(Self {
            users: numbers("Uid")?,
            groups: numbers("Gid")?,
            further_groups: numbers("Groups")?,
            capabilities: u64::from_str_radix(line("CapPrm")?, 16).ok()?,
        })
    }

    /// Has it to do with this user? So has a program that runs as another for a while.
    pub(crate) fn is_of(&self, uid: u32) -> bool {
        self.users.contains(&uid)
    }

    /// The user and the group that it is of, if it is of one only in every respect.
    pub(crate) fn only(&self) -> Option<(u32, u32)> {
        let single = |all: &[u32]| {
            let first = *all.first()?;
            all.iter().all(|one| *one == first).then_some(first)
        };
        Some((single(&self.users)?, single(&self.groups)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, Uid, getuid, pidfd_open};
    use std::process::{Child, Command};

    const STATUS: &str =
        "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t4 24 \nCapPrm:\t00000000a80425fb\n";

    fn asleep() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn watched(child: &Child, uid: Uid, is_certain: bool) -> WatchedPeer {
        let pid = Pid::from_child(child);
        WatchedPeer { pid, uid, watch: pidfd_open(pid, PidfdFlags::empty()).unwrap(), is_certain }
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_is_found_under_the_number_of_one_that_has_ended_is_not_its_own() {
        let (gone, there) = (asleep(), asleep());
        let mut peer = watched(&gone, getuid(), true);
        // As it is when another has got its number.
        peer.pid = Pid::from_child(&there);
        end(gone);
        assert!(matches!(Caller::of(peer), Err(Ended::Died)));
        let caller = Caller::of(watched(&there, getuid(), true)).unwrap();
        assert_eq!(caller.process().unwrap(), keeper::Process::find(there.id()).unwrap());
        end(there);
        assert!(matches!(caller.process(), Err(Ended::Died)));
    }

    #[test]
    fn an_older_kernels_word_counts_for_processes_of_the_same_user_only() {
        let child = asleep();
        let another = Uid::from_raw(getuid().as_raw() + 1);
        assert!(Caller::of(watched(&child, getuid(), false)).is_ok());
        assert!(matches!(Caller::of(watched(&child, another, false)), Err(Ended::Died)));
        assert!(Caller::of(watched(&child, another, true)).is_ok(), "it was another's when it connected");
        end(child);
    }

    #[test]
    fn credentials_are_read_as_the_kernel_writes_them() {
        let its = Credentials::in_status(STATUS).unwrap();
        assert_eq!((its.only(), its.capabilities), (Some((7, 8)), 0xa804_25fb));
        assert_eq!(its.further_groups, [4, 24]);
        assert!(its.is_of(7) && !its.is_of(8));
        for (line, other) in
            [("7\t7\t7\t7", "0\t7\t7\t7"), ("7\t7\t7\t7", "7\t7\t0\t7"), ("8\t8\t8\t8", "8\t9\t8\t8")]
        {
            let its = Credentials::in_status(&STATUS.replace(line, other)).unwrap();
            assert_eq!(its.only(), None, "{other}");
        }
        for missing in ["Uid", "Gid", "Groups", "CapPrm"] {
            assert_eq!(Credentials::in_status(&STATUS.replace(missing, "Xid")), None, "{missing}");
        }
        assert_eq!(Credentials::of(u32::MAX), None);
        assert!(Credentials::of(std::process::id()).unwrap().is_of(getuid().as_raw()));
    }
}
