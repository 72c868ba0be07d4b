//! The virtual GPU as a driver, without rota: it answers as the real one did, and catches what a real one forgives.

use std::process::Command;

use crate::parts::on_virtual_gpu;

/// What the real driver answered, with how many random calls for a seed.
const RECORDED: &str = include_str!("../../../../docs/results/conformance-h200.txt");
const CALLS: usize = 10_000;

/// Runs a program to its end on a virtual machine of its own.
fn output(program: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    on_virtual_gpu(&mut command, folder.path());
    let output = command.args(arguments).output().unwrap();
    let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{said}\n{complained}", output.status);
    said
}

/// The part of the record that begins with a line, without it, to the next such line.
pub(crate) fn recorded(heading: Option<&str>) -> Vec<&'static str> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let mut lines = lines.skip_while(|line| heading.is_some_and(|heading| *line != heading));
    if heading.is_some() {
        assert!(lines.next().is_some(), "the record has no {heading:?}");
    }
    lines.take_while(|line| !line.starts_with("==")).collect()
}

#[test]
fn it_answers_as_the_real_driver_did() {
    let said = output(env!("CARGO_BIN_EXE_conformance"), &["--jobs", "4"]);
    let (said, recorded): (Vec<&str>, _) = (said.lines().collect(), recorded(None));
    assert!(recorded.len() > 150);
    for (said, recorded) in said.iter().zip(&recorded) {
        assert_eq!(said, recorded);
    }
    assert_eq!(said.len(), recorded.len());
}

#[test]
fn it_answers_random_calls_as_the_real_driver_did() {
    let calls = CALLS.to_string();
    let said = output(env!("CARGO_BIN_EXE_conformance"), &["random", "--seed", "1", "--calls", &calls]);
    let recorded = recorded(Some("== random calls, seed 1"));
    let said: Vec<&str> = said.lines().collect();
    assert!(said.len() >= CALLS / 1000, "{said:?}");
    assert_eq!(said[..CALLS / 1000], recorded[..CALLS / 1000]);
}

#[test]
fn it_catches_a_dozen_misuses() {
    let said = output(env!("CARGO_BIN_EXE_misuse"), &[]);
    assert!(said.ends_with("12 misuses, 12 caught, 0 not\n"), "{said}");
}

/// The kernel by which the daemon looks for changes, launched as on a real GPU.
#[test]
fn it_hashes_blocks_as_the_host_does() {
    let small = ["--mib", "16", "--check-blocks", "3", "--short-blocks", "3", "--rounds", "1"];
    let said = output(env!("CARGO_BIN_EXE_hasher"), &small);
    for kind in ["random", "zero", "ones", "one bit"] {
        let line = format!("{{\"blocks\":3,\"compared\":\"{kind}\",\"wrong\":0}}");
        assert!(said.contains(&line), "{kind}: {said}");
    }
    let audit = said.lines().find(|line| line.contains("audited")).expect("an audit");
    assert!(
        audit.contains("\"invented\":0,\"missed\":0,\"not_back\":0") && !audit.contains("\"flipped\":0"),
        "{audit}"
    );
    assert!(said.ends_with("{\"ended\":true,\"wrong\":0}\n"), "{said}");
}
