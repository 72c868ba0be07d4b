//! Warm-ups of a service beside best-effort work: launched by a thread that is awake for the order, where threads may stay awake,
//! and by one that is woken for it elsewhere; once for each order.

use wire::Hints;

use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

/// Requests come so far apart that they are foretold.
const REQUESTS: &str = "requests 40 25";

/// So often a program is told to load its kernel ahead of all requests, at most.
const PREPARED_MAX: u64 = 8;

fn stage(rotad: &[&str]) -> (Stage, Program) {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad });
    let mut work = stage.worker(0, "work", &["--mib", "8", "--piece-mib", "4", "--seconds", "600"]);
    work.goes_on(1);
    (stage, work)
}

/// A service whose threads stay awake, or not.
fn service(stage: &Stage, standby: &str) -> Puppet {
    let mut command = stage.under_rota_with(0, "service", &["--class", "lc"]);
    command.env("ROTA_STANDBY", standby).arg(crate::parts::PUPPET);
    Puppet::by(stage, "service", command)
}

/// What became of the service's hints; all are 0 where no worker knows it, or a new one has just taken it in.
fn hints(stage: &Stage) -> Hints {
    let listing = stage.listing();
    let service = listing.tenants.iter().find(|tenant| tenant.job == "service");
    service.and_then(|service| service.hints).unwrap_or_default()
}

/// Serves requests until some found the GPU free, and this is so.
fn serves(stage: &Stage, service: &mut Puppet, what: &str, is_so: impl Fn(&Hints) -> bool) -> Hints {
    until(what, || {
        service.does(REQUESTS);
        let seen = hints(stage);
        seen.good > 0 && is_so(&seen)
    });
    hints(stage)
}

/// Nobody stays awake where threads wait for processors, as they do beside other tests.
#[test]
#[ignore = "needs processors to spare: make soak"]
fn a_thread_that_is_awake_launches_what_the_page_orders_once() {
    let (stage, mut work) = stage(&[]);
    let mut service = service(&stage, "on");
    let seen = serves(&stage, &mut service, "some were awaited", |seen| seen.warm_ups_awaited >= 3);
    // At the end of each freeze for a hint, or where nobody has to go; the page orders before the events tell.
    until("no more was launched than wanted", || {
        let seen = hints(&stage);
        let aimed =
            |event: &&std::rc::Rc<serde_json::Value>| event["event"] == "freeze" && event["aim"].is_object();
        let freezes = stage.events().iter().filter(aimed).count();
        let free = stage
            .events()
            .iter()
            .filter(|event| event["event"] == "warm_up" && event["granted_ns"] == 0)
            .count();
        seen.warm_ups + seen.warm_ups_failed <= (freezes + free) as u64 + PREPARED_MAX
    });
    assert!(seen.warm_ups >= seen.warm_ups_awaited, "{seen:?}");

    assert!(stage.kill_worker());
    let seen =
        serves(&stage, &mut service, "some of the next worker's were", |seen| seen.warm_ups_awaited > 0);
    assert!(seen.warm_ups >= seen.warm_ups_awaited, "{seen:?}");
    service.end();
    work.goes_on(1);
    work.kill();
    stage.finish();
}

#[test]
fn whoever_is_not_awake_is_woken_for_it() {
    for (rotad, standby) in [(&[][..], "off"), (&["--standby", "off"], "on")] {
        let (stage, mut work) = stage(rotad);
        let mut service = service(&stage, standby);
        let seen = serves(&stage, &mut service, "some were launched", |seen| seen.warm_ups > 3);
        assert_eq!(seen.warm_ups_awaited, 0, "{seen:?}");
        service.end();
        work.goes_on(1);
        work.kill();
        stage.finish();
    }
}
