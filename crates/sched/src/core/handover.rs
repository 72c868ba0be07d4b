//! From one best-effort tenant to the next beside somebody latency-critical, with as little time lost in between as can be.
//!
//! There the next is put on only when the last is off: all that the two take is lost to both. So only what computes is
//! frozen where nobody has to move, which takes half as long; and a turn that is about to end does so when its owner
//! goes off for a hint anyway: then it costs nothing. Where nobody hints it ends when a request is over: one that came
//! while turns change would wait for that.

use super::Core;
use crate::gpu::Turn;
use crate::tenant::Tenant;
use crate::{GpuId, Scope, TenantId};

impl Core {
    /// How much of a tenant is frozen that has to go off.
    pub(super) fn scope_of(&self, gpu: GpuId, id: TenantId, tenant: &Tenant) -> Scope {
        let books = self.gpu_of(gpu);
        // Whoever makes way for others may have to move.
        if tenant.paused || self.makes_way(id, tenant) {
            return Scope::All;
        }
        // Held back for a moment, its copies may go on.
        let briefly =
            tenant.critical || self.holds_back(gpu) && books.turn.is_some_and(|turn| turn.tenant == id);
        let changes_only = books.critical_mode && self.fits(gpu) && self.gang_of(tenant).is_none();
        if briefly || changes_only { Scope::Compute } else { Scope::All }
    }

    /// Is there room on a GPU for all that its tenants have, and ask for?
    pub(super) fn fits(&self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        books.everything() + books.asked <= books.usable(self.settings.headroom)
    }

    /// Best-effort work goes off for a hint, or the last request is over: a turn that would be over in a moment is over
    /// now, if whoever is next needs nothing moved.
    pub(super) fn end_if_about_to(&mut self, gpu: GpuId) {
        let Some(turn) = self.gpu_of(gpu).turn else { return };
        let Some(owner) = self.tenants.get(turn.tenant) else { return };
        let next_is_here = self.who_waits(gpu).is_some_and(|next| next.is_whole() && !next.critical);
        let is_alone = !owner.critical && self.gang_of(owner).is_none();
        let left = turn.until.since(self.now);
        // Where somebody may have to move, all of the owner would have to go off, too late for the hint.
        if next_is_here && is_alone && self.fits(gpu) && left <= Self::moment(self.turn_length(owner)) {
            let until = turn.until.min(self.now);
            self.gpu_mut(gpu).turn = Some(Turn { until, ..turn });
        }
    }
}
