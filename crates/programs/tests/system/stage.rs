//! A virtual machine with a daemon for all its GPUs, programs on it, and what must hold when they are gone.

mod aftermath;
mod place;
mod program;
mod timeline;

pub(crate) use program::Program;

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;
use vgpu_messages::figures::Figures;
use vgpu_messages::{Answer, DeviceId, Directory, Reply, Request};
use wire::{Connection, FromDaemon, Listing, ToDaemon};

use crate::parts::{newest, with_parts};
use place::Place;
use timeline::Timeline;

/// For things that must happen; long, because test machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// How often such things are looked for.
const LOOK_MIN: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(20);
/// What a context takes of a GPU, here.
const CONTEXT_MIB: u64 = 4;
/// The daemon's file of events, in the folder of a stage.
const EVENTS: &str = "events";
/// Names the bug that a daemon of a test build has.
const PLANTED: &str = "ROTA_PLANTED";
/// What the daemon says where its books of memory do not add up.
const BROKEN_BOOKS: [&str; 2] = ["was free already", "was given back twice"];
/// The same, unless its context was lost before.
const BROKEN_OR_LOST: &str = "cannot let go of device memory";
/// What the daemon says where it lost sight of a piece of memory.
const LOST_SIGHT: &str = "lost sight of";

/// How many turns of random lengths a test waits for: this many, or as many as `ROTA_TURNS` says.
pub(crate) fn turns_at_random(usual: usize) -> usize {
    std::env::var("ROTA_TURNS").ok().and_then(|turns| turns.parse().ok()).unwrap_or(usual)
}

/// What a stage is like.
pub(crate) struct Setup<'a> {
    /// How many GPUs.
    pub(crate) gpus: usize,
    /// Memory of each.
    pub(crate) gpu_mib: u64,
    /// What the daemon has for memory that is away.
    pub(crate) arena_mib: u64,
    /// More arguments for the daemon.
    pub(crate) rotad: &'a [&'a str],
}

/// See the module.
pub(crate) struct Stage {
    folder: TempDir,
    directory: Directory,
    gpus: usize,
    /// None after it was killed.
    daemon: Option<Child>,
    socket: PathBuf,
    timeline: RefCell<Timeline>,
    /// The bug that its daemons are to have.
    planted: Option<&'static str>,
    _place: Place,
}

impl Stage {
    pub(crate) fn new(setup: &Setup<'_>) -> Self {
        Self::with_faults(setup, "")
    }

    /// A stage on which something goes wrong from the start on.
    pub(crate) fn with_faults(setup: &Setup<'_>, faults: &str) -> Self {
        Self::planted(setup, faults, None)
    }

    /// The same, with a daemon that has one of the bugs that can be put into those of tests (`mover/planted.rs`).
    pub(crate) fn planted(setup: &Setup<'_>, faults: &str, bug: Option<&'static str>) -> Self {
        let place = Place::take();
        let folder = tempfile::tempdir().unwrap();
        if !faults.is_empty() {
            std::fs::write(folder.path().join("faults.toml"), faults).unwrap();
        }
        let spec = format!(
            "gpus = {}\nmemory = \"{}MiB\"\ncontext_memory = \"{CONTEXT_MIB}MiB\"\nlinger = \"1s\"\n",
            setup.gpus, setup.gpu_mib
        );
        std::fs::write(folder.path().join("vgpu.toml"), spec).unwrap();
        let directory = Directory::new(folder.path());
        let socket = folder.path().join("rotad.sock");
        let timeline = RefCell::new(Timeline::new(folder.path().join(EVENTS)));
        let (gpus, daemon) = (setup.gpus, None);
        let mut stage =
            Self { folder, directory, gpus, daemon, socket, timeline, planted: bug, _place: place };
        stage.start_daemon(setup);
        stage
    }

    /// Starts a daemon, where there is none any more.
    pub(crate) fn start_daemon(&mut self, setup: &Setup<'_>) {
        let log = File::create(self.folder.path().join("rotad.log")).unwrap();
        self.start_daemon_logging_to(setup, log.into());
    }

