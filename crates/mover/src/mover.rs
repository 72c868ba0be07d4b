//! Where the bytes of every handle are.
//!
//! Rules that hold at every moment, whatever fails:
//! - A handle is in exactly one `Place`, and in each place one copy of its bytes is the valid one.
//! - A copy out is done before the tenant is asked to unmap; our import goes only after the tenant has unmapped.
//! - Arena space is given back only after the copy in is done. It may be kept then, as a copy that is not the valid one.
//! - Memory and arena space that a copy under way uses are dropped only after that copy has ended, also when the
//!   tenant is gone: until then they wait in a `Grave`.
//!
//! The steps of a move are in `transit` and `hashing`; [`crate::exchange`] puts them in order. [`clean`]: copies that are
//! kept of what is on the device.

pub mod clean;
mod hashing;
mod parts;
mod transit;

pub(crate) use hashing::HashState;
pub(crate) use transit::{CopyState, Started};

use crate::arena::{Arena, Extents};
use crate::device::{Device, DeviceError, Mark};
use crate::{BLOCK_BYTES, HandleKey, Owner};
use clean::{AuditError, Copy, Habit, Hasher, Stored};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;

/// How many freed handles are remembered. Whoever plans learns of a free within a few moves.
const FREED_MAX: usize = 4096;

/// Why the mover did not take or drop a handle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoverError {
    /// There is one of that name already.
    #[error("{key} is known already; a handle's number is never used twice")]
    Duplicate {
        /// Which one.
        key: HandleKey,
    },
    /// There is none of that name.
    #[error("{key} is not known")]
    Unknown {
        /// Which one.
        key: HandleKey,
    },
    /// Not whole blocks.
    #[error("{key} has {bytes} bytes; a multiple of 2 MiB is needed, and not zero")]
    BadSize {
        /// Which one.
        key: HandleKey,
        /// Its size.
        bytes: u64,
    },
    /// The device refused the import.
    #[error("cannot import {key} of {bytes} bytes: {error}")]
    Import {
        /// Which one.
        key: HandleKey,
        /// Its size.
        bytes: u64,
        /// What the device said.
        error: DeviceError,
    },
}

/// Where a handle is.
#[derive(Debug)]
enum Place<M> {
    /// On the device. The arena may have a copy of what it was when it came.
    Device { memory: M, copy: Option<Copy> },
    /// In the arena; the device has no memory for it.
    Arena(Stored),
    /// On the way out. The device's bytes are the valid ones.
    Leaving(Leaving<M>),
    /// On the way in. The arena's bytes are the valid ones.
    Returning { stored: Stored, stage: Returning<M> },
}

#[derive(Debug)]
struct Leaving<M> {
    memory: M,
    /// Where it goes. While it is hashed, the hashes are those of the copy that is there; afterwards its own.
    stored: Stored,
    /// An older copy, to be audited with.
    before: Option<Stored>,
    /// How much of it is copied.
    copied_bytes: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The device hashes it until this mark.
    Hashing(Mark),
    /// The copy is under way until this mark.
    Copying(Mark),
    /// The copy is done; the tenant is to unmap.
    Unmapping,
}

#[derive(Debug)]
enum Returning<M> {
    /// The tenant is to create memory.
    Creating,
    /// The copy is under way until this mark.
    Copying { memory: M, mark: Mark },
    /// The tenant has created memory that cannot be filled, and is to unmap it. The device then gets these bytes back.
    BackingOut { freed_bytes: u64 },
}

#[derive(Debug)]
struct Held<M> {
    bytes: u64,
    place: Place<M>,
}

/// What is left of a handle that was dropped during a copy.
#[derive(Debug)]
struct Grave<M> {
    key: HandleKey,
    memory: M,
    extents: Extents,
    until: Mark,
    bytes: u64,
}

/// Where a handle is, for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On the device only.
    Device,
    /// In the arena only.
    Arena,
    /// On the device still; a move out of it has not ended, because a copy or its tenant's answer is missing.
    Leaving,
    /// In the arena still; a move in of it has not ended. The device has memory for it as soon as its tenant answers.
    Returning,
}

/// A handle, for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleView {
    /// Which one.
    pub key: HandleKey,
    /// How large.
    pub bytes: u64,
    /// Where it is.
    pub whereabouts: Whereabouts,
}

/// What was dropped of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The handles.
    pub handles: Vec<HandleKey>,
    /// Bytes on the device that we hold no longer.
    pub device_bytes: u64,
    /// Bytes on the device and in the arena that go as soon as a copy under way has ended.
    pub dying_bytes: u64,
}

