//! What is told of GPUs, jobs and tenants, and what changes by it.

use super::door::door_key;
use super::{Core, OpKind, owned};
use crate::gpu::Gpu;
use crate::job::Job;
use crate::policies;
use crate::tenant::{Grip, Phase, Tenant};
use crate::{
    Bytes, Class, GpuId, GpuSpec, JobId, Owned, Ratio, Scope, Settings, Slice, Span, TenantId, Terms, Time,
};
use std::collections::BTreeSet;

impl Core {
    pub(super) fn set_gpu(&mut self, gpu: GpuId, spec: GpuSpec) {
        match self.gpus.get_mut(gpu) {
            Some(books) => books.spec = spec,
            None => {
                self.gpus.insert(gpu, Gpu::new(spec));
            }
        }
        self.concerned.insert(gpu);
    }

    pub(super) fn set_settings(&mut self, settings: Settings) {
        let reorders = settings.policy != self.settings.policy || settings.ageing != self.settings.ageing;
        self.settings = settings.checked();
        if reorders {
            let everybody: Vec<_> = self.tenants.iter().map(|(id, _)| id).collect();
            everybody.into_iter().for_each(|id| self.relist(id));
            self.gpus.ids().collect::<Vec<_>>().into_iter().for_each(|gpu| self.shorten_turn(gpu));
        }
        self.concerned.extend(self.gpus.ids());
    }

    pub(super) fn set_unmanaged(&mut self, gpu: GpuId, bytes: Bytes) {
        if let Some(books) = self.gpus.get_mut(gpu)
            && books.unmanaged != bytes
        {
            books.unmanaged = bytes;
            self.concerned.insert(gpu);
        }
    }

    pub(super) fn set_strangers(&mut self, gpu: GpuId, present: bool) {
        if let Some(books) = self.gpus.get_mut(gpu) {
            books.strangers = present;
            self.concerned.insert(gpu);
        }
    }

    /// A context takes more than it was taken for, or less. On the books it grows only so far that whoever has most still
    /// finds room: a program that ran so far does not stand still because of a figure.
    pub(super) fn set_residue(&mut self, id: TenantId, bytes: Bytes) {
        let Some(tenant) = self.tenants.get(id).filter(|tenant| tenant.phase == Phase::Here) else { return };
        let books = self.gpu_of(tenant.gpu);
        let spare = books.usable(self.settings.headroom).less(books.largest());
        let bytes = bytes.min(tenant.residue + spare).max(bytes.min(tenant.residue));
        if bytes != tenant.residue {
            self.update(id, |tenant| tenant.residue = bytes);
        }
    }

    pub(super) fn set_arena(&mut self, bytes: Bytes) {
        self.arena = bytes;
        self.concerned.extend(self.gpus.ids());
    }

    pub(super) fn set_terms(&mut self, id: JobId, mut terms: Terms) {
        terms.weight = terms.weight.max(1);
        let Some(job) = self.jobs.get_mut(id) else {
            self.jobs.insert(id, Job::new(terms));
            return;
        };
        let before = std::mem::replace(&mut job.terms, terms.clone());
        let members: Vec<_> = job.members.iter().copied().collect();
        let active: Vec<_> =
            job.here.iter().filter(|(_, here)| here.active > 0).map(|(&gpu, _)| gpu).collect();
        for gpu in active {
            let books = self.gpu_mut(gpu);
            books.weigh(before.user, u64::from(before.weight), false);
            books.weigh(terms.user, u64::from(terms.weight), true);
        }
        self.part(id);
        self.settle_class(id);
        let now = self.now;
        for member in members {
            self.rearrange_door(member, |tenant| tenant.heed(&terms));
            if before.compute_max != terms.compute_max {
                // What it had to wait for was another cap.
                self.postpone(member, now);
            }
        }
        self.relist_lead(id);
    }

