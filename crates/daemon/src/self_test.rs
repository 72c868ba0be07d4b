//! Does freezing work on this driver? Asked at every start, of the GPU's behaviour and not of statuses.
//!
//! A child process becomes a tenant like any other: this executable again, with the shim preloaded. It runs a kernel
//! that counts in memory shared with the daemon ([`tenant`]); the daemon freezes it by what its shim reports and
//! watches the counter ([`run`]). So the test covers the shim, the ioctls, the passing of files and the control itself.

use crate::grip::{Grip, GripError};
use crate::resource_manager::ResourceManager;
use channels::selftest::{Plan, SystemClock, Verdict};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use sched::Scope;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use thiserror::Error;
use wire::{Connection, FromDaemon, Listener, SharedPage, TenantId, ToDaemon};

mod heartbeat;
pub use heartbeat::tenant;

/// The subcommand by which this executable is the tenant.
pub const TENANT: &str = "self-test-tenant";

/// How long the child may take until its kernel counts. A context takes 0.2 s, more on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(30);
const END_WITHIN: Duration = Duration::from_secs(10);
const HEARTBEAT_BYTES: usize = 4096;

/// Why freezing cannot be relied on here.
#[derive(Debug, Error)]
pub enum SelfTestError {
    /// The test itself could not be set up.
    #[error("the self-test could not be set up: {0}")]
    Setup(String),
    /// The child ended before its kernel ran.
    #[error("the self-test's own program ended early ({0}); its messages are above")]
    Ended(std::process::ExitStatus),
    /// The child never got its kernel to run.
    #[error("the self-test's kernel did not run within {START_WITHIN:?}")]
    NoHeartbeat,
    /// The counter went on.
    #[error("freezing does nothing on this driver: the kernel went on by {0} counts while it was frozen")]
    DoesNotFreeze(u64),
    /// The counter stood still.
    #[error("thawing does nothing on this driver: the kernel stood still after it")]
    DoesNotThaw,
    /// A control failed.
    #[error("freezing or thawing failed: {0}")]
    Control(#[from] GripError),
}

impl SelfTestError {
    /// Is it the driver that cannot freeze, rather than the test that could not be made?
    pub fn is_the_drivers(&self) -> bool {
        match self {
            Self::DoesNotFreeze(_) | Self::DoesNotThaw | Self::Control(_) => true,
            Self::Setup(_) | Self::Ended(_) | Self::NoHeartbeat => false,
        }
    }
}

/// What a self-test that went well measured.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Rounds of freeze and thaw.
    pub rounds: u32,
    /// The longest freeze.
    pub freeze_max: Duration,
    /// The longest time from the thaw until the kernel went on.
    pub thaw_max: Duration,
    /// What the program's context took of the device, if that could be told.
    pub residue_bytes: Option<u64>,
}

