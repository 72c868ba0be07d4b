//! Gangs: the processes of one job that only get on together run at the same time on all their GPUs, or not at all.
//!
//! A gang takes its GPUs in the order of their numbers and keeps what it has: so two gangs can never wait for each other.
//! While it waits for the next one, others run on those that it has already; once it has all, they make way at once.

use super::Core;
use crate::gpu::Turn;
use crate::job::{Gang, Job};
use crate::policies::{self, Rank};
use crate::tenant::{Phase, Tenant};
use crate::{Bytes, GpuId, JobId, TenantId, Time};
use std::collections::BTreeSet;

impl Core {
    /// The gang that a tenant is of. One alone is none.
    pub(super) fn gang_of(&self, tenant: &Tenant) -> Option<&Job> {
        let job = if tenant.gang { self.jobs.get(tenant.job) } else { None };
        job.filter(|job| job.members.len() > 1)
    }

    /// What all of a gang have on a GPU.
    pub(super) fn gang_bytes(&self, job: &Job, gpu: GpuId) -> Bytes {
        self.members_on(job, gpu).map(Tenant::whole_bytes).sum()
    }

    /// What all of a gang have pinned on a GPU.
    pub(super) fn gang_pinned(&self, job: &Job, gpu: GpuId) -> Bytes {
        self.members_on(job, gpu).map(Tenant::stays).sum()
    }

    /// What all of a gang ask for on a GPU.
    pub(super) fn gang_asks(&self, job: &Job, gpu: GpuId) -> Bytes {
        self.members_on(job, gpu).map(|tenant| tenant.asked_sum).sum()
    }

    pub(super) fn members_on<'a>(&'a self, job: &'a Job, gpu: GpuId) -> impl Iterator<Item = &'a Tenant> {
        let members = job.members.iter().filter_map(|&id| self.tenants.get(id));
        members.filter(move |tenant| tenant.gpu == gpu)
    }

    /// Is a GPU to be had: is the turn there over, and nobody on its way?
    fn is_free(&self, gpu: GpuId) -> bool {
        self.gpu_of(gpu).incoming.is_none() && self.turn_is_over(gpu)
    }

    /// Members that take part, with their GPUs.
    fn taking_part<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = (TenantId, &'a Tenant)> {
        let members = job.members.iter().filter_map(|&id| Some((id, self.tenants.get(id)?)));
        members.filter(|(_, tenant)| tenant.phase == Phase::Here && tenant.context && !tenant.paused)
    }

    /// One of a gang that takes part on this GPU.
    pub(super) fn member_here(&self, job: JobId, gpu: GpuId) -> Option<TenantId> {
        let job = self.jobs.get(job)?;
        self.taking_part(job).find(|(_, tenant)| tenant.gpu == gpu).map(|(id, _)| id)
    }

    /// The member that stands in line for all: the first on the first GPU. Nobody, while one of them does not answer.
    pub(super) fn lead(&self, job: &Job) -> Option<TenantId> {
        let answers = self.taking_part(job).all(|(_, tenant)| !tenant.is_unsettled());
        let active = answers && self.taking_part(job).any(|(_, tenant)| tenant.is_active());
        let first = self.taking_part(job).min_by_key(|&(id, tenant)| (tenant.gpu, id));
        first.filter(|_| active).map(|(id, _)| id)
    }

    /// Has a tenant work, or any of its gang?
    pub(super) fn gang_is_active(&self, tenant: &Tenant) -> bool {
        match self.gang_of(tenant) {
            Some(job) => self.taking_part(job).any(|(_, member)| member.is_active()),
            None => tenant.is_active(),
        }
    }

    /// Has a tenant work other than to wait for memory, or any of its gang?
    pub(super) fn gang_wants(&self, tenant: &Tenant) -> bool {
        match self.gang_of(tenant) {
            Some(job) => self.taking_part(job).any(|(_, member)| member.wants),
            None => tenant.wants,
        }
    }

    /// Members of a gang that run on this GPU when it is together.
    pub(super) fn fellows(&self, gpu: GpuId, id: TenantId) -> Vec<TenantId> {
        let Some(job) = self.tenants.get(id).and_then(|tenant| self.gang_of(tenant)) else {
            return Vec::new();
        };
        if job.gang != Gang::Together {
            return Vec::new();
        }
        let here = self.taking_part(job).filter(|&(fellow, tenant)| tenant.gpu == gpu && fellow != id);
        here.map(|(fellow, _)| fellow).collect()
    }

