//! Who has no work takes no turns, and gets one as soon as it has some. Who may have work is never taken for idle.

use std::time::Duration;

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

/// Long enough for anything to happen that should not.
const A_WHILE: Duration = Duration::from_millis(300);

fn stage() -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &["--turn", "20ms"] })
}

/// Somebody who has work all the time, so that nobody runs beside it but in turns.
fn busy(stage: &Stage) -> Puppet {
    let mut busy = Puppet::start(stage, "busy", &[]);
    busy.does("launch 500 200");
    busy
}

/// How often something was told of a job.
fn count(stage: &Stage, job: &str, event: &str) -> usize {
    stage.events().iter().filter(|line| line["event"] == event && line["job"] == job).count()
}

/// Waits until a job's turn is over, and what it does next needs another.
fn is_frozen(stage: &Stage, job: &str) {
    until(&format!("{job} is frozen"), || {
        let events = stage.events();
        let last = |event| events.iter().rposition(|line| line["event"] == event && line["job"] == job);
        last("freeze") > last("thaw")
    });
}

/// A job is taken for idle once more than so often.
fn becomes_idle(stage: &Stage, job: &str, before: usize) {
    until(&format!("{job} is idle"), || count(stage, job, "idle") > before);
}

#[test]
fn who_has_no_work_takes_no_turns_and_gets_one_when_it_has() {
    let stage = stage();
    let mut quiet = Puppet::start(&stage, "quiet", &[]);
    let busy = busy(&stage);
    quiet.does("launch 1 1");
    quiet.does("synchronize");
    becomes_idle(&stage, "quiet", 0);
    let seen = |stage: &Stage| (count(stage, "quiet", "turn_begin"), count(stage, "busy", "freeze"));
    let mut before = seen(&stage);
    // What had begun before may still be on its way.
    until("there is no turn of someone who has no work, and no pause of the other", || {
        std::thread::sleep(A_WHILE * 5);
        std::mem::replace(&mut before, seen(&stage)) == before
    });

    for _ in 0..3 {
        is_frozen(&stage, "quiet");
        let (idle, turns) = (count(&stage, "quiet", "idle"), count(&stage, "quiet", "turn_begin"));
        quiet.does("launch 1 1");
        quiet.does("stream");
        until("it has work and a turn", || count(&stage, "quiet", "turn_begin") > turns);
        becomes_idle(&stage, "quiet", idle);
    }
    quiet.end();
    drop(busy);
    stage.finish();
}

#[test]
fn every_way_to_wait_ends_work_and_only_its_own() {
    let stage = stage();
    let mut quiet = Puppet::start(&stage, "quiet", &[]);
    let busy = busy(&stage);
    for wait in ["synchronize", "stream", "event", "read"] {
        let idle = count(&stage, "quiet", "idle");
        quiet.does("launch 3 1");
        quiet.does(wait);
        becomes_idle(&stage, "quiet", idle);
    }
    let ways: [&[&str]; 4] = [
        &["launch-beside 2 1", "beside"],
        &["launch-beside 2 1", "join", "stream"],
        &["launch-beside 2 1", "join", "read"],
        &["graph 2 1", "beside"],
    ];
    for way in ways {
        let idle = count(&stage, "quiet", "idle");
        way.iter().for_each(|line| quiet.does(line));
        becomes_idle(&stage, "quiet", idle);
    }
    // Nobody waits for the second stream.
    for wait in ["stream", "event", "read"] {
        let before = count(&stage, "quiet", "idle");
        quiet.does("launch-beside 1 1");
        quiet.does(wait);
        std::thread::sleep(A_WHILE);
        assert_eq!(count(&stage, "quiet", "idle"), before, "{wait} says nothing about another stream");
        quiet.does("beside");
        becomes_idle(&stage, "quiet", before);
    }
    quiet.end();
    drop(busy);
    stage.finish();
}

#[test]
fn who_launches_and_never_waits_is_never_idle() {
    let stage = stage();
    let mut silent = Puppet::start(&stage, "silent", &[]);
    let busy = busy(&stage);
    silent.does("launch 1 2000");
    let idle = count(&stage, "silent", "idle");
    let turns = count(&stage, "silent", "turn_begin");
    until("it takes turns", || count(&stage, "silent", "turn_begin") > turns + 3);
    std::thread::sleep(A_WHILE * 5);
    assert_eq!(count(&stage, "silent", "idle"), idle);
    silent.does("synchronize");
    becomes_idle(&stage, "silent", idle);
    silent.end();
    drop(busy);
    stage.finish();
}

#[test]
fn calls_of_an_idle_program_end_although_it_was_frozen() {
    let stage = stage();
    let mut quiet = Puppet::start(&stage, "quiet", &[]);
    let busy = busy(&stage);
    quiet.does("launch 1 1");
    quiet.does("stream");
    becomes_idle(&stage, "quiet", 0);
    // Two in a line where the first leaves work that only the second waits for.
    let calls =
        ["allocate", "synchronize", "stream", "event", "beside", "join, read", "free", "graph 1 0, beside"];
    for line in calls {
        line.split(", ").for_each(|line| quiet.does(line));
        // It may have needed the GPU, or not; at its next call it is idle again.
        until(&format!("the program is idle after {line}"), || {
            let events = stage.events();
            let last =
                |event| events.iter().rposition(|line| line["event"] == event && line["job"] == "quiet");
            last("idle") > last("wants")
        });
    }
    quiet.end();
    drop(busy);
    stage.finish();
}
