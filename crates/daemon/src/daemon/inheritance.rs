//! Jobs outlive the worker: each leaves them to the next, with their terms.

use super::limits::in_core;
use super::{Daemon, Input};
use crate::conversation;
use crate::executor;
use crate::handover::{Job, Legacy};
use sched::{Event, JobId};
use std::sync::mpsc::Sender;

impl Daemon {
    /// Takes up the jobs that the last worker left.
    pub(super) fn take_up_jobs(&mut self) {
        let Some(handover) = &mut self.handover else { return };
        let Legacy { jobs, tests } = handover.read();
        self.tests = tests;
        for Job { uid, name, terms, paused, timeout, roots } in jobs {
            let core_terms = in_core(uid, &terms, false);
            let job = self.jobs.begin(uid, &name, terms, self.now());
            if let Some(begun) = self.jobs.get_mut(job) {
                (begun.paused, begun.timeout, begun.roots) = (paused, timeout, roots);
            }
            self.step(Event::Job { job, terms: core_terms });
            if paused {
                self.step(Event::Pause(job));
            }
        }
    }

    /// Sees to it that jobs end with the processes that began them.
    pub(super) fn watch_roots(&self, inputs: &Sender<Input>) {
        for (job, pid) in self.roots() {
            let inputs = inputs.clone();
            executor::spawn("root", move || {
                conversation::wait_for_end(pid);
                let _ = inputs.send(Input::RootGone(job, pid));
            });
        }
    }

    fn roots(&self) -> Vec<(JobId, u32)> {
        self.jobs.iter().flat_map(|(id, job)| job.roots.iter().map(move |&pid| (id, pid))).collect()
    }

    /// Leaves the jobs as they are now, if they have changed.
    pub(super) fn leave_jobs(&mut self) {
        if self.handover.is_none() || !self.jobs.take_changed() {
            return;
        }
        let left = self.jobs.iter().map(|(_, job)| Job {
            uid: job.uid,
            name: job.name.clone(),
            terms: job.terms.clone(),
            paused: job.paused,
            timeout: job.timeout,
            roots: job.roots.clone(),
        });
        let legacy = Legacy { jobs: left.collect(), tests: self.tests.clone() };
        if let Some(handover) = &mut self.handover {
            handover.write(&legacy);
        }
    }
}
