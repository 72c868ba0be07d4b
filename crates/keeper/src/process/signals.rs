//! Signals: at most they say that the keeper is to end once nothing is away. None ends it before, however many come: a
//! terminal that closes sends more than one, and so does a service that is stopped.

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// They ask it to end.
const WISHES: [i32; 3] = [SIGTERM, SIGINT, SIGQUIT];
/// They mean nothing here, and would end the process if nobody heard them. The last two come from limits; the system call
/// that went beyond them fails all the same.
const UNHEEDED: [i32; 6] = [SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGXFSZ];

/// Hears signals from now on. A byte comes through the file for each wish.
pub(crate) fn hear() -> io::Result<OwnedFd> {
    let (wishes, signals) = UnixStream::pair()?;
    for signal in WISHES {
        signal_hook::low_level::pipe::register(signal, signals.try_clone()?)?;
    }
    let nobody = Arc::new(AtomicBool::new(false));
    for signal in UNHEEDED {
        signal_hook::flag::register(signal, Arc::clone(&nobody))?;
    }
    Ok(wishes.into())
}