    /// All that run here in a tenant's turn: itself, and its fellows.
    pub(super) fn company(&self, gpu: GpuId, main: Option<TenantId>) -> Vec<TenantId> {
        let fellows = main.map(|id| self.fellows(gpu, id)).unwrap_or_default();
        main.into_iter().chain(fellows).collect()
    }

    /// Are all fellows of a tenant, wherever they are, ready to run? Latency-critical ones need no turn for that.
    pub(super) fn fellows_are_ready(&self, tenant: &Tenant) -> bool {
        let together = |job: &Job| job.gang == Gang::Together || tenant.critical;
        self.gang_of(tenant).is_none_or(together) && self.fellows_are_whole(tenant)
    }

    /// Is all memory of a tenant's fellows on their devices? Of those that take no part, nothing may be moving.
    pub(super) fn fellows_are_whole(&self, tenant: &Tenant) -> bool {
        let Some(job) = self.gang_of(tenant) else { return true };
        let mut members = job.members.iter().filter_map(|&id| self.tenants.get(id));
        self.taking_part(job).all(|(_, fellow)| fellow.is_whole()) && members.all(|member| !member.moving)
    }

    /// May any fellow of a tenant be running something, wherever it is, if only a copy?
    pub(super) fn a_fellow_may_run(&self, tenant: &Tenant) -> bool {
        let Some(job) = self.gang_of(tenant) else { return false };
        job.members.iter().filter_map(|&id| self.tenants.get(id)).any(|fellow| !fellow.is_off())
    }

    /// Has a tenant to go off because its memory is needed, or that of a fellow, wherever that one is?
    pub(super) fn makes_way(&self, id: TenantId, tenant: &Tenant) -> bool {
        let leaves = |id: TenantId| {
            let fellow = self.tenants.get(id);
            fellow.is_some_and(|fellow| self.gpu_of(fellow.gpu).leaving.contains(&id))
        };
        match self.gang_of(tenant) {
            Some(job) => job.members.iter().copied().any(leaves),
            None => self.gpu_of(tenant.gpu).leaving.contains(&id),
        }
    }

    /// What happened to one member matters to the others, on whatever GPU they are.
    pub(super) fn concern_fellows(&mut self, id: TenantId) {
        let Some(job) = self.tenants.get(id).and_then(|tenant| self.gang_of(tenant)) else { return };
        let places = job.members.iter().filter_map(|&id| self.tenants.get(id)).map(|tenant| tenant.gpu);
        let places: Vec<_> = places.collect();
        self.concerned.extend(places);
    }

    /// Its turn has come on its first GPU: the gang begins to take its GPUs.
    pub(super) fn gather(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.gang = Gang::Gathering;
        self.relist_lead(id);
        self.proceed(id);
    }

    /// Takes the next GPU, if it is to be had now, or waits for it.
    fn proceed(&mut self, id: JobId) {
        loop {
            let Some(job) = self.jobs.get(id).filter(|job| job.gang == Gang::Gathering) else { return };
            let gpus: BTreeSet<GpuId> = self.taking_part(job).map(|(_, tenant)| tenant.gpu).collect();
            let Some(&next) = gpus.iter().find(|gpu| !job.holds.contains(gpu)) else {
                self.start(id);
                return;
            };
            let is_first = job.holds.is_empty();
            let free = self.gpu_of(next).held_by.is_none() && (is_first || self.is_free(next));
            let due =
                is_first || self.gang_rank(next, id) <= self.gpu_of(next).line.first().map(|&(rank, _)| rank);
            if !free || !due {
                self.gpu_mut(next).gangs_waiting.insert(id);
                self.concerned.insert(next);
                return;
            }
            self.hold(next, id);
        }
    }

    fn hold(&mut self, gpu: GpuId, id: JobId) {
        let books = self.gpu_mut(gpu);
        books.held_by = Some(id);
        books.gangs_waiting.remove(&id);
        if let Some(job) = self.jobs.get_mut(id) {
            job.holds.push(gpu);
        }
    }

    /// The best rank among a gang's members on a GPU. None, if it has nobody there, which is before all ranks.
    fn gang_rank(&self, gpu: GpuId, id: JobId) -> Option<Rank> {
        let job = self.jobs.get(id)?;
        let here = self.taking_part(job).filter(|(_, tenant)| tenant.gpu == gpu);
        here.map(|(_, tenant)| policies::rank(&self.settings, &self.standing(tenant))).min()
    }

