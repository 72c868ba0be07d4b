//! What a worker is given by the supervisor: files by their numbers, and a few facts, in one variable.

use anyhow::Context as _;
use rota_daemon::handover::Handover;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Pid, Signal};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use wire::Listener;

const VARIABLE: &str = "ROTAD_WORKER";

/// By which the supervisor asks its worker to end. Not by what others end processes with: whoever sends that to all of rotad's
/// at once would ask the worker twice.
pub(crate) const STOP: Signal = Signal::USR1;

/// What the supervisor gives.
pub(crate) struct Outfit<'a> {
    pub(crate) listener: BorrowedFd<'a>,
    pub(crate) handover: BorrowedFd<'a>,
    /// When the daemon began, on the system's monotonic clock.
    pub(crate) begun_ns: u64,
    /// How often a worker was started anew.
    pub(crate) restarts: u32,
    /// How often the daemon was asked to end.
    pub(crate) asked_to_end: u32,
    pub(crate) keeper_pid: u32,
    /// An earlier daemon left the keeper.
    pub(crate) is_keeper_found: bool,
}

/// What a worker got.
#[derive(Debug)]
pub(crate) struct Inherited {
    pub(crate) listener: Listener,
    pub(crate) handover: Handover,
    pub(crate) begun_ns: u64,
    pub(crate) restarts: u32,
    pub(crate) asked_to_end: u32,
    pub(crate) keeper_pid: u32,
    pub(crate) is_keeper_found: bool,
    pub(crate) supervisor_pid: u32,
}

impl Outfit<'_> {
    /// Starts a worker with this: the same executable with the same arguments.
    pub(crate) fn start_worker(&self, folder: &Path) -> anyhow::Result<Child> {
        let (listener, handover) = (self.listener.as_raw_fd(), self.handover.as_raw_fd());
        let &Outfit { begun_ns, restarts, asked_to_end, keeper_pid, is_keeper_found, .. } = self;
        let found = u8::from(is_keeper_found);
        let parent = std::process::id();
        let value = format!(
            "{listener} {handover} {begun_ns} {restarts} {asked_to_end} {keeper_pid} {found} {parent}"
        );
        let mut worker = Command::new(super::THIS_EXECUTABLE);
        worker.arg0("rotad").args(std::env::args_os().skip(1)).env(VARIABLE, value);
        worker.current_dir(folder);
        // What a terminal sends to all, it is to hear once.
        worker.process_group(0);
        // There is no other thread that could start something meanwhile, which would have them too.
        inherit(self.listener, true)?;
        inherit(self.handover, true)?;
        let child = worker.spawn();
        // A worker that was started is not forgotten for this; only the next keeper would have the files too.
        for file in [self.listener, self.handover] {
            if let Err(cause) = inherit(file, false) {
                tracing::warn!("what is started next inherits a file that it has no use for: {cause}");
            }
        }
        child.context("cannot start a worker")
    }
}

/// Whether this process is a worker.
pub(crate) fn is_worker() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

impl Inherited {
    /// What this process got. To be called once, when nothing begins anew any more.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let value = std::env::var(VARIABLE).with_context(|| format!("{VARIABLE} is not text"))?;
        let words: Vec<u64> = value.split(' ').map_while(|word| word.parse().ok()).collect();
        let &[listener, handover, begun_ns, restarts, asked_to_end, keeper_pid, found, parent] =
            words.as_slice()
        else {
            anyhow::bail!("{VARIABLE} is for rotad's own use");
        };
        let number =
            |word: u64| u32::try_from(word).with_context(|| format!("{VARIABLE}: {word} is too large"));
        let supervisor_pid = number(parent)?;
        // Whatever ends the supervisor ends the worker: the next daemon takes over from the keeper.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .context("cannot bind this worker to its supervisor")?;
        let is_there = rustix::process::getppid().map(Pid::as_raw_nonzero);
        anyhow::ensure!(
            is_there.is_some_and(|pid| pid.get().unsigned_abs() == supervisor_pid),
            "the supervisor is gone"
        );
        Ok(Self {
            listener: Listener::from(file(listener)?),
            handover: Handover::from(file(handover)?),
            begun_ns,
            restarts: number(restarts)?,
            asked_to_end: number(asked_to_end)?,
            keeper_pid: number(keeper_pid)?,
            is_keeper_found: found != 0,
            supervisor_pid,
        })
    }
}

fn file(number: u64) -> anyhow::Result<OwnedFd> {
    let number = RawFd::try_from(number).context("no number of a file")?;
    // SAFETY: only looked at; a number that is no open file is an error.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    inherit(borrowed, false).context("a file that the supervisor should have left is not there")?;
    // SAFETY: it is open, was left for this process by its supervisor, and nobody else here knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Has processes that are started inherit a file, or not.
fn inherit(file: BorrowedFd<'_>, yes: bool) -> rustix::io::Result<()> {
    let mut flags = fcntl_getfd(file)?;
    flags.set(FdFlags::CLOEXEC, !yes);
    fcntl_setfd(file, flags)
}
