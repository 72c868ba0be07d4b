//! Whose turn it is.

use super::{Core, books};
use crate::gpu::Turn;
use crate::job::Gang;
use crate::policies;
use crate::tenant::Tenant;
use crate::units::scale;
use crate::{Action, Bytes, GpuId, Ratio, Span, TenantId, Time};

/// How many in line are looked at to find one that may run beside the owner of the turn.
const FILLERS_LOOKED_AT_MAX: usize = 8;

/// The least part of the time that counts as used by one of two who run side by side.
const PAID_MIN: Ratio = Ratio::from_percent(10);

impl Core {
    /// Ends the turn that is over and names who is next; finds someone to run beside the owner.
    pub(super) fn choose(&mut self, gpu: GpuId) {
        self.mind_pressure();
        if let Some(turn) = self.gpu_of(gpu).turn
            && self.must_stop(gpu, &turn)
        {
            self.stop(gpu, &turn);
        }
        if let Some(id) = self.gpu_of(gpu).incoming
            && !self.may_come(gpu, id)
        {
            self.gpu_mut(gpu).incoming = None;
            self.relist(id);
        }
        self.let_gang_hold(gpu);
        self.put_off_the_vain(gpu);
        if let Some(next) = self.candidate(gpu)
            && self.turn_is_over(gpu)
        {
            self.call(gpu, next);
        }
        self.find_filler(gpu);
    }

    /// Whoever only asks for what it cannot get now has no use for a turn, and must not keep others from theirs.
    fn put_off_the_vain(&mut self, gpu: GpuId) {
        while let Some(first) = books::first(&self.gpu_of(gpu).line) {
            if self.gpu_of(gpu).incoming == Some(first) || !self.is_vain(first) {
                return;
            }
            self.deny_the_impossible(first);
            let later = self.later();
            self.postpone(first, later);
        }
    }

