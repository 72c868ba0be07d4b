mod any;
mod critical;
mod hinted;
mod pieces;

use sched::{Class, Event, Ratio, Settings, Span, Terms};

use super::*;
use crate::record::What;
use crate::scenario::{Faults, Gpu, Hints, Job, Memory, Physics, Work};

fn gpu(gib: u64) -> Gpu {
    Gpu {
        capacity: Bytes::from_gib(gib),
        reserve: Bytes::from_mib(614),
        residue: Bytes::from_mib(518),
        out_per_second: 55_000_000_000,
        in_per_second: 54_000_000_000,
        both_per_second: 46_000_000_000,
        physics: Physics::default(),
    }
}

fn job(name: &str, gib: u64, work: Work) -> Job {
    Job {
        name: name.into(),
        terms: Terms::default(),
        tenants: 1,
        gpus: vec![0],
        arrives: Span::ZERO,
        dies: None,
        memory: Memory {
            bytes: Bytes::from_gib(gib),
            handle: Bytes::from_gib(1),
            dirty: Ratio::ONE,
            growth: None,
            pause: None,
        },
        work,
    }
}

fn scenario(gib: u64, jobs: Vec<Job>) -> Scenario {
    Scenario {
        name: "test".into(),
        about: String::new(),
        seed: 1,
        limit: Span::from_secs(1_000),
        gpus: vec![gpu(gib)],
        arena: Bytes::from_gib(100),
        settings: Settings::default(),
        jobs,
        faults: Faults::default(),
        unified_quanta: Vec::new(),
    }
}

fn steady(seconds: u64) -> Work {
    Work::Steady { total: Span::from_secs(seconds) }
}

fn seconds(span: Span) -> f64 {
    span.as_secs_f64()
}

#[test]
fn one_alone_takes_what_it_takes() {
    let record = run(&scenario(16, vec![job("a", 12, steady(10))]));
    assert!(record.finished);
    assert!((10.0..10.3).contains(&seconds(record.makespan)), "{}", record.makespan);
    assert_eq!(record.moved, Bytes::ZERO);
    assert_eq!(record.tenants[0].work, Span::from_secs(10));
    assert_eq!(record.tenants[0].gap_max, Span::ZERO);
}

#[test]
fn two_that_fit_take_turns_at_little_cost() {
    let record = run(&scenario(32, vec![job("a", 8, steady(10)), job("b", 8, steady(10))]));
    assert!(record.finished);
    assert!((20.0..20.6).contains(&seconds(record.makespan)), "{}", record.makespan);
    assert_eq!(record.moved, Bytes::ZERO);
    assert!(!record.livelock);
    assert!(record.tenants.iter().all(|fate| fate.work == Span::from_secs(10)));
}

#[test]
fn two_that_do_not_fit_move_and_both_end() {
    let record = run(&scenario(16, vec![job("a", 12, steady(40)), job("b", 12, steady(40))]));
    assert!(record.finished);
    assert!((80.0..87.0).contains(&seconds(record.makespan)), "{}", record.makespan);
    assert!(record.moved > Bytes::from_gib(10), "{}", record.moved);
    assert!(record.moving > Span::ZERO);
    assert!(record.stretches.iter().any(|stretch| stretch.what == What::MovedOut));
    assert!(record.stretches.iter().any(|stretch| stretch.what == What::MovedIn));
}

/// One after the other ends, and the first round is like all others.
#[test]
fn gaps_stay_as_short_as_they_have_to_be_when_programs_end() {
    for (gap, percent) in [(22, 4), (35, 3)] {
        for first in [5, 23, 31, 47] {
            let totals = [first, first + 13, first + 40, first + 90];
            let jobs = totals.map(|total| job("a", 12, steady(total))).to_vec();
            let settings = Settings {
                gap_max: Span::from_secs(gap),
                moving_share: Ratio::from_percent(percent),
                ..Settings::default()
            };
            let record = run(&Scenario { settings, ..scenario(16, jobs) });
            assert!(record.finished);
            let longest = record.tenants.iter().map(|fate| fate.gap_max).max().unwrap();
            assert!(longest <= Span::from_secs(gap), "{longest} with {first} s of work for the first");
        }
    }
}

