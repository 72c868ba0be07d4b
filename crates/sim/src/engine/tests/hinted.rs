//! What wrong, late, false and missing hints cost, and a service with much memory beside work that is moved all the time.

use super::*;

fn endless() -> Work {
    Work::Steps { busy: Span::from_millis(100), pause: Span::ZERO, count: 0 }
}

fn well(ahead: Span) -> Hints {
    Hints { ahead, error: Span::ZERO, missing: Ratio::ZERO, false_per_request: Ratio::ZERO }
}

/// A service of short requests beside four programs: its p99 in microseconds, and what they get of the GPU.
fn beside_four(hints: Option<Hints>) -> (f64, f64) {
    let mut jobs = vec![service(hints)];
    jobs.extend((0..4).map(|_| job("be", 2, endless())));
    let record = run(&Scenario { limit: Span::from_secs(20), ..scenario(64, jobs) });
    assert!(!record.livelock && record.latencies.len() >= 1_900, "{} requests", record.latencies.len());
    let done: f64 = record.tenants[1..].iter().map(|fate| seconds(fate.work)).sum();
    (percentile(&record, 0.99), done / seconds(record.makespan))
}

fn alone() -> f64 {
    percentile(&run(&scenario(64, vec![service(None)])), 0.99)
}

#[test]
fn hints_that_are_off_cost_more_the_more_they_are_and_never_more_than_none_does() {
    let (unhinted, without) = beside_four(None);
    let mut curve = Vec::new();
    for error in [0, 100, 300, 1_000] {
        let hints = Hints { error: Span::from_micros(error), ..well(Span::from_millis(3)) };
        let (p99, kept) = beside_four(Some(hints));
        curve.push((error, p99, kept));
    }
    let said = format!("{curve:.3?}, without hints {unhinted:.0} us and {without:.3}");
    assert!(curve[0].1 <= 1.05 * alone(), "{said}");
    assert!(curve.windows(2).all(|two| two[1].2 <= two[0].2 + 0.005), "best-effort work pays: {said}");
    assert!(curve.iter().all(|&(_, p99, kept)| p99 <= 1.1 * unhinted && kept >= 0.75), "{said}");
}

#[test]
fn hints_that_come_too_late_to_be_of_use_do_no_harm() {
    let (unhinted, without) = beside_four(None);
    for ahead in [50, 100, 200, 500] {
        let (p99, kept) = beside_four(Some(well(Span::from_micros(ahead))));
        assert!(
            p99 <= 1.1 * unhinted && kept >= without - 0.01,
            "{ahead} us ahead: {p99:.0} us and {kept:.3}"
        );
    }
}

#[test]
fn false_and_missing_hints_cost_what_they_say_and_no_more() {
    let (_, good) = beside_four(Some(well(Span::from_millis(3))));
    let (unhinted, _) = beside_four(None);
    let half = Ratio::from_percent(50);
    let (p99, kept) = beside_four(Some(Hints { missing: half, ..well(Span::from_millis(3)) }));
    assert!(p99 <= 1.1 * unhinted && kept >= good, "half are missing: {p99:.0} us and {kept:.3}");
    let (p99, kept) =
        beside_four(Some(Hints { false_per_request: Ratio::ONE, ..well(Span::from_millis(3)) }));
    assert!(p99 <= 1.1 * unhinted && kept >= 0.7, "as many are false: {p99:.0} us and {kept:.3}");
}

#[test]
fn a_service_with_most_of_the_memory_stays_while_the_rest_is_moved_all_the_time() {
    let settings =
        Settings { moving_share: Ratio::ONE, turn_max: Span::from_millis(500), ..Settings::default() };
    let large = |jobs: Vec<Job>| run(&Scenario { settings: settings.clone(), ..scenario(64, jobs) });
    let mut lc = service(Some(well(Span::from_millis(3))));
    lc.memory.bytes = Bytes::from_gib(40);
    let alone = percentile(&large(vec![lc.clone()]), 0.99);
    let jobs = vec![lc, job("be", 14, endless()), job("be", 14, endless())];
    let limit = Span::from_secs(20);
    let record = run(&Scenario { settings: settings.clone(), limit, ..scenario(64, jobs) });
    let p99 = percentile(&record, 0.99);
    let moves = record.stretches.iter().filter(|stretch| stretch.what == What::MovedIn);
    let (of_service, of_others): (Vec<_>, Vec<_>) = moves.partition(|stretch| stretch.tenant == TenantId(1));
    assert!(of_others.len() >= 20, "{} moves in 20 s", of_others.len());
    assert!(of_service.is_empty(), "it was moved");
    assert!(p99 <= 1.2 * alone, "{p99:.0} us, {alone:.0} us alone");
}
