//! A machine that does what the core says, at the costs that were measured, and on which programs do what they do.

mod act;

use crate::oracle::Watch;
use crate::program::{Deed, Handle, Process, Step, Waits};
use sched::{
    Bytes, Core, Event, GpuId, GpuSpec, HandleId, OpId, Outcome, Owned, Ratio, RequestId, Settings, Span,
    TenantId, Time,
};
use std::collections::BTreeMap;

pub(crate) const FREEZE: Span = Span::from_micros(1_500);
pub(crate) const THAW: Span = Span::from_micros(550);
pub(crate) const PER_MOVE: Span = Span::from_millis(10);
pub(crate) const PER_SECOND: u64 = 43_000_000_000;
pub(crate) const RESIDUE: Bytes = Bytes::from_mib(500);
const CONTEXT: Span = Span::from_millis(200);
const BURIAL: Span = Span::from_millis(90);
const CLAIM: Span = Span::from_micros(100);
/// Whoever has no work for so long is idle.
const IDLE: Span = Span::from_millis(2);
/// How busy somebody is, is measured over so much of its time on the GPU.
const MEASURED_OVER: Span = Span::from_millis(100);
/// Events at one instant: more, and the core goes round in circles.
const AT_ONCE_MAX: u32 = 2_000;

enum What {
    Comes(TenantId),
    Context(TenantId),
    Goes(TenantId),
    Claims(TenantId, RequestId, Bytes),
    Adopts(Owned),
    IsIdle(TenantId, Time),
    Frozen(OpId, TenantId),
    Thawed(OpId, TenantId),
    Done(OpId, Outcome),
    Moved(OpId, GpuId, Vec<Owned>, Vec<Owned>, Span),
    Buried(TenantId),
    Does(TenantId, Deed),
}

/// What is true of a GPU.
pub(crate) struct Gpu {
    pub(crate) capacity: Bytes,
    pub(crate) reserve: Bytes,
    pub(crate) unmanaged: Bytes,
    pub(crate) moving: bool,
    /// Freezes, thaws and slices under way.
    pub(crate) grips: u32,
}

pub(crate) struct Machine {
    pub(crate) core: Core,
    pub(crate) settings: Settings,
    pub(crate) now: Time,
    pub(crate) ends: Time,
    agenda: BTreeMap<(Time, u64), What>,
    count: u64,
    pub(crate) gpus: BTreeMap<GpuId, Gpu>,
    pub(crate) all: BTreeMap<TenantId, Process>,
    pub(crate) watch: Watch,
    pub(crate) diary: bool,
    /// It is measured how busy programs are, and some fill the gaps of others.
    pub(crate) measures: bool,
}

impl Machine {
    pub(crate) fn new(settings: Settings, gpus: &[Bytes], arena: Bytes, ends: Span) -> Self {
        let mut machine = Self {
            core: Core::new(settings.clone()),
            settings,
            now: Time::ZERO,
            ends: Time::ZERO + ends,
            agenda: BTreeMap::new(),
            count: 0,
            gpus: BTreeMap::new(),
            all: BTreeMap::new(),
            watch: Watch::default(),
            diary: false,
            measures: false,
        };
        for (gpu, &capacity) in (0u16..).zip(gpus) {
            let reserve = Bytes::from_mib(600);
            let spec = GpuSpec { capacity, reserve, numa: 0, links: Vec::new() };
            machine.gpus.insert(
                GpuId(gpu),
                Gpu { capacity, reserve, unmanaged: Bytes::ZERO, moving: false, grips: 0 },
            );
            machine.tell(Event::Gpu { gpu: GpuId(gpu), spec });
        }
        machine.tell(Event::Arena(arena));
        machine
    }

    pub(crate) fn add(&mut self, process: Process, comes: Span, deeds: Vec<(Span, Deed)>) {
        let id = process.id;
        self.all.insert(id, process);
        self.plan(comes, What::Comes(id));
        for (at, deed) in deeds {
            self.plan(at, What::Does(id, deed));
        }
    }

    fn plan(&mut self, after: Span, what: What) {
        self.count += 1;
        self.agenda.insert((self.now + after, self.count), what);
    }

