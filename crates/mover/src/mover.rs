//! Where the bytes of every handle are.
//!
//! Rules that hold at every moment, whatever fails:
//! - A handle is in exactly one `Place`, and in each place one copy of its bytes is the valid one.
//! - A copy out is done, and recorded by the keeper, before the tenant is asked to unmap; our import goes only after the
//!   tenant has unmapped.
//! - A copy in is done, and recorded, before the handle counts as on the device: only then its arena space is free, or a
//!   copy that is not the valid one.
//! - Memory and arena space that a copy under way uses are dropped only after that copy has ended, also when the
//!   tenant is gone: until then they wait in a `Grave`.
//!
//! The steps of a move are in `reserving`, `transit`, `recording` and `hashing`; [`crate::exchange`] puts them in order. [`clean`]:
//! copies that are kept of what is on the device, and `auditing` whether their hashes tell the truth. [`adoption`]: what an earlier
//! worker has left. `sinking`: to the cellar and back; `cold`: whose memory goes there first. [`passing`]: memory that goes
//! from one tenant to the next.

pub mod adoption;
mod auditing;
pub mod clean;
mod cold;
mod dropping;
mod hashing;
pub mod homes;
pub mod looks;
mod parts;
pub mod passing;
#[cfg(any(test, feature = "planted"))]
pub(crate) mod planted;
mod recording;
mod reserving;
mod sinking;
mod transit;

pub(crate) use hashing::HashState;
pub(crate) use passing::Passed;
#[cfg(test)]
pub(crate) use reserving::AHEAD_MAX;
pub(crate) use sinking::Fetch;
pub(crate) use transit::{CopyState, Owed, Started};

use crate::arena::cellar::jobs::{Getting, Putting};
use crate::arena::{Arena, ArenaError};
use crate::device::{Device, DeviceError, Mark};
use crate::exchange::patience::Clock;
use crate::exchange::requests::REQUEST_BYTES_MAX;
use crate::pace::{Lengths, Pace, Paced};
use crate::{BLOCK_BYTES, HandleKey, Owner};
use clean::{AuditError, Before, Habit, Hasher, Hashes, Stored};
use keeper::Process;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    /// Its size is not what was recorded of it.
    #[error("{key} has {bytes} bytes, but {recorded_bytes} of it were recorded")]
    OtherSize {
        /// Which one.
        key: HandleKey,
        /// Its size.
        bytes: u64,
        /// What the keeper has.
        recorded_bytes: u64,
    },
    /// Its bytes are in the cellar, where nothing goes that is mapped.
    #[error("{key} is in the cellar, and its tenant has memory for it all the same")]
    InCellar {
        /// Which one.
        key: HandleKey,
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
    /// On the device. The arena may have a copy of what it was when it came, of these hashes.
    Device { memory: M, copy: Option<Hashes> },
    /// In the arena; the device has no memory for it.
    Arena(Stored),
    /// In the arena; the cellar gets its blocks.
    Sinking { stored: Stored, puts: Putting },
    /// In the cellar; nothing else has its bytes.
    Cellar { hashes: Option<Hashes> },
    /// In the cellar; its blocks are fetched to this place.
    Fetching { stored: Stored, gets: Getting },
    /// On the way out. The device's bytes are the valid ones; once that is recorded, those in the arena are the same.
    Leaving(Leaving<M>),
    /// On the way in. The arena's bytes are the valid ones.
    Returning { stored: Stored, stage: Returning<M> },
}

#[derive(Debug)]
struct Leaving<M> {
    memory: M,
    /// Where it goes. While it is hashed, the hashes are those of the copy that is there; afterwards its own.
    stored: Stored,
    /// Where it goes, its clean copy is or was, so that the keeper wants to know its blocks.
    reused: bool,
    /// What its clean copy was, to be audited with.
    before: Option<Before>,
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
    /// The copy is done, and to be recorded.
    Copied,
    /// That is recorded; the tenant is to unmap.
    Unmapping,
}

#[derive(Debug)]
enum Returning<M> {
    /// The tenant is to create memory.
    Creating,
    /// The copy is under way until this mark.
    Copying { memory: M, mark: Mark },
    /// The copy is done, and to be recorded.
    Copied { memory: M },
    /// Memory that another tenant had: this one's bytes are copied there until this mark. It knows nothing of it yet.
    Filling { memory: M, mark: Mark },
    /// The copy is done; the tenant is to take that memory.
    Taking { memory: M },
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
    until: Mark,
    bytes: u64,
}

/// Where a handle is, for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On the device only.
    Device,
    /// Away: in the arena only, or in the cellar.
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
    /// What lies in the host's memory, and what is about to change its home.
    homes: homes::Homes<D::Memory>,
    /// What was seen of blocks while their tenants ran.
    looks: looks::Looks,
    /// What was found and not told yet.
    audit_errors: Vec<AuditError>,
    /// What an audit compared since that was told.
    compared_bytes: u64,
    lost_device_bytes: u64,
    /// Handles whose space in the arena a failed copy may still write to, with their bytes: it stays reserved.
    lost: BTreeMap<HandleKey, u64>,
    /// Handles that were dropped on their way to the cellar or back.
    cellar_graves: Vec<sinking::CellarGrave>,
    /// Who goes and who comes.
    turns: cold::Turns,
    /// Tenants that are gone and have graves still. Only after that the keeper is told.
    dying: BTreeSet<Owner>,
    /// A copy out had to wait for its place in the arena.
    has_waited: bool,
    pub(crate) clock: Clock,
    /// The most of one request to a tenant, unless a single handle has more.
    pub(crate) request_bytes: u64,
    /// How far apart the marks within a long copy are.
    pub(crate) waypoint_bytes: u64,
    pub(crate) lengths: Lengths,
    /// Copies out are short just now, and so many bytes went out so since that was told.
    pub(crate) copies_out_short: bool,
    pub(crate) short_bytes: u64,
    #[cfg(any(test, feature = "planted"))]
    pub(crate) planted: planted::Planted,
    /// What may go from one tenant to the next.
    passing: passing::Passing,
    /// Arena space for copies out that start next. Empty between exchanges.
    reserved: reserving::Reserved,
    /// The last that was to go to the cellar did not, and nothing has come from there since.
    pub(crate) cellar_refuses: bool,
    // The arena is dropped before the device that it is registered with.
    arena: Arena,
    device: Paced<D>,
}

