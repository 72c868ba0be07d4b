//! The state with everything taken out that does not matter for what happens next, so that a model checker sees that it
//! has been here before: instants count from now, virtual times from the least, actions from a given number, and what is
//! kept only for people is forgotten.

use super::{Core, Due};
use crate::gpu::{Crowd, Gpu};
use crate::guarantee::HALF;
use crate::policies;
use crate::tenant::{Grip, Phase, Tenant};
use crate::way::Places;
use crate::{GpuId, OpId, PolicyKind, Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// About now, in a state that was moved: late enough that what lies before it can be told apart. Windows of the clock
/// begin there.
const ORIGIN: u64 = HALF.0 << 20;

/// About the least virtual time of those who want turns, in a state that was moved.
const VIRTUAL_ORIGIN: u64 = 1 << 50;

/// How a state was moved.
struct Shift {
    from: u64,
    to: u64,
    /// What lies further back than this makes no difference any more.
    past_max: u64,
    /// Nor does it for how long somebody has been idle.
    idle_max: u64,
    /// The same for the latency-critical: until then they keep their memory.
    linger: u64,
    /// Nor for how long somebody has stayed after its turn.
    stay_max: u64,
    numbers: BTreeMap<OpId, OpId>,
    /// For each GPU what is taken off virtual times there: they are compared on one GPU only.
    least: BTreeMap<GpuId, u64>,
}

impl Core {
    /// The same state at a fixed instant, its open actions numbered from `first` on. With that instant, and with the new
    /// number of each open action.
    pub fn rebased(&self, first: OpId) -> (Self, Time, BTreeMap<OpId, OpId>) {
        let mut moved = self.clone();
        let gpus: Vec<_> = self.gpus.ids().collect();
        gpus.iter().for_each(|&gpu| moved.charge(gpu));
        let stay_max = self.settings.turn_max.0.max(self.settings.turn_min.0).min(ORIGIN / 2);
        let pause_max =
            if policies::place_is_kept_in_pauses(&self.settings, Span::MAX) { stay_max } else { 0 };
        let costs_max = self.gpus.values().map(|books| self.cost_max(books).0).max().unwrap_or(0);
        let shift = Shift {
            from: self.now.0,
            to: ORIGIN + self.phase(),
            past_max: self.settings.gap_max.0.max(self.settings.deadlines.movement.times(2).0),
            idle_max: costs_max.max(pause_max),
            linger: self.settings.lc_linger.0.min(ORIGIN / 2),
            stay_max,
            numbers: self.ops.keys().copied().zip((first.0..).map(OpId)).collect(),
            least: gpus.iter().map(|&gpu| (gpu, moved.begin_at_the_present(gpu))).collect(),
        };
        moved.now = Time(shift.to);
        moved.next_op = first.0 + shift.numbers.len() as u64;
        moved.ops =
            std::mem::take(&mut moved.ops).into_iter().map(|(op, open)| (shift.numbers[&op], open)).collect();
        moved.ops.values_mut().for_each(|open| shift.at(&mut open.deadline));
        moved.due = self.due.iter().map(|due| shift.due(due)).collect();
        shift.over(&mut moved.end_not_before);
        moved.forget_late();
        moved.expected.iter_mut().for_each(|expected| shift.at(&mut expected.until));
        gpus.iter().for_each(|&gpu| moved.forget_goal(gpu));
        gpus.iter().for_each(|&gpu| moved.forget_crowd(gpu));
        for (_, tenant) in moved.tenants.iter_mut() {
            shift.tenant(tenant);
        }
        moved.gpus.iter_mut().for_each(|(gpu, books)| shift.gpu(gpu, books));
        moved.close_ranks();
        moved.stand_in_line();
        moved.concerned.clear();
        (moved, Time(shift.to), shift.numbers)
    }

    /// Whoever takes no turns now will begin at the present if it is before that: of such virtual times only the order
    /// matters, unless a place is kept for it among the others. Returns the least of those who take turns.
    fn begin_at_the_present(&mut self, gpu: GpuId) -> u64 {
        let present = self.gpu_of(gpu).present;
        let here = self.tenants.iter().filter(|(_, tenant)| tenant.gpu == gpu);
        let keeps_place = |tenant: &Tenant| tenant.pauses.keep_until(self.now).is_some();
        let takes_turns =
            |tenant: &Tenant| (self.gang_is_active(tenant) || keeps_place(tenant)) && !tenant.critical;
        let (active, others): (Vec<_>, Vec<_>) = here.partition(|(_, tenant)| takes_turns(tenant));
        let least = active.iter().map(|(_, tenant)| tenant.virtual_time).min().unwrap_or(present);
        let behind: Vec<_> = others
            .into_iter()
            .filter(|(_, tenant)| tenant.virtual_time < present)
            .map(|(id, tenant)| (id, tenant.virtual_time))
            .collect();
        let past: BTreeSet<u64> = behind.iter().map(|&(_, time)| time).collect();
        let order: BTreeMap<u64, u64> = past.into_iter().rev().zip((0..present).rev()).collect();
        for (id, time) in behind {
            self.tenants.get_mut(id).expect("it was there above").virtual_time = order[&time];
        }
        least
    }

    /// Once somebody has had more than two turns in one, it does not matter how much more.
    fn forget_goal(&mut self, gpu: GpuId) {
        let Some(mut turn) = self.gpu_of(gpu).turn else { return };
        let Some(owner) = self.tenants.get(turn.tenant) else { return };
        let length = turn.goal - turn.from;
        turn.goal = turn.goal.max(owner.virtual_time.saturating_sub(length));
        turn.from = turn.goal - length;
        self.gpu_mut(gpu).turn = Some(turn);
    }

    /// How many waited of late does not matter where turns are short enough for as many.
    fn forget_crowd(&mut self, gpu: GpuId) {
        let longest = self.settings.turn_max.max(self.settings.turn_min);
        let cost = super::gaps::dear(self.cost_max(self.gpu_of(gpu)));
        let others = self.gpu_of(gpu).crowd.others.max(1);
        if Span(self.settings.gap_max.less(cost).0 / others).less(cost) >= longest {
            self.gpu_mut(gpu).crowd = Crowd::default();
        }
    }

    /// How far into a window of the clock it is now, where anybody may be held back.
    fn phase(&self) -> u64 {
        let counts = |books: &Gpu| !books.critical.is_empty() || books.held_since.is_some();
        if self.gpus.values().any(counts) { self.now.0 % HALF.0 } else { 0 }
    }

    /// More than this nobody's switch costs.
    fn cost_max(&self, books: &Gpu) -> Span {
        let all = books.spec.capacity;
        let moving = all.at(self.costs.out_per_second).max(all.at(self.costs.in_per_second));
        self.costs.freeze + self.costs.thaw + self.costs.per_move + moving
    }

    /// Of when somebody came only the order matters, and of when it went to the end of the line too, unless waiting
    /// counts. Of the turns since then it matters how many, up to as many as there are tenants; and how long its own last one
    /// was, up to two of the longest.
    fn close_ranks(&mut self) {
        let now = self.now;
        let order = |times: BTreeSet<Time>| -> BTreeMap<Time, Time> {
            let back = times.len() as u64;
            times.into_iter().zip((now.0 - back..).map(Time)).collect()
        };
        let arrivals = order(self.tenants.iter().map(|(_, tenant)| tenant.arrived).collect());
        let queues = order(self.tenants.iter().map(|(_, tenant)| tenant.queued_at).collect());
        let in_order = matches!(self.settings.policy, PolicyKind::Fair | PolicyKind::Serial)
            && self.tenants.iter().all(|(_, tenant)| tenant.slo.is_none());
        let wanting: BTreeSet<_> =
            self.tenants.iter().filter(|(_, tenant)| self.gang_is_active(tenant)).map(|(id, _)| id).collect();
        let ran_max = self.settings.turn_max.max(self.settings.turn_min).times(2);
        let many = self.tenants.iter().count() as u64;
        let turns: BTreeMap<_, _> = self.gpus.iter().map(|(gpu, books)| (gpu, books.turns)).collect();
        for (id, tenant) in self.tenants.iter_mut() {
            tenant.queued_behind = many - (turns[&tenant.gpu] - tenant.queued_behind).min(many);
            tenant.arrived = arrivals[&tenant.arrived];
            tenant.ran = tenant.ran.min(ran_max);
            if in_order {
                tenant.queued_at = queues[&tenant.queued_at];
            }
            if !wanting.contains(&id) {
                (tenant.queued_behind, tenant.ran) = (many, Span::ZERO);
            }
        }
        self.gpus.values_mut().for_each(|books| books.turns = many);
    }

    /// All lines anew: the places in them follow from what was moved.
    fn stand_in_line(&mut self) {
        for books in self.gpus.values_mut() {
            books.line.clear();
            books.waits.clear();
            books.way = Places::default();
            books.door.clear();
        }
        let everybody: Vec<_> = self.tenants.iter().map(|(id, _)| id).collect();
        for &id in &everybody {
            if let Some(tenant) = self.tenants.get_mut(id) {
                (tenant.in_line, tenant.in_waits, tenant.in_way) = (None, None, None);
            }
        }
        for id in everybody {
            self.relist(id);
            if let Some(tenant) = self.tenants.get(id).filter(|tenant| tenant.phase == Phase::Queued) {
                let (gpu, key) = (tenant.gpu, super::door::door_key(id, tenant));
                self.gpu_mut(gpu).door.insert(key);
            }
        }
    }
}

impl Shift {
    /// Moves an instant.
    fn at(&self, time: &mut Time) {
        *time = match *time {
            Time::MAX => Time::MAX,
            Time(at) if at >= self.from => Time(self.to.saturating_add(at - self.from)),
            Time(at) => Time(self.to - (self.from - at).min(self.past_max)),
        };
    }

    /// Moves an instant of which it matters only how far ahead it is, if it is.
    fn over(&self, time: &mut Time) {
        self.at(time);
        *time = (*time).max(Time(self.to));
    }

    fn number(&self, op: &mut OpId) {
        *op = self.numbers[op];
    }

    fn due(&self, &(mut time, due): &(Time, Due)) -> (Time, Due) {
        self.at(&mut time);
        match due {
            Due::Op(op) => (time, Due::Op(self.numbers[&op])),
            other => (time, other),
        }
    }

    fn virtual_time(&self, gpu: GpuId, time: &mut u64) {
        *time = (*time + VIRTUAL_ORIGIN).saturating_sub(self.least[&gpu]);
    }

    fn tenant(&self, tenant: &mut Tenant) {
        self.virtual_time(tenant.gpu, &mut tenant.virtual_time);
        self.at(&mut tenant.arrived);
        self.at(&mut tenant.idle_since);
        let idle_max = if tenant.critical { self.idle_max.max(self.linger) } else { self.idle_max };
        tenant.idle_since.0 = tenant.idle_since.0.max(self.to - idle_max);
        self.at(&mut tenant.queued_at);
        if let Some(since) = &mut tenant.stays_since {
            self.at(since);
            since.0 = since.0.max(self.to - self.stay_max);
        }
        self.over(&mut tenant.grip_retry);
        self.over(&mut tenant.rest_retry);
        self.over(&mut tenant.slice_retry);
        self.over(&mut tenant.not_before);
        if let Some(put_off) = &mut tenant.put_off_in_vain {
            self.over(&mut put_off.until);
            self.over(&mut put_off.capped_until);
        }
        self.over(&mut tenant.near_from);
        tenant.pauses.moved(Time(self.from), |time| self.over(time));
        for held in tenant.handles.values_mut() {
            self.over(&mut held.stuck_until);
        }
        match &mut tenant.grip {
            Grip::Freezing(op, _) | Grip::Widening(op, _) | Grip::Thawing(op, _) => self.number(op),
            Grip::Thawed | Grip::Frozen(_) => {}
        }
        tenant.slicing.iter_mut().for_each(|op| self.number(op));
        tenant.hints.moved(|time| self.at(time));
        tenant.since = Time(self.to);
        tenant.turns = 0;
        tenant.habits = crate::habits::Habits::default();
        tenant.lasts = crate::lead::Slowest::default();
    }

    fn gpu(&self, gpu: GpuId, books: &mut Gpu) {
        for put_off in books.no_room.put_off.values_mut() {
            self.over(&mut put_off.until);
            self.over(&mut put_off.capped_until);
        }
        self.over(&mut books.move_retry);
        self.over(&mut books.ahead_retry);
        self.over(&mut books.stuck_until);
        self.over(&mut books.critical_until);
        self.over(&mut books.crowd.until);
        self.over(&mut books.parted_until);
        self.over(&mut books.pressed_until);
        let waits = [&mut books.starved_since, &mut books.burials_since, &mut books.making_since];
        let since = waits.into_iter().chain([&mut books.held_since, &mut books.wake]);
        since.flatten().for_each(|time| self.at(time));
        if let Some(turn) = &mut books.turn {
            self.at(&mut turn.since);
            self.at(&mut turn.charged);
            self.over(&mut turn.until);
            self.virtual_time(gpu, &mut turn.from);
            self.virtual_time(gpu, &mut turn.goal);
        }
        if let Some((_, since)) = &mut books.filler {
            self.at(since);
        }
        for hold in &mut books.holds {
            self.at(&mut hold.from);
            self.at(&mut hold.expect);
            self.at(&mut hold.until);
            hold.came.iter_mut().for_each(|since| *since = Time(self.to));
            hold.release.iter_mut().for_each(|release| self.at(release));
        }
        books.moving.iter_mut().for_each(|moving| self.number(&mut moving.op));
        books.looking.iter_mut().for_each(|op| self.number(op));
        books.guarantee.moved(self.from / HALF.0, self.to / HALF.0);
        books.load.moved(self.from / HALF.0, self.to / HALF.0);
        if let Some(since) = &mut books.load_since {
            self.at(since);
        }
        self.virtual_time(gpu, &mut books.present);
        books.stay = Span::ZERO;
        // As before any was measured: of a hint's lead only the longest is looked at.
        books.lead = crate::lead::Lead::default();
        books.thaws = crate::release::Thaws::default();
    }
}
