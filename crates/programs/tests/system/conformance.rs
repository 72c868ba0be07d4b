//! The conformance suite under rota: programs get the answers of the real driver, but for a list of differences, each with
//! its reason.

use std::collections::BTreeSet;

use crate::drivers::recorded;
use crate::stage::{Setup, Stage};

/// What is answered otherwise under rota: `family/name: why`, one a line.
const ACCEPTED: &str = include_str!("differences.txt");

#[test]
fn under_rota_the_answers_are_the_drivers_but_for_a_list() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 4096, arena_mib: 512, rotad: &[] });
    let mut command = stage.under_rota(0, "conformance");
    let output = command.arg(env!("CARGO_BIN_EXE_conformance")).args(["--jobs", "2"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<&str> =
        said.lines().filter(|line| line.starts_with("PASS ") || line.starts_with("FAIL ")).collect();
    assert!(
        answers.len() > 300,
        "the suite did not run:\n{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let failed: BTreeSet<&str> = answers
        .iter()
        .filter_map(|line| line.strip_prefix("FAIL "))
        .map(|line| line.split_once(": ").map_or(line, |(name, _)| name))
        .collect();
    let lines = ACCEPTED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let accepted: BTreeSet<&str> =
        lines.map(|line| line.split_once(": ").expect("a name and a reason").0).collect();
    let new: Vec<&&str> = failed.difference(&accepted).collect();
    assert!(new.is_empty(), "answered otherwise, without a reason in the list: {new:?}\n{said}");
    let mended: Vec<&&str> = accepted.difference(&failed).collect();
    assert!(mended.is_empty(), "answered as natively: take them off the list: {mended:?}");
}

#[test]
fn random_calls_between_moves_get_the_answers_of_the_real_driver() {
    const CALLS: usize = 4000;
    let turns = ["--turn", "20ms", "--turn-jitter", "0.9"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 192, rotad: &turns });
    let mut other = stage.worker(0, "other", &["--mib", "100", "--piece-mib", "4", "--seconds", "1000"]);
    other.goes_on(1);
    let mut command = stage.under_rota(0, "random");
    command.arg(env!("CARGO_BIN_EXE_conformance"));
    let output = command.args(["random", "--seed", "2", "--calls", &CALLS.to_string()]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<&str> = said.lines().collect();
    assert!(said.len() > CALLS / 1000, "{said:?}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said[..CALLS / 1000], recorded(Some("== random calls, seed 2"))[..CALLS / 1000]);
    other.goes_on(1);
    other.kill();
    assert!(stage.count("move_end") > 0, "nothing moved");
    stage.finish();
}
