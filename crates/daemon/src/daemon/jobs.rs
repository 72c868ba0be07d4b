//! Jobs: the tenants of one user that gave the same name, and the terms they have together.
//!
//! A job begins with `rota run`, or with its first tenant where there was none. It is there as long as a process that began
//! it lives, or a tenant of it.

use crate::executable::Executable;
use sched::{GpuId, JobId, Span, TenantId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::{Change, Class, Terms};

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    /// Whose it is.
    pub(super) uid: u32,
    pub(super) name: String,
    pub(super) terms: Terms,
    /// What of them was asked for, as far as this worker knows.
    pub(super) asked: Change,
    pub(super) paused: bool,
    /// And gives up its contexts too, then.
    pub(super) deep: bool,
    /// Why its last program was sent to the GPUs that it is on.
    pub(super) placed: Option<String>,
    /// All GPUs that programs of it were sent to or came to.
    pub(super) gpus: BTreeSet<GpuId>,
    /// One of its processes is on several GPUs: it only gets on as a whole.
    pub(super) several: bool,
    /// All who were in it have ended, and its name is free again; it is here until the last of them has left.
    pub(super) bereft: bool,
    /// How long its programs wait at the door before they give up.
    pub(super) timeout: Option<Duration>,
    /// Since when it is there.
    pub(super) began: Time,
    /// The processes that began or joined it by `rota run` and are alive, in the order they came.
    pub(super) roots: Vec<keeper::Process>,
    pub(super) members: BTreeSet<TenantId>,
    /// What each of them runs, where anything depends on it.
    pub(super) programs: BTreeMap<TenantId, Executable>,
    /// What those had of the GPU who left.
    ran_before: Span,
}

/// How long a tenant had the GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    in_turns: Span,
    /// The turn that is on began then.
    since: Option<Time>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    all: BTreeMap<JobId, Job>,
    ran: BTreeMap<TenantId, Ran>,
    given_out: u64,
    /// Something may be other than it was left to the next worker.
    changed: bool,
}

impl Jobs {
    /// The job that a process began or joined.
    pub(super) fn begun_by(&self, pid: u32) -> Option<JobId> {
        self.iter().find(|(_, job)| job.roots.iter().any(|root| root.pid == pid)).map(|(id, _)| id)
    }

