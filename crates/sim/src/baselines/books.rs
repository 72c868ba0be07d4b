//! Who was what when: stretches, gaps and waits, as they come.

use super::Seat;
use crate::record::{Fate, Record, Stretch, What};
use crate::{tally, workload};
use sched::{Class, Span, TenantId, Time};

/// The books of one run.
pub(super) struct Books {
    record: Record,
    open: Vec<Open>,
}

/// What a tenant does now.
struct Open {
    gpu: u16,
    now: Option<(What, Time)>,
    /// It has had work and not run since.
    waits: Option<Time>,
    /// Its last turn ended then, and it has had work since.
    off: Option<Time>,
    /// Its work has an end.
    ends: bool,
}

impl Books {
    /// With everybody who will come.
    pub(super) fn new(seats: &[Seat<'_>]) -> Self {
        let mut record = Record { finished: true, ..Record::default() };
        let mut open = Vec::new();
        for (number, seat) in seats.iter().enumerate() {
            let place = seats[..number].iter().filter(|other| other.job == seat.job).count() as u32;
            record.tenants.push(Fate {
                tenant: TenantId(number as u64 + 1),
                job: seat.job,
                name: seat.terms.tenant_name(place),
                arrived: Time(seat.terms.arrives.0),
                ended: None,
                work: Span::ZERO,
                gap_max: Span::ZERO,
                wait_max: Span::ZERO,
                best_effort: seat.terms.terms.class == Class::BestEffort,
                wanted: Span::ZERO,
                ran: Span::ZERO,
                ran_beside: Span::ZERO,
                late: 0,
            });
            open.push(Open {
                gpu: seat.gpu,
                now: None,
                waits: None,
                off: None,
                ends: workload::ends(&seat.terms.work),
            });
        }
        Self { record, open }
    }

    /// From now on a tenant does this.
    pub(super) fn is(&mut self, tenant: usize, what: What, now: Time) {
        let open = &mut self.open[tenant];
        if open.now.is_some_and(|(before, _)| before == what) {
            return;
        }
        self.close(tenant, now);
        let open = &mut self.open[tenant];
        open.now = Some((what, now));
        match what {
            What::Ran | What::Idle => {
                let waited = open.waits.take().map_or(Span::ZERO, |since| now.since(since));
                let fate = &mut self.record.tenants[tenant];
                fate.wait_max = fate.wait_max.max(waited);
                if what == What::Idle {
                    open.off = None;
                }
            }
            What::Waited | What::MovedIn | What::MovedOut => open.waits = open.waits.or(Some(now)),
        }
    }

    /// A turn begins.
    pub(super) fn turn_begins(&mut self, tenant: usize, now: Time) {
        if let Some(off) = self.open[tenant].off.take() {
            self.gap(tenant, now.since(off));
        }
    }

    /// A turn ends while there is work left.
    pub(super) fn turn_ends(&mut self, tenant: usize, now: Time) {
        self.open[tenant].off = Some(now);
    }

    /// A gap that was not a turn's.
    pub(super) fn gap(&mut self, tenant: usize, gap: Span) {
        let fate = &mut self.record.tenants[tenant];
        fate.gap_max = fate.gap_max.max(gap);
    }

    /// A wait that is no stretch of its own.
    pub(super) fn wait(&mut self, tenant: usize, wait: Span) {
        let fate = &mut self.record.tenants[tenant];
        fate.wait_max = fate.wait_max.max(wait);
    }

    /// GPU time of its own work.
    pub(super) fn work(&mut self, tenant: usize, work: Span) {
        self.record.tenants[tenant].work += work;
    }

    /// A request was answered.
    pub(super) fn latency(&mut self, latency: Option<Span>) {
        self.record.latencies.extend(latency);
    }

    /// Memory moved, and nobody ran for that.
    pub(super) fn moved(&mut self, bytes: u64, time: Span) {
        self.record.moved.0 += bytes;
        self.record.moving += time;
    }

    /// A tenant is over, or killed as the scenario has it.
    pub(super) fn ends(&mut self, tenant: usize, now: Time) {
        self.is(tenant, What::Idle, now);
        self.open[tenant].now = None;
        self.record.tenants[tenant].ended = Some(now);
    }

    /// A tenant stops without having got to its end.
    pub(super) fn fails(&mut self, tenant: usize, now: Time) {
        self.close(tenant, now);
        self.open[tenant].now = None;
        self.record.finished = false;
    }

    /// All is over, at `limit` at the latest. Who still goes on then has not finished, if it ever would.
    pub(super) fn close_all(mut self, limit: Time) -> Record {
        let mut last = Time::ZERO;
        for tenant in 0..self.open.len() {
            if self.open[tenant].now.is_some() {
                last = limit;
                self.close(tenant, limit);
                if let Some(since) = self.open[tenant].waits {
                    self.wait(tenant, limit.since(since));
                }
                self.record.finished &= !self.open[tenant].ends;
            } else if let Some(ended) = self.record.tenants[tenant].ended {
                last = last.max(ended);
            }
        }
        let ends = self.record.stretches.iter().map(|stretch| stretch.end);
        self.record.makespan = last.max(ends.max().unwrap_or_default()).min(limit).since(Time::ZERO);
        self.record.stretches.sort_by_key(|stretch| stretch.begin);
        tally::add_up(&mut self.record);
        self.record
    }

    fn close(&mut self, tenant: usize, now: Time) {
        let Open { gpu, now: before, .. } = &mut self.open[tenant];
        let Some((what, begin)) = before.take() else { return };
        if begin < now {
            let tenant = self.record.tenants[tenant].tenant;
            self.record.stretches.push(Stretch { tenant, gpu: *gpu, what, begin, end: now });
        }
    }
}
