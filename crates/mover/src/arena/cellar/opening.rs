//! How a worker comes to the cellar: the first one makes it, and has the keeper hold it; the next ones go on with that.

use super::{State, Tier};
use crate::arena::link::Link;
use crate::arena::{ArenaError, settled};
use crate::{HandleKey, Owner};
use cellar::disk::{Disk, FileError, LocalFile};
use cellar::seal::{KEY_BYTES, SealError};
use cellar::{Accept, Cellar, GRANULE_BYTES, Key, OpenError, Settings, SettingsError, Ticket};
use keeper::{Client, ClientError, Place};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

/// Why there is no cellar. What is in one that an earlier worker had stays there.
#[derive(Debug, thiserror::Error)]
pub enum CellarError {
    /// There is no file for it.
    #[error(transparent)]
    File(#[from] FileError),
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It has no key.
    #[error("the cellar has no key: {0}")]
    Key(#[from] SealError),
    /// The key cannot be handed to or from the keeper.
    #[error("cannot keep the cellar's key in a file of memory: {0}")]
    KeyFile(std::io::Error),
    /// It cannot be as it was asked for.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The keeper does not hold it.
    #[error("the keeper does not hold the cellar for the next worker: {0}")]
    Keeper(#[from] ArenaError),
    /// There is one already.
    #[error("the cellar is open already")]
    Twice,
}

/// What makes a disk of the cellar's file.
pub(crate) type MakeDisk<'a> = &'a dyn Fn(OwnedFd, &Settings) -> Result<Box<dyn Disk>, FileError>;

/// The real one.
pub(in crate::arena) fn local_file(file: OwnedFd, settings: &Settings) -> Result<Box<dyn Disk>, FileError> {
    Ok(Box::new(LocalFile::of_file(file, &settings.folder, settings.accept)?))
}

impl Tier {
    /// Goes on with the cellar that the keeper holds, or makes one. None if nobody wants one, and there is none.
    pub(in crate::arena) fn open(
        link: &Link,
        wanted: Option<Settings>,
        make_disk: MakeDisk<'_>,
    ) -> Result<Option<Tier>, CellarError> {
        let kept = link.ask(Client::cellar)?;
        let is_wanted = wanted.is_some();
        let (settings, file, key, held) = match (kept, wanted) {
            (None, None) => return Ok(None),
            (None, Some(settings)) => {
                let file = LocalFile::create(&settings.folder, settings.accept)?;
                let file = file.duplicate().map_err(CellarError::KeyFile)?;
                let key = Key::random()?;
                let key_file = file_of(&key).map_err(|error| CellarError::KeyFile(error.into()))?;
                settled(link.ask(|client| client.keep_cellar(file.as_fd(), key_file.as_fd()))?)?;
                (settings, file, key, BTreeMap::new())
            }
            (Some([file, key_file]), wanted) => {
                // Nothing is put where nobody wants a cellar any more, but what is in it can be fetched.
                let as_it_is = || Settings {
                    accept: Accept::Anything,
                    ..Settings::new("the folder of an earlier worker", GRANULE_BYTES)
                };
                let key = key_of(&key_file)?;
                let held = link.ask(tickets).map(known)?;
                (wanted.unwrap_or_else(as_it_is), file, key, held)
            }
        };
        let disk = make_disk(file, &settings)?;
        let available_bytes = disk.available_bytes().map_err(OpenError::Length)?;
        // Nobody else writes to it: the keeper has one worker at a time, and whoever was it before has no thread left.
        let taken_over = Cellar::take_over(&settings, disk, key, held.values().flatten().cloned())?;
        let cellar = taken_over.cellar;
        let room_bytes = available_bytes.saturating_sub(settings.leave_bytes);
        let file_bytes = cellar.statistics().file_bytes;
        let may_take_bytes = settings.limit_bytes.min(file_bytes.saturating_add(room_bytes));
        let state = Mutex::new(State { held, ..State::default() });
        Ok(Some(Tier {
            cellar,
            state,
            may_take_bytes: if is_wanted { may_take_bytes } else { 0 },
            #[cfg(test)]
            is_patient: false,
            #[cfg(test)]
            at_step: Mutex::default(),
        }))
    }

    #[cfg(test)]
    pub(in crate::arena) fn be_patient(&mut self) {
        self.is_patient = true;
    }
}

/// The tickets of a handle, as bytes.
type Written = (HandleKey, Vec<Vec<u8>>);

/// All tickets that the keeper has.
fn tickets(client: &mut Client) -> Result<Vec<Written>, ClientError> {
    let mut all = Vec::new();
    for (tenant, _) in client.tenants()? {
        let recorded = client.recorded(tenant)?;
        for recorded in recorded.iter().filter(|recorded| recorded.place == Place::Cellar) {
            let tickets = client.tickets(keeper::HandleKey { tenant, handle: recorded.handle })?;
            all.push((HandleKey { owner: Owner(tenant.0), handle: recorded.handle }, tickets));
        }
    }
    Ok(all)
}

/// What can be read of them. A handle with one that cannot be is not held: nobody can bring it back.
fn known(all: Vec<Written>) -> BTreeMap<HandleKey, Vec<Ticket>> {
    let read = |(key, tickets): Written| {
        let tickets: Result<Vec<Ticket>, _> = tickets.iter().map(|bytes| Ticket::from_bytes(bytes)).collect();
        let tickets = tickets.inspect_err(|error| tracing::error!(%key, %error, "it is lost"));
        Some((key, tickets.ok()?))
    };
    all.into_iter().filter_map(read).collect()
}

/// A file of memory with the key, which nobody can change.
fn file_of(key: &Key) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create("rota-cellar-key", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::io::pwrite(&file, key.bytes(), 0)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

fn key_of(file: &OwnedFd) -> Result<Key, CellarError> {
    let mut bytes = zeroize::Zeroizing::new([0; KEY_BYTES]);
    match rustix::io::pread(file, &mut bytes[..], 0) {
        Ok(KEY_BYTES) => Ok(Key::from_bytes(&bytes)?),
        Ok(_) => Err(CellarError::KeyFile(std::io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(CellarError::KeyFile(error.into())),
    }
}
