//! What programs are told of memory: their job's, as if nobody else were there. The same figures stand in each tenant's page,
//! for `cuMemGetInfo`, and go to whoever asks NVML inside the job.

use super::commands::Peer;
use super::limits::Refusal;
use super::{Daemon, Known};
use sched::{GpuId, JobId, TenantId};
use wire::{Answer, JobMemory, MemoryOnGpu, ProcessOnGpu};

impl Daemon {
    /// What a job may have on a GPU, and beyond it in the host's memory.
    pub(super) fn memory_limit(&self, job: JobId, gpu: GpuId) -> u64 {
        let capacity = self.gpu(gpu).capacity_bytes;
        let terms = self.jobs.get(job).map(|job| &job.terms);
        let limit = terms.and_then(|terms| terms.memory_max_bytes);
        let beyond = terms.map_or(0, |terms| terms.oversize_bytes);
        limit.map_or(capacity, |most| most.min(capacity)).saturating_add(beyond)
    }

    /// What a tenant has: its context as it is booked, and what its program has by its own word, which is newer than any
    /// book.
    fn has(&self, tenant: TenantId, known: &Known) -> (u64, u64) {
        let described = self.core.describe(tenant, self.now());
        // The page is the tenant's to write, and need not make sense.
        let hosted = described.as_ref().map_or(0, |described| described.host.0);
        let most = self.gpu(known.gpu).capacity_bytes.saturating_add(hosted);
        let used = known.link.grip.page().used_bytes().min(most);
        (described.map_or(0, |described| described.residue.0), used)
    }

    /// Writes into the pages of a job's tenants how its memory is.
    pub(super) fn tell_of_memory(&self, job: JobId) {
        let Some(members) = self.jobs.get(job).map(|job| &job.members) else { return };
        let known = || members.iter().filter_map(|tenant| Some((*tenant, self.known.get(tenant)?)));
        for (tenant, here) in known() {
            let others = known().filter(|(other, there)| *other != tenant && there.gpu == here.gpu);
            let others: u64 = others
                .map(|(other, there)| self.has(other, there))
                .map(|(a, b)| a + b)
                .fold(0, u64::saturating_add);
            let (residue, _) = self.has(tenant, here);
            here.link.grip.page().set_memory(self.memory_limit(job, here.gpu), others, residue);
        }
    }

    /// The same for all jobs.
    pub(super) fn tell_everybody_of_memory(&self) {
        self.jobs.iter().for_each(|(job, _)| self.tell_of_memory(job));
    }

    /// The memory of a job, for one of its processes.
    pub(super) fn memory_of(&self, peer: Peer, name: &str) -> Result<Answer, Refusal> {
        let own = self.tenant_of(peer.pid()).and_then(|tenant| self.jobs.of(tenant));
        let id = own.or_else(|| self.jobs.named(peer.uid, name)).ok_or_else(|| self.unknown(name))?;
        self.tell_of_memory(id);
        let members = self.jobs.get(id).map(|job| job.members.iter()).into_iter().flatten();
        let known = members.filter_map(|tenant| Some((*tenant, self.known.get(tenant)?)));
        let processes = known.map(|(tenant, known)| {
            let (residue, used) = self.has(tenant, known);
            let gpu = self.gpu(known.gpu).uuid.clone();
            ProcessOnGpu { pid: known.link.who.pid, gpu, bytes: residue + used }
        });
        let processes: Vec<ProcessOnGpu> = processes.collect();
        let on = |uuid: &str| {
            processes.iter().filter(|it| it.gpu == uuid).map(|it| it.bytes).fold(0, u64::saturating_add)
        };
        let gpus = self.gpus().map(|(number, gpu)| MemoryOnGpu {
            gpu: gpu.uuid.clone(),
            limit_bytes: self.memory_limit(id, number),
            used_bytes: on(&gpu.uuid),
        });
        Ok(Answer::Memory(JobMemory { gpus: gpus.collect(), processes }))
    }
}
