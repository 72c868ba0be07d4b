//! The core, explored to closure: every order in which a few tenants, a few mistakes and time can follow each other.
//!
//! The state is the real core beside the truth about the world; a step is one real [`Core::step`](sched::Core::step).
//! Nothing takes time by itself: it passes only to when the core wants to be woken, so all instants are sums of a few
//! settings. States that differ only in when they are, or in the numbers of actions, are one state
//! ([`World::normal`](world::World::normal)). What tenants and people do of their own will is limited by a budget, and so
//! are mistakes; how the core takes its turns is not.
//!
//! The small configurations run with all tests. `make model` runs the large ones.

extern crate rota_sched as sched;

mod configuration;
mod steps;
#[path = "../world/mod.rs"]
mod world;

use configuration::{Budget, Config};
use sched::Bytes;
use stateright::{Checker, Expectation, Model, Property};
use std::ops::RangeInclusive;
use std::time::Duration;
use steps::{CONTEXT, Moment, Step};
use world::rules::Rule;
use world::truth::{Deed, Op, Stage};

const NOTHING: Budget = Budget::NOTHING;

/// How often it is looked whether all is explored, and said how far it is.
const LOOK: Duration = Duration::from_millis(20);
const PROGRESS: Duration = Duration::from_secs(60);

impl Model for Config {
    type State = Moment;
    type Action = Step;

    fn init_states(&self) -> Vec<Moment> {
        let begin = Moment { world: self.begin().normal(), came: 0, left: self.budget };
        vec![if self.settled { self.settle(begin) } else { begin }]
    }

    fn actions(&self, moment: &Moment, steps: &mut Vec<Step>) {
        self.steps(moment, steps);
    }

