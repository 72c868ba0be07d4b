//! The books: every change to a tenant goes through [`Core::update`], which keeps the sums and lines of its GPU true.

use super::{Core, Due};
use crate::job::{Gang, JobHere};
use crate::policies::{self, Rank, Standing};
use crate::tenant::{Grip, Phase, Tenant};
use crate::{Bytes, GpuId, JobId, Scope, TenantId, Time, UserId};

/// What a GPU's books need to know of a tenant.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Footprint {
    counted: bool,
    residue: Bytes,
    held: Bytes,
    fixed: Bytes,
    away: Bytes,
    unsettled: Bytes,
    pinned: Bytes,
    asked: Bytes,
    piece: Bytes,
    active: bool,
    running: bool,
    awake: bool,
    dozing: bool,
    partly: bool,
    widening: bool,
    arriving: bool,
    critical: bool,
}

impl Footprint {
    fn of(tenant: &Tenant) -> Self {
        let counted = tenant.phase != Phase::Queued;
        let thawed = tenant.context && tenant.grip == Grip::Thawed;
        let dozes = !tenant.is_active() && !tenant.paused;
        Self {
            counted,
            residue: if counted { tenant.residue } else { Bytes::ZERO },
            held: tenant.on_device(),
            fixed: tenant.fixed + tenant.granted_sum,
            away: tenant.away,
            unsettled: tenant.unsettled,
            pinned: tenant.stays(),
            asked: tenant.asked_sum,
            piece: if tenant.whole_bytes() > Bytes::ZERO { tenant.piece_max } else { Bytes::ZERO },
            active: tenant.is_active(),
            running: tenant.may_run(),
            awake: thawed && !dozes,
            dozing: thawed && dozes,
            partly: tenant.context && tenant.grip == Grip::Frozen(Scope::Compute),
            widening: tenant.context && matches!(tenant.grip, Grip::Widening(..)),
            arriving: tenant.phase == Phase::Arriving,
            critical: tenant.critical,
        }
    }
}

impl Core {
    /// Changes a tenant, and the books with it. Its GPU will be looked at.
    pub(super) fn update<R>(&mut self, id: TenantId, change: impl FnOnce(&mut Tenant) -> R) -> Option<R> {
        let now = self.now;
        let tenant = self.tenants.get_mut(id)?;
        let before = Footprint::of(tenant);
        let result = change(tenant);
        let after = Footprint::of(tenant);
        if before.awake != after.awake {
            tenant.habits.awake(now, after.awake);
        }
        if before.active && !after.active {
            // Also if it only asked for memory, and has it now: it may be about to ask for more.
            tenant.idle_since = now;
        }
        let (gpu, job) = (tenant.gpu, tenant.job);
        if before != after {
            self.rebook(id, gpu, job, &before, &after);
        }
        self.relist(id);
        if before.active != after.active {
            self.relist_lead(job);
        }
        self.concerned.insert(gpu);
        Some(result)
    }

    /// Puts a new tenant on the books. False if its number is taken or too large.
    pub(super) fn book(&mut self, id: TenantId, tenant: Tenant) -> bool {
        let (gpu, job, after) = (tenant.gpu, tenant.job, Footprint::of(&tenant));
        if !self.tenants.insert(id, tenant) {
            return false;
        }
        self.rebook(id, gpu, job, &Footprint::default(), &after);
        self.concerned.insert(gpu);
        true
    }

    /// Strikes a tenant off the books.
    pub(super) fn unbook(&mut self, id: TenantId) -> Option<Tenant> {
        let tenant = self.tenants.get(id)?;
        let (gpu, job, before) = (tenant.gpu, tenant.job, Footprint::of(tenant));
        self.rebook(id, gpu, job, &before, &Footprint::default());
        let tenant = self.tenants.remove(id)?;
        let books = self.gpu_mut(gpu);
        if let Some(rank) = tenant.in_line {
            books.line.remove(&(rank, id));
        }
        replace(&mut books.waits, tenant.in_waits.map(|since| (since, id)), None);
        books.way.replace(id, tenant.in_way, None);
        self.due.remove(&(tenant.not_before, Due::Tenant(id)));
        self.concerned.insert(gpu);
        Some(tenant)
    }

