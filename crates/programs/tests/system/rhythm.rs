//! Requests that nobody hints: those that come evenly are foretold, and best-effort work is off the GPU before they come; those
//! that come by chance are not.

use wire::Hints;

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

/// Requests come so far apart: a machine that wakes programs late does so by less than an eighth of it.
const GAP_MS: u64 = 25;

fn hints(stage: &Stage) -> Hints {
    let listing = stage.listing();
    let service = listing.tenants.iter().find(|tenant| tenant.job == "service").expect("it is there");
    service.hints.expect("it is latency-critical")
}

#[test]
fn requests_that_come_evenly_are_foretold_and_those_that_come_by_chance_are_not() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad: &[] });
    let mut work = stage.worker(0, "work", &["--mib", "8", "--piece-mib", "4", "--seconds", "600"]);
    work.goes_on(1);
    let mut service = Puppet::start_with(&stage, "service", &["--class", "lc"], &[]);
    let pid = work.pid();
    let ahead = || {
        let events = stage.events();
        let freezes = events.iter().filter(|event| event["event"] == "freeze" && event["pid"] == pid);
        freezes.filter(|event| event["scope"] == "compute").count()
    };

    service.does(&format!("requests-by-chance 100 {GAP_MS}"));
    let seen = hints(&stage);
    assert_eq!((seen.forecast, seen.rhythm_ns), (0, None), "by chance: {seen:?}");
    assert_eq!(ahead(), 0);

    until("they are foretold, and come when they are due", || {
        service.does(&format!("requests 40 {GAP_MS}"));
        let seen = hints(&stage);
        seen.rhythm_ns.is_some() && seen.good > 0 && seen.warm_ups > 0
    });
    let seen = hints(&stage);
    assert_eq!((seen.sdk, seen.shim), (0, 0), "{seen:?}");
    assert!(seen.forecast > 0 && ahead() > 0, "{seen:?}");
    let gap_ms = seen.rhythm_ns.unwrap() / 1_000_000;
    assert!(gap_ms.abs_diff(GAP_MS) <= 2, "{seen:?}");
    let described = stage.rota().args(["describe", "service"]).output().unwrap();
    let text = String::from_utf8(described.stdout).unwrap();
    // Between the two questions a foretold request may have ended, but none was foretold.
    assert!(text.contains(&format!("{} by forecast", seen.forecast)), "{text}");
    work.goes_on(1);

    until("they are not foretold any more", || {
        service.does(&format!("requests-by-chance 20 {GAP_MS}"));
        hints(&stage).rhythm_ns.is_none()
    });
    let (before, frozen) = (hints(&stage).forecast, ahead());
    service.does(&format!("requests-by-chance 100 {GAP_MS}"));
    let seen = hints(&stage);
    assert_eq!((seen.forecast, seen.rhythm_ns, ahead()), (before, None, frozen), "{seen:?}");
    work.goes_on(1);
    service.end();
    work.kill();
    stage.finish();
}
