//! What the daemon says for people, on its standard error.
//!
//! Nobody need read it: where a line would have to wait, because a pipe is full or a terminal stopped, or cannot be written at
//! all, it is lost. Programs' turns never wait for a reader, and no reader ends the daemon by going away.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::fmt::Arguments;
use std::io::{self, IsTerminal as _, Write};
use tracing_subscriber::EnvFilter;

/// A pipe that can be written to takes so much at once.
const AT_ONCE_BYTES: usize = 4096;

/// Logs from now on, as `ROTAD_LOG` says.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("ROTAD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for people at a terminal who want them.
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Lossy)
        .with_target(false)
        .with_ansi(colours)
        // It would be said on the same standard error, and that panics.
        .log_internal_errors(false)
        .init();
}

/// Says a line that is no log entry.
pub(crate) fn say(line: Arguments<'_>) {
    let _ = Lossy.write_all(format!("rotad: {line}\n").as_bytes());
}

struct Lossy;

impl Write for Lossy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let error = io::stderr();
        for piece in bytes.chunks(AT_ONCE_BYTES) {
            let mut polled = [PollFd::new(&error, PollFlags::OUT)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let is_ready = rustix::event::poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0);
            if !is_ready || rustix::io::write(&error, piece).is_err() {
                break;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
