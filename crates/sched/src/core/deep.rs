//! Jobs that are paused for long: all of their memory goes out although nobody needs the room, so that somebody else can put away
//! what is left of them.

use super::Core;
use crate::gpu::For;
use crate::homes::Stage;
use crate::tenant::{Grip, Held, Phase, Spot, Tenant};
use crate::{Bytes, GpuId, JobId, Scope, TenantId, Time};

/// Why what is left of a tenant on the GPU cannot be put away now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// It has no context there.
    NoContext,
    /// So much stays on the device, where the mover has it too: put away and brought back by others, it might be in another place,
    /// and the mover would not know.
    Shared(Bytes),
    /// All it has stays on the device, as its job's terms say.
    Reserved,
    /// It is not paused, or not frozen yet.
    NotOff,
    /// Its memory is on its way.
    Moving,
    /// It may make so much memory, and has not.
    Granted(Bytes),
    /// So much could not go out, which is tried again.
    Stuck(Bytes),
    /// So much is still to go out: others move, or the arena has no place for it.
    InLine(Bytes),
    /// Whether all of its memory can move is not known yet.
    Untold,
}

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
            if !tenant.is_off() || self.a_fellow_may_run(tenant) {
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

    /// What keeps somebody from putting away what is left of a tenant on the GPU. None once it is
    /// paused and off the GPU, all of its memory that can move is away, and nothing of it is under way.
    pub fn hinders_deep(&self, id: TenantId) -> Option<Hindrance> {
        let Some(tenant) = self.tenants.get(id) else { return Some(Hindrance::NoContext) };
        let here = || tenant.handles.values().filter(|held| held.spot == Spot::Device);
        let sum = |held: &mut dyn Iterator<Item = &Held>| held.map(|held| held.bytes).sum::<Bytes>();
        let shared = sum(&mut here().filter(|held| held.adopted && held.pinned));
        let movable = sum(&mut here().filter(|held| held.can_go(Time::MAX)));
        let stuck = here().any(|held| held.can_go(Time::MAX) && !held.can_go(self.now));
        let off = tenant.paused && tenant.grip == Grip::Frozen(Scope::All);
        match () {
            () if tenant.phase != Phase::Here || !tenant.context => Some(Hindrance::NoContext),
            () if shared > Bytes::ZERO => Some(Hindrance::Shared(shared)),
            () if tenant.reserved && movable > Bytes::ZERO => Some(Hindrance::Reserved),
            () if !off => Some(Hindrance::NotOff),
            () if tenant.moving || tenant.is_unsettled() => Some(Hindrance::Moving),
            () if tenant.homes.stage != Stage::Rest => Some(Hindrance::Moving),
            () if !tenant.granted.is_empty() => Some(Hindrance::Granted(tenant.granted_sum)),
            () if stuck => Some(Hindrance::Stuck(movable)),
            () if movable > Bytes::ZERO => Some(Hindrance::InLine(movable)),
            // Of what its tenant has just made, nobody can say yet whether it moves.
            () if here().any(|held| !held.adopted && !held.pinned) => Some(Hindrance::Untold),
            () => None,
        }
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