/// Freezes and thaws a kernel of our own on `gpu`. `socket` is a free name for the private socket this needs. `measure` tells
/// what a process holds of the device; it is asked once, of one that has a context and a kernel, and no memory. To be called
/// in the main thread: the child ends with the thread that started it, whatever ends that.
pub fn run(
    shim: &Path,
    gpu: &str,
    socket: &Path,
    measure: impl FnOnce(u32) -> Option<u64>,
) -> Result<Report, SelfTestError> {
    let setup = |what: &dyn std::fmt::Display| SelfTestError::Setup(what.to_string());
    let words = rustix::fs::memfd_create("rota-heartbeat", MemfdFlags::CLOEXEC).map_err(|e| setup(&e))?;
    rustix::fs::ftruncate(&words, HEARTBEAT_BYTES as u64).map_err(|e| setup(&e))?;
    let heartbeat = Heartbeat::map(&words).map_err(|e| setup(&e))?;
    let listener = Listener::bind(socket).map_err(|e| setup(&e))?;
    let executable = std::env::current_exe().map_err(|e| setup(&e))?;
    let child = Command::new(executable)
        .arg(TENANT)
        .args(["--parent", &std::process::id().to_string()])
        .env("LD_PRELOAD", wire::preload(shim, std::env::var_os("LD_PRELOAD")))
        .env("ROTA_SOCKET", socket)
        .env("ROTA_JOB", "self-test")
        .env("CUDA_VISIBLE_DEVICES", gpu)
        .env_remove("ROTA_DISABLE")
        .stdin(Stdio::from(words))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| setup(&e))?;
    let mut child = EndAtLast(child, heartbeat);
    let connection = child.accept(&listener)?;
    let _ = rustix::fs::unlink(socket);
    let page = SharedPage::create(1).map_err(|e| setup(&e))?;
    let welcome = FromDaemon::Welcome { tenant: TenantId(0), gpu: gpu.into(), capacity_bytes: u64::MAX };
    connection.receive::<ToDaemon>().map_err(|e| setup(&e))?;
    connection.send(&welcome, &[page.file()]).map_err(|e| setup(&e))?;
    let grip = Grip::new(page, ResourceManager::SYSTEM);
    std::thread::scope(|scope| {
        let reports = scope.spawn(|| take_reports(&connection, &grip));
        let mut residue_bytes = None;
        let verdict = child.beats().map(|()| {
            residue_bytes = measure(child.0.id());
            channels::selftest::run(
                &Plan::default(),
                &SystemClock::new(),
                || child.1.counter().load(SeqCst),
                || grip.freeze(Scope::All).map(drop),
                || grip.thaw().map(drop),
            )
        });
        child.end();
        connection.shut_down();
        let _ = reports.join();
        match verdict? {
            Verdict::Works { rounds, freeze_ns_max, thaw_ns_max } => Ok(Report {
                rounds,
                freeze_max: Duration::from_nanos(freeze_ns_max),
                thaw_max: Duration::from_nanos(thaw_ns_max),
                residue_bytes,
            }),
            Verdict::DoesNotFreeze { progressed } => Err(SelfTestError::DoesNotFreeze(progressed)),
            Verdict::DoesNotThaw => Err(SelfTestError::DoesNotThaw),
            Verdict::NoHeartbeat => Err(SelfTestError::NoHeartbeat),
            Verdict::ControlFailed(cause) => Err(cause.into()),
        }
    })
}

fn take_reports(connection: &Connection, grip: &Grip) {
    while let Ok((message, files)) = connection.receive::<ToDaemon>() {
        if let ToDaemon::Channels { generation, new_files, groups } = message
            && let Err(cause) = grip.report(generation, new_files, groups, files)
        {
            tracing::error!("self-test: {cause}");
            return;
        }
    }
}

/// The child, which ends with this whatever happens.
struct EndAtLast(Child, Heartbeat);

impl EndAtLast {
    fn accept(&mut self, listener: &Listener) -> Result<Connection, SelfTestError> {
        self.until(|| {
            let mut one = [PollFd::new(listener, PollFlags::IN)];
            let moment = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let someone = rustix::event::poll(&mut one, Some(&moment)).is_ok_and(|count| count > 0);
            someone.then(|| listener.accept().map_err(|e| SelfTestError::Setup(e.to_string())))
        })?
    }

    fn beats(&mut self) -> Result<(), SelfTestError> {
        let heartbeat = self.1;
        self.until(|| {
            std::thread::sleep(Duration::from_millis(1));
            (heartbeat.counter().load(SeqCst) > 0).then_some(())
        })
    }

    /// Asks again and again, as long as the child lives and the time is not over.
    fn until<T>(&mut self, mut ask: impl FnMut() -> Option<T>) -> Result<T, SelfTestError> {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            if let Some(answer) = ask() {
                return Ok(answer);
            }
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(SelfTestError::Ended(status));
            }
            if Instant::now() > deadline {
                return Err(SelfTestError::NoHeartbeat);
            }
        }
    }

    fn end(&mut self) {
        self.1.stop().store(1, SeqCst);
        let deadline = Instant::now() + END_WITHIN;
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for EndAtLast {
    fn drop(&mut self) {
        self.end();
    }
}

/// Two words shared by the kernel, the child and the daemon. Mapped for the rest of the process's life.
#[derive(Clone, Copy)]
struct Heartbeat(&'static [AtomicU64; 2]);

impl Heartbeat {
    fn map(file: &OwnedFd) -> Result<Self, rustix::io::Errno> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh shared mapping, never unmapped; the file has this size and is not shortened by us.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), HEARTBEAT_BYTES, flags, MapFlags::SHARED, file.as_fd(), 0)?
        };
        // SAFETY: page-aligned, zeroed, and only ever accessed as atomics.
        Ok(Self(unsafe { &*start.cast::<[AtomicU64; 2]>() }))
    }

    fn counter(&self) -> &'static AtomicU64 {
        &self.0[0]
    }

    fn stop(&self) -> &'static AtomicU64 {
        &self.0[1]
    }
}
