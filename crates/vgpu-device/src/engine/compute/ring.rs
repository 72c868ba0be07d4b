//! Whose turn it is: groups in a ring, switches between them, slices.

use vgpu_messages::quantity::Nanos;

use super::{Compute, Phase};
use crate::engine::GroupKey;

impl Compute {
    pub(super) fn ready(&self) -> impl Iterator<Item = GroupKey> {
        self.groups.iter().filter(|(_, group)| group.is_ready()).map(|(key, _)| *key)
    }

    /// A group may have become able to run.
    pub(super) fn on(&mut self, now: Nanos, _key: GroupKey) {
        if matches!(self.phase, Phase::Idle | Phase::Livelock) {
            self.dispatch(now);
        } else {
            self.contend(now);
        }
    }

    /// A group is frozen, gone or has nothing to do.
    pub(super) fn off(&mut self, now: Nanos, key: GroupKey) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.stopped = !group.active.is_empty();
        }
        if self.loaded == Some(key) && self.groups.get(&key).is_none_or(|group| group.frozen) {
            self.loaded = None;
        }
        match self.phase {
            Phase::Running { who, .. } if who == key => self.dispatch(now),
            Phase::Livelock => self.dispatch(now),
            _ => self.contend(now),
        }
    }

    /// The next one in the ring after the last.
    pub(super) fn successor(&self) -> Option<GroupKey> {
        let after = self.ready().find(|key| Some(*key) > self.last);
        after.or_else(|| self.ready().next())
    }

    pub(super) fn dispatch(&mut self, now: Nanos) {
        match self.successor() {
            None => self.phase = Phase::Idle,
            Some(next) if self.loaded == Some(next) => self.begin(now, next),
            Some(next) => self.phase = Phase::Switching { to: next, until: now + self.load },
        }
    }

    pub(super) fn begin(&mut self, now: Nanos, who: GroupKey) {
        let stopped = std::mem::take(&mut self.groups.get_mut(&who).expect("it is ready").stopped);
        let from = if stopped { now + self.restore } else { now };
        self.last = Some(who);
        self.phase = Phase::Running { who, from, slice_from: now, slice_end: None };
        self.contend(now);
    }

    /// When does the one that runs have to go?
    pub(super) fn contend(&mut self, now: Nanos) {
        let Phase::Running { who, slice_from, slice_end, .. } = self.phase else { return };
        let group = &self.groups[&who];
        let end = if self.ready().count() < 2 || group.freezing {
            None
        } else if slice_end.is_some() {
            slice_end
        } else {
            let slice = group.slice.0.max(1);
            let over = now.since(slice_from).0 / slice + 1;
            Some(slice_from + Nanos(slice.saturating_mul(over)))
        };
        if let Phase::Running { slice_end, .. } = &mut self.phase {
            *slice_end = end;
        }
    }

    /// The slice of the one that runs is over, and somebody waits.
    pub(super) fn rotate(&mut self, now: Nanos) {
        let (Phase::Running { who, .. }, Some(next)) = (self.phase, self.successor()) else { return };
        self.groups.get_mut(&who).expect("it runs").stopped = true;
        let too_short = |key| self.groups[&key].slice <= self.restore;
        if self.restore > Nanos::ZERO && self.ready().all(too_short) {
            self.loaded = None;
            self.phase = Phase::Livelock;
            return;
        }
        self.phase = Phase::Switching { to: next, until: now + self.save + self.load };
    }
}