    fn next_state(&self, last: &Moment, step: Step) -> Option<Moment> {
        // Should the core itself find a mistake, it panics: that is a state too, and has a path to it.
        let after = || self.after(last, step.clone());
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(after)).unwrap_or_else(|_| {
            let mut moment = last.clone();
            moment.world.broke(Rule::Books, format!("the core panicked at {step:?}"));
            Some(moment)
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        /// A property for a rule: it was not broken on the way here.
        macro_rules! rules {
            ($($rule:ident: $text:literal,)*) => {
                vec![$(Property::always($text, |_, moment: &Moment| {
                    moment.world.broken.iter().all(|broken| broken.rule != Rule::$rule)
                })),*]
            };
        }
        let mut all = rules![
            Capacity: "nothing is promised of a GPU that it does not have",
            Arena: "nothing is promised of the arena that it does not have",
            Limit: "granted bytes never exceed a job's limit, nor what all may have",
            Whole: "a tenant that is not wholly resident is frozen",
            Unmap: "only what lies still is moved, and from where it is",
            OneAtATime: "one move on a GPU and one grip on a tenant at a time",
            Completion: "every action ends once",
            Deadline: "every action has a deadline, and is given up by then",
            Wait: "every waiting tenant gets a turn in bounded time",
            Hint: "a hint is honoured or reported as missed",
            Shortest: "never two of the shortest slices on a GPU",
            Critical: "beside an active latency-critical tenant one best-effort tenant runs",
            Gang: "nothing of a gang goes out while a fellow may run",
            Answer: "every question is answered once",
            Turn: "turns begin and end in pairs, and only those run who may",
            Ahead: "ahead of a turn only the memory of one who could have it comes in",
            Reserve: "what is reserved does not go out, and is promised to nobody else",
            Books: "the core's books are the world's",
        ];
        assert_eq!(all.len(), Rule::ALL.len());
        all.push(Property::always("bytes on a GPU never exceed its capacity", |_, Moment { world, .. }| {
            let fits = |(&id, gpu): (_, &world::truth::Gpu)| {
                // Strangers, and contexts that grew, are there without having been let in.
                let swollen = world.tenants.values().any(|t| t.gpu == id && t.residue > CONTEXT);
                swollen || gpu.unmanaged > Bytes::ZERO || world.committed(id) <= gpu.spec.capacity
            };
            world.gpus.iter().all(fits)
        }));
        all.push(Property::always("nobody waits for nothing", |_, Moment { world, .. }| {
            let to_come = world.core.wake_at().is_some() || world.ops.values().any(|op| !op.overdue);
            let away = world.tenants.values().any(|t| !t.lives() || t.torn() || !t.grants.is_empty());
            let alone = |t: &world::truth::Tenant| {
                world.tenants.values().filter(|other| other.gpu == t.gpu).count() == 1
                    && world.gpus[&t.gpu].unmanaged == Bytes::ZERO
            };
            let at_door = world.living().any(|(_, t)| t.stage == Stage::Door && alone(t));
            to_come || away || (world.waiting().is_empty() && !at_door)
        }));
        // What is explored is worth it: these happen somewhere.
        all.push(Property::sometimes(
            "somebody is away, unless all fit",
            |config: &Self, moment: &Moment| {
                !config.is_crowded() || moment.world.living().any(|(_, t)| !t.whole())
            },
        ));
        all.push(Property::sometimes(
            "something is fetched ahead, if there is time",
            |config: &Self, moment| {
                let Moment { world, .. } = moment;
                let is_ahead = |op: &Op| match &op.deed {
                    Deed::Move { gpu, into, .. } => {
                        world.is_ahead(*gpu, &into.iter().map(|(owned, _)| owned.tenant).collect())
                    }
                    _ => false,
                };
                !config.fetches_ahead() || world.ops.values().any(is_ahead)
            },
        ));
        all.push(Property::sometimes("all that may happen has happened", |_, moment: &Moment| {
            moment.left == NOTHING
        }));
        all.push(Property::sometimes("everybody ran", |config: &Self, Moment { world, .. }| {
            let ran = |(id, t): &(_, &world::truth::Tenant)| {
                t.turns > 0 || world.critical(*id) && t.wants && t.may_run()
            };
            world.living().filter(ran).count() == config.parts.len()
        }));
        all
    }
}

/// Explores all there is, and says how much that was. It must be about as much as it was before: an exploration that
/// found next to nothing proves next to nothing.
fn explore(config: Config, states: RangeInclusive<usize>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = std::time::Instant::now();
    let checker = config.clone().checker().threads(threads).spawn_bfs();
    let mut told = began;
    while !checker.is_done() {
        std::thread::sleep(LOOK);
        if told.elapsed() > PROGRESS {
            told = std::time::Instant::now();
            let (found, deep) = (checker.unique_state_count(), checker.max_depth());
            println!("{}: {found} states so far, {deep} steps deep", config.name);
        }
    }
    let checker = checker.join();
    let Config { name, gpus, budget, .. } = config;
    let (found, tenants) = (checker.unique_state_count(), config.parts.len());
    println!(
        "{name}: {tenants} tenants, {gpus} GPUs, events: {budget}: {found} states, {} steps deep, {:.1} s",
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
    assert!(checker.is_done(), "{name}: not explored to the end");
    for property in config.properties() {
        match (property.expectation, checker.discovery(property.name)) {
            (Expectation::Always, Some(path)) => {
                let broken = path.last_state().world.broken.iter();
                let broken: Vec<String> = broken.map(ToString::to_string).collect();
                for (moment, step) in path.into_vec() {
                    println!("{}\n{step:?}", moment.summary());
                }
                panic!("{name}: not always: {}\n{}", property.name, broken.join("\n"));
            }
            (Expectation::Sometimes, None) => panic!("{name}: it never happens that {}", property.name),
            _ => {}
        }
    }
    assert!(states.contains(&found), "{name}: {found} states, expected {states:?}");
}

#[test]
fn two_tenants_from_the_door_on() {
    let budget = Budget { faults: 1, deaths: 1, ..NOTHING };
    explore(configuration::two_from_the_door_on(budget), 20_000..=80_000);
}

#[test]
fn two_tenants_with_mistakes() {
    let budget = Budget { faults: 1, deaths: 1, idles: 1, ..NOTHING };
    explore(configuration::two(budget), 20_000..=80_000);
}

#[test]
fn two_tenants_and_what_people_do() {
    let budget = Budget { frees: 1, pauses: 1, intruders: 1, ..NOTHING };
    explore(configuration::two(budget), 15_000..=80_000);
}

#[test]
fn two_tenants_whose_contexts_grow() {
    let budget = Budget { faults: 1, deaths: 1, swells: 1, ..NOTHING };
    explore(configuration::roomy(budget), 16_000..=67_000);
}

#[test]
fn three_tenants_of_which_two_fit() {
    explore(configuration::three(Budget { faults: 1, ..NOTHING }), 13_000..=55_000);
}

#[test]
fn three_tenants_that_are_fetched_ahead() {
    explore(configuration::left_over(Budget { faults: 1, ..NOTHING }), 50_000..=220_000);
}

#[test]
fn a_latency_critical_tenant_and_two_others() {
    explore(configuration::critical(true, Budget { faults: 1, ..NOTHING }), 17_000..=70_000);
}

#[test]
fn a_latency_critical_tenant_that_hints() {
    explore(configuration::critical(false, Budget { idles: 1, hints: 1, ..NOTHING }), 90_000..=360_000);
}

#[test]
fn a_gang_and_another() {
    explore(configuration::gang(Budget { faults: 1, ..NOTHING }), 15_000..=80_000);
}

#[test]
fn a_gang_that_is_paused_or_loses_a_member() {
    explore(configuration::gang(Budget { deaths: 1, pauses: 1, ..NOTHING }), 10_000..=45_000);
}

#[test]
fn tenants_that_grow_until_the_arena_is_full() {
    explore(configuration::growth(Budget { frees: 1, ..NOTHING }), 45_000..=180_000);
}

#[test]
fn tenants_that_wait_for_each_others_memory() {
    explore(configuration::standstill(Budget { deaths: 1, ..NOTHING }), 5_000..=20_000);
}

#[test]
#[ignore = "takes minutes: make model"]
fn large_two_tenants() {
    let budget = Budget { faults: 2, deaths: 1, ..NOTHING };
    explore(configuration::two_from_the_door_on(budget), 470_000..=1_900_000);
    explore(configuration::two(Budget { idles: 1, ..budget }), 300_000..=1_200_000);
}

#[test]
#[ignore = "takes minutes: make model"]
fn large_three_tenants() {
    explore(configuration::three_from_the_door_on(Budget { deaths: 1, ..NOTHING }), 160_000..=650_000);
    explore(configuration::three(Budget { faults: 2, ..NOTHING }), 540_000..=2_200_000);
}

#[test]
#[ignore = "takes minutes: make model"]
fn large_three_tenants_with_everything() {
    let budget = Budget { faults: 1, deaths: 1, idles: 1, ..NOTHING };
    explore(configuration::three_of_which_one_dies(budget), 1_000_000..=4_000_000);
}

#[test]
#[ignore = "takes minutes: make model"]
fn large_fetching_ahead() {
    explore(configuration::left_over(Budget { deaths: 1, idles: 1, ..NOTHING }), 150_000..=600_000);
}

#[test]
#[ignore = "takes minutes: make model"]
fn large_latency_critical() {
    explore(configuration::critical(true, Budget { idles: 1, hints: 1, ..NOTHING }), 170_000..=670_000);
    explore(configuration::critical(false, Budget { faults: 1, deaths: 1, ..NOTHING }), 330_000..=1_300_000);
}

#[test]
#[ignore = "takes minutes: make model"]
fn large_gang() {
    explore(configuration::gang(Budget { faults: 1, deaths: 1, ..NOTHING }), 90_000..=350_000);
}

#[test]
#[ignore = "takes minutes: make model"]
fn large_growth() {
    explore(configuration::growth(Budget { faults: 1, ..NOTHING }), 30_000..=320_000);
    explore(configuration::growth(Budget { intruders: 1, ..NOTHING }), 30_000..=240_000);
    explore(configuration::standstill(Budget { idles: 1, frees: 1, ..NOTHING }), 350_000..=1_500_000);
}
