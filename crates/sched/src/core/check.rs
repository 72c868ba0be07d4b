//! What always holds, as far as the core can see it: the sums are those of the parts, and nobody runs who must not.

use super::Core;
use crate::gpu::Gpu;
use crate::tenant::{Phase, Spot, Tenant};
use crate::{Bytes, GpuId, Slice, TenantId};

impl Core {
    /// Checks what always holds. Says what does not.
    pub fn check(&self) -> Result<(), String> {
        for (id, tenant) in self.tenants.iter() {
            self.check_tenant(id, tenant).map_err(|what| format!("tenant {id}: {what}"))?;
        }
        for (gpu, books) in self.gpus.iter() {
            self.check_gpu(gpu, books).map_err(|what| format!("GPU {gpu}: {what}"))?;
        }
        let needed: Bytes = self.tenants.iter().map(|(_, tenant)| tenant.away + tenant.unsettled).sum();
        hold(needed == self.arena_needed, || {
            format!("{needed} are in the arena, not {}", self.arena_needed)
        })?;
        self.check_host()?;
        let copies: Bytes = self.copies.values().copied().sum();
        hold(copies == self.copies_sum, || format!("{copies} are copies, not {}", self.copies_sum))
    }

    fn check_tenant(&self, id: TenantId, tenant: &Tenant) -> Result<(), String> {
        let sum = |spot: Spot| -> Bytes {
            tenant.handles.values().filter(|held| held.spot == spot).map(|held| held.bytes).sum()
        };
        let (device, unsettled) = (sum(Spot::Device), sum(Spot::Unsettled));
        hold(tenant.resident == device + unsettled, || "what is resident does not add up".into())?;
        hold(tenant.away == sum(Spot::Arena) + sum(Spot::Returning), || {
            "what is away does not add up".into()
        })?;
        hold(tenant.unsettled == unsettled, || "what is unsettled does not add up".into())?;
        let pinned = tenant.handles.values().filter(|held| held.pinned).map(|held| held.bytes).sum();
        hold(tenant.pinned == pinned, || "what is pinned does not add up".into())?;
        hold(tenant.granted_sum == tenant.granted.values().copied().sum(), || "grants do not add up".into())?;
        hold(tenant.asked_sum == tenant.asked.values().copied().sum(), || "requests do not add up".into())?;
        hold(!tenant.may_run() || tenant.is_whole(), || {
            format!(
                "it may run ({:?}), but {} are away and {} unsettled",
                tenant.grip, tenant.away, tenant.unsettled
            )
        })?;
        hold(!tenant.moving || tenant.is_off(), || {
            format!("its memory moves, and not all of it is frozen ({:?})", tenant.grip)
        })?;
        let books = self.gpu_of(tenant.gpu);
        hold(books.running.contains(&id) == tenant.may_run(), || "it is not known to run".into())?;
        Ok(())
    }

    /// Whether memory of a tenant may go now. Later that cannot be said of its fellows: one more may have come.
    pub(super) fn check_goes(&self, id: TenantId) -> Result<(), String> {
        let Some(tenant) = self.tenants.get(id) else { return Ok(()) };
        hold(tenant.is_off(), || format!("tenant {id}: not all of it is frozen ({:?})", tenant.grip))?;
        hold(!self.a_fellow_may_run(tenant), || format!("tenant {id}: not all of its gang is frozen"))
    }

    fn check_gpu(&self, gpu: GpuId, books: &Gpu) -> Result<(), String> {
        let here = || self.tenants.iter().map(|(_, tenant)| tenant).filter(|tenant| tenant.gpu == gpu);
        let held: Bytes = here().map(Tenant::on_device).sum();
        hold(held == books.held, || format!("{held} are held, not {}", books.held))?;
        let away: Bytes = here().map(|tenant| tenant.away).sum();
        hold(away == books.away, || format!("{away} are away, not {}", books.away))?;
        let pinned: Bytes = here().map(Tenant::stays).sum();
        hold(pinned == books.pinned, || format!("{pinned} are pinned, not {}", books.pinned))?;
        let residues: Bytes =
            here().filter(|tenant| tenant.phase != Phase::Queued).map(|tenant| tenant.residue).sum();
        hold(residues == books.residues, || "contexts do not add up".into())?;
        let thawed = || books.running.iter().filter_map(|&id| self.tenants.get(id));
        let shortest = thawed().filter(|tenant| tenant.slice == Slice::Shortest).count();
        hold(shortest <= 1, || format!("{shortest} tenants run on the shortest slice"))?;
        let critical = books.critical.iter().filter_map(|&id| self.tenants.get(id));
        let wanting = critical.filter(|tenant| tenant.is_active()).count() as u32;
        hold(wanting == books.critical_wanting, || {
            format!("{wanting} latency-critical ones have work, not {}", books.critical_wanting)
        })?;
        for (id, tenant) in self.tenants.iter().filter(|(_, tenant)| tenant.gpu == gpu) {
            let holds = books.holds.iter().filter(|hold| hold.tenant == id && hold.came.is_none());
            let mut held: Vec<_> = holds.map(|hold| hold.expect).collect();
            held.sort_unstable();
            hold(tenant.hints.pending().eq(held), || {
                format!("tenant {id}: what it hinted is not what others are held back for")
            })?;
        }
        for &(rank, id) in &books.line {
            hold(self.tenants.get(id).is_some_and(|t| t.in_line == Some(rank)), || {
                format!("tenant {id} is not in line")
            })?;
        }
        for &(since, id) in &books.waits {
            hold(
                self.tenants.get(id).is_some_and(|t| t.in_waits == Some(since) && t.in_line.is_some()),
                || format!("tenant {id} does not wait"),
            )?;
        }
        Ok(())
    }
}

fn hold(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
