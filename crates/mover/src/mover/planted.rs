//! Bugs that tests put in on purpose, to see that others find them. In no release.
//!
//! This crate's own tests say which one themselves. Tests of whole systems start a `rotad` of their own build, which has the
//! feature `planted` from its package's tests, and name one in the environment ([`VARIABLE`]).

#[cfg(test)]
pub(crate) mod burials;

use super::{Mover, Place, Returning};
use crate::HandleKey;
use crate::device::Device;

/// Names the bug that a daemon is to have.
const VARIABLE: &str = "ROTA_PLANTED";

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A tenant is asked to unmap what is still being copied out.
    UnmapBeforeCopyEnds,
    /// A handle counts as back before the last of its blocks is.
    ThawBeforeLastBlock,
    /// The arena space of a tenant that dies while it is copied in is freed at once, and again when the copy has ended.
    DoubleFree,
    /// The memory of a tenant that dies while it is copied in is let go of at once, and again when the copy has ended.
    DoubleRelease,
    /// That a copy in has ended is noticed and forgotten.
    LostCompletion,
    /// That a copy in has ended is never noticed.
    UnseenCompletion,
    /// A tenant gets memory that another had before all of that one's bytes are written over.
    TakenBeforeFilled,
}

impl Bug {
    pub(crate) const ALL: [Bug; 7] = [
        Bug::UnmapBeforeCopyEnds,
        Bug::ThawBeforeLastBlock,
        Bug::DoubleFree,
        Bug::DoubleRelease,
        Bug::LostCompletion,
        Bug::UnseenCompletion,
        Bug::TakenBeforeFilled,
    ];
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Planted {
    pub(crate) bug: Option<Bug>,
    #[cfg(test)]
    pub(crate) seen: burials::Burials,
}

impl Planted {
    /// What a new mover has: what the environment says.
    pub(super) fn asked_for() -> Planted {
        Planted {
            bug: asked_for(),
            #[cfg(test)]
            seen: burials::Burials::default(),
        }
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// The bug that the environment names. A release has none, also one that is built together with tests.
fn asked_for() -> Option<Bug> {
    if !cfg!(all(feature = "planted", debug_assertions)) {
        return None;
    }
    let name = std::env::var_os(VARIABLE)?;
    let bug = Bug::ALL.into_iter().find(|bug| name == *format!("{bug:?}"))?;
    tracing::warn!("{bug:?} is planted: this is for tests of rota only");
    Some(bug)
}

impl<D: Device> Mover<D> {
    /// A handle is dropped.
    pub(super) fn see_buried(&mut self, key: HandleKey, place: &Place<D::Memory>) {
        #[cfg(test)]
        self.planted.seen.bury(place);
        let Place::Returning {
            stage: Returning::Copying { memory, .. } | Returning::Filling { memory, .. },
            ..
        } = place
        else {
            return;
        };
        if self.planted.has(Bug::DoubleFree) {
            self.arena.free(key);
        }
        if self.planted.has(Bug::DoubleRelease) {
            let memory = self.device.device().twice(memory);
            // What comes of it is for others to find.
            let _ = self.device.device_mut().release(memory);
        }
    }
}
