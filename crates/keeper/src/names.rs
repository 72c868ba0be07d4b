//! What things are called, here and by every worker.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::OwnedFd;

/// A tenant. The number stays the same when the worker is replaced. Workers use none twice while the keeper lives: a new one
/// is higher than all before it ([`crate::Welcome::highest_tenant`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TenantNumber(pub u32);

impl fmt::Display for TenantNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tenant {}", self.0)
    }
}

/// A handle of a tenant, by the name that the tenant gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HandleKey {
    /// Whose it is.
    pub tenant: TenantNumber,
    /// Which one of that tenant.
    pub handle: u64,
}

impl fmt::Display for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle {} of {}", self.handle, self.tenant)
    }
}

/// A NUMA node of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Node(pub u32);

/// A process, so that another one that got the same number later is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot.
    pub start_ticks: u64,
}

/// What the hash of blocks is keyed with. As secret as the bytes of tenants, so it is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HashSeed(Vec<u8>);

impl HashSeed {
    /// The fewest bytes.
    pub const BYTES_MIN: usize = 16;
    /// The most bytes.
    pub const BYTES_MAX: usize = 64;

    /// These bytes. None if they are too few or too many.
    pub fn new(bytes: &[u8]) -> Option<HashSeed> {
        Some(HashSeed(bytes.to_vec())).filter(HashSeed::has_a_right_size)
    }

    /// What was kept.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What came in a message need not have been made by [`HashSeed::new`].
    pub(crate) fn has_a_right_size(&self) -> bool {
        (HashSeed::BYTES_MIN..=HashSeed::BYTES_MAX).contains(&self.0.len())
    }
}

impl fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSeed(..)")
    }
}

impl Process {
    /// The process that has this number now. None if there is none, or it cannot be seen from here.
    pub fn find(pid: u32) -> Option<Process> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Process { pid, start_ticks: start_ticks(&stat)? })
    }

    /// This process.
    pub fn this() -> Process {
        let pid = std::process::id();
        // Without /proc the number has to do.
        Process::find(pid).unwrap_or(Process { pid, start_ticks: 0 })
    }

    /// Is it certain that it is no longer there? Not where its start is not known, or /proc cannot be read.
    pub(crate) fn has_ended(self) -> bool {
        self.start_ticks > 0 && Process::find(std::process::id()).is_some() && !self.is_there()
    }

    /// Is it this very process that has the number now, and has it not ended? One that has, and that nobody has reaped yet,
    /// has nothing any more but its number.
    pub fn is_there(self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // First: what gets the number later is not what is watched.
        let watch = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let has_the_number = Process::find(self.pid) == Some(self);
        has_the_number && !watch.is_some_and(|watch| has_ended(&watch))
    }
}

/// Has the process ended, all of it, that this was opened for?
pub(crate) fn has_ended(watch: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(watch, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Field 22 of `/proc/PID/stat`. The second field is the program's name, which may have spaces and brackets in it.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_is_no_field() {
        let stat =
            "7 (a ) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 4321 1000 50 18446744073709551615";
        assert_eq!(start_ticks(stat), Some(4321));
        assert_eq!(start_ticks("7 (a"), None);
        assert_eq!(start_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn a_seed_has_a_size_and_is_not_shown() {
        let seed = HashSeed::new(&[7; 32]).expect("32 bytes will do");
        assert_eq!((seed.bytes(), format!("{seed:?}").as_str()), (&[7; 32][..], "HashSeed(..)"));
        assert!(HashSeed::new(&[7; 15]).is_none() && HashSeed::new(&[7; 65]).is_none());
    }

    #[test]
    fn a_process_is_told_from_one_that_got_its_number() {
        let this = Process::this();
        assert!(this.start_ticks > 0 && this.is_there());
        assert!(!Process { start_ticks: this.start_ticks + 1, ..this }.is_there());
        assert_eq!(Process::find(u32::MAX), None);
        let other = Process { start_ticks: this.start_ticks + 1, ..this };
        assert_eq!([this, other].map(Process::has_ended), [false, true]);
        assert!(!Process { start_ticks: 0, ..other }.has_ended(), "nobody knows");
    }

    #[test]
    fn a_process_that_has_ended_is_gone_also_if_nobody_has_reaped_it() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Process::find(child.id()).expect("it is there");
        assert!(process.is_there() && !process.has_ended());
        drop(child.stdin.take());
        let watch = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("it is ours");
        let mut ends = [PollFd::new(&watch, PollFlags::IN)];
        rustix::event::poll(&mut ends, None).expect("it ends");
        assert_eq!(Process::find(process.pid), Some(process), "its number is still its own");
        assert!(!process.is_there() && process.has_ended());
        child.wait().expect("it has ended");
        assert!(!process.is_there() && process.has_ended());
    }
}