    /// The same, with another place for what it says.
    pub(crate) fn start_daemon_logging_to(&mut self, setup: &Setup<'_>, log: Stdio) {
        let mut command = Command::new(newest("rotad"));
        with_parts(&mut command);
        command.env_remove(PLANTED).envs(self.planted.map(|bug| (PLANTED, bug)));
        command
            .arg("--vgpu")
            .arg(self.folder.path())
            .arg("--socket")
            .arg(&self.socket)
            .arg("--events")
            .arg(self.folder.path().join(EVENTS))
            .args(["--arena", &format!("{}MiB", setup.arena_mib)])
            .args(setup.rotad)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.daemon = Some(command.spawn().unwrap());
        until("a daemon is there", || {
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            assert_eq!(ended, None, "the daemon ended at its start");
            self.try_listing().is_some()
        });
    }

    /// `rota run` on a GPU, for a program that is still to be named.
    pub(crate) fn under_rota(&self, gpu: usize, name: &str) -> Command {
        self.under_rota_with(gpu, name, &[])
    }

    /// The same, with more options.
    pub(crate) fn under_rota_with(&self, gpu: usize, name: &str, options: &[&str]) -> Command {
        let mut command = self.rota();
        command.env("CUDA_VISIBLE_DEVICES", gpu.to_string());
        command.args(["run", "--vgpu", "-q", "--name", name]).args(options).arg("--");
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
        self.start(name, command)
    }

    /// Starts a command that becomes a worker, or has one as a child.
    pub(crate) fn start(&self, name: &str, command: Command) -> Program {
        Program::start(name, command, &self.folder.path().join(format!("worker.log-{name}")))
    }

    /// Starts a program under `rota run` with these flags, on GPUs that rota chooses.
    pub(crate) fn program(&self, name: &str, flags: &[&str], program: &[&str]) -> Program {
        let mut command = self.rota();
        command.args(["run", "--vgpu", "-q"]).args(flags).arg("--").args(program);
        Program::start(name, command, &self.folder.path().join(format!("program.log-{name}")))
    }

