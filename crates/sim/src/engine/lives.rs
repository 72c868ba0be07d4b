//! Coming and going: jobs, the door, contexts, first memory, and ends of all kinds.

use sched::{Bytes, Event, RequestId, Span, TicketId};

use super::queue::Happening;
use super::tenant::{Activity, Life, Tenant};
use super::{Engine, gpu_id, job_id};
use crate::record::Fate;
use crate::workload::{Program, Requests, ends};

/// To make a context.
const CONTEXT: Span = Span::from_millis(200);
/// From a death until the driver has given everything back.
const BURIAL: Span = Span::from_millis(90);

impl Engine<'_> {
    pub(super) fn job_comes(&mut self, job: usize) {
        let scenario = self.scenario;
        let spec = &scenario.jobs[job];
        self.tell(Event::Job { job: job_id(job), terms: spec.terms.clone() });
        if !spec.gpus.is_empty() {
            for number in 0..spec.tenants {
                let gpu = spec.gpus[number as usize % spec.gpus.len()];
                self.arrives(job, number, usize::from(gpu));
            }
            return;
        }
        // A gang is placed as a whole, others one by one.
        let groups: Vec<Vec<u32>> = match spec.terms.gang {
            true => vec![(0..spec.tenants).collect()],
            false => (0..spec.tenants).map(|number| vec![number]).collect(),
        };
        for numbers in groups {
            let ticket = TicketId(self.tickets.len() as u64 + 1);
            let count = u16::try_from(numbers.len()).expect("a gang is small");
            self.tickets.insert(ticket, (job, numbers));
            let bytes =
                spec.memory.growth.map_or(spec.memory.bytes, |(_, _, most)| most.max(spec.memory.bytes));
            self.tell(Event::Place {
                ticket,
                job: job_id(job),
                count,
                among: Vec::new(),
                bytes,
                residue: None,
            });
        }
    }

    /// The core said where to go.
    pub(super) fn placed(&mut self, ticket: TicketId, gpus: &[sched::GpuId]) {
        let Some((job, numbers)) = self.tickets.get(&ticket).cloned() else {
            self.broken(&format!("nobody asked where ticket {ticket} goes"));
        };
        if gpus.is_empty() {
            for number in numbers {
                let tenant = self.born(job, number, 0);
                self.ends(tenant, false);
            }
            return;
        }
        self.require(gpus.len() == numbers.len(), || format!("{numbers:?} asked for GPUs and got {gpus:?}"));
        for (number, gpu) in numbers.into_iter().zip(gpus) {
            self.arrives(job, number, usize::from(gpu.0));
        }
    }

    fn born(&mut self, job: usize, number: u32, gpu: usize) -> usize {
        self.require(gpu < self.gpus.len(), || format!("there is no GPU {gpu}"));
        let spec = &self.scenario.jobs[job];
        let index = self.tenants.len();
        let lane = index as u64 + 1;
        let activity = match Requests::new(&spec.work, self.scenario.seed, lane) {
            Some(requests) => Activity::Service(requests),
            None => Activity::Program(Program::new(&spec.work, self.scenario.seed, lane)),
        };
        self.tenants.push(Tenant::new(job, gpu, activity));
        self.record.tenants.push(Fate {
            tenant: self.id(index),
            job,
            name: spec.tenant_name(number),
            arrived: self.now,
            ended: None,
            work: Span::ZERO,
            gap_max: Span::ZERO,
            wait_max: Span::ZERO,
            best_effort: spec.terms.class == sched::Class::BestEffort,
            wanted: Span::ZERO,
            ran: Span::ZERO,
            ran_beside: Span::ZERO,
            late: 0,
        });
        index
    }

    fn arrives(&mut self, job: usize, number: u32, gpu: usize) {
        let tenant = self.born(job, number, gpu);
        let residue = self.gpus[gpu].gpu.residue;
        self.tell(Event::Arrived { tenant: self.id(tenant), job: job_id(job), gpu: gpu_id(gpu), residue });
        self.note(tenant);
    }

    /// It is let in.
    pub(super) fn admitted(&mut self, tenant: usize) {
        let life = self.tenants[tenant].life;
        if life == Life::Gone && !self.tenants[tenant].left_told {
            return;
        }
        self.require(life == Life::Outside, || format!("tenant {tenant} is let in while {life:?}"));
        self.tenants[tenant].life = Life::Starting;
        let waited = self.now.since(self.record.tenants[tenant].arrived);
        self.waited(tenant, waited);
        self.queue.push(self.now + CONTEXT, Happening::ContextMade(tenant));
    }

    pub(super) fn refused(&mut self, tenant: usize) {
        self.ends(tenant, false);
    }

    pub(super) fn context_made(&mut self, tenant: usize) {
        if !self.tenants[tenant].is_alive() {
            return;
        }
        let gpu = self.tenants[tenant].gpu;
        let residue = self.gpus[gpu].gpu.residue;
        self.take(gpu, residue, "a context");
        let truth = &mut self.gpus[gpu];
        let group = truth.device.add(truth.gpu.physics.slice_own);
        truth.groups.insert(group, tenant);
        let it = &mut self.tenants[tenant];
        (it.life, it.group, it.had_turns) = (Life::Loading, Some(group), false);
        it.runs_since = Some(self.now);
        self.note_step(gpu, None);
        self.tell(Event::Context { tenant: self.id(tenant), present: true });
        if self.scenario.jobs[self.tenants[tenant].job].memory.pause.is_none() {
            // It will fill its memory: from here on it has something to do.
            self.wants(tenant, true);
        }
        self.schedule_measure(tenant);
        self.loads(tenant);
    }

    /// Asks for the next piece of its first memory, or goes to work.
    pub(super) fn loads(&mut self, tenant: usize) {
        if !self.tenants[tenant].is_alive() {
            return;
        }
        let scenario = self.scenario;
        let memory = &scenario.jobs[self.tenants[tenant].job].memory;
        let left = memory.bytes.less(self.tenants[tenant].bytes);
        if left > Bytes::ZERO {
            let piece = if memory.handle > Bytes::ZERO { left.min(memory.handle) } else { left };
            self.asks(tenant, piece);
            return;
        }
        self.tenants[tenant].life = Life::Working;
        if let Some((_, every, _)) = memory.growth {
            self.queue.push(self.now + every, Happening::Grows(tenant));
        }
        self.begins(tenant);
    }

    fn asks(&mut self, tenant: usize, bytes: Bytes) {
        let now = self.now;
        let it = &mut self.tenants[tenant];
        it.asked_ever += 1;
        it.bytes += bytes;
        let request = RequestId(it.asked_ever);
        it.asked.insert(request, (bytes, now));
        self.tell(Event::Ask { tenant: self.id(tenant), request, bytes });
    }

    pub(super) fn grows(&mut self, tenant: usize) {
        let it = &self.tenants[tenant];
        let Some((bytes, every, most)) = self.scenario.jobs[it.job].memory.growth else { return };
        if !it.is_alive() || it.over || it.bytes + bytes > most {
            return;
        }
        if it.asked.is_empty() {
            self.asks(tenant, bytes);
        }
        self.queue.push(self.now + every, Happening::Grows(tenant));
    }

    /// Out of memory, as programs know it: they end.
    pub(super) fn denied(&mut self, tenant: usize, request: RequestId) {
        self.require(self.tenants[tenant].asked.contains_key(&request), || {
            format!("request {request} of tenant {tenant} is denied, but nobody asks")
        });
        self.ends(tenant, false);
    }

    pub(super) fn job_dies(&mut self, job: usize) {
        for tenant in 0..self.tenants.len() {
            if self.tenants[tenant].job == job && self.tenants[tenant].is_alive() {
                self.ends(tenant, true);
            }
        }
    }

    /// A tenant ends: by itself or as the scenario says (`well`), or because there was no other way.
    pub(super) fn ends(&mut self, tenant: usize, well: bool) {
        let now = self.now;
        self.count_work(tenant);
        if !self.tenants[tenant].is_alive() {
            return;
        }
        self.waits_end(tenant);
        let it = &mut self.tenants[tenant];
        let (gpu, job) = (it.gpu, it.job);
        it.life = Life::Gone;
        it.wants = false;
        it.frozen = None;
        // Its channels stay until it is buried, with nothing on them.
        if let Some(group) = it.group {
            self.gpus[gpu].device.remove(now, group);
        }
        self.note(tenant);
        self.note_end(tenant);
        self.record.tenants[tenant].ended = Some(now);
        self.failed |= !well;
        if ends(&self.scenario.jobs[job].work) {
            self.to_end -= 1;
        }
        self.tell(Event::Left(self.id(tenant)));
        self.queue.push(now + BURIAL, Happening::Buried(tenant));
    }

    /// The driver gives back what it had, unless the mover is still busy with it.
    pub(super) fn buried(&mut self, tenant: usize) {
        let (gpu, job) = (self.tenants[tenant].gpu, self.tenants[tenant].job);
        if let Some(moving) = &self.gpus[gpu].moving
            && self.tenants[tenant].moving.is_some()
        {
            let after = moving.ends + Span(1);
            self.queue.push(after, Happening::Buried(tenant));
            return;
        }
        let it = &mut self.tenants[tenant];
        let context = if it.group.take().is_some() { self.gpus[gpu].gpu.residue } else { Bytes::ZERO };
        let bytes = it.on_device() + context;
        it.life = Life::Buried;
        it.handles.clear();
        self.gpus[gpu].used -= bytes;
        self.tell(Event::Buried(self.id(tenant)));
        self.members[job] -= 1;
        if self.members[job] == 0 {
            self.tell(Event::JobOver(job_id(job)));
        }
    }

    /// The core ends somebody.
    pub(super) fn ended_by_core(&mut self, tenant: usize) {
        if self.tenants[tenant].is_alive() {
            self.ends(tenant, false);
        }
    }
}
