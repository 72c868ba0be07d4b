//! Where the keeper is found: its socket, and a lock beside it that says whose the socket is.
//!
//! Without the lock two keepers that start together could each find nobody there, and one would take the socket's file from
//! under the other. The lock's file stays when the keeper ends: one that is removed could be locked by nobody and by two.

use anyhow::{Context as _, bail};
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use wire::Listener;

/// Only who owns the keeper: the arena has everybody's bytes.
const OWNER_ONLY: u32 = 0o600;

/// A keeper's place. Nobody else can have it as long as this is there.
#[derive(Debug)]
pub(crate) struct Place {
    socket: PathBuf,
    _lock: File,
}

impl Place {
    /// Takes it, and listens there.
    pub(crate) fn take(socket: &Path) -> anyhow::Result<(Place, Listener)> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(OWNER_ONLY).open(&path);
        let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                bail!("another keeper is at {}, or has not wholly ended: its lock is held", socket.display())
            }
            Err(cause) => return Err(cause).with_context(|| format!("cannot lock {}", path.display())),
        }
        let before = rustix::process::umask(Mode::from_bits_truncate(0o177));
        let listener = Listener::bind(socket);
        rustix::process::umask(before);
        let listener = listener.context("is another keeper there?")?;
        std::fs::set_permissions(socket, Permissions::from_mode(OWNER_ONLY))
            .with_context(|| format!("cannot close {} to others", socket.display()))?;
        Ok((Place { socket: socket.into(), _lock: lock }, listener))
    }

    /// Nobody is to find the keeper any more. To be called while it listens, so that the file is still its own.
    pub(crate) fn hide(&self) {
        if let Err(error) = std::fs::remove_file(&self.socket) {
            tracing::warn!(%error, "the socket's file stays");
        }
    }
}
