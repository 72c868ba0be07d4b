//! Whose memory a program may have.
//!
//! Whoever had memory may have kept a way to it, and would see what the next one has there. So it is passed on only between
//! programs that trust each other as much as one does oneself: of one user and group in every respect, with the same
//! capabilities, in one user namespace and one PID namespace, and not hidden from others of its user (`PR_SET_DUMPABLE`). All
//! of that is the kernel's word, and may change: so it is looked at again before every move.
//!
//! What a program of root's hides does not show. Others of root may look at it all the same, but in containers without
//! `CAP_SYS_PTRACE`.

use super::caller::{Caller, Credentials};
use mover::Domain;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

/// Where a process belongs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Belonging {
    caller: Caller,
    domain: Domain,
}

impl Belonging {
    /// None if the kernel does not say, or not for certain: then it is alone.
    pub(super) fn of(caller: &Caller) -> Option<Self> {
        Some(Self { caller: caller.clone(), domain: domain(caller)? })
    }

    /// Tenants of the same one may have each other's memory.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Is that still so?
    pub fn still_holds(&self) -> bool {
        domain(&self.caller) == Some(self.domain)
    }
}

fn domain(caller: &Caller) -> Option<Domain> {
    if !caller.is_certain() {
        return None;
    }
    let folder = format!("/proc/{}", caller.pid());
    let mut file = std::fs::File::open(format!("{folder}/status")).ok()?;
    // Root's, where the process is hidden from its own user.
    let owner = file.metadata().ok()?;
    let mut status = String::new();
    file.read_to_string(&mut status).ok()?;
    let its = Credentials::in_status(&status)?;
    let (uid, gid) = its.only()?;
    if uid != caller.uid() || (owner.uid(), owner.gid()) != (uid, gid) {
        return None;
    }
    let space = |kind: &str| Some(rustix::fs::stat(format!("{folder}/ns/{kind}")).ok()?.st_ino);
    let domain = Domain([uid.into(), gid.into(), its.capabilities, space("user")?, space("pid")?]);
    // Only now: as long as the process has not ended, its number is nobody else's.
    caller.is_there().is_ok().then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::super::{Ears, Files, hold};
    use super::*;
    use crate::daemon::{Input, Newcomer};
    use rustix::process::{Pid, PidfdFlags, Uid, geteuid, getuid, pidfd_open};
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;
    use wire::{Connection, ToDaemon, VERSION, WatchedPeer};

    const USER: u32 = 4711;

    /// A process while it sleeps.
    struct Asleep(Child);

    impl Asleep {
        fn new() -> Self {
            Self(Command::new("sleep").arg("60").spawn().unwrap())
        }

        fn of(uid: u32, gid: u32) -> Self {
            Self(Command::new("sleep").arg("60").uid(uid).gid(gid).spawn().unwrap())
        }

        fn watched(&self, uid: Uid, is_certain: bool) -> Caller {
            let pid = Pid::from_child(&self.0);
            let watch = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            Caller::of(WatchedPeer { pid, uid, watch, is_certain }).unwrap()
        }

        fn belongs(&self, uid: Uid) -> Option<Belonging> {
            Belonging::of(&self.watched(uid, true))
        }
    }

    impl Drop for Asleep {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn processes_of_one_user_belong_together_and_the_dead_nowhere() {
        let (a, mut b) = (Asleep::new(), Asleep::new());
        let (here, there) = (a.belongs(getuid()).unwrap(), b.belongs(getuid()).unwrap());
        assert_eq!(here.domain(), there.domain());
        assert!(here.still_holds() && there.still_holds());
        let another = Uid::from_raw(getuid().as_raw() + 1);
        assert!(a.belongs(another).is_none(), "it is not any more who it was when it connected");
        b.0.kill().unwrap();
        b.0.wait().unwrap();
        assert!(!there.still_holds(), "its number may be another's");
    }

    #[test]
    fn who_may_be_another_than_who_connected_belongs_nowhere() {
        let asleep = Asleep::new();
        assert!(Belonging::of(&asleep.watched(getuid(), false)).is_none());
    }

    /// What the main loop hears of a program that says hello, whose kernel is certain or not.
    fn heard_of(is_certain: bool) -> Newcomer {
        let (daemon, program) = Connection::pair().unwrap();
        let peer = WatchedPeer { is_certain, ..daemon.watch_peer().unwrap() };
        let (inputs, heard) = mpsc::channel();
        let ears = Ears { inputs, files: Files::of_this_process(), looks_at_programs: false };
        let (version, job, program_name) = (VERSION, "test".to_owned(), "test".to_owned());
        let hello = ToDaemon::Hello { version, job, program: program_name, gpus: Vec::new() };
        program.send(&hello, &[]).unwrap();
        std::thread::spawn(move || hold(daemon, Ok(peer), &ears));
        match heard.recv().unwrap() {
            Input::Hello(newcomer) => newcomer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn with_an_older_kernel_a_program_is_taken_in_and_belongs_nowhere() {
        for is_certain in [true, false] {
            let newcomer = heard_of(is_certain);
            assert_eq!(newcomer.process, keeper::Process::this());
            assert_eq!(newcomer.domain.is_some(), is_certain);
        }
    }

    /// Needs root, to be somebody else.
    #[test]
    fn other_users_groups_and_capabilities_do_not_belong_together() {
        if !geteuid().is_root() {
            return;
        }
        let user = Uid::from_raw(USER);
        let plain = Asleep::of(USER, USER);
        let again = Asleep::of(USER, USER);
        let group = Asleep::of(USER, USER + 1);
        let its = |asleep: &Asleep, uid| asleep.belongs(uid).map(|belonging| belonging.domain());
        let domain = its(&plain, user).unwrap();
        assert_eq!(its(&again, user), Some(domain));
        assert_ne!(its(&group, user).unwrap(), domain);
        let root = its(&Asleep::new(), getuid()).unwrap();
        assert_ne!(root, domain);
        let weak = Command::new("setpriv").args(["--bounding-set", "-sys_ptrace", "sleep", "60"]).spawn();
        let weak = Asleep(weak.unwrap());
        while Credentials::of(weak.0.id()).unwrap().capabilities == root.0[2] {
            std::thread::yield_now();
        }
        assert_ne!(its(&weak, getuid()).unwrap(), root);
    }

    /// Needs root, to be somebody else.
    #[test]
    fn who_hides_belongs_nowhere() {
        if !geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(folder.path(), 0o755);
        let file = folder.path().join("sleep");
        std::fs::copy("/bin/sleep", &file).unwrap();
        // The kernel hides whoever runs a file that it could not read.
        for (may_read, belongs) in [(0o755, true), (0o711, false)] {
            mode(&file, may_read);
            let child = Command::new(&file).arg("60").uid(USER).gid(USER).spawn().unwrap();
            let its = Asleep(child).belongs(Uid::from_raw(USER));
            assert_eq!(its.is_some(), belongs, "{may_read:o}");
        }
    }

    /// Needs root, to drop that.
    #[test]
    fn who_becomes_another_belongs_nowhere_any_more() {
        if !geteuid().is_root() {
            return;
        }
        let becomes = format!("read go; exec setpriv --reuid {USER} --regid {USER} --clear-groups sleep 60");
        let mut shell = Command::new("sh");
        let mut asleep = Asleep(shell.args(["-c", &becomes]).stdin(Stdio::piped()).spawn().unwrap());
        let belonging = asleep.belongs(getuid()).unwrap();
        assert!(belonging.still_holds());
        asleep.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        while Credentials::of(asleep.0.id()).unwrap().only() != Some((USER, USER)) {
            std::thread::yield_now();
        }
        assert!(!belonging.still_holds());
    }
}