#[test]
fn what_does_not_change_moves_out_once() {
    let moved = |dirty| {
        let mut jobs = vec![job("a", 12, steady(60)), job("b", 12, steady(60))];
        jobs.iter_mut().for_each(|job| job.memory.dirty = dirty);
        run(&scenario(16, jobs)).moved
    };
    let (all, none) = (moved(Ratio::ONE), moved(Ratio::ZERO));
    assert!(none.0 < all.0 * 3 / 4, "{none} of {all}");
}

#[test]
fn a_seed_repeats() {
    let mut scenario = scenario(16, vec![job("a", 12, steady(20)), job("b", 12, steady(20))]);
    scenario.jobs.push(job(
        "c",
        2,
        Work::Bursts { on: Span::from_secs(1), off: Span::from_secs(2), count: 5 },
    ));
    let first = run(&scenario);
    assert_eq!(first, run(&scenario));
    scenario.seed = 2;
    assert_ne!(first, run(&scenario));
}

fn service(hints: Option<Hints>) -> Job {
    let work = Work::Requests {
        per_second: 100.0,
        poisson: false,
        service: Span::from_micros(66),
        count: 2_000,
        hints,
    };
    Job { terms: Terms { class: Class::LatencyCritical, ..Terms::default() }, ..job("lc", 1, work) }
}

fn percentile(record: &Record, share: f64) -> f64 {
    let mut all = record.latencies.clone();
    all.sort_unstable();
    all[((all.len() - 1) as f64 * share) as usize].0 as f64 / 1e3
}

#[test]
fn requests_beside_best_effort_work_are_fast_and_hinted_ones_faster() {
    let with = |hints| {
        let endless = Work::Steps { busy: Span::from_millis(100), pause: Span::ZERO, count: 0 };
        let mut jobs = vec![service(hints)];
        jobs.extend((0..4).map(|_| job("be", 2, endless.clone())));
        run(&scenario(64, jobs))
    };
    let alone = run(&scenario(64, vec![service(None)]));
    let unhinted = with(None);
    let hints = Hints {
        ahead: Span::from_millis(3),
        error: Span::ZERO,
        missing: Ratio::ZERO,
        false_per_request: Ratio::ZERO,
    };
    let hinted = with(Some(hints));
    let p99 = [&alone, &unhinted, &hinted].map(|record| percentile(record, 0.99));
    assert_eq!(hinted.latencies.len(), 2_000);
    assert!(p99[1] < p99[0] + 200.0, "{p99:?}");
    assert!(p99[2] < p99[0] * 1.05, "{p99:?}");
}

#[test]
fn somebody_killed_leaves_room_for_others() {
    let mut jobs = vec![job("a", 12, steady(500)), job("b", 12, steady(20))];
    jobs[0].dies = Some(Span::from_secs(5));
    let record = run(&scenario(16, jobs));
    assert!(record.finished);
    assert!(seconds(record.makespan) < 30.0, "{}", record.makespan);
    assert_eq!(record.tenants[0].ended, Some(Time::ZERO + Span::from_secs(5)));
}

#[test]
fn faults_are_survived() {
    for seed in 0..20 {
        let mut scenario = scenario(16, (0..3).map(|_| job("a", 9, steady(20))).collect());
        scenario.seed = seed;
        scenario.faults = Faults {
            late: Ratio::from_percent(5),
            late_by: Span::from_millis(300),
            failed: Ratio::from_percent(5),
            lost: Ratio::from_percent(2),
        };
        let record = run(&scenario);
        assert!(record.finished, "seed {seed}: {} {:?}", record.makespan, record.tenants);
    }
}

