//! What sharing costs each tenant, for people: how soon it had the GPU, how often and for how long it was off, and how long
//! switching it and moving its memory took. Decides nothing.
//!
//! All of it follows from what the core wants done and when that is over. What the GPU itself takes to go from one program to
//! another, where neither is frozen, is seen by nobody here.

use super::Daemon;
use crate::grip::Grip;
use sched::{GpuId, OpId, Outcome, Owned, Span, TenantId, Time};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Latencies, Statistics};

/// Tenants in one answer with what they went through: with more, nobody has it, so that the answer fits into a message.
pub(super) const SHOWN_MAX: usize = 64;

/// What one tenant went through.
#[derive(Debug, Default)]
pub(super) struct Toll {
    /// How soon it had the GPU.
    granted: Box<Latencies>,
    freezes: u64,
    frozen: Span,
    switching: Span,
    moving: Span,
    /// It is off the GPU.
    off: bool,
    /// Since when it is off with work to do.
    waits_since: Option<Time>,
    /// Since when it has work, and was off when it came to have it.
    asks_since: Option<Time>,
}

impl Toll {
    /// Of a tenant that comes back as it is: on the GPU or off it.
    pub(super) fn of(grip: &Grip) -> Self {
        Self { off: grip.page().frozen(), ..Self::default() }
    }

    /// It has work from now on, or none.
    fn wants(&mut self, now: Time, wants: bool) {
        self.asks_since = (wants && self.off).then_some(now);
        self.stands(now, wants);
    }

    /// It was taken off the GPU, or put on, which took so long. Was it on before, and is off now?
    fn switched(&mut self, now: Time, off: bool, took: Span, wants: bool) -> bool {
        self.switching += took;
        // Frozen in part, it was off already.
        let goes = off && !self.off;
        self.freezes += u64::from(goes);
        self.off = off;
        if !off && let Some(since) = self.asks_since.take() {
            self.granted.add(now.since(since).0, None);
        }
        self.stands(now, wants);
        goes
    }

    /// Counts up to now, and from now on.
    fn stands(&mut self, now: Time, wants: bool) {
        if let Some(since) = self.waits_since.take() {
            self.frozen += now.since(since);
        }
        self.waits_since = (self.off && wants).then_some(now);
    }
}

/// What the core wants done, and was not over yet.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    switches: BTreeMap<OpId, Switching>,
    moves: BTreeMap<OpId, BTreeSet<TenantId>>,
    /// While the core hears that somebody is off: where, and since when that was wanted.
    freed: Option<(GpuId, Time)>,
}

#[derive(Clone, Copy, Debug)]
struct Switching {
    tenant: TenantId,
    gpu: GpuId,
    off: bool,
    /// It may run until it is off.
    empties: bool,
    ordered: Time,
}

impl UnderWay {
    /// Since when this GPU was to be free of somebody who is off just now; nobody had to go if none.
    fn freed_since(&self, gpu: GpuId) -> Option<Time> {
        self.freed.filter(|&(freed, _)| freed == gpu).map(|(_, since)| since)
    }

    /// Since when somebody is being taken off this GPU, by the first of all who are now.
    fn emptied_since(&self, gpu: GpuId) -> Option<Time> {
        let here = self.switches.values().filter(|switching| switching.empties && switching.gpu == gpu);
        here.map(|switching| switching.ordered).min()
    }
}

impl Daemon {
    /// The core wants a tenant off the GPU, or on it.
    pub(super) fn switch_begins(&mut self, op: OpId, tenant: TenantId, gpu: GpuId, off: bool) {
        let now = self.now();
        // Of one that is frozen in part, only the rest goes.
        let empties = off && self.known.get(&tenant).is_some_and(|known| !known.toll.off);
        let ordered = if empties { self.under_way.emptied_since(gpu).unwrap_or(now) } else { now };
        self.under_way.switches.insert(op, Switching { tenant, gpu, off, empties, ordered });
    }

    /// The core wants memory moved.
    pub(super) fn move_begins(&mut self, op: OpId, out: &[Owned], into: &[Owned]) {
        let whose = out.iter().chain(into).map(|owned| owned.tenant).collect();
        self.under_way.moves.insert(op, whose);
    }

    /// Something that the core wanted is over, and was at this instant. To be told before the core is. Who was taken off the GPU
    /// by it, if anybody was.
    pub(super) fn action_ends(&mut self, op: OpId, outcome: &Outcome, at: Time) -> Option<TenantId> {
        if let Some(whose) = self.under_way.moves.remove(&op)
            && let Outcome::Moved { took, .. } = outcome
        {
            for tenant in whose {
                if let Some(known) = self.known.get_mut(&tenant) {
                    known.toll.moving += *took;
                }
            }
        }
        let switching = self.under_way.switches.remove(&op)?;
        let Outcome::Done { took } = outcome else { return None };
        if let Some(known) = self.known.get_mut(&switching.tenant) {
            let goes = known.toll.switched(at, switching.off, *took, known.idleness.wants());
            self.switched_in_lc_mode(switching.tenant, switching.gpu, goes, *took);
        }
        self.under_way.freed = switching.empties.then_some((switching.gpu, switching.ordered));
        switching.off.then_some(switching.tenant)
    }

