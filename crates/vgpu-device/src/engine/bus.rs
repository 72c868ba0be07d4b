//! The bus of one GPU: copies from the host and to the host, each way by itself, beside compute.
//!
//! The copies of one group go one after the other; groups share a way equally. While both ways are busy each is slower.
//!
//! Memory that is released is cleared by the engine that copies from the host: meanwhile nothing comes in. Beside copies to the
//! host that takes twice as long (H200: 256 MiB in 0.35 ms, beside copies out in 0.75).

use std::collections::{BTreeMap, VecDeque};

use vgpu_messages::quantity::{Nanos, Rate};
use vgpu_messages::{ContextId, Spec};

use super::{Ended, GroupKey};
use crate::item::ItemId;
use crate::space::touch::{Store, Touch, Toucher};
use crate::transfer::Transfer;

/// The most bytes that one step moves.
const STEP_BYTES: u64 = 1 << 20;
const SECOND: u128 = 1_000_000_000;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// To the device.
    In = 0,
    /// From it.
    Out = 1,
}

/// A copy on the bus.
#[derive(Debug)]
pub struct Passing {
    /// Its item.
    pub item: ItemId,
    /// Of which context.
    pub context: ContextId,
    /// Its bytes.
    pub transfer: Transfer,
    /// Who touches memory.
    pub who: Toucher,
    /// It cannot be faster than this, whatever the bus.
    pub rate_max: Option<Rate>,
    /// It takes this many times as long (a fault).
    pub slower: f64,
    /// It fails at its end (a fault).
    pub fails: bool,
    /// What is left of its start.
    pub start: Nanos,
    /// Bytes done, in billionths.
    pub done: u128,
}

impl Passing {
    fn needed(&self) -> u128 {
        u128::from(self.transfer.bytes()) * SECOND
    }
}

#[derive(Debug, Default)]
struct Lane {
    groups: BTreeMap<GroupKey, VecDeque<Passing>>,
}

/// The bus.
#[derive(Debug)]
pub struct Bus {
    alone: [Rate; 2],
    both: Rate,
    lanes: [Lane; 2],
    frozen: Vec<GroupKey>,
    busy: Nanos,
    clear_rate: Rate,
    /// Bytes that are to be cleared, in billionths.
    unclear: u128,
}

impl Bus {
    /// With nothing on it.
    pub fn new(spec: &Spec) -> Self {
        Self {
            alone: [spec.bus_in, spec.bus_out],
            both: spec.bus_both,
            lanes: Default::default(),
            frozen: Vec::new(),
            busy: Nanos::ZERO,
            clear_rate: spec.clear_rate,
            unclear: 0,
        }
    }

    /// A copy that may run.
    pub fn submit(&mut self, way: Way, key: GroupKey, passing: Passing) {
        self.lanes[way as usize].groups.entry(key).or_default().push_back(passing);
    }

    /// So much memory was released.
    pub fn clear(&mut self, bytes: u64) {
        self.unclear += u128::from(bytes) * SECOND;
    }

    /// What is cleared in a second.
    fn clearing(&self) -> u128 {
        let rate = u128::from(self.clear_rate.0.max(1));
        if self.movers(Way::Out as usize).is_empty() { rate } else { rate.div_ceil(2) }
    }

    /// A group goes, with its copies.
    pub fn remove(&mut self, key: GroupKey) {
        for lane in &mut self.lanes {
            lane.groups.remove(&key);
        }
        self.frozen.retain(|frozen| *frozen != key);
    }

    /// Drops a context's copies.
    pub fn drop_context(&mut self, context: ContextId) {
        for lane in &mut self.lanes {
            for queue in lane.groups.values_mut() {
                queue.retain(|passing| passing.context != context);
            }
            lane.groups.retain(|_, queue| !queue.is_empty());
        }
    }

    /// A group is off, or back.
    pub fn set_frozen(&mut self, key: GroupKey, frozen: bool) {
        self.frozen.retain(|other| *other != key);
        if frozen {
            self.frozen.push(key);
        }
    }

