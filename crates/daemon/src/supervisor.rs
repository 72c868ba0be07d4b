//! The process that people start as `rotad`. It starts the keeper, which holds what is away, and the worker, which does
//! everything else, and starts a worker anew that died. It holds the listening socket meanwhile: whoever connects in the gap
//! waits for the next worker.
//!
//! It does nothing with what it holds, so that nothing in it can fail. Should it be killed all the same, the worker ends with
//! it and the keeper stays as long as it has something: the next `rotad` takes it over.
//!
//! What it starts is its own executable, also if another was put in its place meanwhile.
//!
//! - [`keeper`]: how the keeper is found or started; `nodes`: near to what its memory is to be. [`outfit`]: what a worker is given.

pub(crate) mod keeper;
mod nodes;
pub(crate) mod outfit;

use crate::log;
use crate::socket_folder::make_folder_of;
use anyhow::{Context as _, bail};
use keeper::KeeperProcess;
use outfit::Outfit;
use rota_daemon::config::Config;
use rota_daemon::handover::Handover;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use wire::{Connection, Listener, WireError};

/// After so many workers in a row that died before they served there is a pause.
const USELESS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_secs(30);
/// After so long it is tried again to start what could not be started.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// How long a worker may take to end after its keeper did.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);

/// How a worker ends that panicked.
const PANICKED: i32 = 101;

/// How a worker ends whose GPU is gone: the next one would find none either.
pub(crate) const GPU_GONE: u8 = 3;

/// Signals that are read at a time.
const SIGNALS_MAX: usize = 16;

struct Supervisor<'a> {
    config: &'a Config,
    listener: Listener,
    handover: Handover,
    begun_ns: u64,
    signals: UnixStream,
    keeper: KeeperProcess,
    /// Where it was started, and workers are.
    folder: PathBuf,
    worker: Option<Worker>,
    /// How often a worker was started anew.
    restarts: u32,
    /// How many died in a row before they served.
    useless: u32,
    /// How often it was asked to end.
    asked_to_end: u32,
}

struct Worker {
    child: Child,
    watch: OwnedFd,
}

impl Worker {
    /// One that cannot be watched is ended: else the next one would find it there.
    fn of(mut child: Child) -> anyhow::Result<Self> {
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(watch) => Ok(Self { child, watch }),
            Err(cause) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(cause).context("cannot watch the worker")
            }
        }
    }

    /// By its watch: whatever becomes of its number, nobody else gets it.
    fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.watch, signal);
    }

    /// Makes it end, and waits for that.
    fn end(mut self) -> std::io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.child.wait()
    }
}

/// What became of a worker.
enum Then {
    /// It ended as it should: nobody is left who wants anything of the keeper.
    Over,
    /// The daemon ends, and the keeper stays for the next one while something is away.
    Leave(ExitCode),
    /// It died, or could not go on.
    Again,
}

/// What becomes of the keeper when the daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeeperIs {
    /// Ended, with whatever it has.
    Ended,
    /// Left alone: it ends by itself once nothing is away.
    Left,
}

/// This executable, whatever has its name by now.
pub(crate) const THIS_EXECUTABLE: &str = "/proc/self/exe";

/// What is said where somebody listens already.
pub(crate) const IS_ANOTHER_THERE: &str = "is another rotad running there? `rota ps` shows what it shares";

