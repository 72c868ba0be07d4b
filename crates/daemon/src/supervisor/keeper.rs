//! The keeper's process: one that is there is used, else one is started.

use super::nodes;
use anyhow::{Context as _, bail, ensure};
use keeper::segment::Pages;
use keeper::trust::may_have_everything;
use keeper::{Node, Part, SEGMENT_BYTES};
use rota_daemon::config::Config;
use rota_daemon::virtual_machine::VirtualMachine;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use wire::quantity::Bytes;
use wire::{Connection, WireError};

/// What is logged.
const LOG: &str = "ROTAD_LOG";

/// By which this executable is a keeper.
const VERB: &str = "keeper";

/// How long it may take to be found, and to end.
const FOUND_WITHIN: Duration = Duration::from_secs(30);
const ENDED_WITHIN: Duration = Duration::from_secs(10);
/// One that has nothing ends within this.
const LEFT_AFTER: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// The mode of its folder.
const OWNER_ONLY: u32 = 0o700;

/// Where the keeper of the daemon at a socket is: in a folder that nobody else can look into.
pub(crate) fn socket(daemon: &Path) -> PathBuf {
    let mut folder = daemon.as_os_str().to_owned();
    folder.push(".keeper");
    PathBuf::from(folder).join("socket")
}

/// See the module.
pub(crate) struct KeeperProcess {
    pid: Pid,
    watch: OwnedFd,
    socket: PathBuf,
    /// To be reaped; None if it was there before.
    child: Option<Child>,
}

impl KeeperProcess {
    /// Uses the keeper that an earlier daemon left, or starts one.
    pub(crate) fn find_or_start(config: &Config) -> anyhow::Result<Self> {
        let socket = socket(&config.socket);
        match Connection::connect(&socket) {
            Ok(line) => Self::find(&line, socket),
            Err(_) => Self::start(config, socket),
        }
    }

    fn find(line: &Connection, socket: PathBuf) -> anyhow::Result<Self> {
        let peer = line.peer().context("cannot tell who keeps what is away")?;
        let (pid, uid) = (peer.pid, peer.uid.as_raw());
        let path = socket.display();
        ensure!(
            may_have_everything(peer.uid),
            "process {pid} of user {uid} is at {path}: it is no keeper of ours"
        );
        let watch = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the keeper")?;
        tracing::info!("process {pid} keeps what programs of an earlier daemon had: it is taken over");
        Ok(Self { pid, watch, socket, child: None })
    }

    /// Finds or starts the next one, after this has ended.
    pub(crate) fn replace(&mut self, config: &Config) -> anyhow::Result<()> {
        self.reap();
        *self = Self::find_or_start(config)?;
        Ok(())
    }

