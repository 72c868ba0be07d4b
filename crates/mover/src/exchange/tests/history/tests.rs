use super::super::mortal::Killed;
use super::{Counts, History};
use crate::mover::planted::Bug;
use crate::mover::planted::burials::PHASES;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

/// Events of one history.
const EVENTS: u64 = 200;

/// As many as it takes for a thousand events, and to meet all that can happen.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=32;

/// How many of them are told at once.
const TELLERS: usize = 4;

fn wish(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn add(sum: &mut Counts, counts: &Counts) {
    let pairs = [
        (&mut sum.events, counts.events),
        (&mut sum.turns, counts.turns),
        (&mut sum.commits, counts.commits),
        (&mut sum.moved_bytes, counts.moved_bytes),
        (&mut sum.passed_bytes, counts.passed_bytes),
        (&mut sum.worker_kills, counts.worker_kills),
        (&mut sum.arena_full, counts.arena_full),
        (&mut sum.cellar_full, counts.cellar_full),
        (&mut sum.device_faults, counts.device_faults),
        (&mut sum.disk_faults, counts.disk_faults),
        (&mut sum.tenant_faults, counts.tenant_faults),
        (&mut sum.ended, counts.ended),
    ];
    for (sum, count) in pairs {
        *sum += count;
    }
    for (phase, count) in &counts.dropped {
        *sum.dropped.entry(phase).or_default() += count;
    }
}

#[test]
fn a_thousand_events_leave_no_wrong_byte_and_none_behind() {
    let (seed, events) = (wish("ROTA_SEED"), wish("ROTA_EVENTS").unwrap_or(EVENTS));
    let seeds = seed.map_or(SEEDS, |seed| seed..=seed);
    let mut sum = Counts::default();
    // By several threads, or one processor would be busy with them long after all other tests have ended.
    let seeds = Mutex::new(seeds);
    let tell = || {
        let next = || seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
        let whole = |seed| {
            let (counts, _) = History::whole(seed, events, None);
            println!("seed {seed}: {counts:?}");
            counts
        };
        std::iter::from_fn(next).map(whole).collect::<Vec<Counts>>()
    };
    std::thread::scope(|scope| {
        for teller in [(); TELLERS].map(|()| scope.spawn(tell)) {
            let told = teller.join().unwrap_or_else(|panic| resume_unwind(panic));
            told.iter().for_each(|counts| add(&mut sum, counts));
        }
    });
    println!("{sum:?}");
    if seed.is_none() && events >= EVENTS {
        assert!(sum.events >= 1000 && sum.turns >= 500 && sum.commits >= 200, "{sum:?}");
        assert!(sum.worker_kills >= 50 && sum.device_faults >= 20 && sum.tenant_faults >= 20, "{sum:?}");
        assert!(sum.arena_full > 0 && sum.cellar_full > 0 && sum.disk_faults > 0, "{sum:?}");
        assert!(sum.passed_bytes > sum.moved_bytes / 50, "{sum:?}");
        for phase in PHASES {
            assert!(sum.dropped.contains_key(phase), "nobody died while something was {phase}: {sum:?}");
        }
    }
}

#[test]
fn a_seed_tells_the_same_history_each_time() {
    let [first, second] = [(); 2].map(|()| History::whole(3, 40, None));
    assert_eq!(first, second);
    assert_ne!(first.1, History::whole(5, 40, None).1);
}

/// What was found in one history.
#[derive(Debug, PartialEq, Eq)]
struct Find {
    /// At which event.
    event: u64,
    /// What the check that failed has said.
    words: String,
    /// What became of each turn before.
    told: Vec<String>,
}

fn find(bug: Bug, seed: u64) -> Result<u64, Find> {
    let mut history = History::begin(seed, EVENTS, Some(bug));
    let told = catch_unwind(AssertUnwindSafe(|| {
        while history.counts.events < EVENTS {
            history.happen();
        }
        history.end();
    }));
    let event = history.counts.events;
    let Err(cause) = told else { return Ok(event) };
    assert!(!cause.is::<Killed>(), "a worker's death is not a find");
    let words = cause.downcast::<String>().map_or_else(|_| String::new(), |words| *words);
    Err(Find { event, words, told: std::mem::take(&mut history.told) })
}

/// What is found first, in which history, and at which event, counted over all up to there.
fn found_at(bug: Bug) -> Option<(u64, u64, Find)> {
    let mut events = 0;
    SEEDS.into_iter().find_map(|seed| match find(bug, seed) {
        Ok(all) => {
            events += all;
            None
        }
        Err(find) => Some((seed, events + find.event, find)),
    })
}

/// That nothing is found without a bug, the thousand events above say: they have the same seeds.
#[test]
fn each_bug_that_was_put_in_is_found_and_its_seed_finds_it_again() {
    for bug in Bug::ALL {
        let Some((seed, events, found)) = found_at(bug) else { panic!("{bug:?} was not found") };
        println!("{bug:?}: found at event {events}, of seed {seed}: {}", found.words);
        // Memory is passed in a few turns of each history.
        let soon = if bug == Bug::TakenBeforeFilled { 1000 } else { 300 };
        assert!(events <= soon, "{bug:?}: found at event {events} only");
        assert_eq!(find(bug, seed), Err(found), "{bug:?}, once more with seed {seed}");
    }
}