impl<D: Device> Mover<D> {
    /// A mover that holds nothing yet. The arena must be registered with this device.
    pub fn new(device: D, arena: Arena) -> Mover<D> {
        arena.serve_mover();
        Mover {
            handles: BTreeMap::new(),
            graves: Vec::new(),
            freed: VecDeque::new(),
            waypoints: [VecDeque::new(), VecDeque::new()],
            hasher: None,
            habits: BTreeMap::new(),
            homes: homes::Homes::default(),
            looks: looks::Looks::default(),
            audit_errors: Vec::new(),
            compared_bytes: 0,
            lost_device_bytes: 0,
            lost: BTreeMap::new(),
            cellar_graves: Vec::new(),
            turns: cold::Turns::default(),
            dying: BTreeSet::new(),
            has_waited: false,
            clock: Clock::new(),
            request_bytes: REQUEST_BYTES_MAX,
            waypoint_bytes: transit::WAYPOINT_BYTES,
            lengths: Lengths::default(),
            copies_out_short: false,
            short_bytes: 0,
            #[cfg(any(test, feature = "planted"))]
            planted: planted::Planted::asked_for(),
            passing: passing::Passing::default(),
            reserved: BTreeMap::new(),
            cellar_refuses: false,
            arena,
            device: Paced::new(device),
        }
    }

    /// There is a new tenant. To be said before the first move of it.
    pub fn introduce(&mut self, owner: Owner, process: Process) -> Result<(), ArenaError> {
        self.arena.introduce(owner, process)
    }

    /// Takes in a new handle of a tenant, by its file. It is on the device.
    pub fn adopt(&mut self, key: HandleKey, bytes: u64, file: OwnedFd) -> Result<(), MoverError> {
        self.take_in(key, bytes, file, None)
    }

    fn take_in(
        &mut self,
        key: HandleKey,
        bytes: u64,
        file: OwnedFd,
        copy: Option<Hashes>,
    ) -> Result<(), MoverError> {
        if self.handles.contains_key(&key) {
            return Err(MoverError::Duplicate { key });
        }
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(MoverError::BadSize { key, bytes });
        }
        let memory =
            self.import(key, bytes, file).map_err(|error| MoverError::Import { key, bytes, error })?;
        self.handles.insert(key, Held { bytes, place: Place::Device { memory, copy } });
        Ok(())
    }

    /// Bytes of a tenant that are on the device, or may be (while a move of them has not ended).
    pub fn resident_bytes(&self, owner: Owner) -> u64 {
        let on_device = |held: &&Held<_>| held.place.whereabouts() != Whereabouts::Arena;
        self.of(owner).map(|(_, held)| held).filter(on_device).map(|held| held.bytes).sum()
    }

    /// Bytes of a tenant whose valid copy is in the arena or the cellar.
    pub fn away_bytes(&self, owner: Owner) -> u64 {
        let away =
            |held: &&Held<_>| matches!(held.place.whereabouts(), Whereabouts::Arena | Whereabouts::Returning);
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
        self.device.device()
    }

    /// The device, to ask it about its memory.
    pub fn device_mut(&mut self) -> &mut D {
        self.device.device_mut()
    }

    /// How fast it copies: to be said from any thread.
    pub fn pace(&self) -> Pace {
        self.device.pace().clone()
    }

    /// The arena, to ask how much is ready and free.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Device memory that the device did not let go of. Counts as used until the daemon ends.
    pub fn lost_device_bytes(&self) -> u64 {
        self.lost_device_bytes
    }

    /// Arena space that a failed copy may still write to. Not used again by this worker.
    pub fn lost_arena_bytes(&self) -> u64 {
        self.lost.values().sum()
    }

    fn of(&self, owner: Owner) -> impl Iterator<Item = (&HandleKey, &Held<D::Memory>)> {
        let first = HandleKey { owner, handle: 0 };
        let last = HandleKey { owner, handle: u64::MAX };
        self.handles.range(first..=last)
    }

    fn keys(&self, owner: Owner) -> Vec<HandleKey> {
        self.of(owner).map(|(&key, _)| key).collect()
    }
}

impl<M> Place<M> {
    fn whereabouts(&self) -> Whereabouts {
        match self {
            Place::Device { .. } => Whereabouts::Device,
            Place::Arena(_) | Place::Sinking { .. } | Place::Cellar { .. } | Place::Fetching { .. } => {
                Whereabouts::Arena
            }
            Place::Leaving { .. } => Whereabouts::Leaving,
            Place::Returning { .. } => Whereabouts::Returning,
        }
    }
}