/// With no arena nothing can make room for the second one, and it waits for its memory to the end.
#[test]
fn a_wait_that_never_ends_counts_up_to_the_end() {
    let mut jobs = vec![job("a", 10, Work::Steps { busy: Span(1), pause: Span::from_secs(1), count: 0 })];
    jobs.push(job("b", 10, steady(1)));
    for job in &mut jobs {
        job.terms.when_full = sched::WhenFull::Wait;
    }
    let mut scenario = Scenario { arena: Bytes::ZERO, limit: Span::from_secs(60), ..scenario(16, jobs) };
    let record = run(&scenario);
    assert!(!record.finished);
    let waited = record.tenants.iter().map(|fate| seconds(fate.wait_max)).fold(0.0, f64::max);
    assert!(waited > 59.0, "{waited}");
    // And one that its death ends, up to that.
    scenario.jobs[1].dies = Some(Span::from_secs(30));
    let record = run(&scenario);
    let waited = seconds(record.tenants[1].wait_max);
    assert!((29.0..31.0).contains(&waited), "{waited}");
}

#[test]
fn a_wait_at_the_door_that_never_ends_counts_too() {
    let mut scenario =
        scenario(16, vec![job("a", 1, Work::Steps { busy: Span(1), pause: Span::from_secs(1), count: 0 })]);
    scenario.jobs.push(job("b", 1, steady(1)));
    (scenario.settings.tenants_max, scenario.limit) = (1, Span::from_secs(60));
    let waited = run(&scenario).tenants.iter().map(|fate| seconds(fate.wait_max)).fold(0.0, f64::max);
    assert!(waited > 59.0, "{waited}");
}

/// Where all GPUs are full, whoever comes waits for a place. Only what never fits is refused.
#[test]
fn whoever_finds_no_place_waits_for_one() {
    let jobs = (0..5).map(|_| Job { gpus: Vec::new(), ..job("a", 1, steady(10)) }).collect();
    let mut scenario = scenario(16, jobs);
    scenario.gpus.push(gpu(16));
    scenario.settings.tenants_max = 1;
    let record = run(&scenario);
    assert!(record.finished, "{:?}", record.tenants);
    assert!((30.0..32.0).contains(&seconds(record.makespan)), "two, two and one: {}", record.makespan);
    scenario.jobs[4].memory.bytes = Bytes::from_gib(16);
    let record = run(&scenario);
    assert!(!record.finished);
    assert_eq!(record.tenants.iter().filter(|fate| fate.work == Span::ZERO).count(), 1);
}

/// The list of stretches is bounded, so what it holds must not matter to the figures.
#[test]
fn figures_are_not_made_of_stretches() {
    let work = Work::Requests {
        per_second: 100.0,
        poisson: false,
        service: Span::from_micros(66),
        count: 500,
        hints: None,
    };
    let mut jobs = vec![job("serve", 1, work), job("a", 1, steady(2)), job("b", 1, steady(2))];
    jobs[0].terms.class = Class::LatencyCritical;
    let scenario = scenario(16, jobs);
    let mut record = run(&scenario);
    let row = crate::report::Row::of("rota", &scenario, &record);
    let ratio = row.be_throughput_ratio.unwrap();
    assert!((0.8..1.0).contains(&ratio), "{ratio}");
    assert!(row.jain.unwrap() > 0.9);
    record.stretches.clear();
    assert_eq!(crate::report::Row::of("rota", &scenario, &record), row);
}

#[test]
#[should_panic(expected = "seed 1, at 0 ns")]
fn a_core_that_asks_for_the_impossible_is_caught() {
    let scenario = scenario(16, vec![job("a", 1, steady(1))]);
    let mut engine = Engine::new(&scenario);
    engine.begin();
    engine.job_comes(0);
    engine.tell(Event::Tick);
    let move_of_a_stranger = sched::Action::Move {
        op: sched::OpId(99),
        gpu: GpuId(0),
        out: vec![sched::Owned { tenant: TenantId(1), handle: sched::HandleId(1) }],
        into: Vec::new(),
        room: Bytes::ZERO,
    };
    engine.execute(move_of_a_stranger);
}
