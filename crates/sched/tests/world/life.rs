//! A life: a world driven by chance. Time goes to what is due next, or something happens before.

use super::execute::How;
use super::matrix::Matrix;
use super::random::Chance;
use super::truth::{Deed, RATE_MIN};
use super::{World, truth};
use sched::{Action, Bytes, Event, GpuId, GpuSpec, OpId, PolicyKind, Settings, Span, TenantId, Time};
use std::collections::{BTreeMap, VecDeque};

/// How many of the last events a failing run shows.
const TRACE_MAX: usize = 60;

/// After so many events everybody asks how long they will wait.
const FORECAST_EVERY: u64 = 1_000;

/// A random run.
pub(crate) struct Life {
    pub(crate) seed: u64,
    pub(crate) world: World,
    pub(crate) chance: Chance,
    /// When which action ends, and how; those that are missing never do.
    plan: BTreeMap<OpId, (Time, How)>,
    /// In how many of a hundred something goes wrong.
    pub(crate) faults: u64,
    pub(crate) events: u64,
    pub(crate) tenant_last: u64,
    pub(crate) job_last: u64,
    pub(crate) ticket_last: u64,
    pub(crate) matrix: Matrix,
    trace: VecDeque<String>,
}

impl Life {
    /// GPUs and an arena are there, and nobody else.
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let mut life = Self {
            seed,
            world: World::new(settings(&mut chance)),
            faults: 0,
            events: 0,
            tenant_last: 0,
            job_last: 0,
            ticket_last: 0,
            matrix: Matrix::default(),
            trace: VecDeque::new(),
            plan: BTreeMap::new(),
            chance,
        };
        let gpus = 1 + life.chance.below(3) as u16;
        for gpu in 0..gpus {
            let links = (0..gpus).filter(|&other| other != gpu).map(GpuId).collect();
            let capacity = life.chance.mib(6 << 10, 24 << 10);
            let spec = GpuSpec { capacity, reserve: Bytes::from_mib(600), numa: gpu / 2, links };
            life.tell(Event::Gpu { gpu: GpuId(gpu), spec });
        }
        let arena = life.chance.mib(8 << 10, 64 << 10);
        life.tell(Event::Arena(arena));
        life
    }

    /// Lives through so many events.
    pub(crate) fn live(&mut self, events: u64) {
        let end = self.events + events;
        while self.events < end {
            // Calm times and bad ones.
            self.faults = if self.events / 500 % 3 == 2 { 12 } else { self.events / 500 % 3 };
            if self.chance.percent(55) {
                self.go_on();
            } else {
                let most =
                    *self.chance.of(&[2, 2, 2, 50, 500].map(Span::from_millis)).as_ref().expect("some");
                let at = self.world.now + self.chance.span(most);
                // Mostly what is due first comes first, but a busy daemon may be late.
                while !self.chance.percent(5) && self.due().is_some_and(|due| due <= at) {
                    self.go_on();
                }
                self.world.pass(at);
                self.happening();
            }
        }
    }

    /// When the next thing is due.
    fn due(&self) -> Option<Time> {
        let ends = self.plan.values().map(|(at, _)| *at).min();
        let wake = self.world.core.wake_at().filter(|&at| at < Time::MAX);
        ends.into_iter().chain(wake).min()
    }

    /// Lets time pass to what is due next.
    pub(crate) fn go_on(&mut self) -> bool {
        let Some(due) = self.due() else { return false };
        self.world.pass(due);
        let over =
            self.plan.iter().find(|(_, (at, _))| *at <= self.world.now).map(|(&op, (_, how))| (op, *how));
        match over {
            Some((op, how)) => {
                self.plan.remove(&op);
                self.end(op, how);
            }
            None => self.tell(Event::Tick),
        }
        true
    }

    pub(crate) fn end(&mut self, op: OpId, how: How) {
        self.plan.remove(&op);
        let Some(open) = self.world.ops.get(&op).cloned() else { return };
        let took = Span(self.chance.below(1_500_000) + took(&open).0);
        self.matrix.count_op(&self.world, &open, how);
        self.events += 1;
        self.announce(format!("Done {op} {how:?}, took {took}: {:?}", open.deed));
        let actions = self.world.finish(op, how, took);
        self.note(actions);
    }

    /// Something happens.
    pub(crate) fn tell(&mut self, event: Event) {
        self.matrix.count(&self.world, &event);
        self.events += 1;
        self.announce(format!("{event:?}"));
        let actions = self.world.tell(event);
        self.note(actions);
        if self.events.is_multiple_of(FORECAST_EVERY) {
            self.look_ahead();
        }
    }

    /// Whatever state the core is in, somebody may ask it how long they will wait.
    fn look_ahead(&mut self) {
        self.announce("how long will they wait?".to_owned());
        for &id in self.world.tenants.keys() {
            self.world.core.forecast(id, self.world.now);
        }
    }

    /// What is about to happen: written down before, in case the core does not survive it.
    fn announce(&mut self, text: String) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>12.6}s {text}", self.world.now.0 as f64 / 1e9));
    }

    fn note(&mut self, actions: Vec<Action>) {
        for action in &actions {
            if let Some(op) = begun(action) {
                self.decide(op);
            }
        }
        if let Some(line) = self.trace.back_mut() {
            for action in &actions {
                line.push_str(&format!("\n                  -> {action:?}"));
            }
        }
        self.stop_if_broken();
    }

    fn stop_if_broken(&self) {
        if self.world.broken.is_empty() {
            return;
        }
        let broken: Vec<String> = self.world.broken.iter().map(ToString::to_string).collect();
        panic!("{}", broken.join("\n"));
    }

    /// What will become of an action.
    fn decide(&mut self, op: OpId) {
        let Some(open) = self.world.ops.get(&op) else { return };
        let (due, moves, grips) = (open.due, open.moves(), open.grips());
        let soon = self.world.now + took(open) + Span(self.chance.below(2_000_000));
        // What is done to the channels of one tenant is done in order.
        let before = |(other, _): &(&OpId, &(Time, How))| {
            grips.is_some()
                && self.world.ops.get(other).is_some_and(|other| !other.overdue && other.grips() == grips)
        };
        let before = self.plan.iter().filter(before).map(|(_, (at, _))| *at).max();
        let soon = before.map_or(soon, |before| soon.max(before));
        let late = due + self.chance.span(Span::from_secs(2));
        let quarters = self.chance.below(5) as u8;
        if !self.chance.percent(self.faults) {
            self.plan.insert(op, (soon, How::Well));
            return;
        }
        let how = match self.chance.below(6) {
            0 | 1 => How::Fail,
            2 if moves => How::Torn(quarters),
            2 | 3 => How::Part(quarters),
            _ => How::Well,
        };
        match self.chance.below(6) {
            0 => {
                self.world.lose(op, how);
            }
            1 => {
                self.plan.insert(op, (late, how));
            }
            _ => {
                self.plan.insert(op, (soon, how));
            }
        }
    }

    /// An action ends only after it was given up.
    pub(crate) fn put_off(&mut self, op: OpId) {
        let late = self.world.ops.get(&op).map(|open| open.due + Span::from_secs(3600));
        if let Some(late) = late {
            self.plan.insert(op, (late, How::Well));
        }
    }

    /// Everything that is open ends soon and well.
    pub(crate) fn hurry(&mut self) {
        self.faults = 0;
        let soon = self.world.now + Span::from_millis(1);
        for (at, _) in self.plan.values_mut() {
            *at = soon.min(*at);
        }
    }

    /// Says that a check of the run itself failed, with what is needed to see it again.
    pub(crate) fn fail(&mut self, rule: super::rules::Rule, text: String) {
        self.world.broke(rule, text);
        self.stop_if_broken();
    }

    /// Can the driver have given back what this one had?
    pub(crate) fn can_bury(&self, tenant: TenantId) -> bool {
        let concerns = |op: &truth::Op| op.moves() && op.handles().any(|(owned, _)| owned.tenant == tenant);
        !self.world.ops.values().any(|op| !op.overdue && concerns(op))
    }
}