    /// Groups that can move bytes on a lane.
    fn movers(&self, lane: usize) -> Vec<GroupKey> {
        if lane == Way::In as usize && self.unclear > 0 {
            return Vec::new();
        }
        let moving = |key: &&GroupKey| !self.frozen.contains(key);
        self.lanes[lane].groups.keys().filter(moving).copied().collect()
    }

    /// What one of `sharers` gets of a lane, in bytes a second.
    fn rate(&self, lane: usize, other_busy: bool, sharers: usize, passing: &Passing) -> u128 {
        let rate = if other_busy { self.both.min(self.alone[lane]) } else { self.alone[lane] };
        let share = (rate.0 / sharers as u64).max(1);
        let share = passing.rate_max.map_or(share, |max| share.min(max.0));
        u128::from(((share as f64 / passing.slower.max(1e-6)) as u64).max(1))
    }

    /// When something happens by itself, or should be looked at.
    pub fn next(&self, now: Nanos) -> Option<Nanos> {
        let movers = [self.movers(0), self.movers(1)];
        let mut next: Option<Nanos> = None;
        if self.unclear > 0 {
            let time = self.unclear.div_ceil(self.clearing()).min(u128::from(u64::MAX)) as u64;
            next = Some(now + Nanos(time.max(1)));
        }
        for lane in 0..2 {
            for key in &movers[lane] {
                let passing = &self.lanes[lane].groups[key][0];
                let rate = self.rate(lane, !movers[1 - lane].is_empty(), movers[lane].len(), passing);
                let left = (passing.needed() - passing.done).min(u128::from(STEP_BYTES) * SECOND);
                let time = left.div_ceil(rate).min(u128::from(u64::MAX)) as u64;
                let at = now + passing.start + Nanos(time.max(1));
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        next
    }

    /// Moves what moves, until `to`, which is not later than [`Bus::next`].
    pub fn carry(&mut self, now: Nanos, to: Nanos, store: &mut Store, ended: &mut Vec<Ended>) {
        let movers = [self.movers(0), self.movers(1)];
        if movers.iter().any(|movers| !movers.is_empty()) {
            self.busy += to.since(now);
        }
        let cleared = self.clearing() * u128::from(to.since(now).0);
        self.unclear = self.unclear.saturating_sub(cleared);
        for lane in 0..2 {
            for key in &movers[lane] {
                let passing = &self.lanes[lane].groups[key][0];
                let rate = self.rate(lane, !movers[1 - lane].is_empty(), movers[lane].len(), passing);
                let queue = self.lanes[lane].groups.get_mut(key).expect("its key");
                if let Some(end) = step(&mut queue[0], to.since(now), rate, store) {
                    queue.pop_front();
                    if queue.is_empty() {
                        self.lanes[lane].groups.remove(key);
                    }
                    ended.push(end);
                }
            }
        }
    }

    /// Time so far in which bytes moved.
    pub fn busy(&self) -> Nanos {
        self.busy
    }
}

/// Moves one copy on; says how it ended, if it did.
fn step(passing: &mut Passing, time: Nanos, rate: u128, store: &mut Store) -> Option<Ended> {
    let starting = passing.start.min(time);
    passing.start = passing.start.since(starting);
    let time = time.since(starting);
    let before = (passing.done / SECOND) as u64;
    passing.done = (passing.done + rate * u128::from(time.0)).min(passing.needed());
    let after = (passing.done / SECOND) as u64;
    let mut memory = Touch { store, who: &passing.who };
    let moved = passing.transfer.pass(before..after, &mut memory);
    let over = passing.done == passing.needed() && passing.start == Nanos::ZERO;
    let result = match moved {
        Ok(()) if !over => return None,
        result => result,
    };
    let result = if passing.fails { Err(crate::space::touch::Fault::Copy) } else { result };
    Some(Ended { item: passing.item, context: passing.context, result })
}
