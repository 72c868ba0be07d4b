//! Jobs outlive the worker: each leaves them to the next, with their terms.

use super::limits::in_core;
use super::{Daemon, Input};
use crate::conversation;
use crate::executor;
use crate::handover::{Job, Legacy};
use rustix::event::{PollFd, PollFlags};
use sched::{Event, JobId};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// How long to wait where the system does not say who has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Daemon {
    /// Takes up the jobs that the last worker left.
    pub(super) fn take_up_jobs(&mut self) {
        let Some(handover) = &mut self.handover else { return };
        let Legacy { jobs, tests } = handover.read();
        self.tests = tests;
        for Job { uid, name, terms, paused, deep, timeout, roots } in jobs {
            let core_terms = in_core(uid, &terms, false);
            let job = self.jobs.begin(uid, &name, terms, self.now());
            if let Some(begun) = self.jobs.get_mut(job) {
                (begun.paused, begun.timeout, begun.roots) = (paused, timeout, roots);
            }
            self.step(Event::Job { job, terms: core_terms });
            if paused {
                self.step(Event::Pause(job));
            }
            self.set_deep(job, deep);
        }
    }

    /// Sees to it that jobs end with the processes that began them. One that is not there any more, though another process may
    /// have its number by now, has ended while no worker was there.
    pub(super) fn watch_roots(&self, inputs: &Sender<Input>) {
        let roots = self.jobs.iter().flat_map(|(id, job)| job.roots.iter().map(move |&root| (id, root)));
        let mut watched = Vec::new();
        for (job, root) in roots {
            match conversation::watch_for_end(root) {
                Some(watch) => watched.push((job, root.pid, watch)),
                None => drop(inputs.send(Input::RootGone(job, root.pid))),
            }
        }
        if watched.is_empty() {
            return;
        }
        let inputs = inputs.clone();
        executor::spawn("roots", move || tell_of_ends(watched, &inputs));
    }

    /// Leaves the jobs as they are now, if they have changed.
    pub(super) fn leave_jobs(&mut self) {
        if self.handover.is_none() || !self.jobs.take_changed() {
            return;
        }
        let left = self.jobs.with_names().map(|(_, job)| Job {
            uid: job.uid,
            name: job.name.clone(),
            terms: job.terms.clone(),
            paused: job.paused,
            deep: job.deep,
            timeout: job.timeout,
            roots: job.roots.clone(),
        });
        let legacy = Legacy { jobs: left.collect(), tests: self.tests.clone() };
        if let Some(handover) = &mut self.handover {
            handover.write(&legacy);
        }
    }
}

/// Tells of the end of each of these processes.
fn tell_of_ends(mut watched: Vec<(JobId, u32, OwnedFd)>, inputs: &Sender<Input>) {
    while !watched.is_empty() {
        let mut polled: Vec<_> =
            watched.iter().map(|(.., watch)| PollFd::new(watch, PollFlags::IN)).collect();
        // Interrupted, or out of memory for a moment: what is readable is seen the next time.
        if rustix::event::poll(&mut polled, None).is_err() {
            std::thread::sleep(LOOK_AGAIN);
            continue;
        }
        let ended: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        drop(polled);
        let mut ended = ended.into_iter();
        let mut gone = Vec::new();
        watched.retain(|&(job, pid, _)| {
            let has_ended = ended.next().unwrap_or(false);
            if has_ended {
                gone.push((job, pid));
            }
            !has_ended
        });
        for (job, pid) in gone {
            if inputs.send(Input::RootGone(job, pid)).is_err() {
                return;
            }
        }
    }
}
