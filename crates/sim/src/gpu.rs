//! The physics of one GPU: compute groups that share it by time slices.
//!
//! Exact, slice by slice, but only while several groups have work at the same time: a group alone on the GPU costs one
//! event, however long it runs. Knows nothing of tenants, memory or the core; whoever drives it says when a group gets
//! work, is frozen or thawed, and asks for the next instant at which something happens by itself.
//!
//! How a switch goes, as the measurements suggest: a group that is stopped in the middle of a kernel is saved, the next
//! one's context is loaded, and if that one was in the middle of a kernel too, its state is restored within its own
//! slice. A group that waits for its host (has no work) gives the GPU up at once and needs no saving. A slice that ends
//! while nobody waits begins anew.

mod request;

use std::collections::BTreeSet;

use sched::{Ratio, Span, Time};

pub use self::request::request;
use crate::scenario::Physics;

/// A compute group on a [`Device`], in the order of its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(usize);

/// One GPU's compute.
#[derive(Clone, Debug)]
pub struct Device {
    save: Span,
    load: Span,
    restore: Span,
    doze: Span,
    groups: Vec<Group>,
    /// With work and not frozen, in the order of the ring.
    ready: BTreeSet<usize>,
    /// Whose context is on the GPU.
    loaded: Option<usize>,
    /// Who was last on: the ring goes on from there.
    last: usize,
    phase: Phase,
    finished: Vec<GroupId>,
    livelock: bool,
}

#[derive(Clone, Debug)]
struct Group {
    slice: Span,
    work: Span,
    done: Span,
    frozen: bool,
    freezing: bool,
    /// It was stopped in the middle of a kernel.
    stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle {
        since: Time,
    },
    Switching {
        to: usize,
        until: Time,
    },
    Running {
        who: usize,
        /// Up to here its work is in the books; later than now while its state is restored.
        counted: Time,
        slice_from: Time,
        /// When it has to go; nothing while nobody else waits.
        slice_end: Option<Time>,
    },
    /// Everybody's slice is too short to get anywhere.
    Livelock,
}

impl Device {
    /// With nobody on it, dozing.
    pub fn new(physics: &Physics) -> Self {
        let save = physics.switch_save.of(physics.switch);
        let load = physics.switch_load.of(physics.switch);
        Self {
            save,
            load,
            restore: physics.switch.less(save).less(load),
            doze: physics.doze,
            groups: Vec::new(),
            ready: BTreeSet::new(),
            loaded: None,
            last: 0,
            phase: Phase::Idle { since: Time::ZERO },
            finished: Vec::new(),
            livelock: false,
        }
    }

    /// A new group, thawed and with nothing to do.
    pub fn add(&mut self, slice: Span) -> GroupId {
        self.groups.push(Group {
            slice,
            work: Span::ZERO,
            done: Span::ZERO,
            frozen: false,
            freezing: false,
            stopped: false,
        });
        GroupId(self.groups.len() - 1)
    }

    /// More work for a group.
    pub fn submit(&mut self, now: Time, group: GroupId, work: Span) {
        self.settle(now);
        self.groups[group.0].work += work;
        self.refresh(now, group.0);
    }

    /// A group's host is gone, and its work with it.
    pub fn remove(&mut self, now: Time, group: GroupId) {
        self.settle(now);
        self.groups[group.0].work = Span::ZERO;
        self.take_off(now, group.0);
    }

    /// Somebody has begun to freeze a group: until that has an effect the GPU does not leave it for another.
    pub fn freezing(&mut self, now: Time, group: GroupId) {
        self.settle(now);
        self.groups[group.0].freezing = true;
        self.contend(now);
    }

    /// A freeze that was begun will have no effect.
    pub fn spared(&mut self, now: Time, group: GroupId) {
        self.settle(now);
        self.groups[group.0].freezing = false;
        self.contend(now);
    }

    /// A group is off from now on.
    pub fn freeze(&mut self, now: Time, group: GroupId) {
        self.settle(now);
        self.groups[group.0].frozen = true;
        self.groups[group.0].freezing = false;
        self.take_off(now, group.0);
    }

    /// A group is back from now on.
    pub fn thaw(&mut self, now: Time, group: GroupId, slice: Span) {
        self.settle(now);
        let it = &mut self.groups[group.0];
        (it.frozen, it.slice) = (false, slice);
        self.refresh(now, group.0);
    }

    /// How long a group runs while others wait, from now on.
    pub fn set_slice(&mut self, now: Time, group: GroupId, slice: Span) {
        self.settle(now);
        self.groups[group.0].slice = slice;
        if let Phase::Running { slice_end, .. } = &mut self.phase {
            *slice_end = None;
        }
        self.refresh(now, group.0);
    }

    /// GPU time that a group has had so far.
    pub fn done(&mut self, now: Time, group: GroupId) -> Span {
        self.settle(now);
        self.groups[group.0].done
    }

    /// Does a group have work?
    pub fn has_work(&self, group: GroupId) -> bool {
        self.groups[group.0].work > Span::ZERO
    }

