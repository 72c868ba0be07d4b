//! Programs that are larger than their GPU, and use their memory otherwise than they made it: what changes comes to the
//! device, what does not goes to the host, and every byte is right.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::parts::WORKER;
use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

const MIB: u64 = 1 << 20;

/// Of what it holds, only what it allocated last changes, which is what the GPU had no room for.
fn wrong_way_round(stage: &Stage, name: &str, more: &[&str]) -> Program {
    let mut command = stage.under_rota_with(0, name, &["--oversize"]);
    let shape = ["--mib", "64", "--piece-mib", "4", "--hot-mib", "16", "--seed", "5", "--segments"];
    command.arg(WORKER).args(shape).args(["--steps", "1000000"]).args(more);
    stage.start(name, command)
}

fn stage(rotad: &[&str]) -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 176, rotad })
}

/// The handles that came to the device so far, or went to the host.
fn handles(stage: &Stage, which: &str) -> BTreeSet<u64> {
    let rehomed = stage.events().into_iter().filter(|event| event["event"] == "rehomed");
    rehomed
        .flat_map(|event| event[which].as_array().cloned().unwrap_or_default())
        .filter_map(|it| it.as_u64())
        .collect()
}

/// What a program has in all: each byte in one home, with nothing prepared.
fn has(stage: &Stage, pid: u32) -> u64 {
    let listing = stage.listing();
    let of = listing.tenants.iter().find(|tenant| tenant.pid == pid);
    of.map_or(0, |tenant| tenant.host_bytes + tenant.resident_bytes + tenant.away_bytes)
}

#[test]
fn what_changes_comes_to_the_device() {
    let stage = stage(&["--rehome", "200ms"]);
    let mut program = wrong_way_round(&stage, "large", &[]);
    program.goes_on(1);
    let before = has(&stage, program.pid());
    assert!(before >= 64 * MIB, "{before}");
    until("what changes is on the device", || handles(&stage, "to_device").len() >= 4);
    program.goes_on(3);
    let (up, down) = (handles(&stage, "to_device"), handles(&stage, "to_host"));
    // Numbers count up: those that change were made last.
    assert!(down.last() < up.first(), "{up:?} came up for {down:?}");
    // And what it keeps its sums in.
    assert!(up.len() <= 5, "{up:?}: no more than changes");
    until("nothing is prepared any more", || has(&stage, program.pid()) == before);
    let described = stage.rota().args(["describe", "large"]).output().unwrap();
    let said = String::from_utf8_lossy(&described.stdout).into_owned();
    assert!(said.contains("changed places"), "{said}");
    drop(program);
    until("nothing of it is left", || stage.listing().tenants.is_empty());
    stage.finish();
}

#[test]
fn nothing_changes_places_where_that_is_switched_off() {
    let stage = stage(&["--rehome", "none"]);
    let mut program = wrong_way_round(&stage, "large", &[]);
    program.goes_on(20);
    assert_eq!(stage.count("rehomed"), 0);
    drop(program);
    stage.finish();
}

#[test]
fn beside_another_with_turns_every_byte_is_right() {
    let stage = stage(&["--rehome", "100ms", "--turn", "400ms"]);
    let mut program = wrong_way_round(&stage, "large", &["--kernel-ms", "5"]);
    program.goes_on(1);
    let other = ["--mib", "24", "--piece-mib", "4", "--seed", "2", "--steps", "1000000", "--kernel-ms", "10"];
    let mut other = stage.worker(0, "other", &other);
    until("some of it has changed places", || stage.count("rehomed") >= 1);
    program.goes_on(3);
    other.goes_on(3);
    drop((program, other));
    stage.finish();
}

/// What changes is now this part of its memory, and now that: each worker of the daemon has something to do.
const TO_AND_FRO: [&str; 2] = ["--hot-steps", "8"];

/// The worker dies while memory changes places, again and again, at any instant of it.
#[test]
fn a_worker_that_dies_in_the_middle_loses_nothing() {
    let stage = stage(&["--rehome", "100ms"]);
    let mut program = wrong_way_round(&stage, "large", &TO_AND_FRO);
    program.goes_on(1);
    let before = has(&stage, program.pid());
    let mut frozen = stage.count("freeze");
    for kill in 0..8 {
        // Who is alone is frozen for nothing else. The change takes some 0.15 s after that.
        until("its memory changes places", || stage.count("freeze") > frozen);
        std::thread::sleep(Duration::from_millis(kill * 37 % 150));
        assert!(stage.kill_worker());
        frozen = stage.count("freeze");
        program.goes_on(2);
    }
    until("all of it is counted again", || has(&stage, program.pid()) == before);
    program.goes_on(2);
    drop(program);
    stage.finish_after_errors();
}

/// A program that dies while its memory changes places leaves nothing, and others go on.
#[test]
fn one_that_dies_in_the_middle_leaves_nothing() {
    let stage = stage(&["--rehome", "100ms"]);
    for kill in 0..4 {
        let frozen = stage.count("freeze");
        let mut program = wrong_way_round(&stage, &format!("large-{kill}"), &TO_AND_FRO);
        until("its memory changes places", || stage.count("freeze") > frozen);
        std::thread::sleep(Duration::from_millis(kill * 47));
        program.kill();
        until("nothing of it is left", || stage.listing().tenants.is_empty());
    }
    stage.worker(0, "after", &["--mib", "24", "--piece-mib", "4", "--steps", "3"]).ends_well();
    stage.finish_after_errors();
}

/// One that stands still as a process when its memory is to change places is waited for, and goes on.
#[test]
fn one_that_is_stopped_goes_on_with_every_byte() {
    let stage = stage(&["--rehome", "100ms"]);
    let mut program = wrong_way_round(&stage, "large", &TO_AND_FRO);
    program.goes_on(1);
    let pid = Pid::from_raw(program.pid() as i32).unwrap();
    for stop in 0..3 {
        // What has changed places rests, so that each time it is another worker's turn.
        if stop > 0 {
            assert!(stage.kill_worker());
            program.goes_on(1);
        }
        let frozen = stage.count("freeze");
        until("its memory changes places", || stage.count("freeze") > frozen);
        std::thread::sleep(Duration::from_millis(stop * 40));
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        // Longer than an answer is waited for.
        std::thread::sleep(Duration::from_millis(3500));
        rustix::process::kill_process(pid, Signal::CONT).unwrap();
        program.goes_on(2);
    }
    drop(program);
    stage.finish_after_errors();
}

/// What the driver puts away may come back as other memory, so nobody else may have a hold of it.
#[test]
fn one_that_was_looked_at_can_be_put_away_and_comes_back_as_it_was() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &["--rehome", "100ms"] });
    let mut program = Puppet::start_with(&stage, "deep", &["--oversize"], &[]);
    program.does("keep 24");
    program.does("large 40 9");
    program.does("synchronize");
    let host = stage.listing().tenants.iter().map(|tenant| tenant.host_bytes).sum::<u64>();
    assert!(host >= 32 * MIB, "{host}");
    std::thread::sleep(Duration::from_millis(500));
    for word in ["pause", "resume"] {
        let deep = if word == "pause" { vec!["--deep"] } else { vec![] };
        let said = stage.rota().arg(word).args(deep).arg("deep").output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        if word == "pause" {
            until("it is put away", || stage.count("deep") > 0);
        }
    }
    program.does("check");
    program.does("see-large");
    program.end();
    stage.finish();
}