    fn start(config: &Config, socket: PathBuf) -> anyhow::Result<Self> {
        await_end_of_another(&socket);
        let mut command = Command::new(super::THIS_EXECUTABLE);
        command.arg0("rotad").arg(VERB).arg("--socket").arg(&socket);
        for part in parts(arena_bytes(config)?, &nodes::of_gpus(config)) {
            command.arg("--part").arg(part.to_string());
        }
        if config.vgpu.is_some() {
            // Nothing is pinned for a virtual GPU, so nothing has to be there before it is used.
            command.arg("--pages-when-used");
        }
        command.args(["--parent", &std::process::id().to_string()]);
        // Whatever concerns people is said by the worker or here.
        if std::env::var_os(LOG).is_none() {
            command.env(LOG, "error");
        }
        // Apart from a terminal's signals, and from folders that may be unmounted.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/");
        let mut child = command.spawn().context("cannot start a keeper for what is away")?;
        let pid = Pid::from_child(&child);
        let watch = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(watch) => watch,
            // It has nothing yet, and would be in the way of the next one.
            Err(cause) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(cause).context("cannot watch the keeper");
            }
        };
        let mut keeper = Self { pid, watch, socket, child: Some(child) };
        let limit = Instant::now() + FOUND_WITHIN;
        while Connection::connect(&keeper.socket).is_err() {
            if keeper.has_ended() {
                bail!("the keeper of what is away ended at its start; it has said why");
            }
            if Instant::now() > limit {
                keeper.end();
                bail!("the keeper of what is away was not ready within {FOUND_WITHIN:?}");
            }
            std::thread::sleep(LOOK);
        }
        Ok(keeper)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// It was there before.
    pub(crate) fn is_found(&self) -> bool {
        self.child.is_none()
    }

    /// Readable when it has ended.
    pub(crate) fn watch(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Whether it is known to have ended of itself, with nothing away.
    pub(crate) fn ended_well(&mut self) -> bool {
        match &mut self.child {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_some_and(|status| status.success())),
            // Of somebody else's child nobody tells how it ended. The last that one does of itself is to take its socket away.
            None => !self.socket.exists(),
        }
    }

    fn ends_within(&self, within: Duration) -> bool {
        let mut polled = [PollFd::new(&self.watch, PollFlags::IN)];
        let within = Timespec::try_from(within).ok();
        rustix::event::poll(&mut polled, within.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Has it end once nothing is away, and waits for that only as long as it takes where nothing is.
    pub(crate) fn leave(&mut self) {
        let _ = pidfd_send_signal(&self.watch, Signal::TERM);
        if self.ends_within(LEFT_AFTER) {
            self.reap();
        }
    }

    /// Ends it, with whatever it has: nobody is left who could want it. There is nothing that it would have to do first.
    pub(crate) fn end(&mut self) {
        // By its watch: by now another process may have its number.
        let _ = pidfd_send_signal(&self.watch, Signal::KILL);
        if self.ends_within(ENDED_WITHIN) {
            self.reap();
        }
    }

    fn reap(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

/// In the keeper's process: is one, until nothing is away and its supervisor is gone, or that ends it.
pub(crate) fn keep(socket: &Path, parts: &[Part], pages: Pages, supervisor: u32) -> ExitCode {
    let _ = rustix::thread::set_name(c"rota-keeper");
    let bound = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if bound.is_err() || parent != Some(supervisor) {
        return ExitCode::FAILURE;
    }
    keeper::process::run(socket, parts, pages)
}

/// Takes the place of the daemon at a socket, for as long as the file is open. One that ends has it until its keeper has
/// ended too, and is waited for.
pub(crate) fn take_place(daemon: &Path) -> anyhow::Result<File> {
    let socket = socket(daemon);
    let folder = socket.parent().unwrap_or(Path::new("."));
    make_folder(folder)?;
    let path = folder.join("daemon.lock");
    let lock = File::options().create(true).append(true).mode(0o600).open(&path);
    let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
    if !await_lock(&lock) {
        let (path, cause) = (daemon.into(), rustix::io::Errno::ADDRINUSE);
        return Err(WireError::NotListening { path, cause }).context(super::IS_ANOTHER_THERE);
    }
    Ok(lock)
}

/// Waits a while for a lock. Says whether it is ours.
fn await_lock(lock: &File) -> bool {
    let limit = Instant::now() + ENDED_WITHIN;
    loop {
        if rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        if Instant::now() > limit {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits while a keeper is there that nobody can reach any more: it has memory to give back.
fn await_end_of_another(socket: &Path) {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    if let Ok(lock) = File::open(&path) {
        await_lock(&lock);
    }
}

/// The keeper's folder: whoever could put something else there would get everybody's bytes. The folder around it may be one
/// that all may write to, so one that is there already counts only if nobody else can have made it.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let path = folder.display();
    match std::fs::DirBuilder::new().mode(OWNER_ONLY).create(folder) {
        Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
            return Err(cause).with_context(|| format!("cannot make the folder {path} for the keeper"));
        }
        _ => {}
    }
    let found = std::fs::symlink_metadata(folder).with_context(|| format!("cannot look at {path}"))?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    ensure!(is_own, "{path}, where the keeper belongs, is not a folder of this user's: remove it");
    // Its own: a folder that nobody else could put another one in place of.
    if found.mode() & 0o777 != OWNER_ONLY {
        std::fs::set_permissions(folder, Permissions::from_mode(OWNER_ONLY))
            .with_context(|| format!("cannot close {path} to others"))?;
    }
    Ok(())
}

fn arena_bytes(config: &Config) -> anyhow::Result<u64> {
    if let Some(Bytes(bytes)) = config.arena {
        return Ok(bytes);
    }
    let usual = keeper::usual_arena_bytes()?;
    match config.vgpu.as_deref() {
        // Host memory is all that a virtual GPU takes as well.
        Some(folder) => Ok(usual.min(2 * VirtualMachine::memory_bytes(folder)?)),
        None => Ok(usual),
    }
}

/// An arena as large as this, near to these nodes: as much for each, because nobody knows which GPU's programs will be away.
fn parts(bytes: u64, nodes: &[Node]) -> Vec<Part> {
    let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
    let share = bytes.checked_div(count).map_or(0, |share| share / SEGMENT_BYTES * SEGMENT_BYTES);
    let [first, others @ ..] = nodes else { return vec![Part { bytes, node: None }] };
    // Of one that is too small to be shared the first has all.
    let others = if share == 0 { &[] } else { others };
    let rest = bytes - share * (count - 1).min(others.len() as u64);
    let others = others.iter().map(|&node| Part { bytes: share, node: Some(node) });
    [Part { bytes: rest, node: Some(*first) }].into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests;
