//! The cases that rota is for, at a two-hundredth of their size: programs that do not fit together finish with every byte right.
//! What is counted are turns, their order, and the bytes that moved; how fast it was is nobody's business here.

use serde_json::Value;
use std::rc::Rc;

use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

const MIB: u64 = 1 << 20;

/// The sum of a figure over all events.
fn sum(events: &[Rc<Value>], key: &str) -> u64 {
    events.iter().filter_map(|event| event[key].as_u64()).sum()
}

/// Whose turns there were, in order.
fn turns(stage: &Stage) -> Vec<String> {
    let events = stage.events();
    let begun = events.iter().filter(|event| event["event"] == "turn_begin");
    begun.map(|event| event["job"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Everybody had so many turns, and each of these moved about as much as it had to; what came back had gone.
fn check_counts(stage: &Stage, jobs: &[&str], turns_min: usize, switch_mib: u64) {
    let (events, turns) = (stage.events(), turns(stage));
    for job in jobs {
        let had = turns.iter().filter(|turn| turn == job).count();
        assert!(had >= turns_min, "job {job} had {had} turns of {}", turns.len());
    }
    let (out, into) = (sum(&events, "bytes_out"), sum(&events, "bytes_in"));
    let switches = (jobs.len() * (turns_min - 1)) as u64;
    assert!(into <= out, "{into} bytes came in, and only {out} had gone");
    assert!(into >= switches * switch_mib * MIB, "only {into} bytes came in");
}

#[test]
fn four_programs_of_three_quarters_of_the_gpu() {
    let setup = Setup { gpus: 1, gpu_mib: 92, arena_mib: 256, rotad: &["--turn", "200ms"] };
    let stage = Stage::new(&setup);
    let names = ["1", "2", "3", "4"];
    let programs = names.map(|seed| {
        let memory = ["--mib", "60", "--piece-mib", "4", "--kernel-ms", "200"];
        stage.worker(0, seed, &[&memory[..], &["--seed", seed, "--steps", "4"]].concat())
    });
    for program in programs {
        assert_eq!(program.ends_well().steps, 4);
    }
    // Of the 92 MiB, 68 are there for the memory of programs: each time 52 have to go.
    check_counts(&stage, &names, 3, 50);
    stage.finish();
}

#[test]
fn two_programs_and_an_arena_that_has_room_for_neither() {
    // As two of 100 GiB on a card of 141 GB, with little more than 80 GiB of arena. Each has 52 MiB and a slab of 2 for its sums,
    // and two pieces of 4 must find a place whatever goes where: 116 of the 119 MiB that there are, with 75 of the GPU.
    let setup = Setup { gpus: 1, gpu_mib: 91, arena_mib: 44, rotad: &["--turn", "200ms"] };
    let stage = Stage::new(&setup);
    let names = ["1", "2"];
    let mut programs = names.map(|seed| {
        let memory = ["--mib", "52", "--piece-mib", "4", "--segments", "--kernel-ms", "200"];
        stage.worker(0, seed, &[&memory[..], &["--seed", seed, "--seconds", "600"]].concat())
    });
    // Whoever has all of its memory first gets on while the other one waits for more: so only then it is counted.
    programs.iter_mut().for_each(|program| program.goes_on(1));
    programs.iter_mut().for_each(|program| program.goes_on(4));
    check_counts(&stage, &names, 3, 30);
    programs.iter_mut().for_each(Program::kill);
    stage.finish();
}

/// How many turns others had between two of one program: the one in the middle, of all such numbers.
fn usual_gap(turns: &[String]) -> usize {
    let mut gaps = Vec::new();
    for (at, job) in turns.iter().enumerate() {
        gaps.extend(turns[at + 1..].iter().position(|turn| turn == job));
    }
    gaps.sort_unstable();
    gaps[gaps.len() / 2]
}

#[test]
fn kernels_outlast_turns_and_the_end_of_one_program_is_the_gain_of_all_others() {
    // Every kernel is frozen in the middle at least twice, and there is always another one: no turn ends before its time.
    let setup = Setup { gpus: 1, gpu_mib: 92, arena_mib: 256, rotad: &["--turn", "100ms"] };
    let stage = Stage::new(&setup);
    let names = ["1", "2", "3", "4"];
    let mut programs = names.map(|name| {
        let mut program = Puppet::start(&stage, name, &[]);
        program.does("keep 60");
        program
    });
    let before = turns(&stage).len();
    for (program, kernels) in programs.iter_mut().zip([7, 7, 7, 2]) {
        program.does(&format!("launch {kernels} 300"));
    }
    let [first, second, third, mut last] = programs;
    last.does("stream");
    last.does("check");
    let four = turns(&stage);
    // On a machine with much else to do the last of them comes long after the first.
    let begun = before + four[before..].iter().position(|job| job == "4").expect("it had turns");
    last.end();
    until("the one that has ended is gone", || stage.listing().tenants.len() == 3);
    let ended = turns(&stage).len();
    until("the others have had their turns", || turns(&stage).len() >= ended + 15);
    let three = turns(&stage);
    let (before, after) = (usual_gap(&four[begun..]), usual_gap(&three[ended..]));
    assert_eq!((before, after), (3, 2), "{:?}, then {:?}", &four[begun..], &three[ended..]);
    assert!(!three[ended..].iter().any(|job| job == "4"), "it has ended");
    let events = stage.events();
    assert!(sum(&events, "bytes_in") >= 15 * 50 * MIB, "turns without moves");
    for mut program in [first, second, third] {
        program.does("check");
        program.kill();
    }
    stage.finish();
}