    fn rebook(&mut self, id: TenantId, gpu: GpuId, job: JobId, before: &Footprint, after: &Footprint) {
        self.arena_needed = self.arena_needed + after.away + after.unsettled - before.away - before.unsettled;
        let books = self.gpus.get_mut(gpu).expect("a tenant's GPU is there");
        books.residues = books.residues + after.residue - before.residue;
        books.held = books.held + after.held - before.held;
        books.fixed = books.fixed + after.fixed - before.fixed;
        books.away = books.away + after.away - before.away;
        books.pinned = books.pinned + after.pinned - before.pinned;
        books.asked = books.asked + after.asked - before.asked;
        books.tenants = books.tenants + u32::from(after.counted) - u32::from(before.counted);
        let (size_before, size_after) = (before.held + before.away, after.held + after.away);
        for (line, was, is) in [
            (&mut books.sizes, size_before, size_after),
            (&mut books.loose, size_before - before.pinned, size_after - after.pinned),
            (&mut books.pieces, before.piece, after.piece),
        ] {
            if was != is {
                let listed = |bytes: Bytes| (bytes > Bytes::ZERO).then_some((bytes, id));
                replace(line, listed(was), listed(is));
            }
        }
        for (line, was, is) in [
            (&mut books.running, before.running, after.running),
            (&mut books.awake, before.awake, after.awake),
            (&mut books.dozing, before.dozing, after.dozing),
            (&mut books.partly, before.partly, after.partly),
            (&mut books.widening, before.widening, after.widening),
        ] {
            if was != is {
                set(line, id, is);
            }
        }
        if (before.asked > Bytes::ZERO) != (after.asked > Bytes::ZERO) {
            set(&mut books.asking, id, after.asked > Bytes::ZERO);
        }
        if before.arriving != after.arriving {
            set(&mut books.arriving, id, after.arriving);
        }
        if before.critical != after.critical {
            set(&mut books.critical, id, after.critical);
        }
        let wanting = |footprint: &Footprint| u32::from(footprint.critical && footprint.active);
        books.critical_wanting = books.critical_wanting + wanting(after) - wanting(before);
        books.active = books.active + u32::from(after.active) - u32::from(before.active);
        let Some(job) = self.jobs.get_mut(job) else { return };
        let here = job.here.entry(gpu).or_default();
        let was_active = here.active > 0;
        // Those who are latency-critical take no share of the turns.
        let sharing = |footprint: &Footprint| u32::from(footprint.active && !footprint.critical);
        here.active = here.active + sharing(after) - sharing(before);
        here.bytes = here.bytes + after.residue + size_after - before.residue - size_before;
        let context = |footprint: &Footprint| u32::from(footprint.residue > Bytes::ZERO);
        here.contexts = here.contexts + context(after) - context(before);
        let is_active = here.active > 0;
        if *here == JobHere::default() {
            job.here.remove(&gpu);
        }
        if was_active != is_active {
            books.weigh(job.terms.user, u64::from(job.terms.weight), is_active);
        }
    }

    /// Puts a tenant where it belongs in the lines of its GPU, or nowhere.
    pub(super) fn relist(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let gpu = tenant.gpu;
        let standing = self.standing(tenant);
        let rank = policies::rank(&self.settings, &standing);
        let line = self.belongs_in_line(id, tenant).then_some(rank);
        if line.is_none() && tenant.preferred {
            self.tenants.get_mut(id).expect("it was there above").preferred = false;
            return self.relist(id);
        }
        let waits = line.filter(|_| !tenant.critical).map(|_| tenant.queued_at);
        let way = self.place_in_way(tenant, rank);
        let (was_line, was_waits, was_way) = (tenant.in_line, tenant.in_waits, tenant.in_way);
        if (line, waits, way) == (was_line, was_waits, was_way) {
            return;
        }
        let tenant = self.tenants.get_mut(id).expect("it was there above");
        (tenant.in_line, tenant.in_waits, tenant.in_way) = (line, waits, way);
        let books = self.gpu_mut(gpu);
        replace(&mut books.waits, was_waits.map(|since| (since, id)), waits.map(|since| (since, id)));
        if line != was_line {
            replace(&mut books.line, was_line.map(|rank| (rank, id)), line.map(|rank| (rank, id)));
        }
        if way != was_way {
            books.way.replace(id, was_way, way);
        }
        self.concerned.insert(gpu);
    }