    /// Can somebody run who wants to?
    pub fn is_busy(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Did nothing run for so long that the next work takes longer?
    pub fn dozes(&self, now: Time) -> bool {
        matches!(self.phase, Phase::Idle { since } if now.since(since) > self.doze || since == Time::ZERO)
    }

    /// Did groups with slices too short to get anywhere ever meet?
    pub fn livelock(&self) -> bool {
        self.livelock
    }

    /// When something happens by itself.
    pub fn next(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle { .. } | Phase::Livelock => None,
            Phase::Switching { until, .. } => Some(until),
            Phase::Running { who, counted, slice_end, .. } => {
                let over = counted + self.groups[who].work;
                Some(slice_end.map_or(over, |end| end.min(over)))
            }
        }
    }

    /// Lets everything happen that is due, and names the groups whose work is done. To be called at [`Self::next`]: not
    /// later.
    pub fn advance(&mut self, now: Time) -> Vec<GroupId> {
        while self.next().is_some_and(|next| next <= now) {
            match self.phase {
                Phase::Switching { to, .. } => {
                    self.loaded = Some(to);
                    self.last = to;
                    if self.ready.contains(&to) { self.begin(now, to) } else { self.dispatch(now) }
                }
                Phase::Running { who, .. } => {
                    self.settle(now);
                    if self.groups[who].work == Span::ZERO {
                        self.finished.push(GroupId(who));
                        self.take_off(now, who);
                    } else {
                        self.rotate(now);
                    }
                }
                Phase::Idle { .. } | Phase::Livelock => break,
            }
        }
        std::mem::take(&mut self.finished)
    }

    /// Puts what was done up to now in the books.
    fn settle(&mut self, now: Time) {
        if let Phase::Running { who, counted, .. } = &mut self.phase {
            let group = &mut self.groups[*who];
            let done = now.since(*counted).min(group.work);
            group.work -= done;
            group.done += done;
            *counted = now.max(*counted);
        }
    }

    /// A group may have become able to run.
    fn refresh(&mut self, now: Time, group: usize) {
        if self.groups[group].work > Span::ZERO && !self.groups[group].frozen {
            self.ready.insert(group);
        }
        if matches!(self.phase, Phase::Idle { .. } | Phase::Livelock) {
            self.dispatch(now);
        } else {
            self.contend(now);
        }
    }

    /// A group is frozen, gone or has nothing to do.
    fn take_off(&mut self, now: Time, group: usize) {
        self.ready.remove(&group);
        let it = &mut self.groups[group];
        it.stopped = it.work > Span::ZERO;
        if it.frozen && self.loaded == Some(group) {
            self.loaded = None;
        }
        match self.phase {
            Phase::Running { who, .. } if who == group => self.dispatch(now),
            Phase::Livelock => self.dispatch(now),
            _ => self.contend(now),
        }
    }

    /// The next one in the ring after the last.
    fn successor(&self) -> Option<usize> {
        self.ready.range(self.last + 1..).next().or_else(|| self.ready.iter().next()).copied()
    }

    /// Nobody is on: who comes?
    fn dispatch(&mut self, now: Time) {
        match self.successor() {
            None if matches!(self.phase, Phase::Idle { .. }) => {}
            None => self.phase = Phase::Idle { since: now },
            Some(next) if self.loaded == Some(next) => self.begin(now, next),
            Some(next) => self.phase = Phase::Switching { to: next, until: now + self.load },
        }
    }

    fn begin(&mut self, now: Time, who: usize) {
        let stopped = std::mem::take(&mut self.groups[who].stopped);
        let counted = if stopped { now + self.restore } else { now };
        self.last = who;
        self.phase = Phase::Running { who, counted, slice_from: now, slice_end: None };
        self.contend(now);
    }

    /// When does the one that runs have to go?
    fn contend(&mut self, now: Time) {
        let Phase::Running { who, slice_from, slice_end, .. } = &mut self.phase else { return };
        let group = &self.groups[*who];
        if self.ready.len() < 2 || group.freezing {
            *slice_end = None;
        } else if slice_end.is_none() {
            let slice = group.slice.0.max(1);
            let over = now.since(*slice_from).0 / slice + 1;
            *slice_end = Some(*slice_from + Span(slice.saturating_mul(over)));
        }
    }

    /// The slice of the one that runs is over, and somebody waits.
    fn rotate(&mut self, now: Time) {
        let (Phase::Running { who, .. }, Some(next)) = (self.phase, self.successor()) else { return };
        self.groups[who].stopped = true;
        if self.restore > Span::ZERO
            && self.ready.iter().all(|&group| self.groups[group].slice <= self.restore)
        {
            self.livelock = true;
            self.loaded = None;
            self.phase = Phase::Livelock;
            return;
        }
        self.phase = Phase::Switching { to: next, until: now + self.save + self.load };
    }
}

/// How long the channels are still on, or off, after a freeze or thaw that takes `took` began.
pub fn grip_effect(took: Span, share: Ratio) -> Span {
    share.of(took)
}

#[cfg(test)]
mod tests;
