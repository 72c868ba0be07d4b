//! Best-effort work beside a latency-critical program has the shortest slice, which is no slice at all where two have it, or
//! where somebody has a longer one that nobody sets: they would only be switched between. The virtual GPU does the same.

use std::process::Command;

use crate::parts::{PUPPET, on_virtual_gpu};
use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

/// Kernels of so many milliseconds, and so many of them: far more than fit between two requests.
const WORK: &str = "launch 30 50";

fn stage() -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 128, rotad: &[] })
}

/// The slices that a process was given, and how many groups had them, in order.
fn slices(stage: &Stage, pid: u32) -> Vec<(String, u64)> {
    let events = stage.events();
    let mine = events.iter().filter(|event| event["event"] == "slice" && event["pid"] == pid);
    mine.map(|event| (event["slice"].as_str().unwrap().into(), event["groups"].as_u64().unwrap())).collect()
}

/// A latency-critical program.
struct Service(Puppet);

impl Service {
    fn start(stage: &Stage) -> Self {
        Self(Puppet::start_with(stage, "service", &["--class", "lc"], &[]))
    }

    /// Serves requests until something holds; each of them has to be served.
    fn serves_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        until(what, || {
            for line in ["launch 1 1", "stream"] {
                self.0.begin(line);
                until("a request is served", || self.0.has_answered());
                self.0.has_done(line);
            }
            holds()
        });
    }
}

#[test]
fn a_program_with_two_contexts_gets_on_in_both_beside_a_latency_critical_one() {
    let stage = stage();
    let mut pair = Puppet::start(&stage, "pair", &[]);
    pair.does(WORK);
    pair.does("context-on 0");
    pair.does(&WORK.replace("launch", "launch-here"));
    let mut service = Service::start(&stage);
    pair.begin("synchronize");
    service.serves_until("what it had to do in one is done", || pair.has_answered());
    pair.has_done("synchronize");
    let slices = slices(&stage, pair.pid());
    assert!(slices.contains(&("guaranteed".into(), 2)), "{slices:?}");
    assert!(!slices.contains(&("shortest".into(), 2)), "{slices:?}");
    pair.does("end-context");
    pair.begin("synchronize");
    service.serves_until("and in the other", || pair.has_answered());
    pair.has_done("synchronize");
    service.0.end();
    pair.end();
    stage.finish();
}

#[test]
fn a_program_outside_of_rota_does_not_keep_best_effort_work_from_getting_on_beside_a_latency_critical_one() {
    let stage = stage();
    let mut work = Puppet::start(&stage, "work", &[]);
    work.does("launch 1 50");
    work.begin("synchronize");
    let mut service = Service::start(&stage);
    let pid = work.pid();
    let last = || slices(&stage, pid).last().cloned();
    service.serves_until("it has the shortest slice", || last() == Some(("shortest".into(), 1)));
    service.serves_until("and gets on", || work.has_answered());
    let mut command = Command::new(PUPPET);
    on_virtual_gpu(&mut command, stage.folder());
    let mut stranger = Puppet::by(&stage, "stranger", command);
    // More than anybody waits for.
    stranger.does("launch 500 1000");
    service.serves_until("it is seen, and the slice is longer", || last() == Some(("guaranteed".into(), 1)));
    work.has_done("synchronize");
    work.does(WORK);
    work.begin("synchronize");
    service.serves_until("it gets on beside both", || work.has_answered());
    work.has_done("synchronize");
    stranger.kill();
    service.serves_until("it is gone, and the slice is the shortest again", || {
        last() == Some(("shortest".into(), 1))
    });
    service.0.end();
    work.end();
    stage.finish();
}
