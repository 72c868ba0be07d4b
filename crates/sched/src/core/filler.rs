//! Who runs beside an owner that has gaps.

use super::Core;
use crate::policies;
use crate::tenant::Tenant;
use crate::{GpuId, Ratio, TenantId};

/// How many in line are looked at to find one.
const FILLERS_LOOKED_AT_MAX: usize = 8;

impl Core {
    /// Someone to run beside an owner that has gaps.
    pub(super) fn find_filler(&mut self, gpu: GpuId) {
        let books = self.gpu_of(gpu);
        let main = books.incoming.or(books.turn.map(|turn| turn.tenant));
        let owner = main.and_then(|main| self.tenants.get(main));
        let wanted = !books.critical_mode
            && owner.is_some_and(|owner| {
                owner.is_whole()
                    && owner.busy < self.settings.filler_below
                    && !self.is_in_gang_together(owner)
            });
        if let Some((filler, _)) = books.filler {
            let good = self.tenants.get(filler).is_some_and(|filler| {
                filler.in_line.is_some()
                    && filler.is_whole()
                    && owner.is_some_and(|owner| self.may_fill(filler, owner))
            });
            if wanted && good {
                return;
            }
            self.stop_filler(gpu);
        }
        if !wanted {
            return;
        }
        let books = self.gpu_of(gpu);
        let owner = main.and_then(|main| self.tenants.get(main));
        let fits = |&id: &TenantId| {
            self.tenants.get(id).is_some_and(|tenant| {
                tenant.is_whole()
                    && tenant.wants
                    && self.cap(tenant).is_none()
                    && !books.leaving.contains(&id)
                    && self.gang_of(tenant).is_none()
                    && owner.is_some_and(|owner| self.may_fill(tenant, owner))
            })
        };
        let others = books.line.iter().map(|&(_, id)| id).filter(|&id| Some(id) != main);
        let found = others.take(FILLERS_LOOKED_AT_MAX).find(fits);
        if let Some(filler) = found {
            self.charge(gpu);
            let now = self.now;
            self.gpu_mut(gpu).filler = Some((filler, now));
            // What it has from here on is on the books.
            self.update(filler, |tenant| tenant.stays_since = None);
        }
    }

    fn may_fill(&self, filler: &Tenant, owner: &Tenant) -> bool {
        policies::may_fill(&self.settings, &self.standing(filler), &self.standing(owner))
    }

    /// Nobody runs beside the owner any more.
    pub(super) fn stop_filler(&mut self, gpu: GpuId) {
        let Some((filler, since)) = self.gpu_of(gpu).filler else { return };
        self.charge(gpu);
        let owner = self
            .gpu_of(gpu)
            .turn
            .and_then(|turn| self.tenants.get(turn.tenant))
            .map_or(Ratio::ZERO, |t| t.busy);
        self.gpu_mut(gpu).filler = None;
        let share = self.share_beside(filler, owner);
        self.charge_to(filler, share.of(self.now.since(since)));
        // It ran so far: only from here on it waits.
        let (now, turns) = (self.now, self.gpu_of(gpu).turns);
        self.update(filler, |tenant| {
            (tenant.since, tenant.queued_at, tenant.queued_behind) = (now, now, turns);
        });
    }
}
