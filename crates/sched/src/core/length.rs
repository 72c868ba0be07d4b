//! How long turns are: what switching costs, and what that makes worthwhile.

use super::Core;
use super::gaps::dear;
use crate::gpu::Turn;
use crate::job::Gang;
use crate::policies;
use crate::tenant::Tenant;
use crate::units::scale;
use crate::{Bytes, GpuId, Span, Time};

/// A moment is one part of so many of a turn.
const MOMENT_PART: u64 = 4;

impl Core {
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

    pub(super) fn turn_length_on(&self, gpu: GpuId, tenant: &Tenant) -> Span {
        let settings = &self.settings;
        let books = self.gpu_of(gpu);
        let fits = self.fits(gpu);
        let grip = self.costs.freeze + self.costs.thaw;
        let cost = if fits { grip } else { books.switching.known.max(grip) };
        // What is moved ahead counts too: otherwise ever more would be moved in ever shorter turns.
        let moving = if fits { grip } else { books.moving_in_all.known.max(grip) };
        let by_share = settings.moving_share.whole(dear(moving)).less(cost);
        if policies::to_the_end(settings) {
            return Span::MAX;
        }
        let beside_critical = books.critical_mode && !tenant.critical;
        if beside_critical && fits {
            return settings.lc_turn;
        }
        let shortest = if beside_critical { settings.lc_turn } else { settings.turn_min };
        by_share.min(self.length_by_gap(gpu, tenant, cost)).clamp(shortest, settings.turn_max.max(shortest))
    }

    /// Within a turn of this length, a moment.
    pub(super) fn moment(length: Span) -> Span {
        Span(length.0 / MOMENT_PART)
    }

    /// What a tenant had of the GPU after the end of its turn, if it was frozen by something that began then. For more than
    /// a moment nobody pays: it could not be frozen.
    pub(super) fn stayed(&self, tenant: &Tenant, until: Time) -> Span {
        let stayed = tenant.stays_since.map_or(Span::ZERO, |since| until.since(since));
        if stayed <= Self::moment(self.turn_length(tenant)) { stayed } else { Span::ZERO }
    }

    /// Whoever had the turn before is off the GPU: only from here on the one who has it now can use it.
    pub(super) fn begin_in_earnest(&mut self, gpu: GpuId) {
        let Some(turn) = self.gpu_of(gpu).turn else { return };
        let Some(owner) = self.tenants.get(turn.tenant) else { return };
        let waited = self.now.since(turn.since);
        let is_alone = !owner.critical && !self.is_in_gang_together(owner);
        if !is_alone || waited > Self::moment(turn.until.since(turn.since)) {
            return;
        }
        let charged = turn.charged.max(self.now.before(turn.owed));
        let until = turn.until + waited;
        self.gpu_mut(gpu).turn = Some(Turn { since: self.now, charged, until, ..turn });
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
        self.learn_cost(gpu, cost, Span::ZERO);
        self.charge(gpu);
        let Some(turn) = self.gpu_of(gpu).turn else { return };
        let Some(owner) = self.tenants.get(turn.tenant) else { return };
        let length = self.turn_length(owner);
        let (times, per) = self.virtual_rate(owner);
        let goal = owner.virtual_time.saturating_add(scale(length.0, times, per));
        // What it took to make room is part of it for all who wait, as a switch would be.
        let known = self.gpu_of(gpu).switching.known;
        let by_gap = turn.since + self.length_by_gap(gpu, owner, known) + known;
        let until = (self.now + length).min(by_gap.max(self.now + known)).max(turn.until);
        self.gpu_mut(gpu).turn = Some(Turn { until, goal, ..turn });
    }

    /// Learns what a switch cost, and what was moved ahead of it.
    pub(super) fn learn_cost(&mut self, gpu: GpuId, cost: Span, ahead: Span) {
        let books = self.gpu_mut(gpu);
        let expected = books.expected_cost;
        books.switching.learn(cost, expected);
        books.moving_in_all.learn(cost + ahead, expected + ahead);
    }
}
