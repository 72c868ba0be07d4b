//! Where a tenant stands among those who make room: see [`Way`].

use super::Core;
use crate::policies::Rank;
use crate::tenant::Tenant;
use crate::way::{Place, Way};
use crate::{Bytes, GpuId, Span, Time};

impl Core {
    /// A tenant's place among those who make room, if it has something that could go. It follows from the tenant alone and
    /// from what time it is.
    pub(super) fn place_in_way(&self, tenant: &Tenant, rank: Rank) -> Option<Place> {
        if tenant.could_go() == Bytes::ZERO {
            return None;
        }
        let now = self.now;
        let ahead = |at: Time| (at > now).then_some(at);
        let (way, until) = match () {
            () if tenant.critical => (Way::Critical(rank), None),
            () if tenant.paused => (Way::Paused(rank), None),
            () if !tenant.is_active() => match tenant.pauses.keep_until(now) {
                Some(until) => (Way::InLine(rank), Some(until)),
                None => (Way::Idle(rank), None),
            },
            () => match ahead(tenant.near_from) {
                Some(until) => (Way::KeptOut(tenant.not_before), Some(until)),
                None => (Way::InLine(rank), None),
            },
        };
        Some(Place { way, until })
    }

    /// Time has passed: whoever has another place among those who make room takes it.
    pub(super) fn settle_way(&mut self, gpu: GpuId) {
        while let Some(id) = self.gpu_of(gpu).way.past(self.now) {
            self.relist(id);
        }
    }

    /// How long it would take to move all of a tenant out and back.
    pub(super) fn there_and_back(&self, tenant: &Tenant) -> Span {
        let (all, costs) = (tenant.whole_bytes(), &self.costs);
        let moving = all.at(costs.out_per_second) + all.at(costs.in_per_second);
        costs.freeze + costs.thaw + costs.per_move + moving
    }

    /// One who gets no turn before then comes no later than those in line, from when on? When there is no time left for each
    /// of them to have one before.
    pub(super) fn near_from(&self, tenant: &Tenant, not_before: Time) -> Time {
        let line = self.gpu_of(tenant.gpu).line.len() - usize::from(tenant.in_line.is_some());
        not_before.before(self.turn_length(tenant).times(line as u64))
    }
}
