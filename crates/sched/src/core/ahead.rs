//! Fetching ahead: while somebody has its turn, what the next one has away comes back, as far as there is a place for it.
//!
//! A switch takes as long as what it moves, and nobody computes meanwhile. While a turn is on, the bus has nothing to do. So
//! shortly before the turn is over, handles of whoever is next are brought in:
//!
//! - into room that is free;
//! - in place of tenants that stand in no line and come later than whoever has the turn now: the switch would take their
//!   memory first anyway. One that a cap keeps out for less than that counts as standing in line;
//! - in place of what is left over of those who come later and have to be fetched in any case, until a third of the next
//!   one's memory is there ([`SWAPPED_PART`]). That moves more bytes than have to be moved, but not while somebody waits for
//!   them: each left-over byte shortens every switch of a round, not one.
//!
//! Whoever is whole and stands in line keeps its memory: to take turns among those that are on the device costs nothing,
//! and to push one of them out for the next would move each of them once a round.
//!
//! Steps are small, since a switch that comes early has to wait for the one under way, and begin as late as they can: who is
//! next may change, and whoever has the turn may grow. Nothing is fetched beside somebody latency-critical, nor where a gang
//! has the GPU or waits for it; nothing makes room while the arena is all but full.

use super::{Core, books};
use crate::gpu::{For, Turn};
use crate::pressure::Pressure;
use crate::tenant::{Grip, Tenant};
use crate::way::{Place, Way};
use crate::{Bytes, GpuId, Owned, PolicyKind, Scope, Span, TenantId, Time};

/// A step moves no more than this each way, or one handle.
const STEP_BYTES_MAX: Bytes = Bytes::from_mib(512);

/// Nor what takes longer than this.
const STEP_MAX: Span = Span::from_millis(15);

/// What is left over of others makes room until one part of so many of the next one's memory is there. With a half, what was moved
/// came to 1.10 of the least possible in the scenario six-fit-three and to 1.24 with three of 12 GiB on 20, with all of it to
/// 1.47; with a third it is 1.02 and 1.00, and four of 12 GiB on 16 get all that is left over.
const SWAPPED_PART: u64 = 3;

/// Of those who make room first, so many are looked at.
const LOOKED_AT_MAX: usize = 32;

/// Steps may take so many times as long as they should and are over before the turn is.
const SLACK: u64 = 2;

/// After a step that failed, nothing is fetched for so many times what a move may take.
const PAUSE_AFTER_FAILURE: u64 = 6;

/// What there is to fetch.
struct Errand {
    next: TenantId,
    /// When the turn will be over.
    ends: Time,
    /// When to begin.
    begins: Time,
    /// Those who make room, in this order.
    yielding: Vec<Yields>,
    /// So much of what is left over may go.
    swapped_max: Bytes,
}

/// Somebody who makes room.
struct Yields {
    tenant: TenantId,
    /// It stands in line: what is taken of it is moved once more than it would have to be.
    in_line: bool,
}

/// Handles of one step.
#[derive(Default)]
struct Step {
    out: Vec<(Owned, Bytes)>,
    into: Vec<(Owned, Bytes)>,
    freed: Bytes,
    landed: Bytes,
}

impl Core {
    /// Brings in something of whoever is next, if it is time for that.
    pub(super) fn fetch_ahead(&mut self, gpu: GpuId) {
        let Some(errand) = self.errand(gpu).filter(|errand| errand.begins <= self.now) else { return };
        let step = self.ahead_step(gpu, &errand);
        let is_over = self.now + self.fetching(step.landed.max(step.freed));
        if !step.into.is_empty() && is_over <= errand.ends {
            self.begin_move(gpu, step.out, step.into, For::Later(errand.next));
        }
    }

