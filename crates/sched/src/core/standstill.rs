//! The way out when everybody waits for everybody else's memory.
//!
//! Jobs may choose to wait for memory instead of being out of it. Should all who have some wait for more that nobody can
//! get, nothing would ever happen again: then the youngest of those requests is out of memory after all, and its program
//! can free something, or end.

use super::Core;
use crate::gpu::Gpu;
use crate::tenant::Tenant;
use crate::{Bytes, GpuId, Short, TenantId};

impl Core {
    /// Denies requests, the youngest first, until somebody can go on.
    pub(super) fn end_standstill(&mut self, gpu: GpuId) {
        while self.stands_still(gpu) {
            let youngest = self.holders(self.gpu_of(gpu)).max_by_key(|&(id, tenant)| (tenant.queued_at, id));
            let Some((id, tenant)) = youngest else { return };
            let Some((&request, &bytes)) = tenant.asked.last_key_value() else { return };
            self.update(id, |tenant| {
                tenant.asked.remove(&request);
                tenant.asked_sum -= bytes;
            });
            self.deny_or_host(id, request, bytes, Short::Standstill);
        }
    }

    /// Does everybody who has memory here wait for more, in vain, and nothing is under way that could free any? The
    /// arena is for all: those count too who have some of it on other GPUs.
    fn stands_still(&self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        if books.asking.is_empty() || books.sizes.is_empty() || books.asking.len() < books.sizes.len() {
            return false;
        }
        let overflows = |books: &Gpu| books.everything() > books.usable(self.settings.headroom);
        let mut concerned = self.gpus.iter().filter(|&(other, books)| other == gpu || overflows(books));
        concerned.all(|(_, books)| {
            let at_rest = books.moving.is_none() && books.looking.is_none() && !books.burials_pending();
            at_rest && self.holders(books).all(|(id, tenant)| self.is_helpless(id, tenant))
        })
    }

    /// Those who have memory of a GPU, wherever it is now.
    fn holders<'a>(&'a self, books: &'a Gpu) -> impl Iterator<Item = (TenantId, &'a Tenant)> {
        books.sizes.iter().filter_map(|&(_, id)| Some((id, self.tenants.get(id)?)))
    }

    /// Can a tenant do nothing before it gets what it cannot get, even if others outside of rota left?
    fn is_helpless(&self, id: TenantId, tenant: &Tenant) -> bool {
        let waits = tenant.context && !tenant.wants && !tenant.paused && tenant.granted.is_empty();
        let in_vain = |bytes: &Bytes| {
            self.short_with(tenant.gpu, id, *bytes, self.gpu_of(tenant.gpu).foreign()).is_some()
        };
        waits && tenant.asked.first_key_value().is_some_and(|(_, bytes)| in_vain(bytes))
    }
}
