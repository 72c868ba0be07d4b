//! Memory of tenants that are larger than their GPU: what the device can never have lies in the host's memory, mapped at the
//! same addresses, within a budget of the job and one of the machine.
//!
//! A request that is too much for the device is granted here, wholly if it is no larger than a handle may be; of a larger
//! one as many handles as fit go to the device. Jobs without such a budget never come here.
//!
//! Whoever is larger than the device would have all of it, and keep everybody else at the door. So it leaves room for a few
//! contexts there, as long as it has a budget to go on with.

use super::Core;
use crate::host::Hosted;
use crate::tenant::{Phase, Tenant};
use crate::{Action, Bytes, GpuId, HandleId, JobId, Owned, RequestId, Short, TenantId, WhenFull};

/// So many contexts find room beside somebody who is larger than the device, as far as that is this part of it: what is left to
/// them is used by nobody until they come, and all that lies in the host's memory in its place waits for the bus.
const CONTEXTS_SPARED: u64 = 4;
const SPARED_PART: u64 = 15;
/// One does in any case, unless it takes this part of a small device.
const SPARED_PART_MAX: u64 = 8;

impl Core {
    /// The host's memory that tenants have, those who left and are not buried included; and how much they may have.
    pub fn host(&self) -> (Bytes, Bytes) {
        (self.hosted_sum, self.settings.host_max)
    }

    /// The bytes of a grant in the host's memory that a tenant has and has not used.
    pub fn has_host_grant(&self, tenant: TenantId, request: RequestId) -> Option<Bytes> {
        self.tenants.get(tenant)?.hosted.granted(request)
    }

    /// Is this a handle in the host's memory?
    pub fn is_on_host(&self, owned: Owned) -> bool {
        self.tenants.get(owned.tenant).is_some_and(|tenant| tenant.hosted.has(owned.handle))
    }

    /// How much a handle in the host's memory counts as.
    pub fn hosted_bytes(&self, owned: Owned) -> Option<Bytes> {
        self.tenants.get(owned.tenant)?.hosted.handles().get(&owned.handle).copied()
    }

