//! Whose turn it is.

use super::{Core, books};
use crate::gpu::Turn;
use crate::job::Gang;
use crate::policies;
use crate::tenant::Tenant;
use crate::units::scale;
use crate::{Action, Bytes, GpuId, Ratio, Span, TenantId, Time};

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
        self.prefer(gpu);
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
    pub(super) fn is_vain(&self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return true };
        let runs_anyway = tenant.critical && tenant.is_whole() && self.fellows_are_whole(tenant);
        let only_asks = !self.gang_wants(tenant);
        let gets_nothing = |id: TenantId| self.grantable(id) == Bytes::ZERO;
        // What one of a gang gets, all of it have the turn for.
        let in_vain = || match self.gang_of(tenant) {
            Some(job) => job.members.iter().copied().all(gets_nothing),
            None => gets_nothing(id),
        };
        (runs_anyway || only_asks) && in_vain()
    }

    /// The first in line, unless it is on its way already.
    fn candidate(&self, gpu: GpuId) -> Option<TenantId> {
        let books = self.gpu_of(gpu);
        let first = books::first(&books.line)?;
        let Some(incoming) = books.incoming else { return Some(first) };
        let (newcomer, other) = (self.tenants.get(first)?, self.tenants.get(incoming)?);
        // Whoever needs nothing moved need not wait for what others have moved.
        if incoming == first || (books.moving.is_some() && !newcomer.is_whole()) {
            return None;
        }
        // Someone is on its way. Only one who would cut its turn short comes before it.
        let cuts =
            policies::preempts(&self.settings, &self.standing(newcomer), &self.standing(other), Span::ZERO);
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
                None => self.cut_short(gpu, &turn),
            }
        }
        let expected = self.tenants.get(next).map_or(Span::ZERO, |tenant| self.cost_of(tenant));
        let books = self.gpu_mut(gpu);
        books.incoming = Some(next);
        books.switch_cost = None;
        books.expected_cost = expected;
    }

    /// Ends a turn for somebody else's. What is left of it is for later, unless that would be a moment only.
    fn cut_short(&mut self, gpu: GpuId, turn: &Turn) {
        let left = turn.until.since(self.now);
        let Some(owner) = self.tenants.get(turn.tenant) else { return self.end_turn(gpu, true) };
        let comes_back = owner.is_active() || self.keeps_its_place(owner);
        let is_kept = policies::rest_is_kept(&self.settings) && comes_back;
        let is_moment = left <= Self::moment(self.turn_length(owner));
        self.end_turn(gpu, left == Span::ZERO || (is_kept && is_moment));
        let left = (is_kept && !is_moment).then_some(left);
        self.update(turn.tenant, |tenant| tenant.cut_short = left);
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
        let id = turn.tenant;
        self.count_crowd(gpu, id);
        let owner = self.tenants.get(id).expect("it was there above");
        let length = self.turn_length(owner);
        let (times, per) = self.virtual_rate(owner);
        let (from, until) = (owner.virtual_time, self.now + length);
        // Whoever comes meets one that waits since then, and not since its first turn.
        let (now, turns) = (self.now, self.gpu_of(gpu).turns);
        self.update(id, |owner| (owner.queued_at, owner.queued_behind) = (now, turns));
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
        tenant.gpu == gpu && (tenant.in_line.is_some() || self.may_ask_again(gpu, tenant))
    }

    /// Has whoever is on its way got what it asked for already, when room was made? Then only a thaw is left, and it may be about
    /// to ask for more: it gives way as an owner would.
    fn may_ask_again(&self, gpu: GpuId, tenant: &Tenant) -> bool {
        let could_run = tenant.context && !tenant.paused && tenant.is_whole();
        let is_put_off = tenant.not_before > self.now;
        let gives_way =
            || self.who_waits(gpu).is_some_and(|next| self.gives_way_at(tenant, next) <= self.now);
        could_run && !tenant.is_active() && !is_put_off && !gives_way()
    }

    /// Must the turn end although nobody may be waiting?
    fn must_stop(&self, gpu: GpuId, turn: &Turn) -> bool {
        let Some(tenant) = self.tenants.get(turn.tenant) else { return true };
        if !tenant.context || tenant.paused {
            return true;
        }
        let only_asks = self.gang_is_active(tenant) && !self.gang_wants(tenant);
        if (only_asks || tenant.critical && !self.critical_waits(gpu)) && self.is_vain(turn.tenant) {
            // It waits, or runs, without a turn from here on.
            return true;
        }
        self.cap(tenant).is_some() && self.now >= turn.until
    }

    /// Ends a turn, that of a gang on all its GPUs.
    pub(super) fn stop(&mut self, gpu: GpuId, turn: &Turn) {
        let owner = self.tenants.get(turn.tenant).filter(|owner| self.is_in_gang_together(owner));
        match owner.map(|owner| owner.job) {
            Some(gang) => self.part(gang),
            None => self.end_turn(gpu, true),
        }
    }

    /// Is the first in line latency-critical, or a gang that waits for this GPU? Then it waits for memory.
    pub(super) fn critical_waits(&self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        let gangs = books.gangs_waiting.iter().filter_map(|&job| self.member_here(job, gpu));
        let mut waiting = books::first(&books.line).into_iter().chain(gangs);
        waiting.any(|id| self.tenants.get(id).is_some_and(|tenant| tenant.critical))
    }

    pub(super) fn cap(&self, tenant: &Tenant) -> Option<Ratio> {
        tenant.compute_max.filter(|_| !tenant.critical)
    }

    /// The first in line, or one of a gang that waits for this GPU.
    pub(super) fn who_waits(&self, gpu: GpuId) -> Option<&Tenant> {
        let books = self.gpu_of(gpu);
        let gang = || books.gangs_waiting.iter().find_map(|&job| self.member_here(job, gpu));
        self.tenants.get(books::first(&books.line).or_else(gang)?)
    }

    /// May somebody else have the GPU now?
    pub(super) fn turn_is_over(&self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        let Some(turn) = books.turn else { return true };
        let Some(owner) = self.tenants.get(turn.tenant) else { return true };
        let next = self.who_waits(gpu);
        let cut_at = next.and_then(|next| self.cut_at(&turn, owner, next));
        let makes_room =
            books.moving.as_ref().is_some_and(|moving| moving.purpose.whom() == Some(turn.tenant));
        if makes_room && !(next.is_some_and(Tenant::is_whole) && cut_at == Some(turn.since)) {
            // Room is being made for it: it would be for nothing.
            return false;
        }
        if self.now >= turn.until {
            return true;
        }
        let Some(next) = next else { return false };
        if !self.gang_is_active(owner) && self.now >= self.gives_way_at(owner, next) {
            return true;
        }
        cut_at.is_some_and(|at| at <= self.now)
    }

    /// When whoever is next may cut a turn short, if it may.
    pub(super) fn cut_at(&self, turn: &Turn, owner: &Tenant, next: &Tenant) -> Option<Time> {
        let standing = self.standing(next);
        let ran = standing.queued_at.since(turn.since);
        if !policies::preempts(&self.settings, &standing, &self.standing(owner), ran) {
            return None;
        }
        // What it cost to bring it in must not have been for nothing.
        let paid = || turn.since + self.settings.moving_share.whole(self.cost_of(next));
        Some(if policies::at_once(&self.settings, &standing) { turn.since } else { paid() })
    }

    /// When an idle owner gives way to whoever is next: once being idle has cost as much as the switch.
    pub(super) fn gives_way_at(&self, owner: &Tenant, next: &Tenant) -> Time {
        if owner.gives_way { owner.idle_since } else { owner.idle_since + self.cost_of(next) }
    }

    /// A tenant that was called is on: its turn begins.
    pub(super) fn begin_turn(&mut self, gpu: GpuId, id: TenantId) {
        if !self.tenants.contains(id) {
            return;
        }
        let books = self.gpu_of(gpu);
        let cost = books.switch_cost.unwrap_or(self.costs.freeze + self.costs.thaw);
        let ahead = books.ahead_cost;
        self.learn_cost(gpu, cost, ahead);
        self.count_crowd(gpu, id);
        let tenant = self.tenants.get(id).expect("it was there above");
        let length = self.turn_length(tenant);
        let length = tenant.cut_short.map_or(length, |left| left.min(length));
        let owed = tenant.owes.min(Self::moment(length));
        let now = self.now;
        let (charged, until) = (now.before(owed), now + length.less(owed));
        let (virtual_time, critical) = (tenant.virtual_time, tenant.critical);
        let (times, per) = self.virtual_rate(tenant);
        let goal = virtual_time.saturating_add(scale(length.0, times, per));
        let books = self.gpu_mut(gpu);
        (books.switch_cost, books.ahead_cost) = (None, Span::ZERO);
        books.incoming = None;
        books.turns += 1;
        books.turn = Some(Turn { tenant: id, since: now, until, charged, owed, from: virtual_time, goal });
        if !critical {
            books.present = books.present.max(virtual_time);
        }
        if books.filler.is_some_and(|(filler, _)| filler == id) {
            books.filler = None;
        }
        self.update(id, |tenant| {
            (tenant.vain, tenant.put_off_in_vain) = (0, None);
            tenant.turns += 1;
            tenant.preferred = false;
            tenant.stays_since = None;
            tenant.owes = Span::ZERO;
            tenant.cut_short = None;
        });
        let until = self.even_turns(id, until);
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
        let turns = self.gpu_of(gpu).turns;
        self.update(turn.tenant, |tenant| {
            tenant.since = now;
            tenant.ran = ran;
            tenant.stays_since = (tenant.is_active() && !tenant.critical).then_some(now);
            if used_up {
                (tenant.queued_at, tenant.queued_behind) = (now, turns);
                tenant.virtual_time = virtual_time;
            }
        });
        if let Some(cap) = cap {
            self.postpone(turn.tenant, turn.since + cap.whole(ran + turn.owed));
        }
        let asks = |tenant: &Tenant| tenant.critical && tenant.is_whole() && !tenant.asked.is_empty();
        if used_up && self.tenants.get(turn.tenant).is_some_and(asks) {
            // It had a whole turn to get what it asks for. It goes on without one, and others have theirs.
            let later = self.later();
            self.postpone(turn.tenant, later);
        }
        self.actions.push(Action::TurnEnds { tenant: turn.tenant, ran });
    }

    pub(super) fn end_turn_of(&mut self, id: TenantId) {
        let Some(gpu) = self.tenants.get(id).map(|tenant| tenant.gpu) else { return };
        if self.gpu_of(gpu).turn.is_some_and(|turn| turn.tenant == id) {
            self.end_turn(gpu, false);
        }
    }

    /// Is a tenant of a gang that runs together?
    pub(super) fn is_in_gang_together(&self, tenant: &Tenant) -> bool {
        self.gang_of(tenant).is_some_and(|job| job.gang == Gang::Together)
    }
}
