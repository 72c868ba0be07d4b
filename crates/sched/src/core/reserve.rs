//! Reserved memory: all that a job has stays on its GPUs, whoever's turn it is.
//!
//! It counts as what is pinned does: others' requests have to fit beside it, and so does whoever comes in. In turn nothing is
//! granted to a reserved job, and none becomes one, that would leave somebody else no room for its turns. What is away when a
//! job becomes reserved comes back with its next turn, and goes no more.

use super::Core;
use crate::{Bytes, GpuId, JobId, Short, TenantId};

impl Core {
    /// Why so much more of a reserved tenant could not stay on the device, with so much of it for all.
    pub(super) fn short_of_reserve(
        &self,
        gpu: GpuId,
        id: TenantId,
        bytes: Bytes,
        usable: Bytes,
    ) -> Option<Short> {
        self.tenants.get(id).filter(|tenant| tenant.reserved)?;
        let wanted = self.gpu_of(gpu).largest_without(id) + bytes;
        (wanted > usable).then_some(Short::Device { wanted, usable })
    }

    /// Why all that a job has cannot stay on its GPUs from now on: somebody else's memory would find no room any more.
    pub fn cannot_reserve(&self, job: JobId) -> Option<Short> {
        let job = self.jobs.get(job).filter(|job| !job.terms.reserve)?;
        let is_others = |id: &TenantId| !job.members.contains(id);
        job.here.keys().find_map(|&gpu| {
            let books = self.gpus.get(gpu)?;
            let usable = books.usable(self.settings.headroom);
            let own: Bytes =
                self.members_on(job, gpu).map(|tenant| tenant.whole_bytes().less(tenant.stays())).sum();
            let largest = books.loose.iter().rev().find(|(_, id)| is_others(id));
            let wanted = books.pinned + own + largest.map_or(Bytes::ZERO, |&(bytes, _)| bytes);
            (own > Bytes::ZERO && wanted > usable).then_some(Short::Device { wanted, usable })
        })
    }
}
