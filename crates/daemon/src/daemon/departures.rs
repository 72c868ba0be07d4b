//! How tenants go: what they had counts until the driver has given it back.

use super::Daemon;
use crate::events::nanos;
use crate::executor::Work;
use sched::{Event, GpuId, JobId, TenantId};
use serde_json::json;
use std::sync::mpsc::Sender;
use std::time::Instant;

/// Deaths of which a part is still to be cleaned up.
#[derive(Debug, Default)]
pub(super) struct Dying {
    closed: bool,
    reaped: Option<Instant>,
    /// Its process, and where it was.
    pub(super) process: Option<(GpuId, u32)>,
}

impl Daemon {
    /// A tenant died or hung up.
    pub(super) fn leave(&mut self, tenant: TenantId, seen: Instant) {
        self.note("left", tenant, self.noted_statistics(tenant));
        self.forget_toll(tenant);
        let Some(known) = self.known.remove(&tenant) else { return };
        self.deep.forget(tenant);
        self.leave_muster(tenant);
        self.awaited_names.forget(tenant);
        // Should it live, nobody waits for it any more.
        self.gathered(tenant);
        self.dying.entry(tenant).or_default().process = Some((known.gpu, known.link.who.pid));
        self.withdraw_all(tenant);
        self.executor(known.gpu).order(Work::Reap(tenant, seen));
        self.step(Event::Left(tenant));
        let home = self.jobs.of(tenant);
        self.end_job_of(tenant);
        if let Some(home) = home {
            self.tell_of_memory(home);
        }
    }

    /// Somebody came back and hung up without a word, and its process lives: it is expected again, as it was before.
    pub(super) fn let_go(&mut self, tenant: TenantId, process: keeper::Process, answer: Sender<bool>) {
        tracing::warn!("tenant {tenant} came back and hung up without a word: it is expected again");
        self.note("hung_up", tenant, json!({}));
        self.forget_toll(tenant);
        if self.known.remove(&tenant).is_some() {
            self.deep.forget(tenant);
            self.muster_again(tenant);
            self.awaited_names.forget(tenant);
            self.withdraw_all(tenant);
            self.step(Event::Left(tenant));
            self.settle_dead(tenant);
            self.step(Event::Buried(tenant));
            self.end_job_of(tenant);
        }
        self.expect_again(tenant, process);
        let _ = answer.send(true);
    }

    /// Its process is gone and its files are closed.
    pub(super) fn closed(&mut self, tenant: TenantId) {
        self.dying.entry(tenant).or_default().closed = true;
        self.bury(tenant);
    }

    /// The mover has dropped what it had.
    pub(super) fn reaped(&mut self, tenant: TenantId, seen: Instant) {
        self.dying.entry(tenant).or_default().reaped = Some(seen);
        self.bury(tenant);
    }

    fn bury(&mut self, tenant: TenantId) {
        if let Some(Dying { closed: true, reaped: Some(seen), .. }) = self.dying.get(&tenant) {
            self.events.note("reaped", json!({ "tenant": tenant.0, "took_ns": nanos(seen.elapsed()) }));
            self.dying.remove(&tenant);
            self.settle_dead(tenant);
            self.step(Event::Buried(tenant));
        }
    }

    /// Someone who never had anything goes.
    pub(super) fn leave_with_nothing(&mut self, tenant: TenantId) {
        self.step(Event::Left(tenant));
        self.step(Event::Buried(tenant));
        self.end_job_of(tenant);
    }

    pub(super) fn end_job_of(&mut self, tenant: TenantId) {
        let job = self.jobs.of(tenant);
        if let Some(over) = self.jobs.leave(tenant) {
            self.step(Event::JobOver(over));
        } else if let Some(job) = job {
            self.mind_several(job);
        }
    }

    /// A job that nobody came to is over.
    pub(super) fn end_if_empty(&mut self, job: JobId) {
        if let Some(over) = self.jobs.end(job) {
            self.step(Event::JobOver(over));
        }
    }
}