/// The memory server: owns the imports and the arena.
///
/// It must be dropped before the driver goes. Dropping it waits for copies under way.
#[derive(Debug)]
pub struct Mover<D: Device> {
    handles: BTreeMap<HandleKey, Held<D::Memory>>,
    graves: Vec<Grave<D::Memory>>,
    /// The last handles that were freed on the device, with their bytes: a plan that was made before that may still name
    /// them, and counts on their room.
    freed: VecDeque<(HandleKey, u64)>,
    /// Marks within long copies, for each lane: they show that something moves.
    waypoints: [VecDeque<Mark>; 2],
    /// How blocks are hashed, if copies are kept.
    hasher: Option<Hasher>,
    /// Of each handle that was hashed.
    habits: BTreeMap<HandleKey, Habit>,
    /// What was found and not told yet.
    audit_errors: Vec<AuditError>,
    lost_device_bytes: u64,
    lost_arena_bytes: u64,
    // The arena is dropped before the device that it is registered with.
    arena: Arena,
    device: D,
}

impl<D: Device> Mover<D> {
    /// A mover that holds nothing yet. The arena must be registered with this device.
    pub fn new(device: D, arena: Arena) -> Mover<D> {
        Mover {
            handles: BTreeMap::new(),
            graves: Vec::new(),
            freed: VecDeque::new(),
            waypoints: [VecDeque::new(), VecDeque::new()],
            hasher: None,
            habits: BTreeMap::new(),
            audit_errors: Vec::new(),
            lost_device_bytes: 0,
            lost_arena_bytes: 0,
            arena,
            device,
        }
    }