    /// Would a turn be of no use to a tenant? Whoever is latency-critical and has all its memory runs without one.
    fn is_vain(&self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return true };
        let runs_anyway = tenant.critical && tenant.is_whole() && self.fellows_are_whole(tenant);
        let only_asks = !tenant.wants && self.gang_of(tenant).is_none();
        (runs_anyway || only_asks) && self.grantable(id) == Bytes::ZERO
    }

    /// The first in line, unless it is on its way already.
    fn candidate(&self, gpu: GpuId) -> Option<TenantId> {
        let books = self.gpu_of(gpu);
        let first = books::first(&books.line)?;
        let Some(incoming) = books.incoming else { return Some(first) };
        if incoming == first || books.moving.is_some() {
            return None;
        }
        // Someone is on its way. Only one who would cut its turn short comes before it.
        let (newcomer, other) = (self.tenants.get(first)?, self.tenants.get(incoming)?);
        let cuts = policies::preempts(&self.settings, &self.standing(newcomer), &self.standing(other));
        (cuts && !self.is_in_gang_together(other)).then_some(first)
    }

    /// Gives the next turn to `next`: whoever runs ends.
    fn call(&mut self, gpu: GpuId, next: TenantId) {
        let Some(tenant) = self.tenants.get(next) else { return };
        let job = tenant.job;
        if self.gang_of(tenant).is_some() {
            self.gather(job);
            return;
        }
        if let Some(turn) = self.gpu_of(gpu).turn {
            if self.goes_on(gpu, &turn, next) {
                return;
            }
            let gang = self
                .tenants
                .get(turn.tenant)
                .filter(|owner| self.is_in_gang_together(owner))
                .map(|owner| owner.job);
            match gang {
                Some(gang) => self.part(gang),
                None => self.end_turn(gpu, turn.until <= self.now),
            }
        }
        let expected = self.tenants.get(next).map_or(Span::ZERO, |tenant| self.cost_of(tenant));
        let books = self.gpu_mut(gpu);
        books.incoming = Some(next);
        books.switch_cost = None;
        books.expected_cost = expected;
    }

    /// Its turn is used up, but whoever has it is still before the first in line: it goes on.
    fn goes_on(&mut self, gpu: GpuId, turn: &Turn, next: TenantId) -> bool {
        self.charge(gpu);
        let (Some(owner), Some(next)) = (self.tenants.get(turn.tenant), self.tenants.get(next)) else {
            return false;
        };
        let needs_none = owner.critical && owner.is_whole();
        if turn.until > self.now || !owner.is_active() || needs_none || self.is_in_gang_together(owner) {
            return false;
        }
        // As it would stand if it went to the end of the line.
        let due = owner.slo.map(|slo| self.now + slo);
        let standing = policies::Standing { queued_at: self.now, due, ..self.standing(owner) };
        let rank = policies::rank(&self.settings, &standing);
        if Some(rank) >= next.in_line {
            return false;
        }
        let length = self.turn_length(owner);
        let (times, per) = self.virtual_rate(owner);
        let (from, until) = (owner.virtual_time, self.now + length);
        if let Some(turn) = &mut self.gpu_mut(gpu).turn {
            turn.until = until;
            turn.from = from;
            turn.goal = from.saturating_add(scale(length.0, times, per));
        }
        true
    }

    /// May whoever is on its way still come?
    fn may_come(&self, gpu: GpuId, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return false };
        if self.is_in_gang_together(tenant) {
            return tenant.context && !tenant.paused;
        }
        tenant.in_line.is_some() && tenant.gpu == gpu
    }

    /// Must the turn end although nobody may be waiting?
    fn must_stop(&self, gpu: GpuId, turn: &Turn) -> bool {
        let Some(tenant) = self.tenants.get(turn.tenant) else { return true };
        if !tenant.context || tenant.paused {
            return true;
        }
        let only_asks = !tenant.wants && !tenant.asked.is_empty();
        if (only_asks || tenant.critical && !self.critical_waits(gpu)) && self.is_vain(turn.tenant) {
            // It waits, or runs, without a turn from here on.
            return true;
        }
        self.cap(tenant).is_some() && self.now >= turn.until
    }

    /// Ends a turn, that of a gang on all its GPUs.
    fn stop(&mut self, gpu: GpuId, turn: &Turn) {
        let owner = self.tenants.get(turn.tenant).filter(|owner| self.is_in_gang_together(owner));
        match owner.map(|owner| owner.job) {
            Some(gang) => self.part(gang),
            None => self.end_turn(gpu, true),
        }
    }

    /// Is the first in line latency-critical? Then it waits for memory.
    fn critical_waits(&self, gpu: GpuId) -> bool {
        let first = books::first(&self.gpu_of(gpu).line).and_then(|first| self.tenants.get(first));
        first.is_some_and(|first| first.critical)
    }

    pub(super) fn cap(&self, tenant: &Tenant) -> Option<Ratio> {
        tenant.compute_max.filter(|_| !tenant.critical)
    }

    /// The first in line, or one of a gang that waits for this GPU.
    fn who_waits(&self, gpu: GpuId) -> Option<&Tenant> {
        let books = self.gpu_of(gpu);
        let gang = || books.gangs_waiting.iter().find_map(|&job| self.member_here(job, gpu));
        self.tenants.get(books::first(&books.line).or_else(gang)?)
    }

    /// May somebody else have the GPU now?
    pub(super) fn turn_is_over(&self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        let Some(turn) = books.turn else { return true };
        let Some(owner) = self.tenants.get(turn.tenant) else { return true };
        if books.moving.as_ref().is_some_and(|moving| moving.whom == Some(turn.tenant)) {
            // Room is being made for it: it would be for nothing.
            return false;
        }
        if self.now >= turn.until {
            return true;
        }
        let Some(next) = self.who_waits(gpu) else { return false };
        if !self.gang_is_active(owner) {
            return self.now >= owner.idle_since + self.cost_of(next);
        }
        let cuts = policies::preempts(&self.settings, &self.standing(next), &self.standing(owner));
        // What it cost to bring it in must not have been for nothing, unless somebody latency-critical waits.
        let paid = turn.since + self.settings.moving_share.whole(self.cost_of(next));
        cuts && (next.critical || self.now >= paid)
    }

    /// When to look again, so that nothing is missed.
    pub(super) fn remind(&mut self, gpu: GpuId) {
        let wake = self.next_look(gpu).filter(|&at| at > self.now);
        let books = self.gpu_mut(gpu);
        let before = std::mem::replace(&mut books.wake, wake);
        if before == wake {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, super::Due::Gpu(gpu)));
        }
        if let Some(wake) = wake {
            self.due.insert((wake, super::Due::Gpu(gpu)));
        }
    }

    fn next_look(&self, gpu: GpuId) -> Option<Time> {
        let books = self.gpu_of(gpu);
        let mut next = None;
        let mut at = |time: Time| {
            if time > self.now && time < Time::MAX && next.is_none_or(|next| time < next) {
                next = Some(time);
            }
        };
        if let Some(turn) = books.turn {
            let owner = self.tenants.get(turn.tenant);
            let first = self.who_waits(gpu);
            if first.is_some()
                || !books.gangs_waiting.is_empty()
                || owner.is_some_and(|owner| self.cap(owner).is_some())
            {
                at(turn.until);
            }
            if let (Some(owner), Some(next)) = (owner, first) {
                if !self.gang_is_active(owner) {
                    at(owner.idle_since + self.cost_of(next));
                } else if policies::preempts(&self.settings, &self.standing(next), &self.standing(owner)) {
                    at(turn.since + self.settings.moving_share.whole(self.cost_of(next)));
                }
            }
        }
        let vacant = self.is_vacant(gpu);
        for &id in books.awake.iter().chain(books.dozing.iter().take_while(|_| !vacant)) {
            at(self.tenants.get(id).map_or(Time::ZERO, |tenant| tenant.grip_retry));
        }
        for id in books.incoming.iter().chain(&books.critical) {
            at(self.tenants.get(*id).map_or(Time::ZERO, |tenant| tenant.grip_retry));
        }
        at(books.move_retry);
        at(books.stuck_until);
        if let Some(since) = books.starved_since {
            at(since + self.settings.deadlines.movement);
        }
        if let Some(since) = books.burials_since {
            at(since + self.settings.deadlines.retry);
        }
        if books.critical_mode {
            at(books.critical_until);
        }
        if self.arena_needed > self.arena {
            at(self.end_not_before);
        }
        if let Some(hold) = self.next_hold(gpu) {
            at(hold);
        }
        next
    }

    /// What it would cost to put a tenant on: to freeze, to move just enough, to thaw.
    pub(super) fn cost_of(&self, tenant: &Tenant) -> Span {
        let books = self.gpu_of(tenant.gpu);
        let into = tenant.away + tenant.asked_sum;
        let room = books.room(self.settings.headroom);
        let grip = self.costs.freeze + self.costs.thaw;
        if into == Bytes::ZERO {
            return grip;
        }
        let out = into.less(room).at(self.costs.out_per_second);
        grip + self.costs.per_move + out.max(tenant.away.at(self.costs.in_per_second))
    }

    /// How long a turn is: moving stays under its share of the time, and nobody waits longer than the longest gap, unless
    /// turns would then be shorter than what moving costs. It is the same for all on a GPU, since those with equal turns
    /// come round in the same order, and gaps are as short as they can be.
    pub(super) fn turn_length(&self, tenant: &Tenant) -> Span {
        // A gang's ends on all its GPUs at once: it is worth what was moved on any of them.
        let gang = self.gang_of(tenant).filter(|job| job.gang == Gang::Together);
        let elsewhere = gang.map_or(&[][..], |job| &job.holds).iter().filter(|&&gpu| gpu != tenant.gpu);
        let lengths = elsewhere.map(|&gpu| self.turn_length_on(gpu, tenant));
        lengths.max().unwrap_or_default().max(self.turn_length_on(tenant.gpu, tenant))
    }

    fn turn_length_on(&self, gpu: GpuId, tenant: &Tenant) -> Span {
        let settings = &self.settings;
        let books = self.gpu_of(gpu);
        let fits = books.everything() + books.asked <= books.usable(settings.headroom);
        let grip = self.costs.freeze + self.costs.thaw;
        let cost = if fits { grip } else { books.known_cost.max(grip) };
        // What is known may lag behind by an eighth.
        let by_share = settings.moving_share.whole(cost + Span(cost.0 / 8)).less(cost);
        if policies::to_the_end(settings) {
            return Span::MAX;
        }
        if books.critical_mode && !tenant.critical {
            return if fits {
                settings.lc_turn
            } else {
                settings.lc_turn.max(by_share.min(settings.turn_max))
            };
        }
        let is_in_line = gpu == tenant.gpu && tenant.in_line.is_some();
        let others = (books.line.len() - usize::from(is_in_line)).max(1) as u64;
        let by_gap = Span(settings.gap_max.less(cost).0 / others).less(cost).max(cost);
        by_share.min(by_gap).clamp(settings.turn_min, settings.turn_max.max(settings.turn_min))
    }

    /// Turns are shorter from now on, perhaps: also the one that is on.
    pub(super) fn shorten_turn(&mut self, gpu: GpuId) {
        let Some(turn) = self.gpu_of(gpu).turn else { return };
        let Some(owner) = self.tenants.get(turn.tenant) else { return };
        let until = turn.until.min(self.now + self.turn_length(owner));
        self.gpu_mut(gpu).turn = Some(Turn { until, ..turn });
    }

    /// Room was made for whoever has the turn, and is to be worth it: the turn is a whole one from here, within the
    /// longest gap.
    pub(super) fn grew(&mut self, gpu: GpuId, cost: Span) {
        self.learn_cost(gpu, cost);
        self.charge(gpu);
        let Some(turn) = self.gpu_of(gpu).turn else { return };
        let Some(owner) = self.tenants.get(turn.tenant) else { return };
        let length = self.turn_length(owner);
        let (times, per) = self.virtual_rate(owner);
        let goal = owner.virtual_time.saturating_add(scale(length.0, times, per));
        let until = (self.now + length).min(turn.since + self.settings.gap_max).max(turn.until);
        self.gpu_mut(gpu).turn = Some(Turn { until, goal, ..turn });
    }

    /// Learns what a switch cost. Lengths of turns follow only when that changed by more than an eighth.
    fn learn_cost(&mut self, gpu: GpuId, cost: Span) {
        let books = self.gpu_mut(gpu);
        // Quick to see that it costs more, slow to believe that it costs less.
        books.mean_cost = match cost > books.mean_cost {
            true => Span(books.mean_cost.max(books.expected_cost.min(cost)).0.midpoint(cost.0)),
            false => Span(books.mean_cost.0 - (books.mean_cost.0 - cost.0) / 8),
        };
        let (mean, known) = (books.mean_cost.0, books.known_cost.0);
        if mean.abs_diff(known) > known / 8 {
            books.known_cost = books.mean_cost;
        }
    }

    /// A tenant that was called is on: its turn begins.
    pub(super) fn begin_turn(&mut self, gpu: GpuId, id: TenantId) {
        if !self.tenants.contains(id) {
            return;
        }
        let cost = self.gpu_of(gpu).switch_cost.unwrap_or(self.costs.freeze + self.costs.thaw);
        self.learn_cost(gpu, cost);
        let tenant = self.tenants.get(id).expect("it was there above");
        let length = self.turn_length(tenant);
        let (now, until) = (self.now, self.now + length);
        let (virtual_time, critical) = (tenant.virtual_time, tenant.critical);
        let (times, per) = self.virtual_rate(tenant);
        let goal = virtual_time.saturating_add(scale(length.0, times, per));
        let books = self.gpu_mut(gpu);
        books.switch_cost = None;
        books.incoming = None;
        books.turn = Some(Turn { tenant: id, since: now, until, charged: now, from: virtual_time, goal });
        if !critical {
            books.present = books.present.max(virtual_time);
        }
        if books.filler.is_some_and(|(filler, _)| filler == id) {
            books.filler = None;
        }
        self.update(id, |tenant| tenant.turns += 1);
        self.actions.push(Action::TurnBegins { tenant: id, until });
    }

    /// Ends the turn that is on, if one is. Whoever used it up goes to the end of the line.
    pub(super) fn end_turn(&mut self, gpu: GpuId, used_up: bool) {
        self.stop_filler(gpu);
        let Some(turn) = self.gpu_of(gpu).turn else { return };
        self.charge(gpu);
        self.gpu_mut(gpu).turn = None;
        let now = self.now;
        let ran = now.since(turn.since);
        let cap = self.tenants.get(turn.tenant).and_then(|tenant| self.cap(tenant));
        let virtual_time = self.evened_out(gpu, &turn);
        self.update(turn.tenant, |tenant| {
            tenant.since = now;
            let used = Ratio::between(ran.0, turn.until.since(turn.since).0);
            tenant.used = Ratio((tenant.used.0 * 3 + used.0) / 4);
            if used_up {
                tenant.queued_at = now;
                tenant.virtual_time = virtual_time;
            }
        });
        if let Some(cap) = cap {
            self.postpone(turn.tenant, turn.since + cap.whole(ran));
        }
        let asks = |tenant: &Tenant| tenant.critical && tenant.is_whole() && !tenant.asked.is_empty();
        if used_up && self.tenants.get(turn.tenant).is_some_and(asks) {
            // It had a whole turn to get what it asks for. It goes on without one, and others have theirs.
            let later = self.later();
            self.postpone(turn.tenant, later);
        }
        self.actions.push(Action::TurnEnds { tenant: turn.tenant, ran });
    }

    /// The virtual time of one whose turn is used up. A turn that ended a moment late is a whole turn, and whoever is
    /// about equal to another is equal: otherwise the order would change with every moment.
    fn evened_out(&self, gpu: GpuId, turn: &Turn) -> u64 {
        let virtual_time = self.tenants.get(turn.tenant).map_or(0, |tenant| tenant.virtual_time);
        let little = (turn.goal - turn.from) / 64;
        let line = &self.gpu_of(gpu).line;
        let (least, most) = (virtual_time.saturating_sub(little), virtual_time.saturating_add(little));
        let equal = policies::virtual_time_between(&self.settings, line, least, most);
        equal.unwrap_or(if virtual_time.abs_diff(turn.goal) <= little { turn.goal } else { virtual_time })
    }

    pub(super) fn end_turn_of(&mut self, id: TenantId) {
        let Some(gpu) = self.tenants.get(id).map(|tenant| tenant.gpu) else { return };
        if self.gpu_of(gpu).turn.is_some_and(|turn| turn.tenant == id) {
            self.end_turn(gpu, false);
        }
    }

    /// Books the GPU time of the turn so far.
    pub(super) fn charge(&mut self, gpu: GpuId) {
        let now = self.now;
        let Some(turn) = &mut self.gpu_mut(gpu).turn else { return };
        let ran = now.since(turn.charged);
        turn.charged = now;
        let (id, filler) = (turn.tenant, self.gpu_of(gpu).filler);
        if ran == Span::ZERO {
            return;
        }
        let share = match filler.and_then(|(filler, _)| self.tenants.get(filler)) {
            Some(filler) => self.share_beside(id, filler.busy),
            None => Ratio::ONE,
        };
        self.charge_to(id, share.of(ran));
    }

    /// What of the time is a tenant's own while one runs beside it.
    fn share_beside(&self, id: TenantId, other: Ratio) -> Ratio {
        // Whoever has the turn pays for it, also if nothing of it was seen: otherwise it would keep it for ever.
        let busy = self.tenants.get(id).map_or(Ratio::ONE, |tenant| tenant.busy).max(PAID_MIN);
        let together = u64::from(busy.0) + u64::from(other.0);
        Ratio(scale(u64::from(busy.0), 1_000_000, together.max(1_000_000)) as u32)
    }

    /// The virtual time at which somebody starts who begins to want now: that of whoever had the least, which never goes
    /// back.
    pub(super) fn present(&mut self, gpu: GpuId, newcomer: TenantId) -> u64 {
        self.charge(gpu);
        let books = self.gpu_of(gpu);
        let owner = books.turn.map(|turn| turn.tenant);
        let others = owner
            .into_iter()
            .chain(books.line.iter().take(2).map(|&(_, id)| id))
            .filter(|&id| id != newcomer);
        let least = others.filter_map(|id| self.tenants.get(id)).map(|tenant| tenant.virtual_time).min();
        let books = self.gpu_mut(gpu);
        books.present = books.present.max(least.unwrap_or(0));
        books.present
    }

    pub(super) fn charge_to(&mut self, id: TenantId, ran: Span) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let (times, per) = self.virtual_rate(tenant);
        let virtual_time = tenant.virtual_time.saturating_add(scale(ran.0, times, per));
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.virtual_time = virtual_time;
        }
        self.relist(id);
    }

    /// Someone to run beside an owner that has gaps.
    fn find_filler(&mut self, gpu: GpuId) {
        let books = self.gpu_of(gpu);
        let main = books.incoming.or(books.turn.map(|turn| turn.tenant));
        let owner = main.and_then(|main| self.tenants.get(main));
        let wanted = !books.critical_mode
            && owner.is_some_and(|owner| {
                owner.is_whole()
                    && owner.busy < self.settings.filler_below
                    && !self.is_in_gang_together(owner)
            });
        if let Some((filler, _)) = books.filler {
            let good =
                self.tenants.get(filler).is_some_and(|filler| filler.in_line.is_some() && filler.is_whole());
            if wanted && good {
                return;
            }
            self.stop_filler(gpu);
        }
        if !wanted {
            return;
        }
        let books = self.gpu_of(gpu);
        let fits = |&id: &TenantId| {
            self.tenants.get(id).is_some_and(|tenant| {
                tenant.is_whole()
                    && tenant.wants
                    && self.cap(tenant).is_none()
                    && !books.leaving.contains(&id)
                    && self.gang_of(tenant).is_none()
            })
        };
        let others = books.line.iter().map(|&(_, id)| id).filter(|&id| Some(id) != main);
        let found = others.take(FILLERS_LOOKED_AT_MAX).find(fits);
        if let Some(filler) = found {
            self.charge(gpu);
            let now = self.now;
            self.gpu_mut(gpu).filler = Some((filler, now));
        }
    }

    /// Nobody runs beside the owner any more.
    pub(super) fn stop_filler(&mut self, gpu: GpuId) {
        let Some((filler, since)) = self.gpu_of(gpu).filler else { return };
        self.charge(gpu);
        let owner = self
            .gpu_of(gpu)
            .turn
            .and_then(|turn| self.tenants.get(turn.tenant))
            .map_or(Ratio::ZERO, |t| t.busy);
        self.gpu_mut(gpu).filler = None;
        let share = self.share_beside(filler, owner);
        self.charge_to(filler, share.of(self.now.since(since)));
    }

    /// Is a tenant of a gang that runs together?
    pub(super) fn is_in_gang_together(&self, tenant: &Tenant) -> bool {
        self.gang_of(tenant).is_some_and(|job| job.gang == Gang::Together)
    }
}
