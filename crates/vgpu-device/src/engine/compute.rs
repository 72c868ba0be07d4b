//! Compute: groups that share one GPU by time slices.
//!
//! A group that is stopped in the middle of a kernel is saved, the next one's context is loaded, and if that one was in the
//! middle of a kernel too, its state is restored within its own slice: a slice that is not longer than that makes no
//! progress, and when that is so for everybody, nobody makes any (livelock). A group without work gives the GPU up at
//! once and needs no saving. A slice that ends while nobody waits begins anew. The kernels of one group run at the same time.
//! Whose turn it is, is decided in [`ring`].

mod ring;

use std::collections::BTreeMap;

use vgpu_messages::ContextId;
use vgpu_messages::quantity::{Nanos, Rate};
use vgpu_messages::spec::Costs;

use super::{Ended, GroupKey};
use crate::item::ItemId;
use crate::kernels::{Kernel, Step};
use crate::space::touch::{Fault, Store, Touch, Toucher};

/// The most kernels of one group that run at the same time.
const CONCURRENT_MAX: usize = 128;

/// A kernel on the engine.
#[derive(Debug)]
pub struct Active {
    /// Its item.
    pub item: ItemId,
    /// Of which context.
    pub context: ContextId,
    /// What runs.
    pub kernel: Box<dyn Kernel>,
    /// Who touches memory.
    pub who: Toucher,
    /// What is left of its start.
    pub start: Nanos,
}

#[derive(Debug)]
struct Group {
    slice: Nanos,
    frozen: bool,
    freezing: bool,
    stopped: bool,
    active: Vec<Active>,
    busy: Nanos,
}

impl Group {
    fn is_ready(&self) -> bool {
        !self.frozen && !self.active.is_empty()
    }

    /// Those that run now.
    fn running(&self) -> &[Active] {
        &self.active[..self.active.len().min(CONCURRENT_MAX)]
    }

    fn heavy(&self) -> u64 {
        self.running().iter().filter(|active| active.kernel.is_heavy()).count().max(1) as u64
    }
}

/// A kernel that has done everything, and waits for the bus only.
#[derive(Debug)]
struct Over;

impl Kernel for Over {
    fn run(&mut self, _time: Nanos, _now: Nanos, _memory: &mut Touch<'_>) -> Result<Step, Fault> {
        Ok(Step::Done)
    }

    fn remaining(&self, _now: Nanos) -> Option<Nanos> {
        Some(Nanos::ZERO)
    }

    fn is_heavy(&self) -> bool {
        false
    }

    fn longest_step(&self) -> Nanos {
        Nanos::ZERO
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Switching {
        to: GroupKey,
        until: Nanos,
    },
    Running {
        who: GroupKey,
        /// Later than now while its state is restored.
        from: Nanos,
        slice_from: Nanos,
        /// When it has to go; nothing while nobody else waits.
        slice_end: Option<Nanos>,
    },
    Livelock,
}

/// The compute engine of one GPU.
#[derive(Debug)]
pub struct Compute {
    save: Nanos,
    load: Nanos,
    restore: Nanos,
    /// How fast kernels reach the host's memory.
    bus: Rate,
    groups: BTreeMap<GroupKey, Group>,
    loaded: Option<GroupKey>,
    last: Option<GroupKey>,
    phase: Phase,
    /// Kernel time so far.
    busy: Nanos,
}

impl Compute {
    /// With nobody on it.
    pub fn new(costs: &Costs, bus: Rate) -> Self {
        let (save, load) = (costs.switch.share(costs.switch_save), costs.switch.share(costs.switch_load));
        Self {
            save,
            load,
            restore: costs.switch.since(save).since(load),
            bus,
            groups: BTreeMap::new(),
            loaded: None,
            last: None,
            phase: Phase::Idle,
            busy: Nanos::ZERO,
        }
    }

    /// A new group.
    pub fn add(&mut self, key: GroupKey, slice: Nanos) {
        let group = Group {
            slice,
            frozen: false,
            freezing: false,
            stopped: false,
            active: Vec::new(),
            busy: Nanos::ZERO,
        };
        self.groups.insert(key, group);
    }

    /// A group goes, with what it ran.
    pub fn remove(&mut self, now: Nanos, key: GroupKey) {
        if self.groups.remove(&key).is_some() {
            self.off(now, key);
        }
    }

    /// A kernel that may run.
    pub fn submit(&mut self, now: Nanos, key: GroupKey, active: Active) {
        let group = self.groups.get_mut(&key).expect("a group that was added");
        group.active.push(active);
        self.on(now, key);
    }

