//! Copies that stay in the arena: whoever only reads is copied out once, whoever writes always, and both find every byte.

use serde_json::Value;

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, turns_at_random, until, until_counted};

/// What each of two programs has. They do not fit together, and the arena has space for all of both.
const KEPT: u64 = 32 << 20;

/// In most turns a program does a whole line.
fn stage(how: &str) -> Stage {
    let rotad = ["--turn", "200ms", "--clean-copies", how];
    Stage::new(&Setup { gpus: 1, gpu_mib: 52, arena_mib: 128, rotad: &rotad })
}

/// What went out, and how much of it was copied, in all moves after so many.
fn moved_since(stage: &Stage, moves: usize) -> (u64, u64) {
    let events = stage.events();
    let ends = events.iter().filter(|event| event["event"] == "move_end").skip(moves);
    let number = |event: &Value, key: &str| event[key].as_u64().expect("each move says so");
    let moved = ends.map(|end| (number(end, "bytes_out"), number(end, "copied_bytes")));
    moved.fold((0, 0), |(out, copied), (more_out, more_copied)| (out + more_out, copied + more_copied))
}

/// Two that have been moved, all of them, and have found every byte.
fn two(stage: &Stage) -> [Puppet; 2] {
    let mut puppets = ["one", "two"].map(|name| Puppet::start(stage, name, &[]));
    for puppet in &mut puppets {
        puppet.does("keep 32");
    }
    // Some of them was moved while it was made.
    read(&mut puppets, 2);
    puppets
}

fn read(puppets: &mut [Puppet; 2], rounds: usize) {
    for _ in 0..rounds {
        puppets.iter_mut().for_each(|puppet| puppet.does("check"));
    }
}

#[test]
fn what_is_only_read_is_not_copied_out_again() {
    let stage = stage("on");
    let mut puppets = two(&stage);
    let (out, copied) = moved_since(&stage, 0);
    assert!(copied > KEPT && copied < out, "at first it is: {copied} of {out}");
    let before = stage.count("move_end");
    read(&mut puppets, 4);
    let (out, copied) = moved_since(&stage, before);
    assert!(out > 4 * KEPT && copied <= out / 20, "{copied} bytes of {out} were copied");
    puppets.into_iter().for_each(Puppet::end);
    stage.finish();
}

#[test]
fn copies_are_kept_unless_that_is_turned_off_and_are_shown() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 52, arena_mib: 128, rotad: &["--turn", "200ms"] });
    let mut puppets = two(&stage);
    let before = stage.count("move_end");
    read(&mut puppets, 4);
    let (out, copied) = moved_since(&stage, before);
    assert!(out > 4 * KEPT && copied <= out / 20, "{copied} bytes of {out} were copied");
    let shown = || stage.listing().gpus[0].arena_clean_bytes;
    // Of whoever is on the GPU, all that came back.
    until("its copy is shown", || shown() >= KEPT / 2);
    puppets.into_iter().for_each(Puppet::end);
    until("nothing is left of them", || shown() == 0);
    stage.finish();
}

#[test]
fn what_is_written_is_copied_out_and_right() {
    let stage = stage("on");
    let mut puppets = two(&stage);
    let before = stage.count("move_end");
    for byte in 101..=104 {
        puppets.iter_mut().for_each(|puppet| puppet.does(&format!("change {byte}")));
    }
    // Seven times somebody has changed all it has, and made way for the other.
    let (out, copied) = moved_since(&stage, before);
    assert!(copied >= 7 * KEPT && copied <= out, "{copied} bytes of {out} were copied");
    read(&mut puppets, 2);
    puppets.into_iter().for_each(Puppet::end);
    stage.finish();
}

#[test]
fn with_the_setting_off_all_is_copied_always() {
    let stage = stage("off");
    let mut puppets = two(&stage);
    read(&mut puppets, 2);
    let (out, copied) = moved_since(&stage, 0);
    assert!(out > 4 * KEPT && copied == out, "{copied} bytes of {out} were copied");
    puppets.into_iter().for_each(Puppet::end);
    stage.finish();
}

#[test]
fn an_audit_copies_all_and_finds_nothing() {
    let stage = stage("audit");
    let mut puppets = two(&stage);
    puppets[0].does("change 7");
    read(&mut puppets, 2);
    let (out, copied) = moved_since(&stage, 0);
    assert!(out > 4 * KEPT && copied == out, "{copied} bytes of {out} were copied");
    puppets.into_iter().for_each(Puppet::end);
    // Which would tell of errors.
    stage.finish();
}

#[test]
fn many_freezes_at_random_leave_every_byte_right() {
    let turns_min = turns_at_random(24);
    // Once with space for copies, and once with too little for most of them.
    for arena_mib in ["100", "60"] {
        let rotad = ["--turn", "20ms", "--turn-jitter", "0.9", "--clean-copies", "on"];
        let arena_mib = arena_mib.parse().unwrap();
        let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib, rotad: &rotad });
        let size = ["--mib", "24", "--piece-mib", "4", "--steps", "1000000", "--kernel-ms", "20"];
        let mut programs = [("5", "--reads"), ("6", "--copies")]
            .map(|(seed, does)| stage.worker(0, seed, &[&size[..], &["--seed", seed, does]].concat()));
        until_counted("there were so many turns", turns_min, || stage.count("turn_begin"));
        for program in &mut programs {
            program.goes_on(2);
        }
        drop(programs);
        let (out, copied) = moved_since(&stage, 0);
        assert!(copied < out, "{copied} bytes of {out} were copied");
        stage.finish();
    }
}
