//! The simulator's loop: what happens goes to the unchanged core, what the core wants is carried out on GPUs that behave
//! as measured, and its completion is what happens next.
//!
//! The engine knows the truth: where every byte is and who runs. It does not trust the core: should the core ask for
//! something impossible, or let something happen that never may, the run ends with a panic that names the scenario, the
//! seed, the time and the number of the event. What programs do lives in `workload`, how GPUs behave in `gpu`, what goes
//! wrong in `faults`.

mod actions;
mod lives;
mod memory;
mod moves;
mod needs;
mod notes;
mod queue;
mod tenant;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, VecDeque};

use sched::{Bytes, Core, Event, GpuId, GpuSpec, JobId, TenantId, TicketId, Time};

use self::moves::Moving;
use self::needs::Needs;
use self::queue::{Happening, Queue};
use self::tenant::Tenant;
use crate::faults::Luck;
use crate::gpu::{Device, GroupId};
use crate::optimum::{Case, OptimumError};
use crate::random::Random;
use crate::record::Record;
use crate::scenario::{Gpu, Scenario};
use crate::tally::Tally;

/// A core that wants to be woken so often at one instant will never stop.
const WAKES_MAX: u32 = 10_000;

/// Apart from the lanes of tenants, which are small numbers.
const PHYSICS_LANE: u64 = 2 << 40;

/// Runs a scenario under rota's core.
pub fn run(scenario: &Scenario) -> Record {
    let mut engine = Engine::new(scenario);
    engine.begin();
    while engine.step() {}
    engine.finish()
}

/// Runs a scenario and returns all that the core was told, for whoever wants to tell it another one.
pub fn listen(scenario: &Scenario) -> Vec<(Time, Event)> {
    let mut engine = Engine::new(scenario);
    engine.heard = Some(Vec::new());
    engine.begin();
    while engine.step() {}
    engine.heard.take().unwrap_or_default()
}

/// Runs a scenario and returns what was needed on each GPU as well.
pub(crate) fn run_noting_needs(scenario: &Scenario) -> (Record, Vec<Result<Case, OptimumError>>) {
    let mut engine = Engine::new(scenario);
    engine.needs = Some(Needs::new(scenario.gpus.len()));
    engine.begin();
    while engine.step() {}
    let cases = engine.needs.take().map_or_else(Vec::new, Needs::cases);
    (engine.finish(), cases)
}

struct Engine<'a> {
    scenario: &'a Scenario,
    core: Core,
    now: Time,
    /// Told, but not yet to the core.
    inbox: VecDeque<Event>,
    /// All that the core was told, if somebody listens.
    heard: Option<Vec<(Time, Event)>>,
    /// What was needed on the GPUs, if somebody asks.
    needs: Option<Needs>,
    queue: Queue,
    gpus: Vec<Truth<'a>>,
    tenants: Vec<Tenant>,
    /// Tenants of each job that are not buried yet.
    members: Vec<u32>,
    tickets: BTreeMap<TicketId, (usize, Vec<u32>)>,
    luck: Luck,
    random: Random,
    record: Record,
    tally: Tally,
    /// Waits that began in this step: the core is asked how long they will be.
    began_to_wait: Vec<usize>,
    /// Tenants whose work ends by itself and has not.
    to_end: u64,
    /// Somebody was refused, ended, or ran out of memory.
    failed: bool,
    wakes: u32,
}

/// What is true of a GPU.
struct Truth<'a> {
    gpu: &'a Gpu,
    device: Device,
    /// Whose group is which.
    groups: BTreeMap<GroupId, usize>,
    /// Device memory in use, the mover's reserve included.
    used: Bytes,
    moving: Option<Moving>,
    /// Since when memory moves and nobody can run.
    stands_since: Option<Time>,
}

