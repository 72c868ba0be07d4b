//! What is explored: who is there, with how much memory, and how often something may happen to them.

use super::steps::Moment;
use super::world::World;
use super::world::truth::{Stage, Tenant};
use sched::{
    Bytes, Class, Costs, Deadlines, Event, GpuId, GpuSpec, JobId, Settings, Span, TenantId, Terms, UserId,
    WhenFull,
};
use stateright::Model;
use std::fmt;

/// The unit of time. Turns, deadlines and the pause after which a handle that could not go is tried again take as long
/// as each other, so that many orders of events are one.
pub(crate) const BEAT: Span = Span::from_millis(100);

/// Steps until everybody must be there.
const SETTLE_MAX: usize = 200;

/// One tenant.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) gpu: u16,
    pub(crate) job: u64,
    /// Sizes of what it asks for, in GiB, one after the other.
    pub(crate) asks: &'static [u64],
    /// May it die, and run out of work?
    pub(crate) dies: bool,
    pub(crate) idles: bool,
}

/// How often something may happen in one history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Actions that fail, end in part, are late or lost.
    pub(crate) faults: u8,
    pub(crate) deaths: u8,
    /// Tenants that run out of work, and may get new work.
    pub(crate) idles: u8,
    /// Handles that are freed, and grants that are given back.
    pub(crate) frees: u8,
    pub(crate) pauses: u8,
    /// Programs outside of rota that come, and may go, 1 GiB each.
    pub(crate) intruders: u8,
    pub(crate) hints: u8,
    /// Contexts that grow by half.
    pub(crate) swells: u8,
}

impl Budget {
    /// Nothing happens but what has to.
    pub(crate) const NOTHING: Self =
        Self { faults: 0, deaths: 0, idles: 0, frees: 0, pauses: 0, intruders: 0, hints: 0, swells: 0 };
}

impl fmt::Display for Budget {
    /// What every configuration has, and how often the rest may happen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, deaths, idles, frees, pauses, intruders, hints, swells } = *self;
        f.write_str("turns, requests, grants, moves")?;
        let all = [faults, deaths, idles, frees, pauses, intruders, hints, swells];
        let names = ["mistake", "death", "idle spell", "free", "pause", "stranger", "hint", "larger context"];
        for (count, name) in all.into_iter().zip(names).filter(|&(count, _)| count > 0) {
            write!(f, ", {count} {name}{}", if count > 1 { "s" } else { "" })?;
        }
        Ok(())
    }
}

#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) name: &'static str,
    pub(crate) gpus: u16,
    /// Of each GPU, in GiB, of which one is the daemon's.
    pub(crate) capacity: u64,
    /// In GiB.
    pub(crate) arena: u64,
    /// The pause after a failure.
    pub(crate) retry: Span,
    /// What each move is believed to take besides. None takes any time.
    pub(crate) per_move: Span,
    pub(crate) parts: Vec<Part>,
    pub(crate) jobs: Vec<Terms>,
    pub(crate) budget: Budget,
    /// Everybody is there at the beginning, with all its memory, and idle.
    pub(crate) settled: bool,
    /// Turns of others that one may see go by.
    pub(crate) patience_max: u32,
    /// How often time may pass for one who waits.
    pub(crate) ticks_max: u32,
}

/// Of nothing in particular.
fn plain() -> Config {
    Config {
        name: "",
        gpus: 1,
        capacity: 6,
        arena: 64,
        // A handle that could not go is left alone for ten times the pause after a failure.
        retry: Span(BEAT.0 / 10),
        // So there is no time to fetch anything ahead.
        per_move: Span::ZERO,
        parts: Vec::new(),
        jobs: Vec::new(),
        budget: Budget::NOTHING,
        settled: true,
        patience_max: 12,
        ticks_max: 24,
    }
}

fn on(gpu: u16, job: u64, asks: &'static [u64]) -> Part {
    Part { gpu, job, asks, dies: true, idles: true }
}

/// Two tenants that do not fit together, from the door on.
pub(crate) fn two_from_the_door_on(budget: Budget) -> Config {
    Config {
        name: "two tenants from the door on",
        parts: vec![on(0, 0, &[2]), on(0, 1, &[2])],
        jobs: vec![Terms::default(), Terms::default()],
        settled: false,
        budget,
        ..plain()
    }
}

