//! How many instructions of rota's a launch takes, counted by callgrind. Where that is missing, a line says so.

use std::path::Path;
use std::process::Command;

use crate::parts::PUPPET;
use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

/// What one launch may cost. It takes about half of that.
const INSTRUCTIONS_MAX: f64 = 60.0;
const LAUNCHES: [u64; 2] = [100, 1100];

/// By how many instructions a wait may take longer than by the driver alone, for a program that was never frozen. In a build
/// without optimisation it is ten times what it is otherwise.
const GAINED_MAX: f64 = 1_000.0;
const WAITS: [u64; 2] = [20, 220];

#[test]
fn a_launch_takes_few_instructions() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("not run: valgrind is not installed");
        return;
    }
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 16, rotad: &[] });
    let [few, many] = LAUNCHES.map(|launches| {
        let name = format!("callgrind.out-{launches}");
        let file = stage.path(&name);
        let out = format!("--callgrind-out-file={}", file.display());
        // Only what is done in launches; the driver's function has the same name, and is left out by that.
        let valgrind = ["valgrind", "--tool=callgrind", "--toggle-collect=cuLaunchKernel", "-q", &out];
        let mut puppet = Puppet::start(&stage, &name, &valgrind);
        puppet.does(&format!("launch {launches} 0"));
        puppet.does("synchronize");
        puppet.end();
        instructions(&file, "librota_shim.so")
    });
    let each = (many as f64 - few as f64) / (LAUNCHES[1] - LAUNCHES[0]) as f64;
    eprintln!("instructions of rota's in a launch: {each:.1}");
    assert!(each > 2.0, "launches are not seen: {few} and {many}");
    assert!(each <= INSTRUCTIONS_MAX, "{each} instructions of rota's in a launch");
    stage.finish();
}

/// Instructions of rota's in one wait for a stream that has nothing to do, with waits made so.
fn in_a_wait(stage: &Stage, waits: &str, frozen_before: bool) -> f64 {
    let [few, many] = WAITS.map(|count| {
        let name = format!("callgrind.out-{waits}-{frozen_before}-{count}");
        let file = stage.path(&name);
        let out = format!("--callgrind-out-file={}", file.display());
        let mut command = stage.under_rota(0, &name);
        command.env("ROTA_WAITS", waits).args(["valgrind", "--tool=callgrind", "-q", &out]);
        command.args(["--toggle-collect=cuStreamSynchronize", PUPPET]);
        let mut puppet = Puppet::by(stage, &name, command);
        puppet.does("launch 1 1");
        puppet.does("stream");
        if frozen_before {
            for verb in ["pause", "resume"] {
                let frozen = stage.count("freeze");
                assert!(stage.rota().args([verb, &name]).output().unwrap().status.success());
                if verb == "pause" {
                    until("it is frozen", || stage.count("freeze") > frozen);
                }
            }
            puppet.does("launch 1 1");
            puppet.does("stream");
        }
        (0..count).for_each(|_| puppet.does("stream"));
        puppet.end();
        instructions(&file, "librota_shim.so")
    });
    (many as f64 - few as f64) / (WAITS[1] - WAITS[0]) as f64
}

#[test]
fn a_wait_takes_few_instructions_more_than_the_drivers() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("not run: valgrind is not installed");
        return;
    }
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 16, rotad: &[] });
    let by_driver = in_a_wait(&stage, "driver", false);
    let never_frozen = in_a_wait(&stage, "patient", false);
    let frozen_before = in_a_wait(&stage, "patient", true);
    eprintln!("instructions of rota's in a wait: {by_driver:.1}, {never_frozen:.1}, {frozen_before:.1}");
    assert!(by_driver > 10.0, "waits are not seen");
    assert!(never_frozen - by_driver < GAINED_MAX, "{never_frozen} instead of {by_driver}");
    assert!(frozen_before - by_driver < 2.0 * GAINED_MAX, "{frozen_before} instead of {by_driver}");
    stage.finish();
}

/// Instructions executed in an object's own code, by callgrind's output.
///
/// Lines of cost come after the names of the object and function that they belong to. A line after `calls=` is what was
/// called from there, which is counted where it was executed. Names are given once, and by their number after that.
fn instructions(file: &Path, object: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let (mut number, mut inside, mut called, mut total) = (None, false, false, 0);
    for line in text.lines() {
        let owner = line.strip_prefix("ob=");
        if let Some(name) = owner.or_else(|| line.strip_prefix("cob=")) {
            let (this, path) = name.split_once(')').unwrap();
            if path.ends_with(object) {
                number = Some(this.to_owned());
            }
            if owner.is_some() {
                inside = number.as_deref() == Some(this);
            }
        } else if line.starts_with("calls=") {
            called = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost: u64 = line.split(' ').nth(1).map_or(0, |cost| cost.parse().unwrap());
            if inside && !called {
                total += cost;
            }
            called = false;
        }
    }
    assert!(number.is_some(), "{object} was not there");
    total
}