/// Looks after a keeper and a worker until the worker ends of itself.
pub(crate) fn supervise(config: &Config, detached: bool) -> anyhow::Result<ExitCode> {
    let (signals, heard) = UnixStream::pair().context("cannot wait for signals")?;
    for signal in [SIGINT, SIGTERM] {
        let to = heard.try_clone().context("cannot wait for signals")?;
        signal_hook::low_level::pipe::register(signal, to).context("cannot wait for signals")?;
    }
    drop(heard);
    make_folder_of(&config.socket, config.everybody)?;
    if Connection::connect(&config.socket).is_ok() {
        let (path, cause) = (config.socket.clone(), rustix::io::Errno::ADDRINUSE);
        return Err(WireError::NotListening { path, cause }).context(IS_ANOTHER_THERE);
    }
    let _place = keeper::take_place(&config.socket)?;
    // Names in flags and in the environment may be relative to it.
    let folder = std::env::current_dir().context("cannot tell which folder this is")?;
    let keeper = KeeperProcess::find_or_start(config)?;
    let mut supervisor = Supervisor {
        config,
        listener: Listener::prepare().context("cannot make a socket")?,
        handover: Handover::create().context("cannot make memory that workers share")?,
        begun_ns: wire::monotonic_ns(),
        signals,
        keeper,
        folder,
        worker: None,
        restarts: 0,
        useless: 0,
        asked_to_end: 0,
    };
    if detached {
        crate::background::leave_folder();
    }
    let ended = supervisor.run();
    let keeper = match ended {
        Ok((keeper, _)) => keeper,
        Err(_) => KeeperIs::Left,
    };
    supervisor.end(keeper);
    ended.map(|(_, code)| code)
}

