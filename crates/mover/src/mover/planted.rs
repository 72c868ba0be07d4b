//! Bugs that tests put in on purpose, to see that others find them; and what tests want to know of the inside. In no other
//! build.

use super::{Leaving, Mover, Place, Returning, Stage};
use crate::HandleKey;
use crate::device::Device;
use std::collections::BTreeMap;

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A tenant is asked to unmap what is still being copied out.
    UnmapBeforeCopyEnds,
    /// A handle counts as back before the last of its blocks is.
    ThawBeforeLastBlock,
    /// The arena space of a tenant that dies while it is copied in is freed at once, and again when the copy has ended.
    DoubleFree,
    /// That a copy in has ended is noticed and forgotten.
    LostCompletion,
    /// A tenant gets memory that another had before all of that one's bytes are written over.
    TakenBeforeFilled,
}

impl Bug {
    pub(crate) const ALL: [Bug; 5] = [
        Bug::UnmapBeforeCopyEnds,
        Bug::ThawBeforeLastBlock,
        Bug::DoubleFree,
        Bug::LostCompletion,
        Bug::TakenBeforeFilled,
    ];
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Planted {
    pub(crate) bug: Option<Bug>,
    /// How many handles were dropped in each phase.
    pub(crate) buried: BTreeMap<&'static str, u64>,
    /// Handles whose arena space was free before a copy of them had ended.
    pub(crate) freed_twice: Vec<HandleKey>,
}

impl Planted {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// The phases in which a handle can be dropped.
pub(crate) const PHASES: [&str; 13] = [
    "on the device",
    "in the arena",
    "in the cellar",
    "going to the cellar",
    "coming from the cellar",
    "being hashed",
    "being copied out",
    "being unmapped",
    "being created",
    "being copied in",
    "backing out",
    "being filled",
    "being taken",
];

fn phase<M>(place: &Place<M>) -> Option<&'static str> {
    let phase = match place {
        Place::Device { .. } => 0,
        Place::Arena(_) => 1,
        Place::Cellar { .. } => 2,
        Place::Sinking { .. } => 3,
        Place::Fetching { .. } => 4,
        Place::Leaving(Leaving { stage: Stage::Hashing(_), .. }) => 5,
        Place::Leaving(Leaving { stage: Stage::Copying(_), .. }) => 6,
        Place::Leaving(Leaving { stage: Stage::Unmapping, .. }) => 7,
        Place::Returning { stage: Returning::Creating, .. } => 8,
        Place::Returning { stage: Returning::Copying { .. }, .. } => 9,
        Place::Returning { stage: Returning::BackingOut { .. }, .. } => 10,
        Place::Returning { stage: Returning::Filling { .. }, .. } => 11,
        Place::Returning { stage: Returning::Taking { .. }, .. } => 12,
        // For the length of one request to the keeper, in which nothing else happens.
        Place::Leaving(Leaving { stage: Stage::Copied, .. })
        | Place::Returning { stage: Returning::Copied { .. }, .. } => return None,
    };
    Some(PHASES[phase])
}

impl<D: Device> Mover<D> {
    /// A handle is dropped.
    pub(super) fn see_buried(&mut self, key: HandleKey, place: &Place<D::Memory>) {
        if let Some(phase) = phase(place) {
            *self.planted.buried.entry(phase).or_default() += 1;
        }
        let is_copied_in = matches!(place, Place::Returning { stage: Returning::Copying { .. }, .. });
        if is_copied_in && self.planted.has(Bug::DoubleFree) {
            self.arena.free(key);
        }
    }
}
