//! Jobs that are paused for long: all of their memory goes out although nobody needs the room, so that somebody else can put away
//! what is left of them.

use super::Core;
use crate::gpu::For;
use crate::tenant::{Grip, Phase, Tenant};
use crate::{Bytes, GpuId, JobId, Scope, TenantId};

impl Core {
    /// All memory of a job goes out whenever it is paused, or not any more.
    pub(super) fn set_deep(&mut self, id: JobId, deep: bool) {
        let Some(job) = self.jobs.get(id) else { return };
        let places = job.members.iter().filter_map(|&id| self.tenants.get(id)).map(|tenant| tenant.gpu);
        self.concerned.extend(places);
        match deep {
            true => self.deep.insert(id),
            false => self.deep.remove(&id),
        };
    }

    /// Has something of such a job go out, if nothing else is to be moved.
    pub(super) fn empty_the_deep(&mut self, gpu: GpuId) -> bool {
        let deep = self.deep.iter().filter_map(|&job| self.jobs.get(job)).filter(|job| job.paused);
        let members = deep.flat_map(|job| job.members.iter().copied());
        let here = |id: &TenantId| self.tenants.get(*id).is_some_and(|tenant| is_here(tenant, gpu));
        let full: Vec<TenantId> = members.filter(here).filter(|&id| !self.going_of(id).is_empty()).collect();
        let mut some_leave = false;
        for id in full {
            let Some(tenant) = self.tenants.get(id) else { continue };
            if tenant.grip != Grip::Frozen(Scope::All) || self.a_fellow_may_run(tenant) {
                self.gpu_mut(gpu).leaving.insert(id);
                some_leave = true;
                continue;
            }
            let out = self.going_of(id);
            // Where the arena has no place for it, it stays: nobody ends for that. Another one may have less.
            if self.begin_move(gpu, out, Vec::new(), For::Turn(None)) {
                return true;
            }
        }
        some_leave
    }

    /// Is a tenant of a paused job off the GPU, with all of its memory that can move away, and nothing of it under way?
    pub fn is_emptied(&self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return false };
        let settled = !tenant.moving && !tenant.is_unsettled() && tenant.granted.is_empty();
        let off = tenant.grip == Grip::Frozen(Scope::All);
        // Of what its tenant has just made, nobody can say yet whether it moves.
        let told = tenant.handles.values().all(|held| !held.can_go(crate::Time::MAX));
        tenant.paused && is_here(tenant, tenant.gpu) && settled && off && told
    }

    /// Does all that is on a GPU fit, with nothing on its way?
    pub fn has_room(&self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        books.moving.is_none() && books.short_of(Bytes::ZERO, self.settings.headroom) == Bytes::ZERO
    }
}

fn is_here(tenant: &Tenant, gpu: GpuId) -> bool {
    tenant.gpu == gpu
        && tenant.phase == Phase::Here
        && tenant.context
        && !tenant.is_unsettled()
        && !tenant.moving
}
