//! How things are, for people.

use super::Core;
use crate::tenant::Phase;
use crate::{Bytes, Described, GpuId, GpuView, Span, State, TenantId, Time};

impl Core {
    /// How a tenant is, for people.
    pub fn describe(&self, id: TenantId, now: Time) -> Option<Described> {
        let tenant = self.tenants.get(id)?;
        let books = self.gpus.get(tenant.gpu)?;
        let running = tenant.may_run() && tenant.is_whole();
        let state = match () {
            () if tenant.phase == Phase::Queued => State::Queued,
            () if tenant.moving => State::Moving,
            () if tenant.paused => State::Paused,
            () if !tenant.context => State::Joined,
            () if running => State::Running,
            () if tenant.away > Bytes::ZERO || tenant.is_unsettled() => State::Away,
            () => State::Frozen,
        };
        let has_turn = books.turn.is_some_and(|turn| turn.tenant == id);
        let waits = tenant.phase != Phase::Here || (tenant.is_active() && !has_turn && !running);
        Some(Described {
            state,
            resident: tenant.resident,
            away: tenant.away,
            turns: tenant.turns,
            waiting: if waits { now.since(tenant.since) } else { Span::ZERO },
            hints: tenant.hints.counts(),
            residue: tenant.residue,
            granted: tenant.granted_sum,
            pinned: tenant.pinned,
            host: tenant.hosted.own_sum(),
            rehomed: tenant.homes.changed,
            reserved: tenant.reserved,
        })
    }

    /// How a GPU is, for people.
    pub fn gpu(&self, gpu: GpuId) -> Option<GpuView> {
        let books = self.gpus.get(gpu)?;
        Some(GpuView {
            capacity: books.spec.capacity,
            used: books.held + books.residues + books.departed(),
            unmanaged: books.unmanaged,
            running: books.turn.map(|turn| turn.tenant),
            stays: books.pinned,
            strangers: books.strangers,
            critical: books.critical_mode,
        })
    }

    /// Is everybody best-effort off a GPU, though one of them has work and may have a turn? Only asked beside somebody
    /// latency-critical. Whom its own cap keeps off would be off without anybody, too.
    pub fn holds_all_back(&self, gpu: GpuId) -> bool {
        if !self.is_critical(gpu) || self.someone_runs(gpu) {
            return false;
        }
        let books = self.gpu_of(gpu);
        let has_work = |id: TenantId| {
            self.tenants.get(id).is_some_and(|tenant| !tenant.critical && self.gang_is_active(tenant))
        };
        let mut without_room = books.no_room.put_off.iter();
        books.turn.is_some_and(|turn| has_work(turn.tenant))
            || !books.waits.is_empty()
            || !books.gangs_waiting.is_empty()
            || without_room.any(|(&id, put_off)| put_off.capped_until <= self.now && has_work(id))
    }

    /// Arena bytes in use and in all.
    pub fn arena(&self) -> (Bytes, Bytes) {
        (self.arena_needed + self.copies_sum, self.arena)
    }
}
