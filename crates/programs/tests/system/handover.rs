//! Best-effort programs that take turns beside a latency-critical one: only what computes of them is frozen while all fits, and
//! all of them before anything of them moves, whoever dies meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};
use crate::takeover::kill_workers;

/// A service with requests that never end, by the measure of a test, and that nobody foretells.
fn service(stage: &Stage) -> Puppet {
    let mut service = Puppet::start_with(stage, "service", &["--class", "lc"], &["env", "ROTA_HINTS=off"]);
    service.begin("requests 1000000 50");
    service
}

/// Programs that compute and copy all the time.
fn works<const COUNT: usize>(stage: &Stage, names: [&str; COUNT]) -> [Program; COUNT] {
    names.map(|name| {
        let more = ["--seed", name, "--steps", "1000000", "--copies", "--kernel-ms", "5"];
        let mut work = stage.worker(0, name, &[&["--mib", "12", "--piece-mib", "4"][..], &more].concat());
        work.goes_on(1);
        work
    })
}

/// Of whom only what computes was frozen for another's turn, not for a hint, since so many events.
fn partly_frozen(stage: &Stage, since: usize) -> BTreeSet<u64> {
    let events = stage.events();
    let freezes = events.iter().skip(since).filter(|event| event["event"] == "freeze");
    let partly = freezes.filter(|event| event["scope"] == "compute" && event["aim"].is_null());
    partly.filter_map(|event| event["pid"].as_u64()).collect()
}

/// Who stopped copying as well, after what computes of it was frozen for another's turn and that one had it.
fn stopped_copying(stage: &Stage) -> BTreeSet<u64> {
    let (mut off, mut stopped) = (BTreeMap::new(), BTreeSet::new());
    for event in stage.events().iter() {
        let Some(pid) = event["pid"].as_u64() else { continue };
        match event["event"].as_str() {
            Some("freeze") if event["scope"] == "compute" && event["aim"].is_null() => {
                off.insert(pid, false);
            }
            Some("freeze") if off.get(&pid) == Some(&true) => {
                stopped.insert(pid);
            }
            Some("thaw") => {
                off.remove(&pid);
                off.values_mut().for_each(|next_is_on| *next_is_on = true);
            }
            _ => {}
        }
    }
    stopped
}

#[test]
fn what_computes_is_frozen_beside_a_service_and_workers_that_die_leave_nobody_so() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 64, rotad: &["--turn", "40ms"] });
    let mut works = works(&stage, ["1", "2", "3"]);
    let service = service(&stage);
    until("turns change so", || partly_frozen(&stage, 0).len() == 3);
    until("whoever waits stops copying", || stopped_copying(&stage).len() == 3);
    for seed in 1..=2 {
        kill_workers(&stage, seed, 4);
        works.iter_mut().for_each(|work| work.goes_on(2));
        let since = stage.events().len();
        until("turns change so again", || partly_frozen(&stage, since).len() == 3);
    }
    service.kill();
    until("the daemon knows", || stage.listing().tenants.iter().all(|tenant| tenant.job != "service"));
    works.iter_mut().for_each(|work| work.goes_on(2));
    works.iter_mut().for_each(Program::kill);
    stage.finish();
}

#[test]
fn nothing_moves_beside_a_service_of_whoever_still_copies() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 192, rotad: &["--turn", "40ms"] });
    let mut few = works(&stage, ["1", "2"]);
    let service = service(&stage);
    until("turns change so", || partly_frozen(&stage, 0).len() == 2);
    let mut large = stage.worker(0, "large", &["--mib", "28", "--piece-mib", "4", "--steps", "1000000"]);
    large.goes_on(1);
    few.iter_mut().for_each(|work| work.goes_on(1));
    large.goes_on(1);
    let mut moved = 0;
    let mut scopes = BTreeMap::new();
    for event in stage.events().iter() {
        let pid = event["pid"].as_u64();
        match event["event"].as_str() {
            Some("freeze") => drop(scopes.insert(pid, event["scope"].clone())),
            Some("thaw") => drop(scopes.remove(&pid)),
            Some("moving_out") => {
                assert_eq!(scopes.get(&pid), Some(&"all".into()), "{event}");
                moved += 1;
            }
            _ => {}
        }
    }
    assert!(moved > 0, "nothing moved");
    drop(service);
    few.iter_mut().for_each(Program::kill);
    large.kill();
    stage.finish();
}