/// A life that ends in a panic, also one of the core itself, says how it came to that and how to see it again.
impl Drop for Life {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let trace: Vec<&str> = self.trace.iter().map(String::as_str).collect();
            println!(
                "{}\nafter {} events: replay with ROTA_SEED={}",
                trace.join("\n"),
                self.events,
                self.seed
            );
        }
    }
}

/// The number of an action that has one.
pub(crate) fn begun(action: &Action) -> Option<OpId> {
    match action {
        Action::Freeze { op, .. }
        | Action::Thaw { op, .. }
        | Action::Slice { op, .. }
        | Action::Move { op, .. }
        | Action::Inspect { op, .. } => Some(*op),
        _ => None,
    }
}

fn took(op: &truth::Op) -> Span {
    match &op.deed {
        Deed::Move { .. } => op.handles().map(|(_, bytes)| bytes).sum::<Bytes>().at(4 * RATE_MIN),
        _ => Span::from_micros(200),
    }
}

fn settings(chance: &mut Chance) -> Settings {
    let policies =
        [PolicyKind::Fair, PolicyKind::Fair, PolicyKind::Priority, PolicyKind::Deadline, PolicyKind::Serial];
    let mut settings = Settings {
        policy: chance.of(&policies).expect("some"),
        turn_min: Span::from_millis(50),
        turn_max: Span::from_secs(2),
        gap_max: Span::from_secs(3),
        ageing: Span::from_secs(2),
        lc_linger: Span::from_millis(200),
        lc_turn: Span::from_millis(30),
        tenants_max: 8,
        ..Settings::default()
    };
    settings.deadlines.grip = Span::from_millis(500);
    settings.deadlines.movement = Span::from_secs(1);
    settings.deadlines.retry = Span::from_millis(100);
    settings
}