    /// At the end of a turn: does a gang that waits for this GPU get it?
    pub(super) fn let_gang_hold(&mut self, gpu: GpuId) {
        let books = self.gpu_of(gpu);
        if books.gangs_waiting.is_empty() || !self.is_free(gpu) {
            return;
        }
        if let Some(holder) = books.held_by {
            let together = self.jobs.get(holder).is_some_and(|job| job.gang == Gang::Together);
            if !together || books.turn.is_none() {
                // It waits for its other GPUs, or is about to begin.
                return;
            }
            self.part(holder);
        }
        let books = self.gpu_of(gpu);
        let Some(best) = books.gangs_waiting.iter().copied().min_by_key(|&id| (self.gang_rank(gpu, id), id))
        else {
            return;
        };
        if books.line.first().is_none_or(|&(rank, _)| self.gang_rank(gpu, best) <= Some(rank)) {
            self.hold(gpu, best);
            self.proceed(best);
        }
    }

    /// It has all its GPUs: everybody else there makes way.
    fn start(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.gang = Gang::Together;
        for gpu in job.holds.clone() {
            let job = self.jobs.get(id).expect("it was there above");
            let first =
                self.taking_part(job).filter(|(_, tenant)| tenant.gpu == gpu).map(|(id, _)| id).next();
            let used_up = self.gpu_of(gpu).turn.is_some_and(|turn| turn.until <= self.now);
            self.end_turn(gpu, used_up);
            let books = self.gpu_mut(gpu);
            let before = std::mem::replace(&mut books.incoming, first);
            if let Some(before) = before {
                self.relist(before);
            }
            self.concerned.insert(gpu);
        }
    }

    /// A gang's turn ends on all its GPUs at once: as late as on any of them. Were it over on one a moment before the
    /// others, whoever is next there would come before all who are in line where it is not.
    pub(super) fn even_turns(&mut self, id: TenantId, until: Time) -> Time {
        let Some(tenant) = self.tenants.get(id).filter(|tenant| self.is_in_gang_together(tenant)) else {
            return until;
        };
        let Some(job) = self.jobs.get(tenant.job) else { return until };
        let (holds, members) = (job.holds.clone(), job.members.clone());
        let ours = |turn: &&mut Turn| members.contains(&turn.tenant);
        let mut turns: Vec<_> = self
            .gpus
            .iter_mut()
            .filter(|(gpu, _)| holds.contains(gpu))
            .filter_map(|(_, books)| books.turn.as_mut().filter(ours))
            .collect();
        let until = turns.iter().map(|turn| turn.until).fold(until, Time::max);
        turns.iter_mut().for_each(|turn| turn.until = until);
        self.concerned.extend(holds);
        until
    }

    /// The gang gives up its GPUs, and stands in line anew.
    pub(super) fn part(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id).filter(|job| job.terms.gang || job.gang != Gang::Apart) else {
            return;
        };
        job.gang = Gang::Apart;
        let holds = std::mem::take(&mut job.holds);
        let members = job.members.clone();
        for books in self.gpus.values_mut() {
            books.gangs_waiting.remove(&id);
        }
        for gpu in holds {
            self.gpu_mut(gpu).held_by = None;
            self.concerned.insert(gpu);
        }
        let places = members.iter().filter_map(|&member| self.tenants.get(member)).map(|tenant| tenant.gpu);
        for gpu in places.collect::<BTreeSet<_>>() {
            if self.gpu_of(gpu).turn.is_some_and(|turn| members.contains(&turn.tenant)) {
                self.end_turn(gpu, true);
            }
            let books = self.gpu_mut(gpu);
            if books.incoming.is_some_and(|incoming| members.contains(&incoming)) {
                books.incoming = None;
            }
            self.concerned.insert(gpu);
        }
        members.into_iter().for_each(|member| self.relist(member));
    }

    /// Somebody came, went, or began to want: another member may have to stand in line for the gang.
    pub(super) fn relist_lead(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id).filter(|job| job.terms.gang) else { return };
        let idle = job.gang == Gang::Gathering && self.lead(job).is_none();
        let members: Vec<_> = job.members.iter().copied().collect();
        if idle {
            self.part(id);
        }
        members.into_iter().for_each(|member| self.relist(member));
    }
}
