//! Programs with more memory than GPU and arena have: what is needed last is on a disk meanwhile.

use serde_json::Value;
use std::rc::Rc;

use crate::stage::{Setup, Stage};

/// What each of four programs has, beside a slab of 2 MiB, on a GPU that leaves them 26 MiB beside four contexts and the
/// daemon's own memory: about 60 MiB are away.
const PROGRAM: [&str; 4] = ["--mib", "20", "--piece-mib", "4"];

fn sum(events: &[Rc<Value>], key: &str) -> u64 {
    events.iter().filter_map(|event| event[key].as_u64()).sum()
}

#[test]
fn four_programs_take_turns_with_an_arena_for_a_third_of_what_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("plain letters");
    let rotad = ["--turn", "100ms", "--cellar", folder, "--cellar-limit", "512MiB"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 50, arena_mib: 20, rotad: &rotad });
    // Kernels of 30 ms, so that each needs several turns however fast the machine is.
    let programs = ["1", "2", "3", "4"].map(|seed| {
        let more = ["--seed", seed, "--steps", "10", "--kernel-ms", "30"];
        stage.worker(0, seed, &[&PROGRAM[..], &more].concat())
    });
    for program in programs {
        program.ends_well();
    }
    let events = stage.events();
    let (sunk, fetched) = (sum(&events, "sunk_bytes"), sum(&events, "fetched_bytes"));
    assert!(fetched >= 40 << 20 && sunk >= fetched, "{sunk} bytes went to the disk, {fetched} came back");
    for job in ["1", "2", "3", "4"] {
        let turns = events.iter().filter(|event| event["event"] == "turn_begin" && event["job"] == job);
        assert!(turns.count() >= 2, "job {job} had too few turns to show anything");
    }
    let names = std::fs::read_dir(folder).expect("it is there").count();
    assert_eq!(names, 0, "the file has no name");
    stage.finish();
}
