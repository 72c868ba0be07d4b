//! What is in the directory beside the socket: the lock, the misuse that was seen, the faults asked for.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::FlockOperation;
use vgpu_messages::Directory;
use vgpu_messages::spec::Faults;

use super::ServerError;
use crate::misuse::Misuse;

/// How often the faults are looked at.
const FAULTS_EVERY: Duration = Duration::from_millis(10);

/// Takes the directory, as long as the file is open.
pub(super) fn lock(directory: &Directory) -> Result<OwnedFd, ServerError> {
    let path = directory.device_lock();
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| ServerError::File(path, error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file.into()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(ServerError::Taken(directory.path().into())),
        Err(error) => Err(ServerError::System("flock", error)),
    }
}

/// Files that are written and read while the device runs.
#[derive(Debug)]
pub(super) struct Records {
    misuse: File,
    faults: PathBuf,
    default_faults: Faults,
    seen: Option<(SystemTime, u64)>,
    looked: Instant,
}

impl Records {
    /// Opens them. Misuse of earlier runs stays.
    pub(super) fn open(directory: &Directory, default_faults: Faults) -> Result<Self, ServerError> {
        let path = directory.misuse();
        let misuse = OpenOptions::new().create(true).append(true).open(&path);
        let misuse = misuse.map_err(|error| ServerError::File(path, error))?;
        let looked = Instant::now().checked_sub(FAULTS_EVERY).unwrap_or_else(Instant::now);
        Ok(Self { misuse, faults: directory.faults(), default_faults, seen: None, looked })
    }

    /// Writes misuse down.
    pub(super) fn misuse(&mut self, seen: &[Misuse]) {
        for misuse in seen {
            tracing::warn!("misuse: {misuse}");
            if let Err(error) = writeln!(self.misuse, "{misuse}") {
                tracing::error!("the misuse cannot be written down: {error}");
            }
        }
    }

    /// Other faults, if the file has changed.
    pub(super) fn new_faults(&mut self) -> Option<Faults> {
        if self.looked.elapsed() < FAULTS_EVERY {
            return None;
        }
        self.looked = Instant::now();
        let state = std::fs::metadata(&self.faults).ok();
        let state = state.and_then(|state| Some((state.modified().ok()?, state.len())));
        if state == self.seen {
            return None;
        }
        self.seen = state;
        match Faults::read(&self.faults) {
            Ok(faults) => {
                let faults = faults.unwrap_or_else(|| self.default_faults.clone());
                tracing::info!("faults: {faults:?}");
                Some(faults)
            }
            Err(error) => {
                tracing::error!("{error}");
                None
            }
        }
    }
}
