//! Memory of tenants that are larger than their GPU changes its home: what changes comes to the device, for what does not
//! (`crate::homes` says which).
//!
//! First the tenant makes memory of the host's for what goes there, while it runs: that takes long. Then, as soon as nothing else
//! is to be moved, it is frozen, and the handles change places: each by itself, with its bytes in the one home or in
//! the other. What comes into room that is free needs nothing made before. One tenant of a GPU does so at a time; none beside
//! somebody latency-critical, of a gang, or of a job whose memory is to stay on the device.

use super::{Core, OpKind};
use crate::gpu::{For, Moving};
use crate::homes::{Sighting, Stage, Swap};
use crate::tenant::{Grip, Held, Phase, Spot, Tenant};
use crate::{Action, Bytes, GpuId, HandleId, OpId, Outcome, Owned, Scope, Span, TenantId, Time};
use std::collections::BTreeMap;

impl Core {
    /// Somebody has looked at which memory of a tenant changes.
    pub(super) fn take_looks(&mut self, id: TenantId, seen: &[Sighting]) {
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.phase == Phase::Here) else {
            return;
        };
        let (handles, hosted) = (&tenant.handles, &tenant.hosted);
        let is_there = |handle: HandleId| handles.contains_key(&handle) || hosted.has(handle);
        for sighting in seen.iter().filter(|sighting| is_there(sighting.handle)) {
            tenant.homes.see(sighting);
        }
        tenant.homes.retain(is_there);
        if tenant.homes.has_lapsed(self.now) {
            self.drop_prepared(id);
        } else {
            self.plan_homes(id);
        }
    }

    fn plan_homes(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let (gpu, books) = (tenant.gpu, self.gpu_of(tenant.gpu));
        let may = tenant.homes.stage == Stage::Rest && tenant.context && !tenant.gang && !tenant.reserved;
        if !may || books.homing.is_some() || books.critical_mode || !tenant.is_whole() {
            return;
        }
        let movable = tenant.handles.iter().filter(|(_, held)| held.can_go(self.now));
        let device: BTreeMap<HandleId, Bytes> = movable.map(|(&handle, held)| (handle, held.bytes)).collect();
        let (room, free) = (self.left_on_host(tenant), self.free_for_homes(tenant));
        let plan = |free| tenant.homes.plan(self.now, &device, tenant.hosted.handles(), room, free);
        let swap =
            Some(plan(free)).filter(|swap| self.finds_room(id, swap)).unwrap_or_else(|| plan(Bytes::ZERO));
        if swap.up.is_empty() {
            return;
        }
        self.gpu_mut(gpu).homing = Some(id);
        if swap.down.is_empty() {
            self.set_stage(id, Stage::Prepared(swap, self.now));
            self.concerned.insert(gpu);
            return;
        }
        self.change_hosted(id, |hosted| hosted.reserve(swap.down_sum()));
        let deadline = self.now + self.settings.deadlines.movement;
        let op = self.begin(OpKind::Prepare(id), deadline);
        let handles = names(id, &swap.down);
        self.set_stage(id, Stage::Preparing(swap));
        self.actions.push(Action::Prepare { op, tenant: id, handles });
    }

    /// What of the device a tenant may have more of, with nobody having to move for it, now or later.
    fn free_for_homes(&self, tenant: &Tenant) -> Bytes {
        let books = self.gpu_of(tenant.gpu);
        let nobodys = books.room(self.settings.headroom).less(books.away + books.asked);
        self.left_for(tenant).min(nobodys)
    }

    /// Is there room for what comes, beside what goes?
    fn finds_room(&self, id: TenantId, swap: &Swap) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return false };
        let up = swap.up_sum();
        !swap.down.is_empty()
            || (up <= self.free_for_homes(tenant) && self.not_now(tenant.gpu, id, up).is_none())
    }

    /// A tenant has made memory for what changes its home, or cannot.
    pub(super) fn prepared(&mut self, id: TenantId, good: bool) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let gpu = tenant.gpu;
        let Stage::Preparing(swap) = tenant.homes.stage.clone() else { return };
        self.concerned.insert(gpu);
        if good {
            self.set_stage(id, Stage::Prepared(swap, self.now));
        } else {
            self.end_homing(id, &swap);
        }
    }

    /// Has the handles change places that are prepared for it, or sees to it that their tenant goes off. False if there is
    /// nothing to do.
    pub(super) fn change_homes(&mut self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        let Some(id) = books.homing else { return false };
        let Some(tenant) = self.tenants.get(id) else { return false };
        let Stage::Prepared(swap, _) = &tenant.homes.stage else { return false };
        let is_off = books.critical_mode || tenant.gang || !self.finds_room(id, swap);
        if is_off || tenant.homes.has_lapsed(self.now) {
            self.drop_prepared(id);
            return false;
        }
        // One whose memory is out for others has it back with its next turn.
        if !tenant.is_whole() || tenant.is_unsettled() || !tenant.context {
            return false;
        }
        if tenant.grip != Grip::Frozen(Scope::All) {
            self.gpu_mut(gpu).leaving.insert(id);
            return true;
        }
        let swap = swap.clone();
        let took = swap.down_sum().at(self.costs.out_per_second) + swap.up_sum().at(self.costs.in_per_second);
        let (down, up) = (names(id, &swap.down), names(id, &swap.up));
        // What comes in the place of something takes no more than that had.
        let alone = if swap.down.is_empty() { &swap.up[..] } else { &[] };
        let into: Vec<(Owned, Bytes)> =
            alone.iter().map(|&(handle, bytes)| (super::owned(id, handle), bytes)).collect();
        let landing = into.iter().map(|&(_, bytes)| bytes).sum();
        let op = self.begin_rehoming(id, swap, took);
        self.update(id, |tenant| tenant.moving = true);
        // Nothing else moves meanwhile.
        self.gpu_mut(gpu).moving = Some(Moving {
            op,
            out: Vec::new(),
            into,
            landing,
            to_arena: Bytes::ZERO,
            purpose: For::Turn(None),
            bereft: false,
        });
        self.actions.push(Action::Rehome { op, tenant: id, down, up });
        true
    }

    /// What was prepared is not used. The same action says so, with nothing in it.
    fn drop_prepared(&mut self, id: TenantId) {
        let Some(Stage::Prepared(swap, _)) = self.tenants.get(id).map(|tenant| tenant.homes.stage.clone())
        else {
            return;
        };
        let op = self.begin_rehoming(id, swap, Span::ZERO);
        self.actions.push(Action::Rehome { op, tenant: id, down: Vec::new(), up: Vec::new() });
    }

    fn begin_rehoming(&mut self, id: TenantId, swap: Swap, took: Span) -> OpId {
        let deadline = self.now + self.settings.deadlines.movement + took.times(4);
        let gpu = self.tenants.get(id).map_or(GpuId(0), |tenant| tenant.gpu);
        let op = self.begin(OpKind::Rehome(id, gpu), deadline);
        self.set_stage(id, Stage::Changing(swap));
        op
    }

    /// Handles have changed places, as far as it went.
    pub(super) fn rehomed(&mut self, id: TenantId, op: OpId, outcome: Outcome) {
        let has_moved = self.end_rehoming_move(op);
        let Some(tenant) = self.tenants.get(id) else { return };
        let Stage::Changing(swap) = tenant.homes.stage.clone() else { return };
        if has_moved {
            self.update(id, |tenant| tenant.moving = false);
        }
        self.end_homing(id, &swap);
        let Outcome::Rehomed { down, up, unsettled, .. } = outcome else { return };
        let alone = swap.down.is_empty();
        for (handle, bytes) in swap.down {
            let owned = super::owned(id, handle);
            if down.contains(&owned) {
                self.put_on_host(owned);
            } else if unsettled.contains(&owned) && self.has_handle(owned) {
                self.put(owned, Spot::Unsettled);
                self.doubt_home(owned, bytes);
            }
        }
        for (handle, bytes) in swap.up {
            let owned = super::owned(id, handle);
            if up.contains(&owned) {
                self.put_on_device(owned, bytes, Spot::Device);
            } else if unsettled.contains(&owned) && self.is_on_host(owned) {
                self.put_on_device(owned, bytes, Spot::Unsettled);
                self.doubt_home(owned, bytes);
            } else if alone && self.is_on_host(owned) {
                self.has_stayed(owned);
            }
        }
    }

    /// Nobody knows what became of a change of places: whoever executes it gives it up long before. What is where, is told when
    /// the tenant answers; until then nothing of it is believed to have changed.
    pub(super) fn rehoming_lost(&mut self, id: TenantId, op: OpId) {
        self.rehomed(id, op, Outcome::Failed);
    }

    /// False if it was only to drop what was prepared.
    fn end_rehoming_move(&mut self, op: OpId) -> bool {
        let moving = self
            .gpus
            .iter_mut()
            .find_map(|(gpu, books)| books.moving.take_if(|moving| moving.op == op).map(|_| gpu));
        self.concerned.extend(moving);
        moving.is_some()
    }

    /// A tenant that did not answer has: this handle has this home.
    pub(super) fn home_is(&mut self, owned: Owned, on_host: bool) {
        let Some(tenant) = self.tenants.get_mut(owned.tenant) else { return };
        let Some(bytes) = tenant.homes.unsettled.remove(&owned.handle) else { return };
        self.change_hosted(owned.tenant, |hosted| hosted.unreserve(bytes));
        match on_host {
            true => self.put_on_host(owned),
            false => self.put(owned, Spot::Device),
        }
    }

    /// A handle whose home nobody knows is gone.
    pub(super) fn forget_home(&mut self, owned: Owned) {
        let Some(tenant) = self.tenants.get_mut(owned.tenant) else { return };
        if let Some(bytes) = tenant.homes.unsettled.remove(&owned.handle) {
            self.change_hosted(owned.tenant, |hosted| hosted.unreserve(bytes));
        }
    }

    /// Someone leaves who may be changing homes.
    pub(super) fn homes_end(&mut self, gpu: GpuId, id: TenantId) {
        self.gpu_mut(gpu).homing.take_if(|homing| *homing == id);
    }

    /// The host's memory may be the home of a handle as well as the device: it counts in both.
    fn doubt_home(&mut self, owned: Owned, bytes: Bytes) {
        self.change_hosted(owned.tenant, |hosted| hosted.reserve(bytes));
        if let Some(tenant) = self.tenants.get_mut(owned.tenant) {
            tenant.homes.unsettled.insert(owned.handle, bytes);
        }
    }

    fn put_on_host(&mut self, owned: Owned) {
        let Some(Some(held)) = self.update(owned.tenant, |tenant| tenant.remove(owned.handle)) else {
            return;
        };
        self.forget_copy(owned);
        self.change_hosted(owned.tenant, |hosted| hosted.find(owned.handle, held.bytes));
        self.has_moved(owned, held.bytes);
    }

    fn put_on_device(&mut self, owned: Owned, bytes: Bytes, spot: Spot) {
        if self.change_hosted(owned.tenant, |hosted| hosted.free(owned.handle)) != Some(true) {
            return;
        }
        let held = Held { bytes, spot, adopted: true, pinned: false, clean: false, stuck_until: Time::ZERO };
        self.update(owned.tenant, |tenant| {
            tenant.piece_max = tenant.piece_max.max(bytes);
            tenant.insert(owned.handle, held);
        });
        self.has_moved(owned, bytes);
    }

    fn has_moved(&mut self, owned: Owned, bytes: Bytes) {
        let now = self.now;
        if let Some(tenant) = self.tenants.get_mut(owned.tenant) {
            tenant.homes.has_moved(owned.handle, bytes, now);
        }
    }

    fn has_stayed(&mut self, owned: Owned) {
        let now = self.now;
        if let Some(tenant) = self.tenants.get_mut(owned.tenant) {
            tenant.homes.has_stayed(owned.handle, now);
        }
    }

    fn end_homing(&mut self, id: TenantId, swap: &Swap) {
        self.change_hosted(id, |hosted| hosted.unreserve(swap.down_sum()));
        self.set_stage(id, Stage::Rest);
        if let Some(gpu) = self.tenants.get(id).map(|tenant| tenant.gpu) {
            self.homes_end(gpu, id);
        }
    }

    fn set_stage(&mut self, id: TenantId, stage: Stage) {
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.homes.stage = stage;
        }
    }
}

fn names(id: TenantId, handles: &[(HandleId, Bytes)]) -> Vec<Owned> {
    handles.iter().map(|&(handle, _)| super::owned(id, handle)).collect()
}
