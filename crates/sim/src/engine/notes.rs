//! What is written down: who did what when, gaps, waits, forecasts, standstill, and what came of it all.

use sched::Span;

use super::tenant::Life;
use super::{Engine, Tenant};
use crate::record::{Foretold, Record, Stretch, What};

/// Stretches that are kept: enough for a picture.
const STRETCHES_MAX: usize = 2_000_000;

impl Engine<'_> {
    /// Notes what a tenant does now, if that is new.
    pub(super) fn note(&mut self, tenant: usize) {
        self.notes(tenant, what(&self.tenants[tenant]));
    }

    fn notes(&mut self, tenant: usize, what: Option<What>) {
        let (id, now) = (self.id(tenant), self.now);
        let it = &mut self.tenants[tenant];
        if it.what.map(|(before, _)| before) == what {
            return;
        }
        let gpu = super::gpu_id(it.gpu).0;
        let before = std::mem::replace(&mut it.what, what.map(|what| (what, now)));
        self.tally.change(&mut self.record, tenant, gpu, before, what, now);
        if let Some((what, begin)) = before
            && begin < now
            && self.record.stretches.len() < STRETCHES_MAX
        {
            self.record.stretches.push(Stretch { tenant: id, gpu, what, begin, end: now });
        }
    }

    /// A tenant waited so long for something.
    pub(super) fn waited(&mut self, tenant: usize, span: Span) {
        let fate = &mut self.record.tenants[tenant];
        fate.wait_max = fate.wait_max.max(span);
    }

    /// A tenant is off the GPU.
    pub(super) fn turn_ended(&mut self, tenant: usize) {
        self.pause_measure(tenant);
        if self.tenants[tenant].wants {
            self.begins_to_wait(tenant);
        }
    }

    /// A tenant is on the GPU.
    pub(super) fn turn_began(&mut self, tenant: usize) {
        let (id, now) = (self.id(tenant), self.now);
        let it = &mut self.tenants[tenant];
        it.runs_since = Some(now);
        if let Some(since) = it.waits_since.take() {
            let (span, forecast) = (now.since(since), it.forecast.take());
            let had_turns = it.had_turns;
            self.waited(tenant, span);
            if had_turns {
                let fate = &mut self.record.tenants[tenant];
                fate.gap_max = fate.gap_max.max(span);
            }
            self.record.forecasts.push(Foretold { tenant: id, begin: since, said: forecast, was: span });
        }
        self.tenants[tenant].had_turns = true;
        self.schedule_measure(tenant);
    }

    pub(super) fn begins_to_wait(&mut self, tenant: usize) {
        let it = &mut self.tenants[tenant];
        if it.group.is_some() && it.waits_since.is_none() {
            it.waits_since = Some(self.now);
            it.forecast = None;
            self.began_to_wait.push(tenant);
        }
    }

    /// It has nothing to do any more: its wait came to nothing.
    pub(super) fn stops_waiting(&mut self, tenant: usize) {
        let now = self.now;
        if let Some(since) = self.tenants[tenant].waits_since.take() {
            self.tenants[tenant].forecast = None;
            self.waited(tenant, now.since(since));
        }
    }

    /// How long will those wait who began to in this step?
    pub(super) fn ask_for_forecasts(&mut self) {
        while let Some(tenant) = self.began_to_wait.pop() {
            // Whoever only listens to what the core is told has no use for what it says.
            if self.tenants[tenant].waits_since == Some(self.now) && self.heard.is_none() {
                self.tenants[tenant].forecast = self.core.forecast(self.id(tenant), self.now);
            }
        }
    }

    /// Notes since when memory moves and nobody can run, or adds it up.
    pub(super) fn note_standstill(&mut self) {
        let now = self.now;
        for truth in &mut self.gpus {
            let stands = truth.moving.is_some() && !truth.device.is_busy();
            match (truth.stands_since, stands) {
                (None, true) => truth.stands_since = Some(now),
                (Some(since), false) => {
                    self.record.moving += now.since(since);
                    truth.stands_since = None;
                }
                _ => {}
            }
        }
    }

    /// GPU time that a tenant has had.
    pub(super) fn count_work(&mut self, tenant: usize) {
        let it = &self.tenants[tenant];
        if let Some(group) = it.group.filter(|_| it.is_alive()) {
            self.record.tenants[tenant].work = self.gpus[it.gpu].device.done(self.now, group);
        }
    }

    /// Whatever a tenant waits for, it waits no longer: it ends, or time does.
    pub(super) fn waits_end(&mut self, tenant: usize) {
        let it = &mut self.tenants[tenant];
        let at_door = (it.life == Life::Outside).then_some(self.record.tenants[tenant].arrived);
        let for_memory = it.asked.values().map(|&(_, since)| since);
        let since = it.waits_since.take().into_iter().chain(at_door).chain(for_memory).min();
        if let Some(since) = since {
            self.waited(tenant, self.now.since(since));
        }
    }

    /// Everything is over, or time is.
    pub(super) fn finish(mut self) -> Record {
        for tenant in 0..self.tenants.len() {
            self.count_work(tenant);
            if let Some(since) = self.tenants[tenant].waits_since.filter(|_| self.tenants[tenant].had_turns) {
                let fate = &mut self.record.tenants[tenant];
                fate.gap_max = fate.gap_max.max(self.now.since(since));
            }
            if self.tenants[tenant].is_alive() {
                self.waits_end(tenant);
            }
            self.notes(tenant, None);
        }
        for truth in &self.gpus {
            if let Some(since) = truth.stands_since {
                self.record.moving += self.now.since(since);
            }
            self.record.livelock |= truth.device.livelock();
        }
        self.record.stretches.sort_by_key(|stretch| (stretch.begin, stretch.tenant));
        self.record.finished = self.to_end == 0 && !self.failed;
        let last = self.record.tenants.iter().filter_map(|fate| fate.ended).max();
        let scheduled = sched::Time::ZERO + self.scenario.limit;
        let ends = self.scenario.jobs.iter().any(|job| crate::workload::ends(&job.work));
        self.record.makespan = match last.filter(|_| ends && self.to_end == 0) {
            Some(last) => last.since(sched::Time::ZERO),
            None => scheduled.since(sched::Time::ZERO),
        };
        self.record
    }
}

fn what(it: &Tenant) -> Option<What> {
    match it.life {
        Life::Gone | Life::Buried => None,
        Life::Outside | Life::Starting => Some(What::Waited),
        Life::Loading | Life::Working => Some(match it.moving {
            Some(moving) => moving,
            None if !it.wants => What::Idle,
            None if it.is_thawed() => What::Ran,
            None => What::Waited,
        }),
    }
}
