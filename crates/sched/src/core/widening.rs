//! Tenants that are frozen as to what they compute, and whose copies go off too: one at a time, since all that is switched on a
//! GPU stands in one line, and a request may come any moment.
//!
//! Whoever makes way for others, or is paused, goes first. The rest are those who wait for their next turn: they would go on
//! copying beside somebody latency-critical, and beside whoever has the turn. They are in no hurry, so nobody waits
//! for it: what cannot be done at once, because a report of channels is late, is tried again later, and keeps nobody from its
//! turn, nor from making way once it has to.

use super::Core;
use crate::tenant::{Grip, Hurry, Tenant};
use crate::{GpuId, Scope, Slice, TenantId};

/// A freeze of the rest takes up to so many times as long as usual ones.
const TIMES_MAX: u64 = 2;

impl Core {
    /// Has one of those who are frozen in part frozen wholly, if that is in nobody's way now.
    pub(super) fn widen(&mut self, gpu: GpuId, target: &[(TenantId, Slice)]) {
        if let Some((tenant, hurry)) = self.next_to_widen(gpu, target) {
            self.take_off(tenant, Scope::All, Some(hurry));
        }
    }

    /// Is a tenant frozen wholly only if that can be done at once? If not, it is tried again later.
    pub fn is_widened_if_ready(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| matches!(tenant.grip, Grip::Widening(_, Hurry::None)))
    }

    fn next_to_widen(&self, gpu: GpuId, target: &[(TenantId, Slice)]) -> Option<(TenantId, Hurry)> {
        let books = self.gpu_of(gpu);
        if !books.widening.is_empty() || self.departs_soon(gpu) {
            return None;
        }
        let is_to_run = |id: TenantId| target.iter().any(|&(target, _)| target == id);
        let off = books.partly.iter().filter(|&&id| !is_to_run(id));
        let known = off.filter_map(|&id| Some((id, self.tenants.get(id)?)));
        let mut due = known.filter(|(_, tenant)| tenant.grip_retry <= self.now);
        let must = |&(id, tenant): &(TenantId, &Tenant)| tenant.paused || self.makes_way(id, tenant);
        let waits = |&(id, tenant): &(TenantId, &Tenant)| {
            tenant.rest_retry <= self.now && self.waits_for_a_turn(gpu, id, tenant)
        };
        if let Some((id, _)) = due.clone().find(must) {
            return Some((id, Hurry::Needed));
        }
        due.find(waits).filter(|_| self.is_calm(gpu)).map(|(id, _)| (id, Hurry::None))
    }

    /// Has best-effort work to go for a hint before another freeze would be over?
    fn departs_soon(&self, gpu: GpuId) -> bool {
        let by = self.now + self.costs.freeze.times(TIMES_MAX);
        let mut holds = self.gpu_of(gpu).holds.iter();
        self.someone_runs(gpu) && holds.any(|hold| self.now < hold.from && hold.from <= by)
    }

    /// Is nobody on the way to the GPU or off it, nor off it for a moment only?
    fn is_calm(&self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        let mut running = books.running.iter().filter_map(|&id| self.tenants.get(id));
        books.held_since.is_none()
            && !self.holds_back(gpu)
            && running.all(|tenant| tenant.grip == Grip::Thawed && tenant.slicing.is_none())
    }

    /// Whoever is latency-critical, and whoever has the turn or is about to, is off for a moment only.
    fn waits_for_a_turn(&self, gpu: GpuId, id: TenantId, tenant: &Tenant) -> bool {
        let books = self.gpu_of(gpu);
        !tenant.critical && books.incoming != Some(id) && books.turn.is_none_or(|turn| turn.tenant != id)
    }
}
