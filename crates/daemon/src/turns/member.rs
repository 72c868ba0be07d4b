//! What the ledger knows of one tenant.

use super::Now;
use std::collections::BTreeMap;
use wire::{GrantId, HandleId};

/// A handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) bytes: u64,
    pub(super) away: bool,
    pub(super) movable: bool,
    /// Not moved out before this: the last try failed.
    pub(super) stuck_until: Now,
}

/// What is known of one tenant.
#[derive(Debug, Default)]
pub(super) struct Member {
    /// It has channels.
    pub(super) context: bool,
    /// It is not frozen.
    pub(super) thawed: bool,
    pub(super) handles: BTreeMap<HandleId, Held>,
    pub(super) granted: BTreeMap<GrantId, u64>,
    pub(super) asked: BTreeMap<GrantId, u64>,
    pub(super) turns: u64,
    /// Since when it waits for a turn.
    pub(super) since: Now,
    /// No turn before this: the last try failed.
    pub(super) not_before: Now,
    /// It was let in.
    pub(super) welcomed: bool,
}

impl Member {
    /// It has something to run, or wants memory for it.
    pub(super) fn takes_turns(&self) -> bool {
        self.context || !self.asked.is_empty()
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        self.handles.values().filter(|held| !held.away).map(|held| held.bytes).sum()
    }

    pub(super) fn away_bytes(&self) -> u64 {
        self.handles.values().filter(|held| held.away).map(|held| held.bytes).sum()
    }

    pub(super) fn asked_bytes(&self) -> u64 {
        self.asked.values().sum()
    }

    pub(super) fn away(&self) -> impl Iterator<Item = HandleId> {
        self.handles.iter().filter(|(_, held)| held.away).map(|(&handle, _)| handle)
    }

    /// What could be moved out, with its size.
    pub(super) fn movable(&self, now: Now) -> impl Iterator<Item = (HandleId, u64)> {
        self.handles
            .iter()
            .filter(move |(_, held)| held.movable && !held.away && held.stuck_until <= now)
            .map(|(&handle, held)| (handle, held.bytes))
    }

    /// The largest piece that would move at once.
    pub(super) fn largest_bytes(&self) -> u64 {
        let handles = self.handles.values().map(|held| held.bytes);
        handles.chain(self.granted.values().copied()).chain(self.asked.values().copied()).max().unwrap_or(0)
    }

    pub(super) fn granted_bytes(&self) -> u64 {
        self.granted.values().sum()
    }

    pub(super) fn all_bytes(&self) -> u64 {
        self.granted_bytes() + self.handles.values().map(|held| held.bytes).sum::<u64>()
    }
}
