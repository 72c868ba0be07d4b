//! Any scenario: whatever comes, nothing happens that never may. A failure names its seed; [`any`] builds it again.

use sched::{PolicyKind, Priority, UserId, WhenFull};

use super::*;

/// Seeds that every test run goes through.
const SEEDS: u64 = 64;

/// In so many parts, so that each can have a processor.
const PARTS: usize = 4;

/// Left to [`nothing_happens_that_never_may_for_long`]: thousands of times somebody begins to wait there who is not next for as far
/// as forecasts look ahead, so that these take most of a minute.
const SLOW: u64 = 18;

#[test]
fn nothing_happens_that_never_may_in_the_first_part() {
    nothing_happens_that_never_may(0);
}

#[test]
fn nothing_happens_that_never_may_in_the_second_part() {
    nothing_happens_that_never_may(1);
}

#[test]
fn nothing_happens_that_never_may_in_the_third_part() {
    nothing_happens_that_never_may(2);
}

#[test]
fn nothing_happens_that_never_may_in_the_fourth_part() {
    nothing_happens_that_never_may(3);
}

fn nothing_happens_that_never_may(part: usize) {
    for seed in (0..SEEDS).filter(|&seed| seed != SLOW).skip(part).step_by(PARTS) {
        let scenario = any(seed);
        let record = run(&scenario);
        assert!(!record.livelock, "seed {seed}");
        let capacity = scenario.limit.0 as f64 * scenario.gpus.len() as f64;
        let work: f64 = record.tenants.iter().map(|fate| fate.work.0 as f64).sum();
        assert!(work <= capacity, "seed {seed}: more work than time");
        for fate in &record.tenants {
            assert!(fate.ended.is_none_or(|ended| ended >= fate.arrived), "seed {seed}: {fate:?}");
        }
        for stretch in &record.stretches {
            assert!(stretch.begin < stretch.end, "seed {seed}: {stretch:?}");
        }
    }
}

/// The scenario of a seed.
pub(super) fn any(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 77);
    let mut below = |most: u64| random.number() % most;
    let gpus: Vec<_> = (0..1 + below(3)).map(|_| gpu(8 + below(24))).collect();
    let smallest = gpus.iter().map(|gpu| gpu.capacity.0 >> 30).min().unwrap_or(8);
    let mut jobs = Vec::new();
    for number in 0..1 + below(6) {
        let mut one = job("any", 1 + below(smallest * 3 / 4), any_work(&mut below));
        one.tenants = 1 + below(3) as u32;
        one.gpus = if below(2) == 0 {
            Vec::new()
        } else {
            (0..3).map(|_| below(gpus.len() as u64) as u16).collect()
        };
        one.arrives = Span::from_millis(below(20_000));
        one.dies = (below(4) == 0).then(|| one.arrives + Span::from_millis(below(30_000)));
        one.memory.handle = Bytes::from_mib([256, 512, 1024][below(3) as usize]);
        one.memory.dirty = Ratio::from_percent([0, 50, 100][below(3) as usize]);
        if below(3) == 0 {
            let most = Bytes(one.memory.bytes.0 * 3 / 2);
            one.memory.growth = Some((Bytes::from_mib(256), Span::from_millis(500 + below(3_000)), most));
        }
        let terms = &mut one.terms;
        terms.user = UserId(below(3) as u32);
        terms.weight = 1 + below(3) as u32;
        let levels = [Priority::Realtime, Priority::High, Priority::Normal, Priority::Low, Priority::Idle];
        terms.priority = levels[below(5) as usize];
        terms.when_full = if below(2) == 0 { WhenFull::Wait } else { WhenFull::Fail };
        terms.compute_max = (below(6) == 0).then(|| Ratio::from_percent(30));
        terms.slo = (below(3) == 0).then(|| Span::from_millis(10 + below(5_000)));
        terms.gang = number == 0 && gpus.len() > 1 && below(2) == 0;
        if terms.gang {
            one.gpus = (0..gpus.len() as u16).collect();
            one.tenants = gpus.len() as u32;
        }
        if matches!(one.work, Work::Requests { .. }) && below(3) > 0 {
            terms.class = Class::LatencyCritical;
            one.memory.bytes = Bytes::from_gib(1);
        }
        jobs.push(one);
    }
    let policies = [PolicyKind::Fair, PolicyKind::Priority, PolicyKind::Deadline, PolicyKind::Serial];
    let mut scenario = scenario(16, jobs);
    scenario.settings.policy = policies[below(4) as usize];
    scenario.name = "any".into();
    scenario.seed = seed;
    scenario.limit = Span::from_secs(60);
    scenario.arena = Bytes::from_gib(20 + below(60));
    scenario.gpus = gpus;
    if below(2) == 0 {
        scenario.faults = Faults {
            late: Ratio::from_percent(below(10) as u32),
            late_by: Span::from_millis(below(12_000)),
            failed: Ratio::from_percent(below(10) as u32),
            lost: Ratio::from_percent(below(5) as u32),
        };
    }
    scenario
}

fn any_work(below: &mut impl FnMut(u64) -> u64) -> Work {
    match below(4) {
        0 => Work::Steady { total: Span::from_millis(100 + below(20_000)) },
        1 => Work::Steps {
            busy: Span::from_micros(100 + below(5_000)),
            pause: Span::from_micros(below(8_000)),
            count: below(5_000),
        },
        2 => Work::Bursts {
            on: Span::from_millis(50 + below(2_000)),
            off: Span::from_millis(50 + below(2_000)),
            count: below(20),
        },
        _ => Work::Requests {
            per_second: 10.0 + below(100) as f64,
            poisson: below(2) == 0,
            service: Span::from_micros(50 + below(3_000)),
            count: below(1_000),
            hints: (below(2) == 0).then(|| Hints {
                ahead: Span::from_micros(below(10_000)),
                error: Span::from_micros(below(1_500)),
                missing: Ratio::from_percent(below(50) as u32),
                false_per_request: Ratio::from_percent(below(100) as u32),
            }),
        },
    }
}

/// Many more seeds, for a night.
#[test]
#[ignore = "takes long"]
fn nothing_happens_that_never_may_for_long() {
    let from: u64 = std::env::var("ROTA_SIM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let count: u64 =
        std::env::var("ROTA_SIM_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    for seed in from..from + count {
        if let Err(why) = std::panic::catch_unwind(|| run(&any(seed))) {
            let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
            println!("FAIL seed {seed}: {why}");
        }
    }
}