impl Supervisor<'_> {
    fn run(&mut self) -> anyhow::Result<(KeeperIs, ExitCode)> {
        self.start_worker()?;
        loop {
            self.wait(None);
            self.pass_on_signals();
            let keeper_ended = self.keeper.has_ended();
            let status = match self.reap() {
                // Without its keeper the worker is of no use; but it may be about to end, and the keeper after it.
                None if keeper_ended => Some(self.end_worker()?),
                status => status,
            };
            let Some(status) = status else { continue };
            match self.judge(status, keeper_ended)? {
                Then::Over => return Ok((KeeperIs::Ended, ExitCode::SUCCESS)),
                Then::Leave(code) => return Ok((KeeperIs::Left, code)),
                Then::Again => {}
            }
            self.restarts = self.restarts.saturating_add(1);
            if !self.pause_if_useless() || !self.start_both_anew() {
                return Ok((KeeperIs::Left, ExitCode::SUCCESS));
            }
        }
    }

    /// Starts what has ended, again and again: programs may wait for it. False if it was told to end meanwhile.
    fn start_both_anew(&mut self) -> bool {
        let before = self.asked_to_end;
        loop {
            let started = match self.keeper.has_ended() {
                true => self.keeper.replace(self.config),
                false => Ok(()),
            };
            let Err(cause) = started.and_then(|()| self.start_worker()) else { return true };
            log::say(format_args!("{cause:#}; it is tried again"));
            self.rest(TRY_AGAIN);
            self.pass_on_signals();
            if self.asked_to_end > before {
                return false;
            }
        }
    }

    fn start_worker(&mut self) -> anyhow::Result<()> {
        let outfit = Outfit {
            listener: self.listener.as_fd(),
            handover: self.handover.as_fd(),
            begun_ns: self.begun_ns,
            restarts: self.restarts,
            // What the last one was told, the next one has to know.
            asked_to_end: self.asked_to_end,
            keeper_pid: self.keeper.pid(),
            is_keeper_found: self.keeper.is_found(),
        };
        let child = outfit.start_worker(&self.folder)?;
        self.worker = Some(Worker::of(child)?);
        Ok(())
    }

    /// Waits until something has happened, or so long.
    fn wait(&self, within: Option<Duration>) {
        let worker = self.worker.as_ref().map(|worker| worker.watch.as_fd());
        let files = [Some(self.signals.as_fd()), worker, Some(self.keeper.watch())];
        wait_for(&files.into_iter().flatten().collect::<Vec<_>>(), within);
    }

    /// Waits so long, or for a signal: a keeper that has ended is no news then.
    fn rest(&self, within: Duration) {
        wait_for(&[self.signals.as_fd()], Some(within));
    }

    /// The first SIGTERM or SIGINT asks the worker to end when its programs have, the second to end at once.
    fn pass_on_signals(&mut self) {
        let mut polled = [PollFd::new(&self.signals, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !rustix::event::poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0) {
            return;
        }
        let mut bytes = [0; SIGNALS_MAX];
        for _ in 0..self.signals.read(&mut bytes).unwrap_or(0) {
            self.asked_to_end = self.asked_to_end.saturating_add(1);
            if let Some(worker) = &self.worker {
                worker.signal(outfit::STOP);
            }
        }
    }

    fn reap(&mut self) -> Option<ExitStatus> {
        let status = self.worker.as_mut()?.child.try_wait().ok()??;
        self.worker = None;
        let has_served = self.handover.served() == u64::from(self.restarts) + 1;
        self.useless = if has_served { 0 } else { self.useless + 1 };
        Some(status)
    }

    /// Waits a moment for the worker's end, and then makes it end.
    fn end_worker(&mut self) -> anyhow::Result<ExitStatus> {
        let until = Instant::now() + LAST_WORDS_WITHIN;
        loop {
            if let Some(status) = self.reap() {
                return Ok(status);
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            std::thread::sleep(left.min(LOOK));
        }
        let worker = self.worker.take().context("there is no worker")?;
        worker.end().context("cannot wait for the worker")
    }

    fn judge(&mut self, status: ExitStatus, keeper_ended: bool) -> anyhow::Result<Then> {
        let was_ready = self.listener.is_open();
        // Programs may wait for a worker, and what the keeper has is theirs: one that cannot begin is no reason to end.
        let is_awaited = self.handover.served() > 0 || self.keeper.is_found();
        match status.code() {
            Some(0) => return Ok(Then::Over),
            // It has said why.
            Some(code) if code == i32::from(GPU_GONE) => return Ok(Then::Leave(ExitCode::FAILURE)),
            Some(code) if code != PANICKED && !is_awaited => return Ok(Then::Leave(ExitCode::FAILURE)),
            Some(_) | None => {}
        }
        if !was_ready && self.asked_to_end > 0 {
            return Ok(Then::Leave(ExitCode::SUCCESS));
        }
        if keeper_ended && !was_ready && !self.keeper.is_found() {
            bail!("the keeper of what is away ended at its start; it has said why");
        }
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Some(PANICKED)) => "a panic".into(),
            (None, _) => "an error".into(),
        };
        match keeper_ended && !self.keeper.ended_well() {
            true => log::say(format_args!(
                "the keeper is gone, and with it what was not on the GPU of programs' memory: those end. It is started anew, and \
                 so is the worker"
            )),
            false => log::say(format_args!(
                "the worker died ({how}), and is started anew; programs keep their memory and come back to it"
            )),
        }
        Ok(Then::Again)
    }

    /// Rests if workers die before they serve: a moment after each, and longer after some. False if it was told to end
    /// meanwhile.
    fn pause_if_useless(&mut self) -> bool {
        let pause = match self.useless {
            0 => return true,
            1..USELESS_MAX => TRY_AGAIN,
            USELESS_MAX.. => {
                self.useless = 0;
                log::say(format_args!(
                    "{USELESS_MAX} workers in a row died before they served; the next one is started in {PAUSE:?}"
                ));
                PAUSE
            }
        };
        let until = Instant::now() + pause;
        let before = self.asked_to_end;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            self.wait(Some(left));
            self.pass_on_signals();
            if self.asked_to_end > before {
                return false;
            }
            if self.keeper.has_ended() {
                break;
            }
        }
        true
    }

    /// Ends what is left. Who asked twice does not want to wait for anything.
    fn end(&mut self, keeper: KeeperIs) {
        if let Some(worker) = self.worker.take() {
            let _ = worker.end();
        }
        match keeper {
            KeeperIs::Left if self.asked_to_end < 2 => self.keeper.leave(),
            KeeperIs::Left | KeeperIs::Ended => self.keeper.end(),
        }
    }
}

/// Waits until one of these can be read, or so long. Whatever woke it, everything is looked at then.
fn wait_for(files: &[BorrowedFd<'_>], within: Option<Duration>) {
    let mut polled: Vec<PollFd<'_>> =
        files.iter().map(|&file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
    let within = within.and_then(|within| Timespec::try_from(within).ok());
    let _ = rustix::event::poll(&mut polled, within.as_ref());
}