    /// Does a tenant wait for a turn that it may have now?
    fn belongs_in_line(&self, id: TenantId, tenant: &Tenant) -> bool {
        if tenant.phase != Phase::Here || !self.gang_is_active(tenant) || tenant.not_before > self.now {
            return false;
        }
        if tenant.is_unsettled() {
            // It does not answer: a turn would keep the GPU from everybody.
            return false;
        }
        let books = self.gpu_of(tenant.gpu);
        if books.turn.is_some_and(|turn| turn.tenant == id) {
            return false;
        }
        // Whoever is latency-critical and whole runs at any time, without a turn, unless it is being given one.
        if tenant.critical
            && tenant.is_whole()
            && tenant.asked.is_empty()
            && books.incoming != Some(id)
            && self.fellows_are_whole(tenant)
        {
            return false;
        }
        match self.gang_of(tenant) {
            Some(job) => job.gang == Gang::Apart && self.lead(job) == Some(id),
            None => true,
        }
    }

    /// How a tenant stands, for the policy.
    pub(super) fn standing(&self, tenant: &Tenant) -> Standing {
        Standing {
            critical: tenant.critical,
            priority: tenant.priority,
            preferred: tenant.preferred,
            queued_at: tenant.queued_at,
            due: tenant.slo.map(|slo| tenant.queued_at + slo),
            virtual_time: tenant.virtual_time,
        }
    }

    /// Keeps a tenant out of line until then.
    pub(super) fn postpone(&mut self, id: TenantId, until: Time) {
        let Some(near_from) = self.tenants.get(id).map(|tenant| self.near_from(tenant, until)) else {
            return;
        };
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.near_from = near_from;
        let before = std::mem::replace(&mut tenant.not_before, until);
        self.due.remove(&(before, Due::Tenant(id)));
        if until > self.now {
            self.due.insert((until, Due::Tenant(id)));
        }
        self.relist(id);
    }

    /// The rate at which a tenant's virtual time goes while it has the GPU: the more weight its user and job have, and the
    /// fewer they are, the slower. As a fraction.
    pub(super) fn virtual_rate(&self, tenant: &Tenant) -> (u64, u64) {
        let Some(job) = self.jobs.get(tenant.job) else { return (1, 1) };
        let books = self.gpu_of(tenant.gpu);
        let user_weight = u64::from(self.users.get(&job.terms.user).copied().unwrap_or(1));
        let job_weight = u64::from(job.terms.weight);
        let siblings = books.users.get(&job.terms.user).copied().unwrap_or(0).max(job_weight);
        let members = u64::from(job.here(tenant.gpu).active.max(1));
        (siblings.saturating_mul(members), user_weight.saturating_mul(job_weight).max(1))
    }
}

impl crate::gpu::Gpu {
    /// A job with this weight wants turns from now on, or no longer.
    pub(super) fn weigh(&mut self, user: UserId, weight: u64, wants: bool) {
        let sum = self.users.entry(user).or_default();
        if wants {
            *sum += weight;
        } else {
            *sum = sum.checked_sub(weight).expect("what was put on the scales");
        }
        if *sum == 0 {
            self.users.remove(&user);
        }
    }
}

fn set<T: Ord>(all: &mut std::collections::BTreeSet<T>, item: T, present: bool) {
    if present {
        all.insert(item);
    } else {
        all.remove(&item);
    }
}

fn replace<T: Ord>(all: &mut std::collections::BTreeSet<T>, before: Option<T>, after: Option<T>) {
    if let Some(before) = before {
        all.remove(&before);
    }
    if let Some(after) = after {
        all.insert(after);
    }
}

/// The line of one GPU, for the other files: who is first.
pub(super) fn first(line: &std::collections::BTreeSet<(Rank, TenantId)>) -> Option<TenantId> {
    line.first().map(|&(_, tenant)| tenant)
}
