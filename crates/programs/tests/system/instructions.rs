//! How many instructions of rota's a launch takes, counted by callgrind. Where that is missing, a line says so.

use std::path::Path;
use std::process::Command;

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage};

/// What one launch may cost. It takes about half of that.
const INSTRUCTIONS_MAX: f64 = 60.0;
const LAUNCHES: [u64; 2] = [100, 1100];

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