    /// Nobody is there.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All there are, in the order they began.
    pub(super) fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.all.iter().map(|(&id, job)| (id, job))
    }

    /// Those that can be found by their names.
    pub(super) fn with_names(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.iter().filter(|(_, job)| !job.bereft)
    }

    /// Is one of them latency-critical?
    pub(super) fn have_critical(&self) -> bool {
        self.iter().any(|(_, job)| job.terms.class == Class::LatencyCritical)
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Job> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.changed = true;
        self.all.get_mut(&id)
    }

    /// A user's job of this name.
    pub(super) fn named(&self, uid: u32, name: &str) -> Option<JobId> {
        self.with_names().find(|(_, job)| job.uid == uid && job.name == name).map(|(id, _)| id)
    }

    /// The job of a tenant.
    pub(super) fn of(&self, tenant: TenantId) -> Option<JobId> {
        self.iter().find(|(_, job)| job.members.contains(&tenant)).map(|(id, _)| id)
    }

    /// A job begins.
    pub(super) fn begin(&mut self, uid: u32, name: &str, terms: Terms, began: Time) -> JobId {
        self.given_out += 1;
        self.changed = true;
        let id = JobId(self.given_out);
        let job = Job {
            uid,
            name: name.into(),
            terms,
            asked: Change::default(),
            paused: false,
            deep: false,
            placed: None,
            gpus: BTreeSet::new(),
            several: false,
            bereft: false,
            timeout: None,
            began,
            roots: Vec::new(),
            members: BTreeSet::new(),
            programs: BTreeMap::new(),
            ran_before: Span::ZERO,
        };
        self.all.insert(id, job);
        id
    }

    /// A tenant comes to a job that is there.
    pub(super) fn join(&mut self, id: JobId, tenant: TenantId) {
        if let Some(job) = self.all.get_mut(&id) {
            job.members.insert(tenant);
        }
    }

    /// A tenant goes. Says which job is over with it, if one is.
    pub(super) fn leave(&mut self, tenant: TenantId) -> Option<JobId> {
        let ran = self.ran.remove(&tenant).unwrap_or_default();
        let id = self.of(tenant)?;
        let job = self.all.get_mut(&id)?;
        job.members.remove(&tenant);
        job.programs.remove(&tenant);
        job.ran_before += ran.in_turns;
        self.end(id)
    }

    /// A process that began a job is gone. Says which job is over with it, if one is.
    pub(super) fn root_gone(&mut self, id: JobId, pid: u32) -> Option<JobId> {
        self.changed = true;
        let roots = &mut self.all.get_mut(&id)?.roots;
        if let Some(at) = roots.iter().position(|root| root.pid == pid) {
            roots.remove(at);
        }
        self.end(id)
    }

    /// A job with nobody in it is over.
    pub(super) fn end(&mut self, id: JobId) -> Option<JobId> {
        let job = self.all.get(&id)?;
        if !(job.members.is_empty() && job.roots.is_empty()) {
            return None;
        }
        self.changed = true;
        self.all.remove(&id).map(|_| id)
    }

    /// May anything have changed since this was asked last?
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// A tenant's turn begins.
    pub(super) fn turn_begins(&mut self, tenant: TenantId, now: Time) {
        self.ran.entry(tenant).or_default().since = Some(now);
    }

    /// A tenant's turn is over.
    pub(super) fn turn_ends(&mut self, tenant: TenantId, ran: Span) {
        let known = self.ran.entry(tenant).or_default();
        known.since = None;
        known.in_turns += ran;
    }

    /// How long a tenant had the GPU.
    pub(super) fn ran(&self, tenant: TenantId, now: Time) -> Span {
        let Ran { in_turns, since } = self.ran.get(&tenant).copied().unwrap_or_default();
        in_turns + since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// How long all tenants of a job had the GPU, those that left included.
    pub(super) fn ran_of(&self, job: &Job, now: Time) -> Span {
        job.members.iter().fold(job.ran_before, |sum, &tenant| sum + self.ran(tenant, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::limits::USUAL;

    fn process(pid: u32) -> keeper::Process {
        keeper::Process { pid, start_ticks: 1 }
    }

    #[test]
    fn a_job_ends_with_its_last_tenant() {
        let mut jobs = Jobs::default();
        let mine = jobs.begin(1000, "a", USUAL, Time(0));
        let other = jobs.begin(1001, "a", USUAL, Time(0));
        assert_eq!((jobs.named(1000, "a"), jobs.named(1001, "a")), (Some(mine), Some(other)));
        jobs.join(mine, TenantId(1));
        jobs.join(mine, TenantId(2));
        assert_eq!(jobs.leave(TenantId(1)), None);
        assert_eq!(jobs.leave(TenantId(2)), Some(mine));
        assert_eq!(jobs.leave(TenantId(2)), None);
        assert_eq!(jobs.named(1000, "a"), None);
        assert_ne!(jobs.begin(1000, "a", USUAL, Time(0)), mine, "a number is never used twice");
    }

    #[test]
    fn a_job_lives_as_long_as_the_process_that_began_it() {
        let mut jobs = Jobs::default();
        let job = jobs.begin(1000, "a", USUAL, Time(0));
        jobs.get_mut(job).unwrap().roots.extend([7, 8, 7].map(process));
        jobs.join(job, TenantId(1));
        assert_eq!(jobs.leave(TenantId(1)), None, "the program may come back");
        assert_eq!(jobs.root_gone(job, 7), None);
        assert_eq!(jobs.root_gone(job, 8), None, "the same process opened it twice");
        assert_eq!(jobs.root_gone(job, 7), Some(job));
        assert!(jobs.is_empty());
    }

    #[test]
    fn time_on_the_gpu_counts_while_the_turn_is_on_and_after_the_tenant_left() {
        let mut jobs = Jobs::default();
        let job = jobs.begin(1000, "a", USUAL, Time(0));
        jobs.get_mut(job).unwrap().roots.push(process(7));
        jobs.join(job, TenantId(1));
        jobs.turn_begins(TenantId(1), Time(100));
        assert_eq!(jobs.ran(TenantId(1), Time(130)), Span(30));
        jobs.turn_ends(TenantId(1), Span(50));
        assert_eq!(jobs.ran(TenantId(1), Time(900)), Span(50));
        jobs.leave(TenantId(1));
        assert_eq!(jobs.ran_of(jobs.get(job).unwrap(), Time(900)), Span(50));
    }
}
