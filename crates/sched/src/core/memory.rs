//! Memory: what is asked for, granted, used and given back, and what is done when the arena fills up.

use super::{Core, owned};
use crate::pressure::{self, Pressure, Subject};
use crate::tenant::{Held, Phase, Spot, Tenant};
use crate::{Action, Bytes, Class, GpuId, HandleId, Owned, RequestId, Short, TenantId, Time, WhenFull};
use std::ops::Bound;

/// Requests of one tenant at a time: one for each of its threads that allocates.
const REQUESTS_MAX: usize = 4_096;

impl Core {
    pub(super) fn ask(&mut self, id: TenantId, request: RequestId, bytes: Bytes) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let (gpu, was_active) = (tenant.gpu, tenant.is_active());
        let taken = tenant.asked.contains_key(&request)
            || tenant.granted.contains_key(&request)
            || tenant.hosted.knows(request);
        let own = tenant.whole_bytes() + tenant.asked_sum + bytes;
        // A gang runs only when all of it is here.
        let together = self
            .gang_of(tenant)
            .map_or(own, |gang| self.gang_bytes(gang, gpu) + self.gang_asks(gang, gpu) + bytes);
        let usable = self.gpu_of(gpu).usable(self.settings.headroom).less(self.pinned_beside(gpu, tenant));
        let job = self.jobs.get(tenant.job);
        let limit = job.and_then(|job| job.terms.memory_max);
        let waits = job.is_some_and(|job| job.terms.when_full == WhenFull::Wait);
        let context = tenant.residue + self.settings.context_growth;
        let never = match limit {
            _ if tenant.phase != Phase::Here => Some(Short::Unknown),
            _ if bytes == Bytes::ZERO || taken || tenant.asked.len() >= REQUESTS_MAX => {
                Some(Short::Malformed)
            }
            Some(limit) if own + context > limit => Some(Short::Limit { wanted: own + context, limit }),
            _ if own > usable => Some(Short::Device { wanted: own, usable }),
            _ if together > usable => Some(Short::Device { wanted: together, usable }),
            _ => None,
        };
        let now_not = || self.not_now(gpu, id, bytes).filter(|_| !waits);
        if never.is_none() && self.better_on_host(id, own.max(together), usable, bytes) {
            return self.deny_or_host(id, request, bytes, Short::Context);
        }
        if let Some(why) = never.or_else(now_not) {
            return self.deny_or_host(id, request, bytes, why);
        }
        self.update(id, |tenant| {
            tenant.asked.insert(request, bytes);
            tenant.asked_sum += bytes;
        });
        self.became_active(id, was_active);
    }

    /// Why a request cannot be granted now, even if there were room on the device.
    pub(super) fn not_now(&self, gpu: GpuId, id: TenantId, bytes: Bytes) -> Option<Short> {
        self.short_with(gpu, id, bytes, Bytes::ZERO)
    }

    /// The same, if so much more of the device were free.
    pub(super) fn short_with(&self, gpu: GpuId, id: TenantId, bytes: Bytes, free: Bytes) -> Option<Short> {
        let tenant = self.tenants.get(id)?;
        let books = self.gpu_of(gpu);
        let job = self.jobs.get(tenant.job)?;
        let here = job.here(gpu);
        let growth = Bytes(self.settings.context_growth.0 * u64::from(here.contexts));
        let wanted = here.bytes + growth + bytes;
        if let Some(limit) = job.terms.memory_max.filter(|&limit| wanted > limit) {
            return Some(Short::Limit { wanted, limit });
        }
        let usable = books.usable(self.settings.headroom) + free;
        // Contexts may have come since it was asked: it has to fit with all that it has.
        let own = self.gang_of(tenant).map_or(tenant.whole_bytes(), |gang| self.gang_bytes(gang, gpu));
        let left = usable.less(self.pinned_beside(gpu, tenant));
        if own + bytes > left {
            return Some(Short::Device { wanted: own + bytes, usable: left });
        }
        if let Some(short) = self.short_of_reserve(gpu, id, bytes, usable) {
            return Some(short);
        }
        if self.pressure >= Pressure::Refusing && books.short_of(bytes, self.settings.headroom) > free {
            return Some(Short::Pressure);
        }
        self.too_much(gpu, usable, bytes)
    }

    /// What others have pinned, which is in the way whoever's turn it is.
    pub(super) fn pinned_beside(&self, gpu: GpuId, tenant: &Tenant) -> Bytes {
        let own = self.gang_of(tenant).map_or(tenant.stays(), |gang| self.gang_pinned(gang, gpu));
        self.gpu_of(gpu).pinned.less(own)
    }

    /// Why so much more of a tenant's memory cannot stay on the device for good: somebody else's would not find room any
    /// more.
    pub fn cannot_stay(&self, id: TenantId, bytes: Bytes) -> Option<Short> {
        let tenant = self.tenants.get(id).filter(|tenant| !tenant.reserved)?;
        let books = self.gpus.get(tenant.gpu)?;
        let usable = books.usable(self.settings.headroom);
        let wanted = books.largest_without(id) + bytes;
        (wanted > usable).then_some(Short::Device { wanted, usable })
    }

    /// The same of somebody who is not here yet.
    pub fn cannot_stay_on(&self, gpu: GpuId, bytes: Bytes) -> Option<Short> {
        let books = self.gpus.get(gpu).filter(|_| bytes > Bytes::ZERO)?;
        let usable = books.usable(self.settings.headroom);
        let wanted = books.largest() + bytes;
        (wanted > usable).then_some(Short::Device { wanted, usable })
    }

    /// Could what everybody has, and so much more, take turns with so much of the device? With device and
    /// arena both full nothing could move any more: two of the largest tenants' pieces must always find a place.
    pub(super) fn too_much(&self, gpu: GpuId, usable: Bytes, more: Bytes) -> Option<Short> {
        let books = self.gpu_of(gpu);
        let wanted = books.everything() + more;
        let limit = self.settings.overcommit_max.of_bytes(books.spec.capacity);
        if wanted > limit {
            return Some(Short::Together { wanted, limit });
        }
        if wanted <= usable {
            return None;
        }
        // The arena is for all GPUs: what the others have there, or would have, is not to be had here.
        let elsewhere: Bytes = self
            .gpus
            .iter()
            .filter(|&(other, _)| other != gpu)
            .map(|(_, books)| books.everything().less(books.usable(self.settings.headroom)))
            .sum();
        let limit = usable + self.arena.less(elsewhere);
        let largest = books.pieces.last().map_or(Bytes::ZERO, |&(bytes, _)| bytes);
        let largest = largest.max(more.min(self.settings.handle_max));
        let wanted = wanted + Bytes(largest.0.saturating_mul(2));
        (wanted > limit).then_some(Short::Together { wanted, limit })
    }

    /// Grants requests while there is room, those of whoever has the turn, and its gang, before the others'. Once anybody's
    /// memory is away, only they grow: what others got now would have to go before their turn.
    pub(super) fn grant(&mut self, gpu: GpuId) {
        let books = self.gpu_of(gpu);
        if books.asking.is_empty() {
            return;
        }
        let main = books.incoming.or(books.turn.map(|turn| turn.tenant));
        let crowded = books.away > Bytes::ZERO || books.moving.is_some();
        let company = self.company(gpu, main);
        for &id in &company {
            self.grant_to(gpu, id);
        }
        // One that does not fit holds back those behind it, or it would starve.
        let mut last = None;
        let from = |last: Option<TenantId>| last.map_or(Bound::Unbounded, Bound::Excluded);
        while let Some(id) = {
            let books = self.gpu_of(gpu);
            let asking = if crowded { &books.critical } else { &books.asking };
            asking.range((from(last), Bound::Unbounded)).next().copied()
        } {
            last = Some(id);
            if !company.contains(&id) && !self.grant_to(gpu, id) {
                break;
            }
        }
    }

    /// Grants what one tenant asks for, in the order it asked. False if there was no room for something it might have.
    fn grant_to(&mut self, gpu: GpuId, id: TenantId) -> bool {
        self.deny_the_impossible(id);
        while let Some((&request, &bytes)) =
            self.tenants.get(id).and_then(|tenant| tenant.asked.first_key_value())
        {
            if bytes > self.gpu_of(gpu).room(self.settings.headroom) {
                return false;
            }
            if self.not_now(gpu, id, bytes).is_some() {
                return true;
            }
            let handle_max = self.settings.handle_max;
            self.update(id, |tenant| {
                tenant.asked.remove(&request);
                tenant.asked_sum -= bytes;
                tenant.granted.insert(request, bytes);
                tenant.granted_sum += bytes;
                tenant.piece_max = tenant.piece_max.max(bytes.min(handle_max));
            });
            let granted = match self.release_host(id, request) {
                None => Action::Grant { tenant: id, request },
                Some(host) => Action::GrantHost { tenant: id, request, host },
            };
            self.actions.push(granted);
        }
        true
    }

    /// What could be had when it was asked for may not be any more: then it is out of memory, if its job does not wait, or
    /// waits for more than its limit is by now.
    pub(super) fn deny_the_impossible(&mut self, id: TenantId) {
        while let Some(tenant) = self.tenants.get(id)
            && let Some((&request, &bytes)) = tenant.asked.first_key_value()
            && let Some(job) = self.jobs.get(tenant.job)
            && let Some(why) = self.not_now(tenant.gpu, id, bytes)
            && (job.terms.when_full == WhenFull::Fail || self.is_beyond_limit_alone(tenant, bytes))
        {
            self.update(id, |tenant| {
                tenant.asked.remove(&request);
                tenant.asked_sum -= bytes;
            });
            self.deny_or_host(id, request, bytes, why);
        }
    }

    /// Would a tenant have more than its job may, if it were the only one of it?
    fn is_beyond_limit_alone(&self, tenant: &Tenant, bytes: Bytes) -> bool {
        let limit = self.jobs.get(tenant.job).and_then(|job| job.terms.memory_max);
        let alone = tenant.whole_bytes() + tenant.residue + self.settings.context_growth + bytes;
        limit.is_some_and(|limit| alone > limit)
    }

    /// What a tenant asks for and could get if there were room on the device.
    pub(super) fn grantable(&self, id: TenantId) -> Bytes {
        let Some(tenant) = self.tenants.get(id).filter(|tenant| !tenant.asked.is_empty()) else {
            return Bytes::ZERO;
        };
        let (_, &first) = tenant.asked.first_key_value().expect("it is not empty");
        let may_have = |bytes: &Bytes| self.not_now(tenant.gpu, id, *bytes).is_none();
        [tenant.asked_sum, first].into_iter().find(may_have).unwrap_or_default()
    }

    pub(super) fn claim(&mut self, claimed: Owned, request: RequestId, bytes: Bytes) {
        let Owned { tenant: id, handle } = claimed;
        let left =
            self.has_grant(id, request).filter(|&granted| granted >= bytes).map(|granted| granted - bytes);
        let is_new = !self.has_handle(claimed) && !self.is_on_host(claimed);
        let Some(left) = left.filter(|_| bytes > Bytes::ZERO && is_new) else { return };
        let handle_max = self.settings.handle_max;
        self.update(id, |tenant| {
            match left {
                Bytes::ZERO => tenant.granted.remove(&request),
                left => tenant.granted.insert(request, left),
            };
            tenant.granted_sum -= bytes;
            // What is larger is none that moves.
            tenant.piece_max = tenant.piece_max.max(bytes.min(handle_max));
            let held = Held {
                bytes,
                spot: Spot::Device,
                adopted: false,
                pinned: false,
                clean: false,
                stuck_until: Time::ZERO,
            };
            tenant.insert(handle, held);
        });
    }

    pub(super) fn take_back(&mut self, id: TenantId, request: RequestId) {
        let was_active = self.tenants.get(id).is_some_and(|tenant| tenant.is_active());
        self.take_back_host(id, request);
        self.update(id, |tenant| {
            if let Some(bytes) = tenant.granted.remove(&request) {
                tenant.granted_sum -= bytes;
            }
            // A request that is still waiting is not wanted any more.
            if let Some(bytes) = tenant.asked.remove(&request) {
                tenant.asked_sum -= bytes;
            }
        });
        self.became_active(id, was_active);
    }

    pub(super) fn free(&mut self, id: TenantId, handles: &[HandleId]) {
        for &handle in handles {
            self.forget_home(owned(id, handle));
            if self.free_on_host(id, handle) {
                continue;
            }
            self.update(id, |tenant| tenant.remove(handle));
            self.forget_copy(owned(id, handle));
        }
    }

    pub(super) fn set_clean(&mut self, copied: Owned, clean: bool) {
        let Some(held) = self.handle(copied).copied() else { return };
        let clean = clean && held.spot == Spot::Device;
        self.update(copied.tenant, |tenant| tenant.change(copied.handle, |held| held.clean = clean));
        self.forget_copy(copied);
        if clean {
            self.copies.insert(copied, held.bytes);
            self.copies_sum += held.bytes;
        }
    }

    pub(super) fn forget_copy(&mut self, copied: Owned) {
        if let Some(bytes) = self.copies.remove(&copied) {
            self.copies_sum -= bytes;
        }
    }

    /// Drops clean copies until so much of the arena is free, except those of what is about to go there. Returns whether
    /// it is.
    pub(super) fn clear_arena(&mut self, bytes: Bytes, going: &[(Owned, Bytes)]) -> bool {
        let mut dropped = Vec::new();
        // Moves that are under way have their place already.
        let promised: Bytes =
            self.gpus.values().filter_map(|books| books.moving.as_ref()).map(|moving| moving.to_arena).sum();
        let bytes = bytes + promised;
        while self.arena_needed + self.copies_sum + bytes > self.arena {
            let is_going = |copied: &Owned| going.iter().any(|(owned, _)| owned == copied);
            let Some(&copied) = self.copies.keys().find(|copied| !is_going(copied)) else { break };
            self.forget_copy(copied);
            if let Some(tenant) = self.tenants.get_mut(copied.tenant) {
                tenant.change(copied.handle, |held| held.clean = false);
            }
            dropped.push(copied);
        }
        if !dropped.is_empty() {
            self.actions.push(Action::Drop(dropped));
        }
        self.arena_needed + self.copies_sum + bytes <= self.arena
    }

    /// Answers to how full the arena is: first nobody comes in, then grants shrink, then nobody grows, and only then one
    /// has to end.
    pub(super) fn mind_pressure(&mut self) {
        let before = self.pressure;
        self.pressure = pressure::level(self.arena_needed, self.arena, before);
        if self.pressure >= Pressure::Shrinking && before < Pressure::Shrinking {
            self.clear_arena(Bytes(self.arena.0 / 8), &[]);
            let unused = self.tenants.iter().filter(|(_, tenant)| !tenant.granted.is_empty());
            let reclaim: Vec<_> = unused.map(|(tenant, _)| Action::Reclaim { tenant }).collect();
            self.actions.extend(reclaim);
        }
        if self.pressure < before {
            self.concerned.extend(self.gpus.ids());
        }
        if self.arena_needed > self.arena {
            // It shrank below what is in it.
            self.clear_arena(Bytes::ZERO, &[]);
            self.end_someone(None);
        }
    }

    /// Ends whoever the rule names, among all or among those of one GPU, unless one was not long ago.
    pub(super) fn end_someone(&mut self, gpu: Option<GpuId>) {
        if self.now < self.end_not_before {
            return;
        }
        let subjects = self.tenants.iter().filter(|(_, tenant)| {
            gpu.is_none_or(|gpu| gpu == tenant.gpu) && tenant.whole_bytes() > Bytes::ZERO
        });
        let subjects = subjects.map(|(id, tenant)| Subject {
            tenant: id,
            class: if tenant.critical { Class::LatencyCritical } else { Class::BestEffort },
            priority: tenant.priority,
            paused: tenant.paused,
            whole: tenant.whole_bytes(),
            arrived: tenant.arrived,
        });
        if let Some((tenant, why)) = pressure::whom_to_end(subjects) {
            // What it leaves behind has to be used first, before another one ends. If it is still there by then, it is
            // told once more.
            self.end_not_before = self.now + self.settings.deadlines.movement;
            self.actions.push(Action::End { tenant, why });
        }
    }
}
