//! A process's number is another's once it has ended: whoever comes in its place is not taken for it.

use crate::world::{World, hello, rules};
use rustix::process::{Pid, Signal, WaitOptions};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use wire::{Connection, FromDaemon, Listener, ToDaemon};

/// The environment variable that makes this program one that connects for another: where to, and whom to give that to.
const PLAN: &str = "ROTA_TEST_CONNECTS";

/// A process with a number of our choice. Dropped, it is ended.
struct Successor(Pid);

impl Successor {
    /// None where that is not allowed.
    fn of(pid: Pid) -> Option<Self> {
        let mut number = pid.as_raw_nonzero().get();
        // SAFETY: all zeros is what the kernel takes for nothing asked for.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.exit_signal = libc::SIGCHLD as u64;
        arguments.set_tid = (&raw mut number) as u64;
        arguments.set_tid_size = 1;
        let bytes = size_of::<libc::clone_args>();
        // SAFETY: without shared memory this is a fork, and the child does nothing but wait, by calls of the system alone.
        match unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, bytes) } {
            0 => loop {
                // SAFETY: no memory is involved. It is ended together with this process.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
            },
            -1 => {
                eprintln!("no process can be given a number here: {}", std::io::Error::last_os_error());
                None
            }
            child => {
                assert_eq!(child, i64::from(number));
                Some(Self(pid))
            }
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.0), WaitOptions::empty());
    }
}

/// A connection that a process has made which is no more, and the number of that.
fn left_connection(world: &World) -> (Connection, Pid) {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("heir.sock");
    let listener = Listener::bind(&here).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "numbers::connects_for_another", "--quiet"])
        .env(PLAN, format!("{} {}", world.socket().display(), here.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (_, mut files) = listener.accept().unwrap().receive::<ToDaemon>().unwrap();
    assert!(child.wait().unwrap().success());
    (files.pop().unwrap().into(), Pid::from_child(&child))
}

/// Not a test of its own: what [`left_connection`] runs. Without a plan it does nothing.
#[test]
fn connects_for_another() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let (daemon, heir) = plan.split_once(' ').unwrap();
    let connection = Connection::connect(daemon.as_ref()).unwrap();
    let heir = Connection::connect(heir.as_ref()).unwrap();
    heir.send(&ToDaemon::Wants { since_ns: 1 }, &[connection.as_fd()]).unwrap();
}

#[test]
fn who_has_the_number_of_one_that_connected_and_ended_is_not_taken_for_it() {
    let world = World::begin(rules());
    let (connection, number) = left_connection(&world);
    let Some(_successor) = Successor::of(number) else { return };
    connection.send(&hello("heir"), &[]).unwrap();
    let (answer, _) = connection.receive::<FromDaemon>().unwrap();
    assert!(matches!(&answer, FromDaemon::Refused { reason } if reason.contains("ended")), "{answer:?}");
    assert!(world.listing().tenants.is_empty());
}