impl<'a> Engine<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let gpus = scenario.gpus.iter().map(|gpu| Truth {
            gpu,
            device: Device::new(&gpu.physics),
            groups: BTreeMap::new(),
            used: gpu.reserve,
            moving: None,
            stands_since: None,
        });
        Self {
            scenario,
            core: Core::new(scenario.settings.clone()),
            now: Time::ZERO,
            inbox: VecDeque::new(),
            heard: None,
            needs: None,
            queue: Queue::default(),
            gpus: gpus.collect(),
            tenants: Vec::new(),
            members: scenario.jobs.iter().map(|job| job.tenants).collect(),
            tickets: BTreeMap::new(),
            luck: Luck::new(&scenario.faults, scenario.seed),
            random: Random::new(scenario.seed, PHYSICS_LANE),
            record: Record::default(),
            tally: Tally::default(),
            began_to_wait: Vec::new(),
            to_end: 0,
            failed: false,
            wakes: 0,
        }
    }

    fn begin(&mut self) {
        for (index, gpu) in self.scenario.gpus.iter().enumerate() {
            let spec = GpuSpec {
                capacity: gpu.capacity,
                reserve: gpu.reserve,
                numa: 0,
                links: (0..self.gpus.len()).filter(|&other| other != index).map(gpu_id).collect(),
            };
            self.tell(Event::Gpu { gpu: gpu_id(index), spec });
        }
        self.tell(Event::Arena(self.scenario.arena));
        self.pump();
        for (job, terms) in self.scenario.jobs.iter().enumerate() {
            if crate::workload::ends(&terms.work) {
                self.to_end += u64::from(terms.tenants);
            }
            self.queue.push(Time::ZERO + terms.arrives, Happening::JobComes(job));
            if let Some(dies) = terms.dies {
                self.queue.push(Time::ZERO + dies, Happening::JobDies(job));
            }
        }
    }

    /// Lets the next thing happen. Says whether there may be more.
    fn step(&mut self) -> bool {
        let ends = self.scenario.jobs.iter().any(|job| crate::workload::ends(&job.work));
        if ends && self.to_end == 0 {
            return false;
        }
        let limit = Time::ZERO + self.scenario.limit;
        let device = self.gpus.iter().filter_map(|truth| truth.device.next()).min();
        let wake = self.core.wake_at().map(|wake| wake.max(self.now));
        let Some(next) = [self.queue.next(), device, wake].into_iter().flatten().min() else {
            self.now = limit;
            return false;
        };
        if next > limit {
            self.now = limit;
            return false;
        }
        if next > self.now {
            self.wakes = 0;
        }
        self.now = next;
        if device == Some(next) {
            self.advance_devices();
        } else if self.queue.next() == Some(next) {
            if let Some(happening) = self.queue.pop() {
                self.happen(happening);
            }
        } else {
            self.wakes += 1;
            if self.wakes > WAKES_MAX {
                self.broken("the core wants to be woken at one instant for ever");
            }
            self.tell(Event::Tick);
        }
        self.pump();
        true
    }

    fn advance_devices(&mut self) {
        for index in 0..self.gpus.len() {
            let truth = &mut self.gpus[index];
            if truth.device.next().is_none_or(|next| next > self.now) {
                continue;
            }
            for group in truth.device.advance(self.now) {
                let tenant = self.gpus[index].groups[&group];
                self.work_done(tenant);
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::JobComes(job) => self.job_comes(job),
            Happening::JobDies(job) => self.job_dies(job),
            Happening::ContextMade(tenant) => self.context_made(tenant),
            Happening::Claims(tenant, request) => self.claims(tenant, request),
            Happening::Adopts(owned) => self.adopts(owned),
            Happening::Grows(tenant) => self.grows(tenant),
            Happening::Loads(tenant) => self.loads(tenant),
            Happening::Grip(effect) => self.grip_takes_effect(&effect),
            Happening::Done(op, outcome) => self.tell(Event::Done { op, outcome }),
            Happening::Gripped(tenant, op, took) => self.gripped(tenant, op, took),
            Happening::Inspected(op, tenants) => self.inspected(op, &tenants),
            Happening::MoveEnds(gpu) => self.move_ends(gpu),
            Happening::Answers(tenant) => self.answers(tenant),
            Happening::Resumes(tenant) => self.resumes(tenant),
            Happening::Announces(tenant) => self.announces(tenant),
            Happening::Hints(tenant, within) => self.hints(tenant, within),
            Happening::Request(tenant, service) => self.request(tenant, service),
            Happening::Measures(tenant, count) => self.measures(tenant, count),
            Happening::Buried(tenant) => self.buried(tenant),
        }
    }

    fn tell(&mut self, event: Event) {
        self.inbox.push_back(event);
    }

    /// Gives the core what it was told, and carries out what it wants, until there is nothing more.
    fn pump(&mut self) {
        while let Some(event) = self.inbox.pop_front() {
            self.record.events += 1;
            if let Some(heard) = &mut self.heard {
                heard.push((self.now, event.clone()));
            }
            if let Event::Left(id) = event {
                let tenant = self.index(id);
                self.tenants[tenant].left_told = true;
            }
            for action in self.core.step(self.now, event) {
                self.execute(action);
            }
        }
        self.note_standstill();
        self.ask_for_forecasts();
    }

    fn id(&self, tenant: usize) -> TenantId {
        TenantId(tenant as u64 + 1)
    }

    /// The tenant that the core speaks of.
    fn index(&self, id: TenantId) -> usize {
        match usize::try_from(id.0).ok().and_then(|id| id.checked_sub(1)) {
            Some(index) if index < self.tenants.len() => index,
            _ => self.broken(&format!("the core speaks of tenant {id}, who never was")),
        }
    }

    /// Something happened that never may.
    fn broken(&self, what: &str) -> ! {
        panic!(
            "scenario {}, seed {}, at {} ns, event {}: {what}",
            self.scenario.name, self.scenario.seed, self.now.0, self.record.events
        );
    }

    fn require(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broken(&what());
        }
    }
}

fn gpu_id(index: usize) -> GpuId {
    GpuId(u16::try_from(index).expect("a scenario has few GPUs"))
}

fn job_id(index: usize) -> JobId {
    JobId(index as u64 + 1)
}
