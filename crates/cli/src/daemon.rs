//! Asking the daemon who is there: one question, one answer, and a limit on the wait.

use anyhow::{Context as _, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::path::Path;
use wire::{Connection, FromDaemon, Listing, ToDaemon, WireError};

/// How long the daemon may take to answer. It answers between two steps of its work, and none of them is long.
const ANSWER_SECONDS_MAX: i64 = 10;

/// What the daemon at `socket` sees now.
pub(crate) fn listing(socket: &Path) -> anyhow::Result<Listing> {
    let connection = Connection::connect(socket).map_err(|error| unreachable(error, socket))?;
    let asked = || format!("the daemon at {} gave no answer", socket.display());
    connection.send(&ToDaemon::List { version: wire::VERSION }, &[]).with_context(asked)?;

    let mut wait = [PollFd::new(&connection, PollFlags::IN)];
    let limit = Timespec { tv_sec: ANSWER_SECONDS_MAX, tv_nsec: 0 };
    let ready =
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut wait, Some(&limit))).with_context(asked)?;
    if ready == 0 {
        bail!(
            "the daemon at {} gave no answer in {ANSWER_SECONDS_MAX} s\n\
             hint: see what it is doing in its log, or start it again",
            socket.display()
        );
    }
    match connection.receive().with_context(asked)? {
        (FromDaemon::Listing(listing), _) => Ok(listing),
        (FromDaemon::Refused { reason }, _) => {
            bail!("the daemon at {} refused: {reason}", socket.display())
        }
        (other, _) => bail!(
            "the daemon at {} answered something else than was asked: {other:?}\n\
             hint: use `rota` and `rotad` of the same version",
            socket.display()
        ),
    }
}

fn unreachable(error: WireError, socket: &Path) -> anyhow::Error {
    let hint = match &error {
        WireError::Unreachable { cause: Errno::NOENT | Errno::CONNREFUSED, .. } => {
            "hint: start one with `rotad &` (without a GPU: `rotad --vgpu DIR &`), or name its socket with --socket or ROTA_SOCKET".into()
        }
        WireError::Unreachable { cause: Errno::ACCESS | Errno::PERM, .. } => {
            format!("hint: this daemon is another user's; see `ls -l {}`", socket.display())
        }
        _ => "hint: name the daemon's socket with --socket or ROTA_SOCKET".into(),
    };
    anyhow!("no daemon answers: {error}\n{hint}")
}
