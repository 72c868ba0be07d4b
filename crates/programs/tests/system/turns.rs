//! Programs that do not fit together take turns, and find every byte of theirs as they left it.

use crate::stage::{Setup, Stage, turns_at_random, until, until_counted};

/// Two programs of 24 MiB on 48 MiB, of which 16 are for contexts and the daemon.
const LARGE: [&str; 4] = ["--mib", "24", "--piece-mib", "4"];

#[test]
fn two_that_do_not_fit_together_end_with_every_byte_right() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &["--turn", "100ms"] });
    // Kernels of 30 ms, so that each needs many turns however fast the machine is.
    let start = |seed| {
        let more = ["--seed", seed, "--steps", "20", "--kernel-ms", "30"];
        stage.worker(0, seed, &[&LARGE[..], &more].concat())
    };
    let mut first = start("1");
    first.goes_on(1);
    // However late the second comes, the first is there.
    assert!(stage.rota().args(["pause", "1"]).output().unwrap().status.success());
    let second = start("2");
    until("both are there", || stage.listing().tenants.len() == 2);
    assert!(stage.rota().args(["resume", "1"]).output().unwrap().status.success());
    for program in [first, second] {
        program.ends_well();
    }
    let events = stage.events();
    let moved: u64 = events.iter().filter_map(|event| event["bytes_out"].as_u64()).sum();
    assert!(moved > 60 << 20, "only {moved} bytes moved out");
    for job in ["1", "2"] {
        let turns = events.iter().filter(|event| event["event"] == "turn_begin" && event["job"] == job);
        assert!(turns.count() > 3, "job {job} had too few turns to show anything");
    }
    stage.finish();
}

#[test]
fn freezes_at_random_leave_every_byte_right() {
    let turns_min = turns_at_random(100);
    let turns = ["--turn", "20ms", "--turn-jitter", "0.9"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &turns });
    // A long kernel and many copies, so that whatever is frozen is in the middle of something.
    let mut programs = ["3", "4"].map(|seed| {
        let more = ["--seed", seed, "--steps", "1000000", "--copies", "--kernel-ms", "30"];
        stage.worker(0, seed, &[&LARGE[..], &more].concat())
    });
    until_counted("there were so many turns", turns_min, || stage.count("turn_begin"));
    // What was frozen last is looked at too.
    for program in &mut programs {
        program.goes_on(2);
    }
    drop(programs);
    assert!(stage.count("freeze") >= turns_min / 2, "there were turns without freezes");
    assert!(stage.count("move_end") >= turns_min / 2, "there were turns without moves");
    stage.finish();
}

#[test]
fn memory_in_the_order_of_streams_is_right_through_freezes_and_moves() {
    let turns = ["--turn", "20ms", "--turn-jitter", "0.9"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 56, arena_mib: 64, rotad: &turns });
    let mut programs = ["5", "6"].map(|seed| {
        let more =
            ["--mib", "24", "--piece-mib", "4", "--seed", seed, "--steps", "1000000", "--streams", "4"];
        stage.worker(0, seed, &more)
    });
    until("there were so many turns", || stage.count("turn_begin") >= 40);
    for program in &mut programs {
        program.goes_on(2);
    }
    drop(programs);
    assert!(stage.count("move_end") >= 10, "there were turns without moves");
    stage.finish();
}
