//! What the latency-critical, those with priorities and best-effort work can rely on beside each other.

use super::*;
use sched::{Favour, PolicyKind, Priority};

/// A service: a seed's Poisson requests, each of so much GPU time, with an SLO.
fn service(name: &str, per_second: f64, service: Span, slo: Span, seconds: u64) -> Job {
    let count = (per_second * seconds as f64) as u64;
    let work = Work::Requests { per_second, poisson: true, service, count, hints: None };
    let terms = Terms { class: Class::LatencyCritical, slo: Some(slo), ..Terms::default() };
    Job { terms, ..job(name, 1, work) }
}

fn endless() -> Work {
    Work::Steps { busy: Span::from_millis(100), pause: Span::ZERO, count: 0 }
}

fn with_seed(seed: u64, jobs: Vec<Job>) -> Scenario {
    Scenario { seed, ..scenario(64, jobs) }
}

/// Two services that keep the GPU busy for 60% of the time, half each, beside best-effort work.
fn two_services(slos: [u64; 2]) -> Vec<Job> {
    let [tight, loose] = slos.map(Span::from_millis);
    vec![
        service("tight", 300.0, Span::from_millis(1), tight, 30),
        service("loose", 20.0, Span::from_millis(15), loose, 30),
        job("be", 2, endless()),
    ]
}

#[test]
fn two_services_with_different_slos_both_hold_them_at_60_percent_load() {
    for seed in 1..=3 {
        let record = run(&with_seed(seed, two_services([10, 150])));
        let late: Vec<u64> = record.tenants[..2].iter().map(|fate| fate.late).collect();
        // 9,000 and 600 requests: 99 of 100 are in time.
        assert!(late[0] <= 90 && late[1] <= 6, "seed {seed}: {late:?} were late");
        assert!(!record.livelock);
        let best_effort = seconds(record.tenants[2].work) / seconds(record.makespan);
        assert!(best_effort >= 0.25, "seed {seed}: {best_effort:.3} of the time for best-effort work");
        // As if both had the same time for a request: then the tight one waits for slices of the loose one.
        let equal = run(&with_seed(seed, two_services([150, 150])));
        let percentile = |record: &Record, share| percentile(record, share);
        assert!(
            percentile(&record, 0.9) < percentile(&equal, 0.9) * 0.8,
            "seed {seed}: {} and {} us",
            percentile(&record, 0.9),
            percentile(&equal, 0.9)
        );
    }
}

/// How much of a GPU best-effort work got beside a service, and the service's p99 in microseconds.
fn beside_a_service(settings: Settings, per_second: f64, busy: Span) -> (f64, f64) {
    let hints = Hints {
        ahead: Span::from_millis(3),
        error: Span::ZERO,
        missing: Ratio::ZERO,
        false_per_request: Ratio::ZERO,
    };
    let count = (per_second * 20.0) as u64;
    let work = Work::Requests { per_second, poisson: false, service: busy, count, hints: Some(hints) };
    let terms = Terms { class: Class::LatencyCritical, ..Terms::default() };
    let lc = Job { terms, ..job("lc", 1, work) };
    let jobs = vec![lc, job("be", 2, endless()), job("be", 2, endless())];
    let record = run(&Scenario { settings, limit: Span::from_secs(20), ..scenario(64, jobs) });
    assert!(!record.livelock);
    let done: f64 = record.tenants[1..].iter().map(|fate| seconds(fate.work)).sum();
    (done / seconds(record.makespan), percentile(&record, 0.99))
}

#[test]
fn what_is_favoured_trades_latency_against_what_best_effort_work_gets_done() {
    let of = |favour| {
        let settings = Settings { favour, ..Settings::default() };
        beside_a_service(settings, 100.0, Span::from_micros(66))
    };
    let (latency, balanced, throughput) = (of(Favour::Latency), of(Favour::Balanced), of(Favour::Throughput));
    let all = format!("{latency:?}, {balanced:?}, {throughput:?}");
    assert!(latency.0 < balanced.0 && balanced.0 < throughput.0, "{all}");
    assert!(latency.1 * 2.0 < balanced.1 && balanced.1 * 2.0 < throughput.1, "{all}");
    assert!(throughput.1 < 2_000.0, "{all}");
}

#[test]
fn best_effort_work_that_comes_back_as_a_request_ends_gets_more_done_and_takes_nothing() {
    let of = |thaw_ahead, busy| {
        let settings = Settings { thaw_ahead, ..Settings::default() };
        beside_a_service(settings, 100.0, Span::from_micros(busy))
    };
    // Of each 10 ms the 0.2 that a thaw takes, or the request if that is shorter; less where requests differ more in length.
    for (busy, least) in [(66, 0.006), (500, 0.015), (3_000, 0.003)] {
        let (with, without) = (of(true, busy), of(false, busy));
        assert!(with.0 >= without.0 + least, "{busy} us: {with:?}, {without:?}");
        assert!(with.1 <= without.1 * 1.01, "{busy} us: {with:?}, {without:?}");
    }
}

#[test]
fn best_effort_work_has_its_guarantee_and_latency_gives_way() {
    // A service that would have 97% of the GPU, and hints at every request.
    let of = |percent| {
        let be_guarantee = Ratio::from_percent(percent);
        let settings = Settings { be_guarantee, ..Settings::default() };
        beside_a_service(settings, 97.0, Span::from_millis(10))
    };
    let ([none, some, more], p99) = {
        let all = [of(0), of(10), of(25)];
        (all.map(|(share, _)| share), all.map(|(_, p99)| p99))
    };
    assert!(some >= 0.09 && more >= 0.09 && none < 0.06, "{none:.3} {some:.3} {more:.3}");
    assert!(p99[1] > p99[0] * 2.0, "{p99:.0?}: what best-effort work has, requests wait for");
}

#[test]
fn higher_priorities_are_done_first_and_nobody_starves() {
    let levels = [Priority::Realtime, Priority::High, Priority::Normal, Priority::Low, Priority::Idle];
    let jobs = levels.map(|priority| Job {
        terms: Terms { priority, ..Terms::default() },
        ..job(&format!("{priority:?}"), 10, steady(60))
    });
    for ageing in [10, 3_600] {
        let settings = Settings {
            policy: PolicyKind::Priority,
            ageing: Span::from_secs(ageing),
            gap_max: Span::from_secs(10),
            ..Settings::default()
        };
        let record = run(&Scenario { settings, ..scenario(16, jobs.to_vec()) });
        assert!(record.finished);
        let ended: Vec<f64> = record.tenants.iter().map(|fate| fate.ended.unwrap().0 as f64 / 1e9).collect();
        assert!(ended.windows(2).all(|two| two[0] < two[1]), "{ended:.0?}");
        // Without ageing the lowest waits for all others. With it, for four times that and a round.
        let waited = seconds(record.tenants[4].gap_max.max(record.tenants[4].wait_max));
        if ageing == 10 {
            assert!(waited < 70.0, "{waited:.0} s");
        } else {
            assert!(waited > 200.0, "{waited:.0} s");
        }
    }
}
