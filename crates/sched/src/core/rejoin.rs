//! Tenants that outlived a worker: they are on the device with a context and with memory, so no door is asked. Should they
//! be too many for it, others' memory goes, as when contexts have grown.

use super::{Core, roster};
use crate::tenant::{Held, Phase, Spot, Tenant};
use crate::{Action, Bytes, GpuId, JobId, Short, Survivor, SurvivorPlace, TenantId, Time};

impl Core {
    pub(super) fn rejoin(
        &mut self,
        id: TenantId,
        job: JobId,
        gpu: GpuId,
        residue: Bytes,
        handles: &[Survivor],
    ) {
        let refusal = match self.gpus.get(gpu) {
            None => Some(Short::Unknown),
            _ if !self.jobs.contains(job) => Some(Short::Unknown),
            Some(books) if books.has_departed(id) => Some(Short::Malformed),
            _ if self.tenants.get(id).is_some() || id.0 > roster::NUMBER_MAX => Some(Short::Malformed),
            Some(_) => None,
        };
        if let Some(why) = refusal {
            self.actions.push(Action::Refuse { tenant: id, why });
            return;
        }
        let mut tenant = Tenant::new(job, gpu, residue, self.now);
        tenant.phase = Phase::Here;
        for survivor in handles.iter().filter(|survivor| survivor.bytes > Bytes::ZERO) {
            let (spot, adopted) = match survivor.place {
                SurvivorPlace::Device { movable } => (Spot::Device, movable),
                SurvivorPlace::Arena => (Spot::Arena, true),
                SurvivorPlace::Unsettled => (Spot::Unsettled, true),
            };
            tenant.remove(survivor.handle);
            tenant.piece_max = tenant.piece_max.max(survivor.bytes.min(self.settings.handle_max));
            let bytes = survivor.bytes;
            let held = Held { bytes, spot, adopted, pinned: false, clean: false, stuck_until: Time::ZERO };
            tenant.insert(survivor.handle, held);
        }
        self.enrol(id, tenant);
        // Into the lines that it belongs in.
        self.update(id, |_| ());
    }
}