    /// Takes in a new handle of a tenant, by its file. It is on the device.
    pub fn adopt(&mut self, key: HandleKey, bytes: u64, file: OwnedFd) -> Result<(), MoverError> {
        if self.handles.contains_key(&key) {
            return Err(MoverError::Duplicate { key });
        }
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(MoverError::BadSize { key, bytes });
        }
        let memory =
            self.device.import(file, bytes).map_err(|error| MoverError::Import { key, bytes, error })?;
        self.handles.insert(key, Held { bytes, place: Place::Device { memory, copy: None } });
        Ok(())
    }

    /// Drops a handle that its tenant has freed.
    pub fn forget(&mut self, key: HandleKey) -> Result<Dropped, MoverError> {
        self.reap();
        let dropped = self.drop_handle(key)?;
        self.remember_freed(key, dropped.device_bytes);
        Ok(dropped)
    }

    /// A handle was freed, and these bytes of it that the device got back are nobody's room yet.
    pub(crate) fn remember_freed(&mut self, key: HandleKey, device_bytes: u64) {
        if self.freed.len() == FREED_MAX {
            self.freed.pop_front();
        }
        self.freed.push_back((key, device_bytes));
    }

    /// The room of a handle that was freed, once.
    pub(crate) fn take_freed(&mut self, key: HandleKey) -> Option<u64> {
        let at = self.freed.iter().rposition(|(freed, _)| *freed == key)?;
        self.freed.remove(at).map(|(_, bytes)| bytes)
    }

    /// Drops everything of a tenant that is gone.
    pub fn forget_owner(&mut self, owner: Owner) -> Dropped {
        self.reap();
        self.drop_owner(owner)
    }

    pub(crate) fn drop_handle(&mut self, key: HandleKey) -> Result<Dropped, MoverError> {
        let held = self.handles.remove(&key).ok_or(MoverError::Unknown { key })?;
        let mut dropped = Dropped::default();
        self.bury(key, held, &mut dropped);
        Ok(dropped)
    }

    pub(crate) fn drop_owner(&mut self, owner: Owner) -> Dropped {
        let mut dropped = Dropped::default();
        for key in self.keys(owner) {
            if let Some(held) = self.handles.remove(&key) {
                self.bury(key, held, &mut dropped);
            }
        }
        dropped
    }

    /// Bytes of a tenant that are on the device, or may be (while a move of them has not ended).
    pub fn resident_bytes(&self, owner: Owner) -> u64 {
        let on_device = |held: &&Held<_>| !matches!(held.place, Place::Arena(_));
        self.of(owner).map(|(_, held)| held).filter(on_device).map(|held| held.bytes).sum()
    }

    /// Bytes of a tenant whose valid copy is in the arena.
    pub fn away_bytes(&self, owner: Owner) -> u64 {
        let away = |held: &&Held<_>| matches!(held.place, Place::Arena(_) | Place::Returning { .. });
        self.of(owner).map(|(_, held)| held).filter(away).map(|held| held.bytes).sum()
    }

    /// All handles of a tenant, in the order of their numbers.
    pub fn handles(&self, owner: Owner) -> Vec<HandleView> {
        let view = |(&key, held): (&HandleKey, &Held<_>)| HandleView {
            key,
            bytes: held.bytes,
            whereabouts: held.place.whereabouts(),
        };
        self.of(owner).map(view).collect()
    }

    /// One handle.
    pub fn handle(&self, key: HandleKey) -> Option<HandleView> {
        let held = self.handles.get(&key)?;
        Some(HandleView { key, bytes: held.bytes, whereabouts: held.place.whereabouts() })
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, to ask it about its memory.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The arena, to ask how much is ready and free.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Device memory that the device did not let go of. Counts as used until the daemon ends.
    pub fn lost_device_bytes(&self) -> u64 {
        self.lost_device_bytes
    }

    /// Arena space that a failed copy may still write to. Not used again.
    pub fn lost_arena_bytes(&self) -> u64 {
        self.lost_arena_bytes
    }

    fn of(&self, owner: Owner) -> impl Iterator<Item = (&HandleKey, &Held<D::Memory>)> {
        let first = HandleKey { owner, handle: 0 };
        let last = HandleKey { owner, handle: u64::MAX };
        self.handles.range(first..=last)
    }

    fn keys(&self, owner: Owner) -> Vec<HandleKey> {
        self.of(owner).map(|(&key, _)| key).collect()
    }

    /// Drops what a handle holds, now or as soon as its copy has ended.
    fn bury(&mut self, key: HandleKey, held: Held<D::Memory>, dropped: &mut Dropped) {
        let bytes = held.bytes;
        dropped.handles.push(key);
        self.habits.remove(&key);
        match held.place {
            Place::Device { memory, copy } => {
                self.drop_copy(copy);
                dropped.device_bytes += self.release(key, memory, bytes);
            }
            Place::Arena(stored) | Place::Returning { stored, stage: Returning::Creating } => {
                self.arena.give_back(stored.extents);
            }
            Place::Returning { stored, stage: Returning::BackingOut { freed_bytes } } => {
                self.arena.give_back(stored.extents);
                dropped.device_bytes += freed_bytes;
            }
            Place::Leaving(Leaving { memory, stored, before, stage, .. }) => {
                if let Some(before) = before {
                    self.arena.give_back(before.extents);
                }
                match stage {
                    Stage::Unmapping => {
                        self.arena.give_back(stored.extents);
                        dropped.device_bytes += self.release(key, memory, bytes);
                    }
                    Stage::Hashing(until) | Stage::Copying(until) => {
                        dropped.dying_bytes += bytes;
                        self.graves.push(Grave { key, memory, extents: stored.extents, until, bytes });
                    }
                }
            }
            Place::Returning { stored, stage: Returning::Copying { memory, mark: until } } => {
                dropped.dying_bytes += bytes;
                self.graves.push(Grave { key, memory, extents: stored.extents, until, bytes });
            }
        }
    }

    /// Drops what was waiting for a copy that has ended now. Says which handles, and how many bytes of each the device
    /// got back.
    pub(crate) fn reap(&mut self) -> Vec<(HandleKey, u64)> {
        let mut reaped = Vec::new();
        for grave in std::mem::take(&mut self.graves) {
            match self.device.passed(grave.until) {
                Ok(false) => {
                    self.graves.push(grave);
                    continue;
                }
                Ok(true) => self.arena.give_back(grave.extents),
                Err(error) => self.after_failed_copy(grave.key, grave.extents, &error),
            }
            let freed_bytes = self.release(grave.key, grave.memory, grave.bytes);
            reaped.push((grave.key, freed_bytes));
        }
        reaped
    }

    pub(crate) fn has_graves(&self) -> bool {
        !self.graves.is_empty()
    }

    /// Drops an import. Says how many bytes the device got back: all or none.
    fn release(&mut self, key: HandleKey, memory: D::Memory, bytes: u64) -> u64 {
        match self.device.release(memory) {
            Ok(()) => bytes,
            Err(error) => {
                tracing::error!(%key, bytes, %error, "cannot let go of device memory; it counts as used from now on");
                self.lost_device_bytes += bytes;
                0
            }
        }
    }

    /// Gives arena space of a failed copy back, if it is certain that nothing is under way any more.
    fn after_failed_copy(&mut self, key: HandleKey, extents: Extents, error: &DeviceError) {
        match self.device.drain() {
            Ok(()) => self.arena.give_back(extents),
            Err(drain_error) => {
                let bytes = extents.bytes();
                tracing::error!(%key, bytes, %error, %drain_error, "a copy failed and may go on; its arena space is lost");
                self.lost_arena_bytes += bytes;
            }
        }
    }
}

impl<M> Place<M> {
    fn whereabouts(&self) -> Whereabouts {
        match self {
            Place::Device { .. } => Whereabouts::Device,
            Place::Arena(_) => Whereabouts::Arena,
            Place::Leaving { .. } => Whereabouts::Leaving,
            Place::Returning { .. } => Whereabouts::Returning,
        }
    }
}

impl<D: Device> Drop for Mover<D> {
    fn drop(&mut self) {
        // Host memory must not be unregistered under a copy. This may be another thread than the one that used it.
        if let Err(error) = self.device.attach().and_then(|()| self.device.drain()) {
            tracing::warn!(%error, "cannot wait for copies under way");
        }
        for (key, held) in std::mem::take(&mut self.handles) {
            self.bury(key, held, &mut Dropped::default());
        }
        self.reap();
    }
}