/// Two tenants that do not fit together, one of them with two handles.
pub(crate) fn two(budget: Budget) -> Config {
    Config {
        name: "two tenants that do not fit together",
        parts: vec![on(0, 0, &[1, 1]), on(0, 1, &[2])],
        jobs: vec![Terms::default(), Terms::default()],
        budget,
        ..plain()
    }
}

/// The same on a GPU with some room to spare.
pub(crate) fn roomy(budget: Budget) -> Config {
    Config {
        name: "two tenants on a GPU with some room to spare",
        capacity: 7,
        parts: vec![on(0, 0, &[2, 1]), on(0, 1, &[3])],
        ..two(budget)
    }
}

/// Three tenants of which two fit together.
pub(crate) fn three(budget: Budget) -> Config {
    Config {
        name: "three tenants of which two fit together",
        capacity: 8,
        parts: vec![on(0, 0, &[2]), on(0, 1, &[2]), on(0, 2, &[2])],
        jobs: vec![Terms::default(), Terms::default(), Terms::default()],
        budget,
        patience_max: 16,
        ..plain()
    }
}

/// The same, where only the second one may die, and only it or the first one run out of work. All three are alike: whatever
/// else could become of them is this under other names, but for who goes first where nothing else decides. All of it
/// would be four times as much.
pub(crate) fn three_of_which_one_dies(budget: Budget) -> Config {
    let mut config = three(budget);
    config.name = "three tenants of which two fit together, one may die, and one or another run out of work";
    for (number, part) in config.parts.iter_mut().enumerate() {
        (part.dies, part.idles) = (number == 1, number < 2);
    }
    config
}

/// The same, from the door on.
pub(crate) fn three_from_the_door_on(budget: Budget) -> Config {
    Config {
        name: "three tenants of which two fit together, from the door on",
        settled: false,
        ..three(budget)
    }
}

/// Three tenants of which one fits, with a third of another one: what is left over is fetched ahead of turns.
pub(crate) fn left_over(budget: Budget) -> Config {
    const THIRDS: &[u64] = &[1, 1, 1];
    Config {
        name: "three tenants of which one fits with a third of another",
        capacity: 8,
        per_move: Span(BEAT.0 / 8),
        parts: vec![on(0, 0, THIRDS), on(0, 1, THIRDS), on(0, 2, THIRDS)],
        ..three(budget)
    }
}

/// Somebody latency-critical beside two best-effort tenants, which fit together or not.
pub(crate) fn critical(fit: bool, budget: Budget) -> Config {
    let lc = Terms { class: Class::LatencyCritical, ..Terms::default() };
    Config {
        name: "a latency-critical tenant beside two others",
        capacity: if fit { 9 } else { 7 },
        parts: vec![on(0, 0, &[1]), on(0, 1, &[2]), on(0, 2, &[2])],
        jobs: vec![lc, Terms::default(), Terms::default()],
        budget,
        ..plain()
    }
}

/// A gang of two on two GPUs, beside somebody who does not fit with it on the first.
pub(crate) fn gang(budget: Budget) -> Config {
    let gang = Terms { gang: true, ..Terms::default() };
    Config {
        name: "a gang of two on two GPUs beside another tenant",
        gpus: 2,
        capacity: 5,
        parts: vec![on(0, 0, &[1]), on(1, 0, &[1]), on(0, 1, &[2])],
        jobs: vec![gang, Terms::default()],
        budget,
        ..plain()
    }
}

/// Two tenants that grow until the arena is full. One waits for memory; the other hears that there is none, and may not
/// have all it asks for in any case.
pub(crate) fn growth(budget: Budget) -> Config {
    let waits = Terms { when_full: WhenFull::Wait, ..Terms::default() };
    let limited = Terms { memory_max: Some(Bytes::from_gib(3)), ..Terms::default() };
    Config {
        name: "two tenants that grow, a small arena",
        arena: 4,
        retry: BEAT,
        parts: vec![on(0, 0, &[1, 1, 1]), on(0, 1, &[1, 1, 1])],
        jobs: vec![waits, limited],
        settled: false,
        budget,
        ..plain()
    }
}

