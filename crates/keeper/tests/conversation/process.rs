//! A keeper in a process of its own.

use crate::world::{await_that, connect};
use rota_keeper::{Client, Outcome};
use rustix::process::Signal;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// See the module.
pub(crate) struct Process {
    folder: tempfile::TempDir,
    pub(crate) child: Killed,
}

impl Process {
    /// With a small arena, in a folder of its own.
    pub(crate) fn start() -> Process {
        Process::logging_to(Stdio::null())
    }

    /// The same with a log that goes there.
    pub(crate) fn logging_to(log: Stdio) -> Process {
        let folder = tempfile::tempdir().expect("a folder");
        let child = command(&folder.path().join("keeper")).stderr(log).spawn();
        Process { folder, child: Killed(child.expect("the keeper can be started")) }
    }

    /// It ends, and another one takes its place.
    pub(crate) fn replace(&mut self) {
        self.child.kill();
        let child = command(&self.socket()).stderr(Stdio::null()).spawn();
        self.child = Killed(child.expect("the keeper can be started"));
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("keeper")
    }

    /// A worker that has introduced its tenant.
    pub(crate) fn worker(&self) -> Client {
        let mut worker = connect(&self.socket());
        let introduced = worker.introduce(crate::world::TENANT, rota_keeper::Process::this());
        assert!(matches!(introduced, Ok(Outcome::Done | Outcome::AlreadySo)), "{introduced:?}");
        worker
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.child.0);
        rustix::process::kill_process(pid, signal).expect("it is there");
    }
}

/// A keeper with an arena of 12 MiB at this socket, not started yet.
pub(crate) fn command(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rota-keeper"));
    command
        .arg("--socket")
        .arg(socket)
        .args(["--part", "8MiB", "--part", "4MiB@0"])
        .env("ROTAD_LOG", "debug");
    command
}

/// Starts a keeper that must not become one. Says why it did not.
pub(crate) fn refusal(command: &mut Command) -> String {
    let child = command.stderr(Stdio::piped()).spawn().expect("the keeper can be started");
    let mut refused = Killed(child);
    await_that("it ends by itself", || refused.0.try_wait().expect("it is ours").is_some());
    assert!(!refused.0.wait().expect("it has ended").success());
    let mut why = String::new();
    let mut log = refused.0.stderr.take().expect("it is piped");
    log.read_to_string(&mut why).expect("its log is text");
    why
}

/// A process that is killed when this is dropped.
pub(crate) struct Killed(pub(crate) Child);

impl Killed {
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}
