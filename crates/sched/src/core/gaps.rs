//! Gaps: nobody waits longer between two turns than it may, as far as moving leaves the choice.
//!
//! Where everybody comes round in the same order, it is enough that turns are short. Three things disturb that.
//!
//! - Turns of different lengths, while costs are being learnt, and shares that change when somebody comes or goes, leave
//!   virtual times behind by which some would have another turn before others had theirs. So whoever would wait for too
//!   long, and in the round after somebody left whoever has waited longest, is next, if it has had more than the others by less
//!   than most of a turn; by less than a whole one, if all others have had a turn since. And nobody goes on for another turn
//!   because it has had less by less than most of one. What somebody had more it has less later: shares hold. In all other
//!   cases the order by what they have had stands: memory makes room by it.
//! - When somebody leaves, turns may be longer. But those who wait have waited for more turns than there will be. So turns
//!   get longer a round later.
//! - What a switch costs is known only roughly. So it is taken to cost a little more.

use super::{Core, books};
use crate::gpu::Crowd;
use crate::tenant::Tenant;
use crate::units::scale;
use crate::{GpuId, PolicyKind, Ratio, Span, TenantId, Time};

/// Of those who wait longest, so many are looked at.
const WAITING_LOOKED_AT_MAX: usize = 8;

/// Less than this part of a turn is little.
const LITTLE: Ratio = Ratio::from_percent(75);

impl Core {
    /// A turn of this length, after a switch that costs so much, leaves nobody with too long a gap.
    pub(super) fn length_by_gap(&self, gpu: GpuId, tenant: &Tenant, cost: Span) -> Span {
        let crowd = Some(self.gpu_of(gpu).crowd).filter(|crowd| crowd.until > self.now);
        let others = self.others_in_line(gpu, tenant).max(crowd.map_or(1, |crowd| crowd.others));
        let dear = dear(cost);
        Span(self.settings.gap_max.less(dear).0 / others).less(dear).max(cost)
    }

    /// How many wait while a tenant has its turn.
    fn others_in_line(&self, gpu: GpuId, tenant: &Tenant) -> u64 {
        let is_in_line = gpu == tenant.gpu && tenant.in_line.is_some();
        (self.gpu_of(gpu).line.len() - usize::from(is_in_line)).max(1) as u64
    }

    /// A turn begins: remembers how many wait, if they are more than of late.
    pub(super) fn count_crowd(&mut self, gpu: GpuId, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let others = self.others_in_line(gpu, tenant);
        let (now, gap_max) = (self.now, self.settings.gap_max);
        let crowd = &mut self.gpu_mut(gpu).crowd;
        if others >= crowd.others || crowd.until <= now {
            *crowd = Crowd { others, until: now + gap_max };
        }
    }

    /// The turn is over: whoever has waited longest is next, if its share allows.
    pub(super) fn prefer(&mut self, gpu: GpuId) {
        let books = self.gpu_of(gpu);
        if self.settings.policy != PolicyKind::Fair || books.incoming.is_some() || books.line.is_empty() {
            return;
        }
        if !self.turn_is_over(gpu) {
            return;
        }
        self.charge(gpu);
        let next = self.whom_to_prefer(gpu, self.now);
        if let Some(id) = next {
            self.update(id, |tenant| tenant.preferred = true);
        }
    }

    /// Who is next although others have had less, if anybody, should the turn be over then.
    pub(super) fn whom_to_prefer(&self, gpu: GpuId, at: Time) -> Option<TenantId> {
        let books = self.gpu_of(gpu);
        let first_id = books::first(&books.line)?;
        let first = self.tenants.get(first_id)?;
        if first.critical || first.preferred {
            return None;
        }
        // Whoever would have a turn instead: the first in line, or the owner, who may go on.
        let owner = books.turn.and_then(|turn| Some((turn, self.tenants.get(turn.tenant)?)));
        let may_go_on =
            |owner: &Tenant| owner.is_active() && !owner.critical && self.gang_of(owner).is_none();
        let owner = owner.filter(|(_, owner)| may_go_on(owner)).map(|(turn, owner)| {
            let (times, per) = self.virtual_rate(owner);
            let has_had = owner.virtual_time.saturating_add(scale(at.since(turn.charged).0, times, per));
            (owner, has_had)
        });
        let owner = owner.filter(|&(_, has_had)| has_had < first.virtual_time);
        let (rival, rival_has_had) = owner.unwrap_or((first, first.virtual_time));
        let length = self.turn_length(rival);
        let cost = dear(books.switching.known);
        let (times, per) = self.virtual_rate(rival);
        let is_ahead_by_less = |tenant: &Tenant, than: Span| {
            tenant.virtual_time.saturating_sub(rival_has_had) < scale(than.0, times, per)
        };
        let is_next = |tenant: &Tenant| {
            let is_late = at.since(tenant.queued_at) + cost + length + cost > self.settings.gap_max;
            let round_is_over = books.turns - tenant.queued_behind >= self.others_in_line(gpu, tenant);
            // Turns may have been longer before.
            let most =
                if round_is_over { tenant.ran.min(length + length).max(length) } else { LITTLE.of(length) };
            (is_late || at < books.parted_until) && is_ahead_by_less(tenant, most)
        };
        let mut waiting = books.waits.iter().take(WAITING_LOOKED_AT_MAX).map(|&(_, id)| id);
        let longest = waiting.find(|&id| self.tenants.get(id).is_some_and(is_next) && !self.is_vain(id));
        // The first in line is next anyway, unless the owner would go on.
        let owner_is_before = owner.is_some();
        let instead = || (owner_is_before && is_ahead_by_less(first, LITTLE.of(length))).then_some(first_id);
        longest.filter(|&id| id != first_id || owner_is_before).or_else(instead)
    }
}

/// What is known of a cost may lag behind by an eighth.
pub(super) fn dear(cost: Span) -> Span {
    cost + Span(cost.0 / 8)
}
