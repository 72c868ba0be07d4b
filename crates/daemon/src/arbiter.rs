//! One arbiter per GPU: a second daemon for the same GPU is refused, and told who the first one is.
//!
//! The lock is a socket in the kernel's abstract namespace, named after the GPU: it needs no folder that all users can
//! write, goes away with its holder however that ends, and whoever connects learns the holder's process. Such names are
//! seen within one network namespace, so containers that share a GPU must share the host's daemon, not run their own.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long to wait before a GPU that is taken is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Why this daemon may not share the GPU.
#[derive(Debug, Error)]
pub enum ArbiterError {
    /// Somebody does already.
    #[error(
        "{gpu} is shared by {} already\nhint: stop that rotad first, or choose other GPUs with --gpus",
        pid.map_or("another process".into(), |pid| format!("process {pid}"))
    )]
    Taken {
        /// The GPU.
        gpu: String,
        /// The process that has it, where it can be told.
        pid: Option<u32>,
    },
    /// The system refused.
    #[error("cannot take the lock on {gpu}: {cause}")]
    System {
        /// The GPU.
        gpu: String,
        /// Why.
        cause: rustix::io::Errno,
    },
}

/// So many learn who the holder is; those after them are refused all the same.
const ASKERS_MAX: i32 = 128;

/// Held while the GPU is ours.
#[derive(Debug)]
pub struct Arbiter {
    _lock: OwnedFd,
}

impl Arbiter {
    /// The same as [`Arbiter::of`], for whoever follows one that is on its way out: waits so long for its end.
    pub fn of_within(gpu: &str, patience: Duration) -> Result<Self, ArbiterError> {
        let begun = Instant::now();
        loop {
            match Self::of(gpu) {
                Err(ArbiterError::Taken { .. }) if begun.elapsed() < patience => {
                    std::thread::sleep(AGAIN_AFTER);
                }
                done => return done,
            }
        }
    }

    /// Becomes the one arbiter of this GPU.
    pub fn of(gpu: &str) -> Result<Self, ArbiterError> {
        let failed = |cause| ArbiterError::System { gpu: gpu.into(), cause };
        let name = SocketAddrUnix::new_abstract_name(format!("rota/{gpu}").as_bytes()).map_err(failed)?;
        // Nobody accepts, so those who asked before fill the queue: never wait for a place in it.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let lock = socket().map_err(failed)?;
        match rustix::net::bind(&lock, &name) {
            Ok(()) => {
                rustix::net::listen(&lock, ASKERS_MAX).map_err(failed)?;
                Ok(Self { _lock: lock })
            }
            Err(rustix::io::Errno::ADDRINUSE) => {
                let asking = socket().map_err(failed)?;
                let pid = match rustix::net::connect(&asking, &name) {
                    Ok(()) => {
                        let holder = sockopt::socket_peercred(&asking).map_err(failed)?;
                        Some(holder.pid.as_raw_nonzero().get().unsigned_abs())
                    }
                    Err(rustix::io::Errno::AGAIN) => None,
                    Err(cause) => return Err(failed(cause)),
                };
                Err(ArbiterError::Taken { gpu: gpu.into(), pid })
            }
            Err(cause) => Err(failed(cause)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_learns_who_the_first_is_and_may_follow_it() {
        let gpu = format!("GPU-test-{}", std::process::id());
        let first = Arbiter::of(&gpu).unwrap();
        match Arbiter::of(&gpu) {
            Err(ArbiterError::Taken { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("expected to be refused, got {other:?}"),
        }
        Arbiter::of(&format!("{gpu}-other")).unwrap();
        drop(first);
        // Other tests start processes, each of which has a copy of the lock for a moment.
        Arbiter::of_within(&gpu, Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn who_follows_one_that_ends_waits_for_its_end_and_no_longer_than_told() {
        let gpu = format!("GPU-test-next-{}", std::process::id());
        let first = Arbiter::of(&gpu).unwrap();
        let short = Duration::from_millis(20);
        let begun = Instant::now();
        assert!(matches!(Arbiter::of_within(&gpu, short), Err(ArbiterError::Taken { .. })));
        assert!(begun.elapsed() >= short);
        let ends = std::thread::spawn(move || {
            std::thread::sleep(short);
            drop(first);
        });
        Arbiter::of_within(&gpu, Duration::from_secs(60)).unwrap();
        ends.join().unwrap();
    }

    #[test]
    fn however_many_ask_each_is_refused_at_once() {
        let gpu = format!("GPU-test-many-{}", std::process::id());
        let _first = Arbiter::of(&gpu).unwrap();
        for _ in 0..2 * ASKERS_MAX {
            assert!(matches!(Arbiter::of(&gpu), Err(ArbiterError::Taken { .. })));
        }
    }
}
