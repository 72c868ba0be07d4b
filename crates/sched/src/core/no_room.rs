//! Those for whom there is no room, because services keep their memory until they have had no request for a while.
//!
//! Whoever gets no room is tried again some time later. But when a service gives its memory free is known: then is the time,
//! or the GPU would stand still until that other one.

use super::Core;
use crate::gpu::{NoRoom, PutOff};
use crate::tenant::Tenant;
use crate::{Bytes, GpuId, TenantId, Time};
use std::collections::BTreeSet;

impl Core {
    /// There is no room for `id`: it is tried again later, or when a service gives its memory free.
    pub(super) fn put_off_for_room(&mut self, gpu: GpuId, id: TenantId) {
        let before = self.give_up_on(gpu, id);
        let keepers = self.keepers(gpu);
        if keepers.is_empty() {
            return;
        }
        for (id, kept_out_until) in before {
            let Some(until) = self.tenants.get(id).map(|tenant| tenant.not_before) else { continue };
            // One of a gang may be put off already: that is no cap.
            let already = self.gpu_of(gpu).no_room.put_off.get(&id).copied();
            let already = already.filter(|already| already.until == kept_out_until);
            let capped_until = already.map_or(kept_out_until, |already| already.capped_until);
            self.gpu_mut(gpu).no_room.put_off.insert(id, PutOff { until, capped_until });
        }
        self.gpu_mut(gpu).no_room.keepers = keepers;
    }

    /// If a service gives its memory free, those are tried again for whom there was no room.
    pub(super) fn try_for_room(&mut self, gpu: GpuId) {
        let mut no_room = std::mem::take(&mut self.gpu_mut(gpu).no_room);
        // Others may have been put off since for something else, or be back.
        no_room.put_off.retain(|&id, put_off| {
            let is_out = |tenant: &Tenant| tenant.not_before == put_off.until && put_off.until > self.now;
            self.tenants.get(id).is_some_and(is_out)
        });
        if no_room.put_off.is_empty() {
            return;
        }
        let keepers = self.keepers(gpu);
        if no_room.keepers.is_subset(&keepers) {
            self.gpu_mut(gpu).no_room = NoRoom { keepers, ..no_room };
            return;
        }
        for (id, PutOff { capped_until, .. }) in no_room.put_off {
            self.postpone(id, capped_until);
            if capped_until <= self.now {
                self.start_at_present(id);
            }
        }
    }

    /// When the next service gives its memory free, if somebody has no room or may have none.
    pub(super) fn room_at(&self, gpu: GpuId) -> Option<Time> {
        let books = self.gpu_of(gpu);
        let is_wanted = !books.no_room.put_off.is_empty() || books.asked > Bytes::ZERO;
        let services = books.critical.iter().take_while(|_| is_wanted);
        let idle = services.filter_map(|&id| self.tenants.get(id)).filter(|tenant| !tenant.wants);
        let keepers = idle.filter(|tenant| self.has_requests(tenant));
        keepers.map(|tenant| tenant.idle_since + self.settings.lc_linger).min()
    }

    /// Services that make no room for best-effort work now.
    fn keepers(&self, gpu: GpuId) -> BTreeSet<TenantId> {
        let has_requests =
            |id: &TenantId| self.tenants.get(*id).is_some_and(|tenant| self.has_requests(tenant));
        self.gpu_of(gpu).critical.iter().copied().filter(has_requests).collect()
    }
}
