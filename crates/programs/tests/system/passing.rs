//! Memory that goes from one program to the next, in place of being released and made anew: only between programs of one user in
//! the same namespaces, and no byte is wrong.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;
use wire::TenantState;

use crate::containers;
use crate::parts::WORKER;
use crate::stage::{Program, Setup, Stage, until, until_counted};
use crate::takeover::kill_workers;

const MIB: u64 = 1 << 20;
/// Programs of two pieces that each have a handle of their own.
const LARGE: [&str; 4] = ["--mib", "80", "--piece-mib", "40"];
const ENDLESS: [&str; 4] = ["--steps", "1000000", "--kernel-ms", "10"];

fn stage(rotad: &[&str]) -> Stage {
    stage_with_turns("100ms", rotad)
}

fn stage_with_turns(turn: &str, rotad: &[&str]) -> Stage {
    let rotad = [&["--turn", turn, "--prefetch", "off"], rotad].concat();
    Stage::new(&Setup { gpus: 1, gpu_mib: 112, arena_mib: 256, rotad: &rotad })
}

fn worker(stage: &Stage, name: &str) -> Program {
    stage.worker(0, name, &[&LARGE[..], &ENDLESS, &["--seed", name]].concat())
}

/// What moves were, by their ends: bytes in, and what of that came into memory that another program had.
fn moved(stage: &Stage) -> (u64, u64) {
    let events = stage.events();
    let sum = |key: &str| events.iter().filter_map(|event| event[key].as_u64()).sum();
    (sum("bytes_in"), sum("passed_bytes"))
}

/// Says how long moves of both programs' memory took, in the middle: a fact, as machines differ.
fn tell_of_moves(stage: &Stage, what: &str) {
    let events = stage.events();
    let both = events.iter().filter(|event| {
        let whole = |key: &str| event[key].as_u64().is_some_and(|bytes| bytes >= 80 * MIB);
        whole("bytes_out") && whole("bytes_in")
    });
    let mut took: Vec<u64> = both.filter_map(|event| event["took_ns"].as_u64()).collect();
    took.sort_unstable();
    let middle = took.get(took.len() / 2).copied().map(Duration::from_nanos);
    println!("{what}: {middle:?} for 80 MiB each way, of {} moves", took.len());
}

fn described(stage: &Stage, what: &str) -> Value {
    let output = stage.rota().args(["describe", what, "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn two_programs_of_a_user_have_each_others_memory_and_find_every_byte_right() {
    let stage = stage(&[]);
    let mut programs = ["1", "2"].map(|name| worker(&stage, name));
    until("much was passed", || moved(&stage).1 > 600 * MIB);
    programs.iter_mut().for_each(|program| program.goes_on(2));
    let (bytes_in, passed) = moved(&stage);
    // What fits beside the other, or comes in when the other has just freed or not begun, is made anew.
    assert!(passed * 10 > bytes_in * 8, "{passed} of {bytes_in}");
    tell_of_moves(&stage, "passed on");
    // NVML counts none of it for anybody, and a context is not taken for less or more than it is.
    for name in ["1", "2"] {
        let tenant = &described(&stage, name)["jobs"][0]["tenants"][0];
        assert_eq!(tenant["context_bytes"], 4 * MIB, "{tenant}");
    }
    drop(programs);
    stage.finish();
}

#[test]
fn nobody_gets_memory_of_a_program_in_other_namespaces() {
    if !containers::possible() {
        return;
    }
    let stage = stage(&[]);
    let words = [&[WORKER][..], &LARGE, &ENDLESS, &["--seed", "3"]].concat();
    let mut inside = containers::start(&stage, "all", "inside", &words);
    let mut outside = worker(&stage, "4");
    until("both were moved again and again", || moved(&stage).0 > 600 * MIB);
    inside.goes_on(2);
    outside.goes_on(2);
    assert_eq!(moved(&stage).1, 0);
    drop((inside, outside));
    stage.finish();
}

#[test]
fn memory_is_never_passed_where_that_is_the_setting() {
    let stage = stage(&["--pass-memory", "never"]);
    let mut programs = ["5", "6"].map(|name| worker(&stage, name));
    until("both were moved again and again", || moved(&stage).0 > 600 * MIB);
    programs.iter_mut().for_each(|program| program.goes_on(1));
    assert_eq!(moved(&stage).1, 0);
    tell_of_moves(&stage, "made anew");
    drop(programs);
    stage.finish();
}

#[test]
fn workers_are_killed_while_memory_is_passed() {
    let stage = stage(&["--turn-jitter", "0.5"]);
    let mut programs = ["7", "8"].map(|name| worker(&stage, name));
    programs.iter_mut().for_each(|program| program.goes_on(2));
    let said_before = programs.each_ref().map(Program::log);
    kill_workers(&stage, 5, 8);
    programs.iter_mut().for_each(|program| program.goes_on(2));
    let before = moved(&stage).1;
    until("what came back is passed again", || moved(&stage).1 > before + 400 * MIB);
    assert_eq!(programs.each_ref().map(Program::log), said_before, "a worker that is replaced is not missed");
    drop(programs);
    stage.finish();
}

/// What a program was to take it takes from a daemon that is dead: the arena's bytes count, and it comes back once more.
#[test]
fn a_worker_is_killed_between_the_copy_and_the_program_that_takes_it() {
    let stage = stage_with_turns("400ms", &[]);
    let mut programs = ["9", "10"].map(|name| worker(&stage, name));
    until("memory is passed", || moved(&stage).1 > 400 * MIB);
    let slow = Pid::from_raw(programs[1].pid() as i32).unwrap();
    let is_away = || {
        let listing = stage.listing();
        listing.tenants.iter().any(|tenant| tenant.job == "10" && tenant.state == TenantState::Away)
    };
    let comes = || {
        let events = stage.events();
        events.iter().filter(|event| event["event"] == "moving_in" && event["job"] == "10").count()
    };
    // Counted before it is looked at: it may be about to come in when it is stopped.
    let mut before = 0;
    until("it is away", || {
        before = comes();
        is_away()
    });
    rustix::process::kill_process(slow, Signal::STOP).unwrap();
    until_counted("it is to come in", before + 1, comes);
    // Longer than the copies take, and shorter than somebody is waited for who does not answer.
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(stage.count("move_begin"), stage.count("move_end") + 1, "it is waited for");
    assert!(stage.kill_worker(), "there is a worker to kill");
    rustix::process::kill_process(slow, Signal::CONT).unwrap();
    let passed = moved(&stage).1;
    programs.iter_mut().for_each(|program| program.goes_on(3));
    until("memory is passed again", || moved(&stage).1 > passed + 200 * MIB);
    drop(programs);
    stage.finish();
}
