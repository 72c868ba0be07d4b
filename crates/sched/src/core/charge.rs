//! GPU time on the books: who had how much of it, as virtual time.

use super::Core;
use crate::gpu::Turn;
use crate::policies;
use crate::units::scale;
use crate::{GpuId, Ratio, Span, TenantId};

/// The least part of the time that counts as used by one of two who run side by side.
const PAID_MIN: Ratio = Ratio::from_percent(10);

impl Core {
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
    pub(super) fn share_beside(&self, id: TenantId, other: Ratio) -> Ratio {
        // Whoever has the turn pays for it, also if nothing of it was seen: otherwise it would keep it for ever.
        let busy = self.tenants.get(id).map_or(Ratio::ONE, |tenant| tenant.busy).max(PAID_MIN);
        let together = u64::from(busy.0) + u64::from(other.0);
        Ratio(scale(u64::from(busy.0), 1_000_000, together.max(1_000_000)) as u32)
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

    /// The virtual time at which somebody starts who begins to want now: that of whoever had the least, which never goes
    /// back.
    pub(super) fn present(&mut self, gpu: GpuId, newcomer: TenantId) -> u64 {
        self.charge(gpu);
        let books = self.gpu_of(gpu);
        let owner = books.turn.map(|turn| turn.tenant);
        let others = owner
            .into_iter()
            .chain(books.line.iter().take(3).map(|&(_, id)| id))
            .filter(|&id| id != newcomer);
        // Those who are latency-critical pay with no time.
        let others = others.filter_map(|id| self.tenants.get(id)).filter(|tenant| !tenant.critical);
        let least = others.map(|tenant| tenant.virtual_time).min();
        let books = self.gpu_mut(gpu);
        books.present = books.present.max(least.unwrap_or(0));
        books.present
    }

    /// The virtual time of one whose turn is used up. A turn that ended a moment late is a whole turn, and whoever is
    /// about equal to another is equal: otherwise the order would change with every moment.
    pub(super) fn evened_out(&self, gpu: GpuId, turn: &Turn) -> u64 {
        let virtual_time = self.tenants.get(turn.tenant).map_or(0, |tenant| tenant.virtual_time);
        let little = (turn.goal - turn.from) / 64;
        let line = &self.gpu_of(gpu).line;
        let (least, most) = (virtual_time.saturating_sub(little), virtual_time.saturating_add(little));
        let equal = policies::virtual_time_between(&self.settings, line, least, most);
        equal.unwrap_or(if virtual_time.abs_diff(turn.goal) <= little { turn.goal } else { virtual_time })
    }
}