    /// The core has heard of it.
    pub(super) fn action_ended(&mut self) {
        self.under_way.freed = None;
    }

    /// A tenant has work, or none any more.
    pub(super) fn demand_changed(&mut self, tenant: TenantId) {
        let now = self.now();
        if let Some(known) = self.known.get_mut(&tenant) {
            let wants = known.idleness.wants();
            known.toll.wants(now, wants);
        }
    }

    /// The GPU is free for a tenant's request, which was hinted. How long that took.
    pub(super) fn gpu_is_free_for(&mut self, tenant: TenantId) -> Span {
        let now = self.now();
        let Some(known) = self.known.get_mut(&tenant) else { return Span::ZERO };
        let took = self.under_way.freed_since(known.gpu).map_or(Span::ZERO, |since| now.since(since));
        known.toll.granted.add(took.0, None);
        known.link.grip.page().await_end(true);
        took
    }

    /// A tenant is gone, and what was to be done with it.
    pub(super) fn forget_toll(&mut self, tenant: TenantId) {
        self.under_way.switches.retain(|_, switching| switching.tenant != tenant);
    }

    /// What a tenant went through so far.
    pub(super) fn statistics_of(&self, tenant: TenantId) -> Option<Statistics> {
        let known = self.known.get(&tenant)?;
        let (toll, page) = (&known.toll, known.link.grip.page());
        let waits = toll.waits_since.map_or(Span::ZERO, |since| self.now().since(since));
        Some(Statistics {
            requests: page.request_times(),
            granted: toll.granted.times(),
            freezes: toll.freezes,
            frozen_ns: (toll.frozen + waits).0,
            switching_ns: toll.switching.0,
            moving_ns: toll.moving.0,
            phase: page.phase_name(),
        })
    }

    /// The same for the events.
    pub(super) fn noted_statistics(&self, tenant: TenantId) -> Value {
        json!({ "statistics": self.statistics_of(tenant) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Span = Span::from_millis(1);

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn time_off_the_gpu_counts_only_with_work_to_do() {
        let mut toll = Toll::default();
        toll.wants(at(0), true);
        toll.switched(at(10), true, MS, true);
        toll.switched(at(30), false, MS, true);
        assert_eq!((toll.freezes, toll.frozen, toll.switching), (1, Span::from_millis(20), MS + MS));
        toll.switched(at(40), true, MS, true);
        toll.wants(at(45), false);
        assert_eq!(toll.frozen, Span::from_millis(25));
        toll.wants(at(100), true);
        toll.switched(at(107), false, MS, true);
        assert_eq!((toll.freezes, toll.frozen), (2, Span::from_millis(32)));
    }

    #[test]
    fn whoever_is_frozen_in_two_steps_was_taken_off_once() {
        let mut toll = Toll::default();
        toll.wants(at(0), true);
        toll.switched(at(10), true, MS, true);
        toll.switched(at(15), true, MS, true);
        toll.switched(at(30), false, MS, true);
        let off = Span::from_millis(20);
        assert_eq!((toll.freezes, toll.frozen, toll.switching), (1, off, MS + MS + MS));
    }

    #[test]
    fn how_soon_it_had_the_gpu_is_counted_from_its_first_work_and_only_where_it_was_off() {
        let mut toll = Toll::default();
        toll.wants(at(0), true);
        toll.switched(at(10), true, MS, true);
        toll.switched(at(30), false, MS, true);
        assert_eq!(toll.granted.times(), None, "it had work all the time: that was a turn of others");
        toll.wants(at(40), false);
        toll.switched(at(41), true, MS, false);
        toll.wants(at(50), true);
        toll.switched(at(57), false, MS, true);
        let granted = toll.granted.times().unwrap();
        assert_eq!((granted.count, granted.max_ns), (1, 7_000_000));
        toll.wants(at(60), false);
        toll.wants(at(70), true);
        assert_eq!(toll.granted.times().unwrap().count, 1, "it was on the GPU");
    }

    #[test]
    fn several_who_are_taken_off_together_count_from_the_first() {
        let mut under_way = UnderWay::default();
        let [here, there] = [GpuId(0), GpuId(1)];
        assert_eq!(under_way.emptied_since(here), None);
        let rest = (4, here, true, false, 3);
        let switches =
            [(1, here, true, true, 5), (2, here, false, false, 1), (3, there, true, true, 2), rest];
        for (op, gpu, off, empties, ordered) in switches {
            let switching = Switching { tenant: TenantId(op), gpu, off, empties, ordered: at(ordered) };
            under_way.switches.insert(OpId(op), switching);
        }
        assert_eq!(
            (under_way.emptied_since(here), under_way.emptied_since(there)),
            (Some(at(5)), Some(at(2)))
        );
        under_way.freed = Some((there, at(2)));
        assert_eq!((under_way.freed_since(here), under_way.freed_since(there)), (None, Some(at(2))));
    }
}