    /// A tenant asks for the host's memory by name.
    pub(super) fn ask_host(&mut self, id: TenantId, request: RequestId, bytes: Bytes) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let taken = tenant.asked.contains_key(&request)
            || tenant.granted.contains_key(&request)
            || tenant.hosted.knows(request);
        let why = match () {
            () if tenant.phase != Phase::Here => Some(Short::Unknown),
            () if bytes == Bytes::ZERO || taken => Some(Short::Malformed),
            () => self.short_of_host(tenant, bytes),
        };
        match why {
            Some(why) => self.actions.push(Action::Deny { tenant: id, request, why }),
            None => self.grant_on_host(id, request, bytes),
        }
    }

    /// Would a request that the device can have take the room there that others' contexts need, and can the host's memory have it
    /// instead? The tenant, or its gang, would have `own` of the `usable` bytes there.
    pub(super) fn better_on_host(&self, id: TenantId, own: Bytes, usable: Bytes, bytes: Bytes) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return false };
        self.host_max(tenant.job) > Bytes::ZERO
            && own > usable.less(self.spared(tenant.gpu))
            && self.short_of_host(tenant, bytes - self.device_part(id, bytes)).is_none()
    }

    /// What is left to others' contexts by those who are larger than the device.
    fn spared(&self, gpu: GpuId) -> Bytes {
        let (context, capacity) = (self.settings.context, self.gpu_of(gpu).spec.capacity.0);
        let contexts = Bytes(context.0.saturating_mul(CONTEXTS_SPARED));
        contexts.min(Bytes(capacity / SPARED_PART)).max(context.min(Bytes(capacity / SPARED_PART_MAX)))
    }

    /// Denies a request that is too much for the device, unless the host's memory can have it, or the part of it that is too
    /// much. Nothing of it is on the books yet but what was set aside for it.
    pub(super) fn deny_or_host(&mut self, id: TenantId, request: RequestId, bytes: Bytes, why: Short) {
        let denied = Action::Deny { tenant: id, request, why };
        let Some(tenant) = self.tenants.get(id) else { return };
        let lacks_room = !matches!(why, Short::Malformed | Short::Unknown);
        if !lacks_room || self.host_max(tenant.job) == Bytes::ZERO {
            if lacks_room {
                // It may have been split when its job could still have some of the host's.
                self.change_hosted(id, |hosted| hosted.take_back(request));
            }
            self.actions.push(denied);
            return;
        }
        // The part for the device of one that was split, or that everybody waits for, is not to be had there either.
        let splits = !tenant.hosted.knows(request) && why != Short::Standstill;
        let device = if splits { self.device_part(id, bytes) } else { Bytes::ZERO };
        if let Some(why) = self.short_of_host(tenant, bytes - device) {
            self.change_hosted(id, |hosted| hosted.take_back(request));
            self.actions.push(Action::Deny { tenant: id, request, why });
        } else if device == Bytes::ZERO {
            self.grant_on_host(id, request, bytes);
        } else {
            let was_active = tenant.is_active();
            self.change_hosted(id, |hosted| hosted.set_aside(request, bytes - device));
            self.update(id, |tenant| {
                tenant.asked.insert(request, device);
                tenant.asked_sum += device;
            });
            self.became_active(id, was_active);
        }
    }

    /// How much of a request the device can have, in whole handles: nothing if it is no larger than one.
    fn device_part(&self, id: TenantId, bytes: Bytes) -> Bytes {
        let Some(tenant) = self.tenants.get(id) else { return Bytes::ZERO };
        let piece = self.settings.handle_max;
        if bytes <= piece || piece == Bytes::ZERO {
            return Bytes::ZERO;
        }
        let part = Bytes(self.left_for(tenant).min(bytes).0 / piece.0 * piece.0);
        let waits = self.jobs.get(tenant.job).is_some_and(|job| job.terms.when_full == WhenFull::Wait);
        let fits = waits || self.not_now(tenant.gpu, id, part).is_none();
        if fits { part } else { Bytes::ZERO }
    }

    /// What the device can ever have of a tenant's beside what that has and asks for.
    pub(super) fn left_for(&self, tenant: &Tenant) -> Bytes {
        let gpu = tenant.gpu;
        let own = tenant.whole_bytes() + tenant.asked_sum;
        let together =
            self.gang_of(tenant).map_or(own, |gang| self.gang_bytes(gang, gpu) + self.gang_asks(gang, gpu));
        let usable = self.gpu_of(gpu).usable(self.settings.headroom).less(self.pinned_beside(gpu, tenant));
        let limit = self.jobs.get(tenant.job).and_then(|job| job.terms.memory_max);
        let context = tenant.residue + self.settings.context_growth;
        let of_limit = limit.map_or(Bytes(u64::MAX), |limit| limit.less(own + context));
        usable.less(self.spared(gpu)).less(own.max(together)).min(of_limit)
    }

    fn grant_on_host(&mut self, id: TenantId, request: RequestId, bytes: Bytes) {
        if let Some(host) = self.change_hosted(id, |hosted| hosted.grant(request, bytes)) {
            self.actions.push(Action::GrantHost { tenant: id, request, host });
        }
    }

    /// What waited for a request is granted with it.
    pub(super) fn release_host(&mut self, id: TenantId, request: RequestId) -> Option<Bytes> {
        self.tenants.get_mut(id)?.hosted.release(request)
    }

    pub(super) fn claim_host(&mut self, claimed: Owned, request: RequestId, bytes: Bytes) {
        if !self.has_handle(claimed) {
            self.change_hosted(claimed.tenant, |hosted| hosted.claim(request, claimed.handle, bytes));
        }
    }

    /// Handles were there before this worker. They count as far as the budgets go: what is beyond cannot be taken back, and
    /// nobody is to have less because of what another one says.
    pub(super) fn find_on_host(&mut self, id: TenantId, handles: &[(HandleId, Bytes)]) {
        for &(handle, bytes) in handles {
            let Some(tenant) = self.tenants.get(id).filter(|tenant| tenant.phase == Phase::Here) else {
                return;
            };
            if !tenant.hosted.has(handle) && !tenant.handles.contains_key(&handle) {
                let bytes = bytes.min(self.left_on_host(tenant));
                self.change_hosted(id, |hosted| hosted.find(handle, bytes));
            }
        }
    }

    /// What of a request is in the host's memory is not wanted any more.
    pub(super) fn take_back_host(&mut self, id: TenantId, request: RequestId) {
        self.change_hosted(id, |hosted| hosted.take_back(request));
    }

    /// A handle is gone. False if it was none in the host's memory.
    pub(super) fn free_on_host(&mut self, id: TenantId, handle: HandleId) -> bool {
        self.change_hosted(id, |hosted| hosted.free(handle)).unwrap_or(false)
    }

    /// Someone left: what it had, or may have made of a grant, counts until it is buried.
    pub(super) fn depart_host(&mut self, id: TenantId, hosted: &Hosted) {
        self.hosted_sum -= hosted.set_aside_sum();
        let had = hosted.sum() - hosted.set_aside_sum();
        if had > Bytes::ZERO {
            self.hosted_departed.insert(id, had);
        }
    }

    pub(super) fn bury_host(&mut self, id: TenantId) {
        if let Some(bytes) = self.hosted_departed.remove(&id) {
            self.hosted_sum -= bytes;
        }
    }

    /// What a job may have in the host's memory.
    fn host_max(&self, job: JobId) -> Bytes {
        self.jobs.get(job).map_or(Bytes::ZERO, |job| job.terms.host_max)
    }

    /// What the budgets have: how much is taken, and how much there is.
    fn host_budgets(&self, tenant: &Tenant) -> [(Bytes, Bytes); 2] {
        let members = self.jobs.get(tenant.job).into_iter().flat_map(|job| &job.members);
        let of_job: Bytes =
            members.filter_map(|&member| self.tenants.get(member)).map(|member| member.hosted.sum()).sum();
        [(of_job, self.host_max(tenant.job)), (self.hosted_sum, self.settings.host_max)]
    }

    /// How much more of the host's memory a tenant could have.
    pub(super) fn left_on_host(&self, tenant: &Tenant) -> Bytes {
        let left = self.host_budgets(tenant).map(|(has, limit)| limit.less(has));
        left[0].min(left[1])
    }

    /// Why a tenant cannot have so much more of the host's memory.
    fn short_of_host(&self, tenant: &Tenant, bytes: Bytes) -> Option<Short> {
        self.host_budgets(tenant).into_iter().find_map(|(has, limit)| {
            let wanted = Bytes(has.0.saturating_add(bytes.0));
            (wanted > limit).then_some(Short::Host { wanted, limit })
        })
    }

    /// Changes what a tenant has here, and the sum of all.
    pub(super) fn change_hosted<R>(
        &mut self,
        id: TenantId,
        change: impl FnOnce(&mut Hosted) -> R,
    ) -> Option<R> {
        let hosted = &mut self.tenants.get_mut(id)?.hosted;
        let before = hosted.sum();
        let result = change(hosted);
        self.hosted_sum = self.hosted_sum + hosted.sum() - before;
        Some(result)
    }

    /// Whether the sums are those of the parts.
    pub(super) fn check_host(&self) -> Result<(), String> {
        if let Some((id, _)) = self.tenants.iter().find(|(_, tenant)| !tenant.hosted.adds_up()) {
            return Err(format!("tenant {id}: what it has on the host does not add up"));
        }
        let living: Bytes = self.tenants.values().map(|tenant| tenant.hosted.sum()).sum();
        let all = living + self.hosted_departed.values().copied().sum();
        if all != self.hosted_sum {
            return Err(format!("{all} are in the host's memory, not {}", self.hosted_sum));
        }
        Ok(())
    }
}
