//! What tests want to know of handles that are dropped.

use super::super::{Leaving, Place, Returning, Stage};
use crate::HandleKey;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Burials {
    /// How many handles were dropped in each phase.
    pub(crate) phases: BTreeMap<&'static str, u64>,
    /// Handles whose arena space was free before a copy of them had ended.
    pub(crate) freed_twice: Vec<HandleKey>,
}

impl Burials {
    /// One is dropped that was there.
    pub(super) fn bury<M>(&mut self, place: &Place<M>) {
        if let Some(phase) = phase(place) {
            *self.phases.entry(phase).or_default() += 1;
        }
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