/// Two tenants that both wait for memory, which there is not enough of for both.
pub(crate) fn standstill(budget: Budget) -> Config {
    let waits = Terms { when_full: WhenFull::Wait, ..Terms::default() };
    Config {
        name: "two tenants that wait for each other's memory",
        // Of 8 GiB, the largest piece has to fit twice beside what everybody has.
        arena: 5,
        retry: BEAT,
        parts: vec![on(0, 0, &[2, 1]), on(0, 1, &[2, 1])],
        jobs: vec![waits.clone(), waits],
        settled: false,
        budget,
        ..plain()
    }
}

impl Config {
    /// Is there time to fetch something ahead of a turn?
    pub(crate) fn fetches_ahead(&self) -> bool {
        self.per_move > Span::ZERO
    }

    /// Do not all fit on the first GPU, with their contexts and what is the daemon's?
    pub(crate) fn is_crowded(&self) -> bool {
        let first = self.parts.iter().filter(|part| part.gpu == 0);
        first.map(|part| 1 + part.asks.iter().sum::<u64>()).sum::<u64>() + 1 > self.capacity
    }

    fn settings(&self) -> Settings {
        Settings {
            turn_min: BEAT,
            turn_max: BEAT,
            gap_max: BEAT.times(10),
            lc_linger: BEAT,
            lc_turn: BEAT,
            hint_lead: BEAT,
            // Nothing takes time: what is measured is what was believed.
            costs: Costs {
                freeze: Span::ZERO,
                thaw: Span::ZERO,
                out_per_second: u64::MAX,
                in_per_second: u64::MAX,
                per_move: self.per_move,
            },
            deadlines: Deadlines { grip: BEAT, movement: BEAT, retry: self.retry },
            ..Settings::default()
        }
    }

    /// What a tenant asks for when it has asked so often.
    pub(crate) fn ask(&self, tenant: TenantId, asked: u64) -> Option<Bytes> {
        self.part(tenant).asks.get(asked as usize).map(|&gib| Bytes::from_gib(gib))
    }

    pub(crate) fn part(&self, tenant: TenantId) -> &Part {
        &self.parts[tenant.0 as usize - 1]
    }

    pub(crate) fn begin(&self) -> World {
        let mut world = World::new(self.settings());
        (world.patience_max, world.ticks_max) = (self.patience_max, self.ticks_max);
        for gpu in 0..self.gpus {
            let links = (0..self.gpus).filter(|&other| other != gpu).map(GpuId).collect();
            let (capacity, reserve) = (Bytes::from_gib(self.capacity), Bytes::from_gib(1));
            world.tell(Event::Gpu { gpu: GpuId(gpu), spec: GpuSpec { capacity, reserve, numa: 0, links } });
        }
        world.tell(Event::Arena(Bytes::from_gib(self.arena)));
        for (job, terms) in self.jobs.iter().enumerate() {
            // Each of a user of its own: everybody's time costs the same, whoever else wants turns.
            let terms = Terms { user: UserId(job as u32), ..terms.clone() };
            world.tell(Event::Job { job: JobId(job as u64), terms });
        }
        world
    }

    /// Lets everybody come, make a context and get its memory, one after the other.
    pub(crate) fn settle(&self, mut moment: Moment) -> Moment {
        use super::steps::Step;
        use super::world::execute::How;
        for _ in 0..SETTLE_MAX {
            let mut steps = Vec::new();
            self.actions(&moment, &mut steps);
            let first = |wanted: fn(&Step) -> bool| steps.iter().find(|step| wanted(step)).cloned();
            let step = first(|step| matches!(step, Step::Finish(_, How::Well)))
                .or_else(|| first(|step| matches!(step, Step::Claim(..) | Step::Context(_))))
                .or_else(|| first(|step| matches!(step, Step::Ask(_) | Step::Arrive(_))))
                .or_else(|| first(|step| *step == Step::Tick));
            match step.and_then(|step| self.next_state(&moment, step)) {
                Some(next) => moment = next,
                None => break,
            }
        }
        if !moment.world.broken.is_empty() {
            return moment;
        }
        let there = |t: &Tenant| t.stage == Stage::Context && t.asks.is_empty() && t.grants.is_empty();
        assert!(moment.came == self.parts.len() && moment.world.tenants.values().all(there), "{moment:#?}");
        moment
    }
}