    /// Drops a context's kernels, wherever they are.
    pub fn drop_context(&mut self, now: Nanos, context: ContextId) {
        let keys: Vec<GroupKey> = self.groups.keys().copied().collect();
        for key in keys {
            let group = self.groups.get_mut(&key).expect("its key");
            let before = group.active.len();
            group.active.retain(|active| active.context != context);
            if group.active.len() != before && group.active.is_empty() {
                self.off(now, key);
            }
        }
    }

    /// Somebody has begun to freeze a group: until then the GPU does not leave it for another.
    pub fn freezing(&mut self, now: Nanos, key: GroupKey, freezing: bool) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.freezing = freezing;
            self.contend(now);
        }
    }

    /// A group is off, or back.
    pub fn set_frozen(&mut self, now: Nanos, key: GroupKey, frozen: bool) {
        let Some(group) = self.groups.get_mut(&key) else { return };
        (group.frozen, group.freezing) = (frozen, false);
        if frozen { self.off(now, key) } else { self.on(now, key) }
    }

    /// How long a group runs while others wait, from now on.
    pub fn set_slice(&mut self, now: Nanos, key: GroupKey, slice: Nanos) {
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.slice = slice;
        if let Phase::Running { slice_end, .. } = &mut self.phase {
            *slice_end = None;
        }
        self.on(now, key);
    }

    /// When something happens by itself, or should be looked at.
    pub fn next(&self, now: Nanos) -> Option<Nanos> {
        match self.phase {
            Phase::Idle | Phase::Livelock => None,
            Phase::Switching { until, .. } => Some(until),
            Phase::Running { who, from, slice_end, .. } => {
                let group = &self.groups[&who];
                let heavy = group.heavy();
                let begin = from.max(now);
                let over = group.running().iter().map(|active| {
                    let kernel = &active.kernel;
                    let slower = if kernel.is_heavy() { heavy } else { 1 };
                    let left = kernel.remaining(begin).unwrap_or(kernel.longest_step());
                    // A start goes at the full rate, so this is not too early.
                    let left = left.min(kernel.longest_step()).0.saturating_mul(slower).max(1);
                    begin + active.start + Nanos(left)
                });
                over.chain(slice_end).min()
            }
        }
    }

    /// Runs what runs, until `to`, which is not later than [`Compute::next`].
    pub fn carry(&mut self, now: Nanos, to: Nanos, store: &mut Store, ended: &mut Vec<Ended>) {
        let Phase::Running { who, from, .. } = self.phase else { return };
        let time = to.since(from.max(now));
        if time == Nanos::ZERO {
            return;
        }
        let group = self.groups.get_mut(&who).expect("the one that runs");
        group.busy += time;
        self.busy += time;
        let heavy = group.heavy();
        let running = group.active.len().min(CONCURRENT_MAX);
        let mut over = Vec::new();
        for (place, active) in group.active[..running].iter_mut().enumerate() {
            let starting = active.start.min(time);
            active.start = active.start.since(starting);
            let mut time = time.since(starting);
            if active.start > Nanos::ZERO {
                continue;
            }
            if active.kernel.is_heavy() {
                time = Nanos(time.0.div_ceil(heavy));
            }
            let mut memory = Touch { store: &mut *store, who: &active.who };
            memory.store.over_bus = 0;
            let run = active.kernel.run(time, to, &mut memory);
            // What it reached over the bus took longer than it would have in the device's own memory: it waits for that.
            active.start += self.bus.time_of(store.over_bus);
            let result = match run {
                Ok(Step::More) => continue,
                Ok(Step::Done) if active.start > Nanos::ZERO => {
                    active.kernel = Box::new(Over);
                    continue;
                }
                Ok(Step::Done) => Ok(()),
                Err(fault) => Err(fault),
            };
            ended.push(Ended { item: active.item, context: active.context, result });
            over.push(place);
        }
        for place in over.into_iter().rev() {
            group.active.remove(place);
        }
    }

    /// Lets happen what is due now: ends of switches and slices.
    pub fn settle(&mut self, now: Nanos) {
        match self.phase {
            Phase::Switching { to, until } if until <= now => {
                self.loaded = Some(to);
                self.last = Some(to);
                let ready = self.groups.get(&to).is_some_and(Group::is_ready);
                if ready { self.begin(now, to) } else { self.dispatch(now) }
            }
            Phase::Running { who, .. } if !self.groups[&who].is_ready() => self.off(now, who),
            Phase::Running { slice_end: Some(end), .. } if end <= now => self.rotate(now),
            _ => {}
        }
    }

    /// Kernel time so far: of all, and of one group.
    pub fn busy(&self, key: Option<GroupKey>) -> Nanos {
        match key {
            None => self.busy,
            Some(key) => self.groups.get(&key).map_or(Nanos::ZERO, |group| group.busy),
        }
    }

    /// Whether nobody makes progress because every slice is too short.
    pub fn is_livelocked(&self) -> bool {
        self.phase == Phase::Livelock
    }
}