    /// Lets everything happen until the end.
    pub(crate) fn run(&mut self) {
        let mut at_once = 0;
        loop {
            let planned = self.agenda.first_key_value().map(|(&(at, _), _)| at);
            let wake = self.core.wake_at().map(|at| at.max(self.now));
            let done = self.next_done();
            let Some(next) = [planned, wake, done].into_iter().flatten().min().filter(|&at| at <= self.ends)
            else {
                break;
            };
            at_once = if next > self.now { 0 } else { at_once + 1 };
            assert!(at_once < AT_ONCE_MAX, "the core goes round in circles at {:?}", self.now);
            self.pass(next);
            if self.measures {
                self.measure();
            }
            if done == Some(next) && self.finish_work() {
                continue;
            }
            match self.agenda.first_entry().filter(|first| first.key().0 <= next) {
                Some(first) => {
                    let what = first.remove();
                    self.happen(what);
                }
                None => self.tell(Event::Tick),
            }
        }
        self.pass(self.ends);
    }

    /// How busy those are who run, once there is enough to go by.
    fn measure(&mut self) {
        let is_due = |p: &&Process| p.measured.0 >= MEASURED_OVER && p.is_alive();
        let due: Vec<_> = self.all.values().filter(is_due).map(|p| (p.id, p.measured)).collect();
        for (tenant, (on, busy)) in due {
            self.process(tenant).measured = (Span::ZERO, Span::ZERO);
            self.tell(Event::Measured { tenant, busy: Ratio::between(busy.0, on.0) });
        }
    }

    /// Does somebody's work get on?
    fn computes(&self, process: &Process) -> bool {
        let on = |id: &TenantId| self.all.get(id).is_none_or(|fellow| !fellow.is_alive() || fellow.thawed);
        process.thawed && process.work > Span::ZERO && process.fellows.iter().all(on)
    }

    pub(crate) fn computing(&self, gpu: GpuId) -> u64 {
        self.all.values().filter(|process| process.gpu == gpu && self.computes(process)).count() as u64
    }

    fn next_done(&self) -> Option<Time> {
        let computing = self.all.values().filter(|process| self.computes(process));
        computing.map(|process| self.now + process.work.times(self.computing(process.gpu))).min()
    }

    /// Time passes: those who compute get on with it.
    fn pass(&mut self, to: Time) {
        let span = to.since(self.now);
        if span == Span::ZERO {
            return;
        }
        self.watch_pass(span);
        for process in self.all.values_mut().filter(|process| process.thawed) {
            process.measured.0 += span;
            process.measured.1 += if process.work > Span::ZERO { span } else { Span::ZERO };
        }
        let done: Vec<_> = self
            .all
            .values()
            .filter(|process| self.computes(process))
            .map(|process| (process.id, Span(span.0 / self.computing(process.gpu))))
            .collect();
        for (id, done) in done {
            let process = self.process(id);
            process.worked += done;
            process.work = process.work.less(done);
        }
        self.now = to;
    }

    /// Those whose work is done go on. Was there anybody?
    fn finish_work(&mut self) -> bool {
        let is_done = |p: &&Process| p.work == Span::ZERO && p.waits == Waits::Work;
        let done: Vec<_> = self.all.values().filter(is_done).map(|p| p.id).collect();
        for &id in &done {
            self.process(id).waits = Waits::Nothing;
            self.proceed(id);
            self.look_idle(id);
        }
        let now = self.now;
        let is_idle = |p: &&Process| p.wants && p.work == Span::ZERO && p.idle_since < now;
        let idle: Vec<_> = self.all.values().filter(is_idle).map(|p| p.id).collect();
        idle.into_iter().for_each(|id| self.look_idle(id));
        !done.is_empty()
    }

    /// If it has no work, that is noticed in a while.
    fn look_idle(&mut self, id: TenantId) {
        let now = self.now;
        let process = self.process(id);
        if process.is_alive() && process.wants && process.work == Span::ZERO {
            process.idle_since = now;
            self.plan(IDLE, What::IsIdle(id, now));
        }
    }

    pub(crate) fn process(&mut self, id: TenantId) -> &mut Process {
        self.all.get_mut(&id).expect("the core speaks of somebody who is there")
    }

