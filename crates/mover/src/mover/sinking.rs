//! The steps of a handle that is away, between arena and cellar. A handle that sinks or rises is where it was until that is
//! recorded; its arena space is its own until no job uses it any more.

use super::clean::Stored;
use super::parts::blocks_in;
use super::{Mover, Place};
use crate::arena::cellar::jobs::{FetchError, Getting, Putting, SinkError, Way};
use crate::arena::{ArenaError, Taken};
use crate::device::Device;
use crate::exchange::MoveError;
use crate::{HandleKey, Owner};
use std::collections::BTreeSet;

/// A handle that was dropped while jobs of the cellar used its arena space.
#[derive(Debug)]
pub(super) struct CellarGrave {
    pub(super) key: HandleKey,
    pub(super) jobs: Jobs,
}

/// What was under way.
#[derive(Debug)]
pub(super) enum Jobs {
    Puts(Putting),
    Gets(Getting),
}

/// Whether fetching a handle was begun.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Yes.
    Begun,
    /// No: the arena has too little free space now.
    NoSpace,
}

impl<D: Device> Mover<D> {
    /// Whether a handle is in the arena, and nothing is under way with it.
    pub(crate) fn is_in_arena(&self, key: HandleKey) -> bool {
        matches!(self.handles.get(&key).map(|held| &held.place), Some(Place::Arena(_)))
    }

    /// Whether a handle is in the cellar, and nothing is under way with it.
    pub(crate) fn is_in_cellar(&self, key: HandleKey) -> bool {
        matches!(self.handles.get(&key).map(|held| &held.place), Some(Place::Cellar { .. }))
    }

    /// The largest handle of all.
    pub(crate) fn largest_bytes(&self) -> u64 {
        self.handles.values().map(|held| held.bytes).max().unwrap_or(0)
    }

    /// An exchange begins that moves these.
    pub(crate) fn note_turn(&mut self, out: &[HandleKey], into: &[HandleKey]) {
        let mut leaving: Vec<Owner> = out.iter().map(|key| key.owner).collect();
        leaving.dedup();
        // Of several, the plan names the one first that is needed last.
        for owner in leaving.into_iter().rev() {
            self.turns.next();
            self.turns.leaves(owner);
        }
        self.turns.next();
        for owner in into.iter().map(|key| key.owner).collect::<BTreeSet<_>>() {
            self.turns.comes(owner);
        }
    }

    /// The handle in the arena that is needed last of those that may sink. Of a tenant the last one: they come in order, so
    /// there is time to fetch it.
    pub(crate) fn coldest(&self, may_sink: impl Fn(HandleKey) -> bool) -> Option<HandleKey> {
        let in_arena = self.handles.iter().filter(|(_, held)| matches!(held.place, Place::Arena(_)));
        let keys: Vec<HandleKey> = in_arena.map(|(&key, _)| key).filter(|&key| may_sink(key)).collect();
        let owners: BTreeSet<_> = keys.iter().map(|key| key.owner).collect();
        let coldest = *self.turns.coldest_first(owners).first()?;
        keys.into_iter().rfind(|key| key.owner == coldest)
    }

    /// Begins to put a handle that is in the arena into the cellar.
    pub(crate) fn start_sink(&mut self, key: HandleKey) -> Result<(), ArenaError> {
        let Some(Place::Arena(stored)) = self.handles.get(&key).map(|held| &held.place) else {
            return Ok(());
        };
        self.has_waited |= self.arena.make_usable(&stored.extents)?;
        let count = blocks_in(self.bytes_of(key));
        self.replace(key, |_, place| match place {
            Place::Arena(stored) => {
                let is_zero = |block: usize| stored.hashes.as_ref().is_some_and(|hashes| hashes[block].zero);
                let puts = Putting::new(key, &stored.extents, count, is_zero);
                Place::Sinking { stored, puts }
            }
            other => other,
        });
        Ok(())
    }

    /// Goes on with a handle that sinks. When that has failed it is in the arena as before.
    pub(crate) fn look_sink(&mut self, key: HandleKey) -> Option<Way<SinkError>> {
        let Some(Place::Sinking { puts, .. }) = self.handles.get_mut(&key).map(|held| &mut held.place) else {
            return None;
        };
        let way = self.arena.go_on_putting(puts);
        self.replace(key, |_, place| match (place, &way) {
            (Place::Sinking { stored, .. }, Way::Done) => Place::Cellar { hashes: stored.hashes },
            (Place::Sinking { stored, .. }, Way::Failed(_)) => Place::Arena(stored),
            (other, _) => other,
        });
        Some(way)
    }

