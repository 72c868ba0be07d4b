//! A virtual machine with a daemon for each GPU, programs on it, and what must hold when they are gone.

mod program;

pub(crate) use program::Program;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;
use vgpu_messages::figures::Figures;
use vgpu_messages::{Answer, DeviceId, Directory, Reply, Request};
use wire::{Connection, FromDaemon, Listing, ToDaemon};

use crate::parts::{newest, with_parts};

/// For things that must happen; long, because test machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// What a context takes of a GPU, here.
const CONTEXT_MIB: u64 = 4;

/// What a stage is like.
pub(crate) struct Setup<'a> {
    /// How many GPUs, each with a daemon.
    pub(crate) gpus: usize,
    /// Memory of each.
    pub(crate) gpu_mib: u64,
    /// What each daemon has for memory that is away.
    pub(crate) arena_mib: u64,
    /// More arguments for the daemons.
    pub(crate) rotad: &'a [&'a str],
}

struct Daemon {
    /// None after it was killed.
    child: Option<Child>,
    socket: PathBuf,
    events: PathBuf,
}

/// See the module.
pub(crate) struct Stage {
    folder: TempDir,
    directory: Directory,
    daemons: Vec<Daemon>,
}

impl Stage {
    pub(crate) fn new(setup: &Setup<'_>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spec = format!(
            "gpus = {}\nmemory = \"{}MiB\"\ncontext_memory = \"{CONTEXT_MIB}MiB\"\nlinger = \"1s\"\n",
            setup.gpus, setup.gpu_mib
        );
        std::fs::write(folder.path().join("vgpu.toml"), spec).unwrap();
        let directory = Directory::new(folder.path());
        let mut stage = Self { folder, directory, daemons: Vec::new() };
        for gpu in 0..setup.gpus {
            stage.start_daemon(gpu, setup);
        }
        for gpu in 0..setup.gpus {
            until("a daemon is there", || {
                let ended = stage.daemons[gpu].child.as_mut().unwrap().try_wait().unwrap();
                assert_eq!(ended, None, "the daemon ended at its start");
                stage.try_listing(gpu).is_some()
            });
        }
        stage
    }

    fn start_daemon(&mut self, gpu: usize, setup: &Setup<'_>) {
        let path = |name: &str| self.folder.path().join(format!("{name}-{gpu}"));
        let (socket, events) = (path("rotad.sock"), path("events"));
        let mut command = Command::new(newest("rotad"));
        with_parts(&mut command);
        command
            .arg("--vgpu")
            .arg(self.folder.path())
            .args(["--gpu", &gpu.to_string()])
            .arg("--socket")
            .arg(&socket)
            .arg("--events")
            .arg(&events)
            .args(["--arena", &format!("{}MiB", setup.arena_mib)])
            .args(setup.rotad)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(path("rotad.log")).unwrap());
        let child = Some(command.spawn().unwrap());
        self.daemons.push(Daemon { child, socket, events });
    }

    /// `rota run` for a program that is still to be named.
    pub(crate) fn under_rota(&self, gpu: usize, name: &str) -> Command {
        let mut command = self.rota(gpu);
        command.args(["run", "--vgpu", "-q", "--name", name, "--"]);
        command
    }

    /// A path in the folder of everything that is written down.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a worker under `rota run`.
    pub(crate) fn worker(&self, gpu: usize, name: &str, arguments: &[&str]) -> Program {
        let mut command = self.under_rota(gpu, name);
        command.arg(crate::parts::WORKER).args(arguments);
        Program::start(name, command, &self.folder.path().join(format!("worker.log-{name}")))
    }

    /// What a daemon has told so far.
    pub(crate) fn events(&self, gpu: usize) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.daemons[gpu].events).unwrap_or_default();
        // The last line may not be whole yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// How often an event of this name was told.
    pub(crate) fn count(&self, gpu: usize, event: &str) -> usize {
        self.events(gpu).iter().filter(|line| line["event"] == event).count()
    }

    /// Who is there, as the daemon sees it.
    pub(crate) fn listing(&self, gpu: usize) -> Listing {
        self.try_listing(gpu).expect("the daemon answers")
    }

    fn try_listing(&self, gpu: usize) -> Option<Listing> {
        let connection = Connection::connect(&self.daemons[gpu].socket).ok()?;
        connection.send(&ToDaemon::List { version: wire::VERSION }, &[]).ok()?;
        match connection.receive().ok()? {
            (FromDaemon::Listing(listing), _) => Some(listing),
            (other, _) => panic!("the daemon answered {other:?}"),
        }
    }

    /// What the device knows of a GPU. The question itself keeps the device there.
    pub(crate) fn figures(&self, gpu: usize) -> Figures {
        let connection = Connection::connect(&self.directory.socket()).expect("the device is there");
        let ask = |request| {
            connection.send(&request, &[]).unwrap();
            connection.receive::<Reply>().unwrap().0
        };
        ask(Request::Hello { version: vgpu_messages::VERSION, session: None }).unwrap();
        match ask(Request::Figures(DeviceId(gpu as u32))) {
            Ok(Answer::Figures(figures)) => figures,
            other => panic!("the device answered {other:?}"),
        }
    }

    /// Kills the device as nothing else can.
    pub(crate) fn kill_device(&self) {
        let connection = Connection::connect(&self.directory.socket()).expect("the device is there");
        rustix::process::kill_process(connection.peer().unwrap().pid, Signal::KILL).unwrap();
    }

    /// A daemon ends by itself: how, and what it said.
    pub(crate) fn daemon_ends(&mut self, gpu: usize) -> (ExitStatus, String) {
        let mut daemon = self.daemons[gpu].child.take().unwrap();
        let mut status = None;
        until("the daemon ends", || {
            status = daemon.try_wait().unwrap();
            status.is_some()
        });
        let log = std::fs::read_to_string(self.folder.path().join(format!("rotad.log-{gpu}"))).unwrap();
        (status.unwrap(), log)
    }

    /// `rota` with a daemon's socket.
    pub(crate) fn rota(&self, gpu: usize) -> Command {
        let mut command = Command::new(newest("rota"));
        with_parts(&mut command);
        command.arg("--socket").arg(&self.daemons[gpu].socket);
        command
    }

    /// Where a daemon listens.
    pub(crate) fn socket(&self, gpu: usize) -> &Path {
        &self.daemons[gpu].socket
    }

    /// The folder of the virtual machine.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills a daemon as nothing else can.
    pub(crate) fn kill_daemon(&mut self, gpu: usize) {
        let mut daemon = self.daemons[gpu].child.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// When all programs are gone: nothing of theirs is left with the daemons or on the device, and nobody has anything to
    /// complain about.
    pub(crate) fn finish(mut self) {
        for gpu in 0..self.daemons.len() {
            if self.daemons[gpu].child.is_some() {
                until("the daemon has nothing of programs that are gone", || {
                    let listing = self.listing(gpu);
                    listing.tenants.is_empty()
                        && listing.gpus[0].arena_used_bytes == 0
                        && listing.gpus[0].used_bytes == 0
                });
            }
            self.met_no_error(gpu);
        }
        for daemon in &mut self.daemons {
            if let Some(mut child) = daemon.child.take() {
                let pid = Pid::from_child(&child);
                rustix::process::kill_process(pid, Signal::TERM).unwrap();
                assert!(child.wait().unwrap().success(), "the daemon ends in peace");
            }
        }
        for gpu in 0..self.daemons.len() {
            until("all memory of the GPU is free", || self.figures(gpu).memory_used_bytes == 0);
        }
        // It holds this lock as long as it lives.
        let lock = File::open(self.directory.device_lock()).unwrap();
        until("the device ends", || {
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        let log = std::fs::read_to_string(self.directory.log()).unwrap();
        assert!(!log.contains("ERROR"), "the device met errors:\n{log}");
        assert_eq!(std::fs::read_to_string(self.directory.misuse()).unwrap_or_default(), "", "misuse");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for mut child in self.daemons.iter_mut().filter_map(|daemon| daemon.child.take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            self.tell_all();
        }
    }
}

impl Stage {
    fn met_no_error(&self, gpu: usize) {
        const BEFORE: usize = 30;
        let events = self.events(gpu);
        if let Some(at) = events.iter().position(|event| event["event"] == "error") {
            let story: Vec<String> =
                events[at.saturating_sub(BEFORE)..=at].iter().map(Value::to_string).collect();
            panic!("daemon {gpu} met an error:\n{}", story.join("\n"));
        }
    }

    /// The end of whatever was written down, for whoever wants to know what went wrong.
    fn tell_all(&self) {
        const LINES: usize = 30;
        let Ok(files) = std::fs::read_dir(self.folder.path()) else { return };
        for path in files.filter_map(|file| Some(file.ok()?.path())) {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
            eprintln!("--- {}:\n{last}", path.display());
        }
    }
}

/// Waits for something to come true.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