    /// A program goes on until it has to wait.
    fn proceed(&mut self, id: TenantId) {
        while self.process(id).waits == Waits::Nothing {
            if self.process(id).has_begun_to_repeat() {
                self.judge_life(id);
            }
            let step = self.process(id).next_step();
            self.note(|| format!("{id} {step:?}"));
            match step {
                Step::Alloc(bytes) => {
                    let now = self.now;
                    let process = self.process(id);
                    process.next += 1;
                    process.pieces += 1;
                    let request = RequestId(process.next);
                    process.waits = Waits::Memory(request, bytes, now);
                    self.tell(Event::Ask { tenant: id, request, bytes });
                }
                Step::Work(span) | Step::Launch(span) => {
                    let process = self.process(id);
                    process.work += span;
                    process.asked += span;
                    if matches!(step, Step::Work(_)) {
                        process.waits = Waits::Work;
                    }
                    let is_new = !std::mem::replace(&mut process.wants, true);
                    if is_new {
                        self.tell(Event::wants(id));
                    }
                }
                Step::Host(span) => {
                    self.count_pause(id, span);
                    self.process(id).waits = Waits::Host;
                    self.plan(span, What::Goes(id));
                }
                Step::Free(count) => {
                    let handles: Vec<_> = self.process(id).handles.keys().take(count).copied().collect();
                    for handle in &handles {
                        self.process(id).handles.remove(handle);
                    }
                    self.tell(Event::Freed { tenant: id, handles });
                }
                Step::Pin(pinned) => self.pin(id, pinned),
                Step::End => self.end(id),
            }
            self.process(id).asked_last = matches!(step, Step::Alloc(_));
        }
    }

    fn pin(&mut self, id: TenantId, pinned: bool) {
        let found = self.process(id).handles.iter().find(|(_, held)| held.pinned != pinned);
        let Some((&handle, &Handle { bytes, .. })) = found else { return };
        if pinned && self.core.cannot_stay(id, bytes).is_some() {
            return;
        }
        self.process(id).handles.entry(handle).and_modify(|held| held.pinned = pinned);
        self.tell(Event::Pinned { owned: Owned { tenant: id, handle }, pinned });
    }

    pub(crate) fn end(&mut self, id: TenantId) {
        let now = self.now;
        let process = self.process(id);
        if !process.is_alive() {
            return;
        }
        (process.waits, process.wants, process.thawed, process.context) = (Waits::Gone, false, false, false);
        process.left = Some(now);
        process.work = Span::ZERO;
        process.waits_since = None;
        self.tell(Event::Left(id));
        self.plan(BURIAL, What::Buried(id));
    }

    fn happen(&mut self, what: What) {
        let now = self.now;
        match what {
            What::Comes(id) => {
                let process = self.process(id);
                process.came = now;
                let (job, gpu, terms) = (process.job, process.gpu, process.terms.clone());
                self.tell(Event::Job { job, terms });
                self.tell(Event::Arrived { tenant: id, job, gpu, residue: RESIDUE });
            }
            What::Context(id) => {
                let process = self.process(id);
                if process.is_alive() {
                    (process.context, process.thawed, process.waits) = (true, true, Waits::Nothing);
                    process.came = now;
                    self.tell(Event::Context { tenant: id, present: true });
                    self.proceed(id);
                }
            }
            What::Goes(id) => {
                if self.process(id).waits == Waits::Host {
                    self.process(id).is_short = false;
                    self.process(id).waits = Waits::Nothing;
                    self.proceed(id);
                }
            }
            What::Claims(id, request, bytes) => self.claim(id, request, bytes),
            What::Adopts(owned) => {
                if self.process(owned.tenant).handles.contains_key(&owned.handle) {
                    self.tell(Event::Adopted { owned, movable: true });
                }
            }
            What::IsIdle(id, since) => {
                let process = self.process(id);
                if process.wants && process.work == Span::ZERO && process.idle_since == since {
                    process.wants = false;
                    self.tell(Event::Idle(id));
                }
            }
            What::Frozen(op, id) => {
                self.grip_over(op, id, false);
                self.compare(id);
                self.tell(Event::Done { op, outcome: Outcome::Done { took: FREEZE } });
            }
            What::Thawed(op, id) => {
                self.grip_over(op, id, true);
                self.tell(Event::Done { op, outcome: Outcome::Done { took: THAW } });
            }
            What::Done(op, outcome) => self.tell(Event::Done { op, outcome }),
            What::Moved(op, gpu, out, into, took) => {
                self.gpus.get_mut(&gpu).expect("it is there").moving = false;
                let outcome = Outcome::Moved { out, into, unsettled: Vec::new(), took };
                self.tell(Event::Done { op, outcome });
            }
            What::Buried(id) => {
                let job = self.process(id).job;
                self.process(id).handles.clear();
                self.tell(Event::Buried(id));
                self.tell(Event::JobOver(job));
            }
            What::Does(id, deed) => self.do_to(id, deed),
        }
    }