    /// Jobs live as long as somebody is in them.
    pub(super) fn end_job(&mut self, id: JobId) {
        if self.jobs.get(id).is_none_or(|job| !job.members.is_empty()) {
            return;
        }
        let job = self.jobs.remove(id).expect("it was there above");
        self.deep.remove(&id);
        for other in job.linked {
            if let Some(other_job) = self.jobs.get_mut(other) {
                other_job.linked.remove(&id);
            }
            self.settle_class(other);
        }
    }

    pub(super) fn set_paused(&mut self, id: JobId, paused: bool) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.paused = paused;
        let now = self.now;
        let members: Vec<_> = job.members.iter().copied().collect();
        self.part(id);
        for member in members {
            let was_active = self.tenant(member).is_some_and(|tenant| tenant.is_active());
            self.update(member, |tenant| {
                tenant.paused = paused;
                tenant.idle_since = now;
                // That was no pause of its own: it begins to wait anew.
                tenant.cut_short = None;
                if !paused {
                    tenant.since = now;
                }
            });
            self.became_active(member, was_active);
        }
    }

    pub(super) fn set_context(&mut self, id: TenantId, present: bool) {
        let now = self.now;
        let Some(tenant) = self.tenants.get(id) else { return };
        if tenant.context == present || tenant.phase != Phase::Here {
            return;
        }
        let (job, was_active) = (tenant.job, tenant.is_active());
        self.forget_ops_of(id);
        self.update(id, |tenant| {
            tenant.context = present;
            let thawed = present && tenant.is_whole();
            tenant.grip = if thawed { Grip::Thawed } else { Grip::Frozen(Scope::All) };
            tenant.slice = Slice::Own;
            tenant.unsure = false;
            tenant.since = now;
            tenant.idle_since = now;
            tenant.cut_short = None;
        });
        self.part(job);
        self.became_active(id, was_active);
    }

    pub(super) fn set_wants(&mut self, id: TenantId, since: Option<Time>) {
        let (now, wants) = (self.now, since.is_some());
        let Some(tenant) = self.tenants.get(id) else { return };
        if tenant.phase != Phase::Here || tenant.wants == wants {
            return;
        }
        let (was_active, critical) = (tenant.is_active(), tenant.critical);
        let moving = self.there_and_back(tenant);
        self.update(id, |tenant| {
            tenant.wants = wants;
            tenant.habits.wants(now, wants);
            if wants {
                tenant.since = now;
                tenant.pauses.end(now);
            } else {
                tenant.idle_since = now;
                tenant.pauses.begin(now, moving);
            }
        });
        if critical {
            self.critical_stirred(id, since);
        }
        self.became_active(id, was_active);
    }

    /// A tenant that begins to want starts at the present: it neither paid nor saved while it was idle.
    pub(super) fn became_active(&mut self, id: TenantId, was_active: bool) {
        let Some(tenant) = self.tenants.get(id) else { return };
        if was_active || !tenant.is_active() {
            return;
        }
        let (now, job) = (self.now, tenant.job);
        let turns = self.gpu_of(tenant.gpu).turns;
        if !self.only_paused(id, tenant) {
            self.update(id, |tenant| {
                (tenant.queued_at, tenant.queued_behind, tenant.ran) = (now, turns, Span::ZERO);
                tenant.cut_short = None;
            });
        }
        self.start_at_present(id);
        // Fellows take turns with it from here on, whether they have work of their own or not.
        let idle = |&fellow: &TenantId| self.tenants.get(fellow).is_some_and(|fellow| !fellow.is_active());
        let gang = self.tenants.get(id).and_then(|tenant| self.gang_of(tenant));
        let fellows = gang.map_or(Vec::new(), |job| job.members.iter().copied().filter(idle).collect());
        fellows.into_iter().for_each(|fellow| self.start_at_present(fellow));
        self.relist_lead(job);
    }

    /// Does a tenant keep its place, and has the turn, or what is left of one, and had no work for no longer than one takes?
    fn only_paused(&self, id: TenantId, tenant: &Tenant) -> bool {
        let has_turn = self.gpu_of(tenant.gpu).turn.is_some_and(|turn| turn.tenant == id);
        let is_short = || self.now.since(tenant.idle_since) <= self.turn_length(tenant);
        let has_rest = tenant.cut_short.is_some() && is_short();
        self.keeps_its_place(tenant) && (has_turn || has_rest)
    }

    pub(super) fn keeps_its_place(&self, tenant: &Tenant) -> bool {
        policies::place_is_kept_in_pauses(&self.settings, self.now.since(tenant.queued_at))
    }

    /// What a tenant saved while it took no turns is forgotten, and it stands in line as it should from now on: also where
    /// it had saved nothing.
    pub(super) fn start_at_present(&mut self, id: TenantId) {
        let Some(gpu) = self.tenants.get(id).map(|tenant| tenant.gpu) else { return };
        let present = self.present(gpu, id);
        self.update(id, |tenant| tenant.virtual_time = tenant.virtual_time.max(present));
    }

    pub(super) fn measured(&mut self, id: TenantId, busy: Ratio) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        // Half of what it was and half of what it is: a change shows after a few turns, a single odd one does not.
        let busy = busy.0.min(Ratio::ONE.0);
        let mean = if tenant.measured { tenant.busy.0.midpoint(busy) } else { busy };
        tenant.measured = true;
        let before = std::mem::replace(&mut tenant.busy, Ratio(mean));
        let below = |busy: Ratio| busy < self.settings.filler_below;
        if tenant.critical || below(before) != below(Ratio(mean)) {
            self.concerned.insert(tenant.gpu);
        }
    }

    /// Two tenants share memory: the class of one is the class of the other.
    pub(super) fn tie(&mut self, one: TenantId, other: TenantId) {
        let (Some(a), Some(b)) = (self.tenant(one).map(|t| t.job), self.tenant(other).map(|t| t.job)) else {
            return;
        };
        if a == b {
            return;
        }
        for (from, to) in [(a, b), (b, a)] {
            if let Some(job) = self.jobs.get_mut(from) {
                job.linked.insert(to);
            }
        }
        self.settle_class(a);
    }

    /// The class of a job and of all tied to it: the highest among them.
    pub(super) fn settle_class(&mut self, id: JobId) {
        let tied = self.tied(id);
        let classes = tied.iter().filter_map(|&id| self.jobs.get(id)).map(|job| job.terms.class);
        let class = classes.min().unwrap_or_default();
        for id in tied {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            job.class = class;
            for member in job.members.iter().copied().collect::<Vec<_>>() {
                let before = self.update(member, |tenant| {
                    std::mem::replace(&mut tenant.critical, class == Class::LatencyCritical)
                });
                if before == Some(true) && class != Class::LatencyCritical {
                    self.waits_from_now(member);
                }
            }
        }
    }

    /// Turns that somebody latency-critical did not need are none that it is owed, and none that it waited for.
    fn waits_from_now(&mut self, id: TenantId) {
        let Some(gpu) = self.tenants.get(id).map(|tenant| tenant.gpu) else { return };
        let (now, turns) = (self.now, self.gpu_of(gpu).turns);
        self.update(id, |tenant| {
            (tenant.queued_at, tenant.queued_behind) = (now, turns);
            tenant.cut_short = None;
        });
        self.start_at_present(id);
    }

    /// All jobs that are tied to one by shared memory, itself included.
    fn tied(&self, job: JobId) -> BTreeSet<JobId> {
        let mut found = BTreeSet::from([job]);
        let mut open = vec![job];
        while let Some(job) = open.pop() {
            for &other in self.jobs.get(job).map(|job| &job.linked).into_iter().flatten() {
                if found.insert(other) {
                    open.push(other);
                }
            }
        }
        found
    }

    pub(super) fn change_handle(&mut self, owned: Owned, change: impl FnOnce(&mut crate::tenant::Held)) {
        self.update(owned.tenant, |tenant| tenant.change(owned.handle, change));
    }

    /// The mover and the driver know again how a tenant is.
    pub(super) fn answers(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let gpu = tenant.gpu;
        let inspected = |op: &super::Op| matches!(&op.kind, OpKind::Inspect(whom) if whom.contains(&id));
        if self.ops.values().any(inspected) {
            return;
        }
        let now = self.now;
        let present = self.present(gpu, id);
        self.update(id, |tenant| {
            for held in tenant.handles.values_mut() {
                held.stuck_until = now;
            }
            // It has saved nothing meanwhile.
            tenant.virtual_time = tenant.virtual_time.max(present);
            (tenant.vain, tenant.put_off_in_vain) = (0, None);
        });
        self.gpu_mut(gpu).move_retry = now;
        self.inspect(vec![id]);
        if self.tenant(id).is_some_and(|tenant| self.cap(tenant).is_none()) {
            self.postpone(id, now);
        }
    }

    pub(super) fn leave(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let (gpu, job, phase) = (tenant.gpu, tenant.job, tenant.phase);
        self.forget_ops_of(id);
        self.part(job);
        self.end_turn_of(id);
        self.drop_hold_of(id);
        let Some(tenant) = self.unbook(id) else { return };
        self.depart_host(id, &tenant.hosted);
        self.homes_end(gpu, id);
        let landing = self.disown(gpu, id);
        for &handle in tenant.handles.keys() {
            self.forget_copy(owned(id, handle));
        }
        let (now, gap_max) = (self.now, self.settings.gap_max);
        let door = door_key(id, &tenant);
        let books = self.gpu_mut(gpu);
        // With fewer, there is no order that could change.
        if books.line.len() > 1 && tenant.is_active() {
            books.parted_until = now + gap_max;
        }
        books.door.remove(&door);
        books.leaving.remove(&id);
        if books.incoming == Some(id) {
            books.incoming = None;
        }
        if books.filler.is_some_and(|(filler, _)| filler == id) {
            books.filler = None;
        }
        if phase != Phase::Queued {
            let bytes = tenant.on_device() + tenant.residue + landing;
            books.depart(id, bytes);
            let stayed = now.since(tenant.arrived).0;
            books.stay.0 = if books.stay.0 == 0 { stayed } else { books.stay.0 / 4 * 3 + stayed / 4 };
        }
        if let Some(job) = self.jobs.get_mut(job) {
            job.members.remove(&id);
        }
        self.relist_lead(job);
    }

    pub(super) fn linger(&mut self, id: TenantId) {
        let concerned = self.gpus.iter_mut().filter_map(|(gpu, books)| books.linger(id).then_some(gpu));
        self.concerned.extend(concerned);
    }

    pub(super) fn bury(&mut self, id: TenantId) {
        self.bury_host(id);
        let concerned = self.gpus.iter_mut().filter_map(|(gpu, books)| books.bury(id).then_some(gpu));
        self.concerned.extend(concerned);
        self.try_those_in_vain();
    }

    /// Whatever is under way with a tenant's channels does not matter any more.
    fn forget_ops_of(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let slicing = tenant.slicing.take();
        let gripping = match tenant.grip {
            Grip::Freezing(op, _) | Grip::Widening(op, _) | Grip::Thawing(op, _) => Some(op),
            _ => None,
        };
        for op in slicing.into_iter().chain(gripping) {
            self.strike(op);
        }
    }

    /// What a move brings in for someone who left stays until it is buried.
    fn disown(&mut self, gpu: GpuId, id: TenantId) -> Bytes {
        let Some(moving) = &mut self.gpu_mut(gpu).moving else { return Bytes::ZERO };
        let concerned = moving.out.iter().chain(&moving.into).any(|(owned, _)| owned.tenant == id);
        let theirs: Bytes =
            moving.into.iter().filter(|(owned, _)| owned.tenant == id).map(|&(_, bytes)| bytes).sum();
        moving.into.retain(|(owned, _)| owned.tenant != id);
        moving.out.retain(|(owned, _)| owned.tenant != id);
        moving.landing -= theirs;
        moving.bereft |= concerned;
        theirs
    }
}
