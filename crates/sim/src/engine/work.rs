//! What tenants do with the GPU while they are at work.

use sched::{Event, Ratio, Span};

use super::Engine;
use super::queue::Happening;
use super::tenant::{Activity, Life};
use crate::gpu::request;
use crate::workload::{Coming, Next};

/// A tenant's busy share is measured over this much of its own running time.
const MEASURED_OVER: Span = Span::from_millis(100);

impl Engine<'_> {
    /// Says whether a tenant has work, if that is new.
    pub(super) fn wants(&mut self, tenant: usize, wants: bool) {
        if self.tenants[tenant].wants == wants {
            return;
        }
        self.tenants[tenant].wants = wants;
        let id = self.id(tenant);
        self.tell(if wants { Event::wants(id) } else { Event::Idle(id) });
        if !self.tenants[tenant].is_thawed() {
            if wants { self.begins_to_wait(tenant) } else { self.stops_waiting(tenant) }
        }
        self.note(tenant);
    }

    /// Its memory is there: it goes to work.
    pub(super) fn begins(&mut self, tenant: usize) {
        match &mut self.tenants[tenant].activity {
            Activity::Program(_) => self.proceeds(tenant),
            Activity::Service(requests) => {
                let first = requests.next();
                self.wants(tenant, false);
                match first {
                    Some(first) => self.will_come(tenant, first),
                    None => self.is_over(tenant),
                }
            }
        }
    }

    fn submit(&mut self, tenant: usize, work: Span) {
        let it = &self.tenants[tenant];
        if let Some(group) = it.group {
            self.gpus[it.gpu].device.submit(self.now, group, work);
        }
    }

    /// A program's next step.
    fn proceeds(&mut self, tenant: usize) {
        let Activity::Program(program) = &mut self.tenants[tenant].activity else { return };
        match program.next() {
            Next::Compute(work) => {
                self.wants(tenant, true);
                self.submit(tenant, work.max(Span(1)));
            }
            Next::Pause(pause) => {
                self.tenants[tenant].pauses_since = Some(self.now);
                self.queue.push(self.now + pause, Happening::Resumes(tenant));
            }
            Next::Rest(pause) => {
                self.wants(tenant, false);
                self.queue.push(self.now + pause, Happening::Resumes(tenant));
            }
            Next::Over => self.is_over(tenant),
        }
    }

    fn is_over(&mut self, tenant: usize) {
        self.tenants[tenant].over = true;
        self.may_be_over(tenant);
    }

    /// It ends, unless it still waits for memory.
    pub(super) fn may_be_over(&mut self, tenant: usize) {
        if self.tenants[tenant].over && self.tenants[tenant].asked.is_empty() {
            self.ends(tenant, true);
        }
    }

    /// A pause of its host is over.
    pub(super) fn resumes(&mut self, tenant: usize) {
        if !self.tenants[tenant].is_alive() {
            return;
        }
        self.count_pause(tenant);
        self.tenants[tenant].pauses_since = None;
        self.proceeds(tenant);
    }

    /// All the work that a tenant gave the GPU is done.
    pub(super) fn work_done(&mut self, tenant: usize) {
        if self.tenants[tenant].life != Life::Working {
            return;
        }
        if matches!(self.tenants[tenant].activity, Activity::Program(_)) {
            self.proceeds(tenant);
            return;
        }
        // A warm-up is nobody's request.
        let Some(came) = self.tenants[tenant].serving.take() else { return };
        let took = self.now.since(came);
        self.record.latencies.push(took);
        let slo = self.scenario.jobs[self.tenants[tenant].job].terms.slo;
        self.record.tenants[tenant].late += u64::from(slo.is_some_and(|slo| took > slo));
        self.serves_next(tenant);
    }

    /// The next request is known.
    fn will_come(&mut self, tenant: usize, coming: Coming) {
        let before = self.tenants[tenant].coming.map_or(self.now, |(at, _)| at);
        let at = before + coming.after;
        self.tenants[tenant].coming = Some((at, coming));
        if let Some((after, within)) = coming.false_hint {
            self.queue.push((before + after).max(self.now), Happening::Hints(tenant, within));
        }
        let ahead = coming.hint.map_or(Span::ZERO, |hint| hint.ahead);
        self.queue.push(at.before(ahead).max(self.now), Happening::Announces(tenant));
    }

    /// A request is so near that it is hinted, if it is.
    pub(super) fn announces(&mut self, tenant: usize) {
        let Some((at, coming)) = self.tenants[tenant].coming.filter(|_| self.tenants[tenant].is_alive())
        else {
            return;
        };
        if let Some(hint) = coming.hint {
            let within = (at.since(self.now) + hint.late).less(hint.early);
            self.hints(tenant, within);
        }
        self.queue.push(at, Happening::Request(tenant, coming.service));
        let it = &mut self.tenants[tenant];
        it.announced += 1;
        if let Activity::Service(requests) = &mut it.activity {
            match requests.next() {
                Some(next) => self.will_come(tenant, next),
                None => it.no_more = true,
            }
        }
    }

    pub(super) fn hints(&mut self, tenant: usize, within: Span) {
        if self.tenants[tenant].is_alive() {
            self.tell(Event::Hint { tenant: self.id(tenant), within });
        }
    }

    pub(super) fn request(&mut self, tenant: usize, service: Span) {
        if !self.tenants[tenant].is_alive() {
            return;
        }
        self.tenants[tenant].waiting.push_back((self.now, service));
        self.tenants[tenant].arrived += 1;
        self.wants(tenant, true);
        if self.tenants[tenant].serving.is_none() {
            self.serves_next(tenant);
        }
    }

    fn serves_next(&mut self, tenant: usize) {
        let Some((came, service)) = self.tenants[tenant].waiting.pop_front() else {
            self.wants(tenant, false);
            if self.tenants[tenant].no_more && self.tenants[tenant].announced == self.tenants[tenant].arrived
            {
                self.is_over(tenant);
            }
            return;
        };
        self.tenants[tenant].serving = Some(came);
        let truth = &self.gpus[self.tenants[tenant].gpu];
        let service =
            request(&truth.gpu.physics, &mut self.random, service, truth.device.dozes(self.now)).max(Span(1));
        self.submit(tenant, service);
    }

    /// Plans the next measurement of a tenant that runs.
    pub(super) fn schedule_measure(&mut self, tenant: usize) {
        let it = &mut self.tenants[tenant];
        it.measures += 1;
        let left = MEASURED_OVER.less(it.ran);
        self.queue.push(self.now + left, Happening::Measures(tenant, it.measures));
    }

    /// It has been off the GPU: what it ran so far counts.
    pub(super) fn pause_measure(&mut self, tenant: usize) {
        self.count_pause(tenant);
        let now = self.now;
        let it = &mut self.tenants[tenant];
        it.measures += 1;
        if let Some(since) = it.runs_since.take() {
            it.ran += now.since(since);
        }
    }

    /// Adds what its host paused while it could have run.
    fn count_pause(&mut self, tenant: usize) {
        let now = self.now;
        let it = &mut self.tenants[tenant];
        if let (Some(pauses), Some(runs)) = (it.pauses_since, it.runs_since) {
            it.paused += now.since(pauses.max(runs));
            it.pauses_since = Some(now);
        }
    }

    pub(super) fn measures(&mut self, tenant: usize, count: u64) {
        if self.tenants[tenant].measures != count || !self.tenants[tenant].is_alive() {
            return;
        }
        self.count_pause(tenant);
        let it = &self.tenants[tenant];
        let Some(group) = it.group else { return };
        let (gpu, service) = (it.gpu, matches!(it.activity, Activity::Service(_)));
        let done = self.gpus[gpu].device.done(self.now, group);
        let it = &mut self.tenants[tenant];
        let busy = done.less(it.done_when_measured);
        // Who serves requests is measured by the clock: it could run all the time.
        let whole = if service { busy.max(MEASURED_OVER) } else { busy + it.paused };
        it.done_when_measured = done;
        (it.ran, it.paused, it.runs_since) = (Span::ZERO, Span::ZERO, Some(self.now));
        if whole > Span::ZERO && it.life == Life::Working {
            let busy = Ratio::between(busy.0, whole.0);
            self.tell(Event::Measured { tenant: self.id(tenant), busy });
        }
        self.schedule_measure(tenant);
    }
}
