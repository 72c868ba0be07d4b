//! `rota demo`, whole: what it prints, how it ends, and that nothing is left of it. How fast anything was is not looked at.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::parts::{newest, with_parts};

/// How long a demo may take to be under way, or to be gone, on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);

/// The demo, with a folder of its own for what it leaves.
fn demo(rota: &Path, words: &[&str]) -> (Command, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(rota);
    with_parts(&mut command);
    command.env("TMPDIR", folder.path()).arg("demo").args(words);
    (command, folder)
}

fn nothing_is_left_in(folder: &Path) {
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let alive = processes_of(folder);
    assert!(alive.is_empty(), "{alive:?}");
}

/// The command lines of processes that were told of a folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let line = |process: std::io::Result<std::fs::DirEntry>| {
        let line = std::fs::read(process.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    };
    std::fs::read_dir("/proc").unwrap().filter_map(line).filter(|line| line.contains(folder)).collect()
}

fn texts(output: &Output) -> (&str, &str) {
    (str::from_utf8(&output.stdout).unwrap(), str::from_utf8(&output.stderr).unwrap())
}

#[test]
fn a_script_gets_one_object_and_every_program_had_turns() {
    let (mut command, folder) = demo(&newest("rota"), &["--json", "--programs", "2", "--seconds", "5"]);
    let output = command.output().unwrap();
    let (said, complaint) = texts(&output);
    assert!(output.status.success(), "{said}\n{complaint}");
    assert_eq!(complaint, "");
    let report: Value = serde_json::from_str(said).unwrap();
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["gpu"], "rota virtual GPU");
    assert_eq!(report["tenants"], 2);
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key} in {said}"));
    let (footprint, capacity) = (number("footprint_bytes"), number("capacity_bytes"));
    assert!(footprint <= capacity && 2 * footprint > capacity, "{said}");
    let ratio = number("rota_ns") as f64 / number("serial_ns") as f64;
    assert!((report["ratio"].as_f64().unwrap() - ratio).abs() < 1e-3, "{said}");
    assert!(number("turn_gap_ns_max") > 0, "{said}");
    assert_eq!(report["verified"], true);
    // They do not fit together, so at least one was moved out and in again.
    assert!(number("moved_bytes") >= footprint, "{said}");
    for program in report["programs"].as_array().unwrap() {
        assert!(program["turns"].as_u64().unwrap() >= 2, "{said}");
        assert_eq!(program["wrong"], 0);
    }
    nothing_is_left_in(folder.path());
}

#[test]
fn a_pipe_gets_plain_lines() {
    let (mut command, folder) = demo(&newest("rota"), &["--programs", "1", "--seconds", "1"]);
    let output = command.output().unwrap();
    let (said, complaint) = texts(&output);
    assert!(output.status.success(), "{said}\n{complaint}");
    assert!(!said.contains('\x1b'), "{said}");
    for part in [
        "\n1. One after the other, without rota\n",
        "\n2. All together, by turns, under rota\n",
        "  ada  100%  done   2 steps, 0 wrong\n",
        "\nand by turns (",
        "\nratio                 ",
        "\nverified              yes: ",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    nothing_is_left_in(folder.path());
}

/// The demo with another worker, which is this script.
fn with_worker(script: &str) -> (Output, TempDir) {
    let parts = tempfile::tempdir().unwrap();
    for name in ["rota", "rotad"] {
        std::fs::copy(newest(name), parts.path().join(name)).unwrap();
    }
    let worker = parts.path().join("worker");
    std::fs::write(&worker, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&worker, std::fs::Permissions::from_mode(0o755)).unwrap();
    let words = ["--json", "--programs", "1", "--seconds", "1"];
    let (mut command, folder) = demo(&parts.path().join("rota"), &words);
    (command.output().unwrap(), folder)
}

#[test]
fn wrong_bytes_are_not_verified() {
    let (output, folder) = with_worker("echo '{\"ended\":true,\"steps\":2,\"wrong\":1}'; exit 1");
    let (said, complaint) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{said}\n{complaint}");
    let report: Value = serde_json::from_str(said).unwrap();
    assert_eq!(report["verified"], false);
    assert_eq!(report["programs"][0]["wrong"], 1);
    assert!(complaint.contains("could not be verified"), "{complaint}");
    nothing_is_left_in(folder.path());
}

#[test]
fn a_program_that_fails_is_told_of_with_what_it_said() {
    let (output, folder) = with_worker("echo 'no such thing' >&2; exit 3");
    let (said, complaint) = texts(&output);
    assert_eq!((output.status.code(), said), (Some(1), ""), "{complaint}");
    assert!(complaint.contains("ada ended with exit status: 3\nno such thing\n"), "{complaint}");
    nothing_is_left_in(folder.path());
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    // While a program runs natively, and once the daemon is there; both have the folder on their command lines.
    for (part, seconds) in [("vgpud", "60"), ("rotad", "2")] {
        let (mut command, folder) = demo(&newest("rota"), &["--programs", "1", "--seconds", seconds]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let limit = Instant::now() + WITHIN;
        while !processes_of(folder.path()).iter().any(|line| line.contains(part)) {
            assert!(Instant::now() < limit, "{part} does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < limit, "the demo does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(texts(&output).1, "rota: stopped\n");
        nothing_is_left_in(folder.path());
    }
}
