//! How things are, for people.

use super::Core;
use crate::gpu::Turn;
use crate::policies;
use crate::tenant::{Phase, Tenant};
use crate::units::scale;
use crate::{Bytes, Described, GpuId, GpuView, PolicyKind, Ratio, Span, State, TenantId, Time};

impl Core {
    /// How a tenant is, for people.
    pub fn describe(&self, id: TenantId, now: Time) -> Option<Described> {
        let tenant = self.tenants.get(id)?;
        let books = self.gpus.get(&tenant.gpu)?;
        let running = tenant.may_run() && tenant.is_whole();
        let state = match () {
            () if tenant.phase == Phase::Queued => State::Queued,
            () if tenant.moving => State::Moving,
            () if tenant.paused => State::Paused,
            () if !tenant.context => State::Joined,
            () if running => State::Running,
            () if tenant.away > Bytes::ZERO || tenant.is_unsettled() => State::Away,
            () => State::Frozen,
        };
        let has_turn = books.turn.is_some_and(|turn| turn.tenant == id);
        let waits = tenant.phase != Phase::Here || (tenant.is_active() && !has_turn && !running);
        Some(Described {
            state,
            resident: tenant.resident,
            away: tenant.away,
            turns: tenant.turns,
            waiting: if waits { now.since(tenant.since) } else { Span::ZERO },
            forecast: self.forecast(id, now),
            hints: tenant.hints.counts(),
        })
    }

    /// How long until this tenant runs next, as far as can be said now.
    ///
    /// Whoever has the turn uses it up; those before it in line have theirs first, as many as it takes until they are
    /// behind it. What they have on the device they keep until then, since whoever was on last makes room. Where fillers
    /// run beside owners, two get on at a time.
    pub fn forecast(&self, id: TenantId, now: Time) -> Option<Span> {
        let tenant = self.tenants.get(id)?;
        let books = self.gpus.get(&tenant.gpu)?;
        if policies::to_the_end(&self.settings) {
            // Nobody knows when whoever runs is done.
            return None;
        }
        let place = tenant.in_line?;
        let own = self.cost_of(tenant);
        if books.incoming == Some(id) {
            return Some(own);
        }
        let length = self.turn_length(tenant);
        let rest = books.turn.map_or(Span::ZERO, |turn| self.rest_of(&turn, now));
        let ahead = books.line.range(..(place, id)).map(|&(_, other)| other);
        let main = books.incoming.or(books.turn.map(|turn| turn.tenant));
        let has_gaps = |main: &Tenant| main.busy < self.settings.filler_below && !books.critical_mode;
        if main.and_then(|main| self.tenants.get(main)).is_some_and(has_gaps) {
            // One of those ahead is the filler, now or in a moment; with none ahead it is this one.
            let Some(others) = (ahead.filter(|&other| Some(other) != main).count() as u64).checked_sub(1)
            else {
                return Some(own);
            };
            let rest = if books.turn.is_some() { rest } else { length };
            return Some(rest + length.times(others / 2) + own);
        }
        let mut wait = rest + own;
        for other in ahead.filter_map(|other| self.tenants.get(other)) {
            let turns = self.turns_before(other, other.virtual_time, tenant, length);
            wait += (self.cost_of(other) + usual_turn(other, length)).times(turns.max(1));
        }
        if let Some(turn) = books.turn
            && let Some(owner) = self.tenants.get(turn.tenant)
        {
            let turns = self.turns_before(owner, turn.goal, tenant, length);
            wait += (self.costs.freeze + self.costs.thaw + usual_turn(owner, length)).times(turns);
        }
        Some(wait)
    }

    /// How much longer a turn will last: as long as it may, or as its owner's usually do.
    fn rest_of(&self, turn: &Turn, now: Time) -> Span {
        let rest = Span(turn.until.0.saturating_sub(now.0).min(self.settings.turn_max.0));
        let usual = self.tenants.get(turn.tenant).map_or(Ratio::ONE, |owner| owner.used);
        rest.min(usual.of(turn.until.since(turn.since)).less(now.since(turn.since)))
    }

    /// How many turns one has before another, if shares decide and it begins at this virtual time.
    fn turns_before(&self, one: &Tenant, from: u64, other: &Tenant, length: Span) -> u64 {
        if self.settings.policy != PolicyKind::Fair || one.critical {
            return 0;
        }
        let (times, per) = self.virtual_rate(one);
        let each = scale(length.0, times, per).max(1);
        other.virtual_time.saturating_sub(from).div_ceil(each)
    }

    /// How a GPU is, for people.
    pub fn gpu(&self, gpu: GpuId) -> Option<GpuView> {
        let books = self.gpus.get(&gpu)?;
        Some(GpuView {
            capacity: books.spec.capacity,
            used: books.held + books.residues + books.departed(),
            unmanaged: books.unmanaged,
            running: books.turn.map(|turn| turn.tenant),
            critical: books.critical_mode,
        })
    }

    /// Arena bytes in use and in all.
    pub fn arena(&self) -> (Bytes, Bytes) {
        (self.arena_needed + self.copies_sum, self.arena)
    }
}

/// How long the next turn of a tenant will be.
fn usual_turn(tenant: &Tenant, length: Span) -> Span {
    tenant.used.of(length)
}