    /// Room was made for whoever has the turn, which has what was fetched ahead in its way. That is not worth a longer turn, as it
    /// would be again and again; and nothing more is fetched while it is on.
    pub(super) fn grew_into_what_was_fetched(&mut self, gpu: GpuId) -> bool {
        let books = self.gpu_mut(gpu);
        let Some(turn) = books.turn.filter(|_| books.ahead_cost > Span::ZERO) else { return false };
        books.ahead_retry = books.ahead_retry.max(turn.until);
        true
    }

    /// A step has failed, or nobody knows what became of it. Each that does costs turns more than those that do not can save.
    pub(super) fn fetch_no_more_for_a_while(&mut self, gpu: GpuId) {
        let until = self.now + self.settings.deadlines.movement.times(PAUSE_AFTER_FAILURE);
        self.gpu_mut(gpu).ahead_retry = until;
    }

    /// When to look again because something is to be fetched by then.
    pub(super) fn ahead_at(&self, gpu: GpuId) -> Option<Time> {
        self.errand(gpu).map(|errand| errand.begins)
    }

    /// What is to be fetched, and from when on.
    fn errand(&self, gpu: GpuId) -> Option<Errand> {
        let books = self.gpu_of(gpu);
        let turn = books.turn.filter(|_| self.settings.prefetch && books.away > Bytes::ZERO)?;
        let at_rest = books.moving.is_none() && books.looking.is_none() && books.incoming.is_none();
        let undisturbed = !books.critical_mode && books.holds.is_empty() && books.arriving.is_empty();
        let no_gang = books.held_by.is_none() && books.gangs_waiting.is_empty();
        let has_all = self.tenants.get(turn.tenant).is_some_and(|owner| owner.is_whole());
        if !at_rest || !undisturbed || !no_gang || !has_all || books.burials_pending() {
            return None;
        }
        let id = self.next_up(gpu, &turn)?;
        let next = self.tenants.get(id)?;
        let yielding = self.who_yields(gpu, &turn, id);
        let swapped_max = Bytes(next.whole_bytes().0 / SWAPPED_PART).less(next.resident);
        let could_go = |in_line: bool| -> Bytes {
            let those = yielding.iter().filter(|yields| yields.in_line == in_line);
            those.filter_map(|yields| self.tenants.get(yields.tenant)).map(Tenant::could_go).sum()
        };
        let places = books.room(self.settings.headroom) + could_go(false) + could_go(true).min(swapped_max);
        let bytes = next.away.min(places);
        let ends = self.turn_ends(&turn, next);
        if bytes == Bytes::ZERO || ends == Time::MAX {
            return None;
        }
        let begins = ends.before(self.fetching(bytes).times(SLACK)).max(books.ahead_retry);
        Some(Errand { next: id, ends, begins, yielding, swapped_max })
    }

    /// Whoever is next when this turn is over, if something can be fetched for it.
    fn next_up(&self, gpu: GpuId, turn: &Turn) -> Option<TenantId> {
        let is_fair = self.settings.policy == PolicyKind::Fair;
        let late = if is_fair { self.whom_to_prefer(gpu, turn.until) } else { None };
        let id = late.or_else(|| books::first(&self.gpu_of(gpu).line))?;
        let next = self.tenants.get(id)?;
        let could_come = next.away > Bytes::ZERO && !next.critical && !self.is_vain(id);
        (could_come && self.lies_still(next)).then_some(id)
    }

    /// Can something of it be moved now, without anybody having to be frozen?
    fn lies_still(&self, tenant: &Tenant) -> bool {
        let is_off = tenant.context && tenant.grip == Grip::Frozen(Scope::All) && !tenant.moving;
        is_off && !tenant.is_unsettled() && self.gang_of(tenant).is_none()
    }

    /// When the turn that is on will be over, as far as can be told now.
    fn turn_ends(&self, turn: &Turn, next: &Tenant) -> Time {
        let Some(owner) = self.tenants.get(turn.tenant) else { return self.now };
        let cost = self.cost_of(next);
        let idle = if self.gang_is_active(owner) { Time::MAX } else { owner.idle_since + cost };
        let cut = self.cut_at(turn, owner, next).unwrap_or(Time::MAX);
        turn.until.min(idle).min(cut)
    }