    /// A handle need not sink any more, if it is not nearly there.
    pub(crate) fn stop_sink(&mut self, key: HandleKey) {
        if let Some(Place::Sinking { puts, .. }) = self.handles.get_mut(&key).map(|held| &mut held.place) {
            puts.stop();
        }
    }

    /// Begins to fetch a handle from the cellar.
    pub(crate) fn start_fetch(&mut self, key: HandleKey) -> Result<Fetch, MoveError> {
        let taken = self.arena.take(key, self.bytes_of(key)).map_err(MoveError::Keeper)?;
        let Some(Taken { extents, .. }) = taken else { return Ok(Fetch::NoSpace) };
        match self.arena.make_usable(&extents) {
            Ok(has_waited) => self.has_waited |= has_waited,
            Err(error) => {
                self.arena.cancel(key);
                return Err(MoveError::Keeper(error));
            }
        }
        self.replace(key, |_, place| match place {
            Place::Cellar { hashes } => {
                let gets = Getting::new(key, &extents);
                Place::Fetching { stored: Stored { extents, hashes }, gets }
            }
            other => other,
        });
        Ok(Fetch::Begun)
    }

    /// Goes on with a handle that is fetched. When it is done it is in the arena; when that has failed, in the cellar as before.
    pub(crate) fn look_fetch(&mut self, key: HandleKey) -> Option<Way<MoveError>> {
        let Some(Place::Fetching { gets, .. }) = self.handles.get_mut(&key).map(|held| &mut held.place)
        else {
            return None;
        };
        let way = match self.arena.go_on_getting(gets) {
            Way::Going(progress) => return Some(Way::Going(progress)),
            Way::Done => Way::Done,
            Way::Failed(FetchError::Later(why)) => Way::Failed(MoveError::NotFetched(why)),
            Way::Failed(FetchError::Lost(why)) => Way::Failed(MoveError::Lost(why)),
            Way::Failed(FetchError::Keeper(error)) => Way::Failed(MoveError::Keeper(error)),
        };
        self.replace(key, |mover, place| match (place, &way) {
            (Place::Fetching { stored, .. }, Way::Done) => Place::Arena(stored.let_go_of_zeros()),
            (Place::Fetching { stored, .. }, _) => {
                mover.arena.cancel(key);
                Place::Cellar { hashes: stored.hashes }
            }
            (other, _) => other,
        });
        Some(way)
    }

    /// What is on its way to the cellar, and from there.
    pub(crate) fn between(&self) -> (Vec<HandleKey>, Vec<HandleKey>) {
        let (mut sinking, mut fetching) = (Vec::new(), Vec::new());
        for (&key, held) in &self.handles {
            match held.place {
                Place::Sinking { .. } => sinking.push(key),
                Place::Fetching { .. } => fetching.push(key),
                _ => {}
            }
        }
        (sinking, fetching)
    }

    /// Goes on with what no exchange looks at any more.
    pub(super) fn sweep_cellar(&mut self) {
        let (sinking, fetching) = self.between();
        for key in sinking {
            self.stop_sink(key);
            self.look_sink(key);
        }
        for key in fetching {
            self.look_fetch(key);
        }
    }

    /// Frees the arena space of what was dropped, as far as no job uses it any more.
    pub(super) fn reap_cellar(&mut self) -> bool {
        let mut reaped = false;
        for mut grave in std::mem::take(&mut self.cellar_graves) {
            let is_over = match &mut grave.jobs {
                Jobs::Puts(puts) => {
                    puts.stop();
                    // All may be put already. Then it sinks, and goes from there.
                    self.arena.go_on_putting(puts);
                    puts.is_over()
                }
                Jobs::Gets(gets) => {
                    gets.stop();
                    self.arena.go_on_getting(gets);
                    gets.is_over()
                }
            };
            if is_over {
                self.arena.free(grave.key);
                reaped = true;
            } else {
                self.cellar_graves.push(grave);
            }
        }
        reaped
    }
}
