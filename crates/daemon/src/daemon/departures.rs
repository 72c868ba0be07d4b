//! How tenants go: what they had counts until the driver has given it back.

use super::Daemon;
use crate::events::nanos;
use crate::executor::Work;
use keeper::Process;
use sched::{Event, GpuId, JobId, TenantId};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::Instant;

/// Deaths of which a part is still to be cleaned up.
#[derive(Debug, Default)]
pub(super) struct Dying {
    closed: bool,
    reaped: Option<Instant>,
    /// Its process, and where it was.
    pub(super) process: Option<(GpuId, Process)>,
}

impl Dying {
    fn is_of(&self, process: Process) -> bool {
        self.process.is_some_and(|(_, its)| its == process)
    }
}

/// Those of a dead process whose memory is free, with when they were seen to be gone. The last close of its control files is what
/// frees it, on all of its GPUs, and whoever freezes it on one of them has copies of those files open.
fn freed(dying: &BTreeMap<TenantId, Dying>, process: Process) -> Vec<(TenantId, Instant)> {
    let of_it = || dying.iter().filter(|(_, dying)| dying.is_of(process));
    if of_it().any(|(_, dying)| !dying.closed) {
        return Vec::new();
    }
    of_it().filter_map(|(&tenant, dying)| Some((tenant, dying.reaped?))).collect()
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
        self.dying.entry(tenant).or_default().process = Some((known.gpu, known.link.process));
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
    pub(super) fn let_go(&mut self, tenant: TenantId, process: Process, answer: Sender<bool>) {
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
        self.bury_those_of(process);
        let _ = answer.send(true);
    }

    /// Its process is gone and its files are closed, as far as they were open for this tenant.
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
        if let Some((_, process)) = self.dying.get(&tenant).and_then(|dying| dying.process) {
            self.bury_those_of(process);
        }
    }

    fn bury_those_of(&mut self, process: Process) {
        // One that has not been seen to be gone is about to be: it has files open.
        if self.known.values().any(|known| known.link.process == process) {
            return;
        }
        for (tenant, seen) in freed(&self.dying, process) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_on_several_gpus_is_free_once_its_files_are_closed_for_all_of_them() {
        let seen = Instant::now();
        let [one, other] = [5, 6].map(|pid| Process { pid, start_ticks: 7 });
        let dying = |gpu, process, closed, reaped: bool| Dying {
            closed,
            reaped: reaped.then_some(seen),
            process: Some((GpuId(gpu), process)),
        };
        let mut all = BTreeMap::from([
            (TenantId(1), dying(0, one, true, true)),
            (TenantId(2), dying(1, one, false, true)),
            (TenantId(3), dying(0, other, false, false)),
        ]);
        let whose = |all: &_| freed(all, one).into_iter().map(|(tenant, _)| tenant.0).collect::<Vec<_>>();
        assert_eq!(whose(&all), [0; 0], "the other's files keep it");
        all.insert(TenantId(2), dying(1, one, true, false));
        assert_eq!(whose(&all), [1], "the mover has some of the other's");
        all.insert(TenantId(2), dying(1, one, true, true));
        assert_eq!(whose(&all), [1, 2]);
        assert!(freed(&all, other).is_empty());
    }
}