    fn do_to(&mut self, id: TenantId, deed: Deed) {
        let now = self.now;
        let cannot_reserve = self.core.cannot_reserve(self.all[&id].job).is_some();
        let process = self.process(id);
        if !process.is_alive() || !process.context {
            return;
        }
        process.disturbed = true;
        let job = process.job;
        match deed {
            Deed::Kill => self.end(id),
            Deed::Pause => {
                process.paused = true;
                process.paused_since = Some(now);
                self.tell(Event::Pause(job));
            }
            Deed::Resume => {
                process.paused = false;
                if let Some(since) = process.paused_since.take() {
                    process.was_paused += now.since(since);
                    process.long_pauses += 1;
                }
                self.tell(Event::Resume(job));
            }
            Deed::GivesWay(gives_way) => self.tell(Event::GivesWay { tenant: id, gives_way }),
            Deed::Unmanaged(bytes) => {
                let gpu = process.gpu;
                self.gpus.get_mut(&gpu).expect("it is there").unmanaged = bytes;
                self.tell(Event::Unmanaged { gpu, bytes });
            }
            Deed::Terms(terms) if terms.reserve && cannot_reserve => {}
            Deed::Terms(terms) => {
                process.terms = terms.clone();
                self.tell(Event::Job { job, terms });
            }
        }
    }

    /// It is off the GPU: what of it has not changed since it came in?
    fn compare(&mut self, id: TenantId) {
        let process = self.process(id);
        let copied: Vec<_> = process
            .handles
            .iter()
            .filter(|(_, held)| held.copied && !held.away)
            .map(|(&handle, _)| handle)
            .collect();
        let reads = process.reads && process.is_alive();
        for handle in copied {
            self.process(id).handles.entry(handle).and_modify(|held| held.copied &= reads);
            if reads {
                self.tell(Event::Copied { owned: Owned { tenant: id, handle }, clean: true });
            }
        }
    }

    fn grip_over(&mut self, op: OpId, id: TenantId, thawed: bool) {
        let process = self.process(id);
        let gpu = process.gpu;
        if process.grip == Some(op) {
            process.grip = None;
            process.thawed = thawed && process.is_alive();
        }
        let gpu = self.gpus.get_mut(&gpu).expect("it is there");
        gpu.grips -= 1;
        if thawed {
            self.watch_thawed(id);
        }
    }

    fn claim(&mut self, id: TenantId, request: RequestId, bytes: Bytes) {
        if !self.process(id).is_alive() {
            return;
        }
        let handle = HandleId(request.0);
        self.process(id).handles.insert(handle, Handle { bytes, away: false, pinned: false, copied: false });
        let owned = Owned { tenant: id, handle };
        self.tell(Event::Claimed { owned, request, bytes });
        self.plan(CLAIM, What::Adopts(owned));
        self.process(id).waits = Waits::Nothing;
        self.proceed(id);
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.diary {
            println!("{:10.4} {}", self.now.0 as f64 / 1e9, what());
        }
    }

    fn tell(&mut self, event: Event) {
        if !matches!(event, Event::Tick | Event::Done { .. } | Event::Measured { .. }) {
            self.note(|| format!("    told {event:?}"));
        }
        self.watch.is_stale |= !matches!(
            event,
            Event::Tick | Event::Done { .. } | Event::Wants { .. } | Event::Idle(_) | Event::Measured { .. }
        );
        for action in self.core.step(self.now, event) {
            self.act(action);
        }
        assert!(self.core.wake_at().is_none_or(|at| at > self.now), "what is due now was not done now");
    }
}