    /// Those who make room for what is fetched, in this order.
    fn who_yields(&self, gpu: GpuId, turn: &Turn, next: TenantId) -> Vec<Yields> {
        if self.pressure >= Pressure::Refusing {
            return Vec::new();
        }
        let owner_is_back = self.owner_is_back(gpu, turn);
        let may_yield = |id: TenantId| {
            let tenant = self.tenants.get(id).filter(|_| id != turn.tenant && id != next)?;
            let Place { way, .. } = tenant.in_way?;
            let in_line = match way {
                Way::InLine(_) => true,
                // The switch would take the owner's memory first.
                Way::KeptOut(until) => until <= owner_is_back,
                Way::Critical(_) | Way::Idle(_) | Way::Paused(_) => false,
            };
            let is_left_over = tenant.away > Bytes::ZERO;
            let yields = !tenant.critical && (is_left_over || !in_line) && self.lies_still(tenant);
            yields.then_some(Yields { tenant: id, in_line })
        };
        self.gpu_of(gpu).way.first_to_last().take(LOOKED_AT_MAX).filter_map(may_yield).collect()
    }

    /// When whoever has the turn will have its next one: once its cap allows, or all in line had theirs.
    fn owner_is_back(&self, gpu: GpuId, turn: &Turn) -> Time {
        let Some(owner) = self.tenants.get(turn.tenant) else { return self.now };
        match self.cap(owner) {
            Some(cap) => turn.since + cap.whole(turn.until.since(turn.since) + turn.owed),
            None => turn.until + self.turn_length(owner).times(self.gpu_of(gpu).line.len() as u64),
        }
    }

    /// Handles for one step: those that go, and those that come in their place.
    fn ahead_step(&self, gpu: GpuId, errand: &Errand) -> Step {
        let in_time = |per_second: u64| Bytes(crate::units::scale(STEP_MAX.0, per_second, 1_000_000_000));
        let costs = &self.costs;
        let limit = STEP_BYTES_MAX.min(in_time(costs.in_per_second)).min(in_time(costs.out_per_second));
        let room = self.gpu_of(gpu).room(self.settings.headroom);
        let mut going = errand.yielding.iter().flat_map(|yields| {
            self.going_of(yields.tenant).into_iter().map(|(owned, bytes)| (yields.in_line, owned, bytes))
        });
        let mut coming = self.away_of(errand.next).into_iter().peekable();
        let (mut step, mut swapped) = (Step::default(), Bytes::ZERO);
        while let Some(&(owned, bytes)) = coming.peek() {
            if step.landed > Bytes::ZERO && step.landed + bytes > limit {
                break;
            }
            if step.landed + bytes <= room + step.freed {
                step.landed += bytes;
                step.into.push((owned, bytes));
                coming.next();
                continue;
            }
            let Some((in_line, owned, bytes)) = going.next().filter(|_| step.freed < limit) else { break };
            swapped += if in_line { bytes } else { Bytes::ZERO };
            if swapped > errand.swapped_max {
                break;
            }
            step.freed += bytes;
            step.out.push((owned, bytes));
        }
        // What would go for something that finds no place all the same stays.
        while let Some(&(_, bytes)) = step.out.last()
            && step.landed <= room + (step.freed - bytes)
        {
            step.freed -= bytes;
            step.out.pop();
        }
        step
    }

    /// How long it takes to fetch so much.
    fn fetching(&self, bytes: Bytes) -> Span {
        let steps = bytes.0.div_ceil(STEP_BYTES_MAX.0);
        self.copying(bytes, bytes) + self.costs.per_move.times(steps)
    }

    /// How long it takes to copy so much out and in, at the same time.
    pub(super) fn copying(&self, out: Bytes, into: Bytes) -> Span {
        out.at(self.costs.out_per_second).max(into.at(self.costs.in_per_second))
    }
}