    /// The daemon's process.
    pub(crate) fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("the daemon is there").id()
    }

    /// What the daemon has told so far.
    pub(crate) fn events(&self) -> Vec<Rc<Value>> {
        self.timeline.borrow_mut().events().to_vec()
    }

    /// The same, without the first ones.
    pub(crate) fn events_from(&self, first: usize) -> Vec<Rc<Value>> {
        self.timeline.borrow_mut().events()[first..].to_vec()
    }

    /// How often an event of this name was told.
    pub(crate) fn count(&self, event: &str) -> usize {
        self.timeline.borrow_mut().events().iter().filter(|line| line["event"] == event).count()
    }

    /// Who is there, as the daemon sees it.
    pub(crate) fn listing(&self) -> Listing {
        let mut found = None;
        until("the daemon answers", || {
            // A worker that was just killed may have taken the question with it.
            found = self.try_listing();
            found.is_some()
        });
        found.unwrap()
    }

    fn try_listing(&self) -> Option<Listing> {
        let connection = Connection::connect(&self.socket).ok()?;
        connection.send(&ToDaemon::List { version: wire::VERSION }, &[]).ok()?;
        match connection.receive().ok()? {
            (FromDaemon::Listing(listing), _) => Some(listing),
            (other, _) => panic!("the daemon answered {other:?}"),
        }
    }

    /// What the device knows of a GPU. The question itself keeps the device there.
    pub(crate) fn figures(&self, gpu: usize) -> Figures {
        self.try_figures(gpu).expect("the device is there")
    }

    fn try_figures(&self, gpu: usize) -> Option<Figures> {
        let connection = Connection::connect(&self.directory.socket()).ok()?;
        let ask = |request| {
            connection.send(&request, &[]).ok()?;
            Some(connection.receive::<Reply>().ok()?.0)
        };
        ask(Request::Hello { version: vgpu_messages::VERSION, session: None })?.unwrap();
        match ask(Request::Figures(DeviceId(gpu as u32)))? {
            Ok(Answer::Figures(figures)) => Some(figures),
            other => panic!("the device answered {other:?}"),
        }
    }

    /// Kills the device as nothing else can.
    pub(crate) fn kill_device(&self) {
        let connection = Connection::connect(&self.directory.socket()).expect("the device is there");
        rustix::process::kill_process(connection.peer().unwrap().pid, Signal::KILL).unwrap();
    }

    /// The daemon ends by itself: how, and what it said.
    pub(crate) fn daemon_ends(&mut self) -> (ExitStatus, String) {
        let mut daemon = self.daemon.take().unwrap();
        let mut status = None;
        until("the daemon ends", || {
            status = daemon.try_wait().unwrap();
            status.is_some()
        });
        let log = std::fs::read_to_string(self.folder.path().join("rotad.log")).unwrap();
        (status.unwrap(), log)
    }

    /// `rota` with the daemon's socket.
    pub(crate) fn rota(&self) -> Command {
        let mut command = Command::new(newest("rota"));
        with_parts(&mut command);
        command.arg("--socket").arg(&self.socket);
        command
    }

    /// Where the daemon listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The folder of the virtual machine.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills the daemon as nothing else can, with all its processes.
    pub(crate) fn kill_daemon(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        let parts = children(daemon.id());
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        parts.into_iter().for_each(kill_and_wait);
    }

    /// Kills the daemon as nothing else can, but for the keeper of what is away.
    pub(crate) fn kill_all_but_keeper(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        let worker = part(daemon.id(), |name| name != "rota-keeper").expect("there is a worker");
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        // It ends with it, which takes a moment.
        kill_and_wait(worker);
    }

    /// How the daemon is.
    pub(crate) fn status(&self) -> wire::Status {
        match self.ask(wire::Command::Status) {
            wire::Answer::Status(status) => status,
            other => panic!("the daemon answered {other:?}"),
        }
    }

    /// What the daemon answers.
    pub(crate) fn ask(&self, command: wire::Command) -> wire::Answer {
        let question = ToDaemon::Command { version: wire::VERSION, command };
        let mut found = None;
        until("the daemon answers", || {
            // A worker that was just killed may have taken the question with it.
            found = Connection::ask(&self.socket, &question, PATIENCE).ok();
            found.is_some()
        });
        match found {
            Some(FromDaemon::Answer(answer)) => *answer,
            other => panic!("the daemon answered {other:?}"),
        }
    }

    /// Kills the process that shares the GPUs, whichever it is just now. False if there is none.
    pub(crate) fn kill_worker(&self) -> bool {
        let worker = part(self.daemon_pid(), |name| name != "rota-keeper");
        worker.is_some_and(|pid| rustix::process::kill_process(pid, Signal::KILL).is_ok())
    }

    /// Kills it together with the keeper of what is away.
    pub(crate) fn kill_worker_and_keeper(&self) {
        let keeper = self.keeper();
        assert!(self.kill_worker());
        rustix::process::kill_process(keeper, Signal::KILL).unwrap();
    }

    /// Sends a signal to the keeper of what is away.
    pub(crate) fn signal_keeper(&self, signal: Signal) {
        rustix::process::kill_process(self.keeper(), signal).unwrap();
    }

    /// Sends a signal to all processes of the daemon.
    pub(crate) fn signal_all(&self, signal: Signal) {
        let daemon = Pid::from_raw(self.daemon_pid().cast_signed()).expect("a process");
        for pid in children(self.daemon_pid()).into_iter().chain([daemon]) {
            rustix::process::kill_process(pid, signal).unwrap();
        }
    }

    fn keeper(&self) -> Pid {
        part(self.daemon_pid(), |name| name == "rota-keeper").expect("there is a keeper")
    }

    /// When all programs are gone: nothing of theirs is left with the daemon or on the device, and nobody has anything to
    /// complain about.
    pub(crate) fn finish(self) {
        self.leave(Self::met_no_error);
    }

    /// The same where the daemon had to meet errors. None of them is its own mistake.
    pub(crate) fn finish_after_errors(self) {
        self.leave(Self::made_no_mistake);
    }

    /// The same where the daemon had to make mistakes, since it has a bug on purpose.
    pub(crate) fn finish_after_mistakes(self) {
        self.leave(|_| ());
    }

    fn leave(mut self, all_is_well: impl FnOnce(&Self)) {
        if self.daemon.is_some() {
            until("the daemon has nothing of programs that are gone", || {
                let listing = self.listing();
                let clean = |gpu: &wire::Gpu| gpu.arena_used_bytes == 0 && gpu.used_bytes == 0;
                listing.tenants.is_empty() && listing.gpus.iter().all(clean)
            });
        }
        all_is_well(&self);
        // A line to the device keeps it there until it was asked.
        let line = Connection::connect(&self.directory.socket());
        if let Some(mut daemon) = self.daemon.take() {
            let pid = Pid::from_child(&daemon);
            rustix::process::kill_process(pid, Signal::TERM).unwrap();
            assert!(daemon.wait().unwrap().success(), "the daemon ends in peace");
        }
        for gpu in 0..self.gpus {
            // One that has ended meanwhile says in its log if anything was left.
            let is_free = |figures: Figures| figures.memory_used_bytes == 0;
            until("all memory of the GPU is free", || self.try_figures(gpu).is_none_or(is_free));
        }
        drop(line);
        // It holds this lock as long as it lives.
        let lock = File::open(self.directory.device_lock()).unwrap();
        until("the device ends", || {
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        let log = std::fs::read_to_string(self.directory.log()).unwrap();
        // Where the first one takes long to listen, another is started, and gives way to it.
        let is_error = |line: &str| line.contains("ERROR") && !line.contains("another vgpud serves");
        assert!(!log.lines().any(is_error), "the device met errors:\n{log}");
        assert_eq!(std::fs::read_to_string(self.directory.misuse()).unwrap_or_default(), "", "misuse");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let mut how_it_was = String::new();
        if let Some(mut child) = self.daemon.take() {
            let parts = children(child.id());
            if std::thread::panicking() {
                how_it_was = aftermath::of_daemon(&self.socket, &parts);
            }
            let _ = child.kill();
            let _ = child.wait();
            parts.into_iter().for_each(kill_and_wait);
        }
        if std::thread::panicking() {
            eprintln!("{}{how_it_was}", aftermath::of_files(self.folder.path()));
        }
    }
}

impl Stage {
    /// What the daemon has said so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("rotad.log")).unwrap()
    }

    /// The daemon has met no error so far, and its books are right.
    pub(crate) fn met_no_error(&self) {
        const BEFORE: usize = 30;
        let events = self.events();
        if let Some(at) = events.iter().position(|event| event["event"] == "error") {
            let story: Vec<String> =
                events[at.saturating_sub(BEFORE)..=at].iter().map(|event| event.to_string()).collect();
            panic!("the daemon met an error:\n{}", story.join("\n"));
        }
        self.said_none_of(&[BROKEN_OR_LOST]);
        self.made_no_mistake();
    }

    /// Whatever the daemon has met so far, its books are right, and it has lost sight of nothing.
    pub(crate) fn made_no_mistake(&self) {
        self.said_none_of(&BROKEN_BOOKS);
        let log = self.log();
        let lost = log.lines().find(|line| line.contains(LOST_SIGHT));
        assert_eq!(lost, None, "the daemon lost sight of something");
    }

    fn said_none_of(&self, words: &[&str]) {
        let log = self.log();
        let broken = log.lines().find(|line| words.iter().any(|words| line.contains(words)));
        assert_eq!(broken, None, "the daemon's books do not add up");
    }
}

/// The processes that a process has started.
pub(crate) fn children(of: u32) -> Vec<Pid> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// A part of the daemon, by the name of its program.
fn part(of: u32, is_it: impl Fn(&str) -> bool) -> Option<Pid> {
    let name = |pid: &Pid| std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok();
    children(of).into_iter().find(|pid| name(pid).is_some_and(|name| is_it(name.trim_end())))
}

fn kill_and_wait(pid: Pid) {
    let Ok(watch) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { return };
    let _ = rustix::process::kill_process(pid, Signal::KILL);
    let mut polled = [rustix::event::PollFd::new(&watch, rustix::event::PollFlags::IN)];
    let _ = rustix::event::poll(&mut polled, None);
}

/// Waits until something was counted so often, for as long as the count goes on.
pub(crate) fn until_counted(what: &str, wanted: usize, count: impl Fn() -> usize) {
    let mut before = 0;
    while before < wanted {
        until(what, || count() > before);
        before = count();
    }
}

/// Waits for something to come true.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut looked = Instant::now();
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        // Whoever takes long to look leaves the processor to those that are looked at.
        std::thread::sleep((4 * looked.elapsed()).clamp(LOOK_MIN, LOOK_MAX));
        looked = Instant::now();
    }
}
