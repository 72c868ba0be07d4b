//! How many instructions of rota's a launch takes, counted by callgrind. Where that is missing, a line says so.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts::PUPPET;
use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

/// What one launch may cost. It takes about half of that.
const INSTRUCTIONS_MAX: f64 = 60.0;
/// How many are made before those that count: what is done once is done by then.
const LAUNCHES_BEFORE: u64 = 100;
const LAUNCHES: u64 = 1000;

/// By how many instructions a wait may take longer than by the driver alone, for a program that was never frozen. In a build
/// without optimisation it is ten times what it is otherwise.
const GAINED_MAX: f64 = 1_000.0;
const WAITS_BEFORE: u64 = 20;
const WAITS: u64 = 200;

/// What callgrind writes down of one program, in a file and parts beside it. To begin takes a program long under it: one is
/// enough, which ends a part whenever it waits for its context.
struct Counts {
    folder: PathBuf,
    name: String,
}

impl Counts {
    fn new(stage: &Stage, name: &str) -> Self {
        Self { folder: stage.folder().to_owned(), name: format!("callgrind.out-{name}") }
    }

    /// How to run a program, so that only what is done in a function counts; the driver's has the same name, and is left out by
    /// that.
    fn valgrind(&self, function: &str) -> [String; 6] {
        [
            "valgrind".into(),
            "-q".into(),
            "--tool=callgrind".into(),
            "--dump-before=cuCtxSynchronize".into(),
            format!("--toggle-collect={function}"),
            format!("--callgrind-out-file={}", self.folder.join(&self.name).display()),
        ]
    }

    /// The parts that have ended. The last one, which ends with the program, has no number, and its file is there all the time.
    fn parts(&self) -> BTreeSet<PathBuf> {
        let numbered = format!("{}.", self.name);
        let files = std::fs::read_dir(&self.folder).unwrap().map(|file| file.unwrap());
        let is_part = |file: &DirEntry| file.file_name().to_string_lossy().starts_with(&numbered);
        files.filter(is_part).map(|file| file.path()).collect()
    }

    /// Instructions of rota's in what a program does now, up to its end.
    fn of_the_rest(&self, mut puppet: Puppet, rest: impl FnOnce(&mut Puppet)) -> u64 {
        puppet.does("synchronize");
        let before = self.parts();
        assert!(!before.is_empty(), "no part has ended");
        rest(&mut puppet);
        puppet.end();
        let (after, last) = (self.parts(), self.folder.join(&self.name));
        let parts = after.difference(&before).chain([&last]);
        parts.map(|part| instructions(part, "librota_shim.so")).sum()
    }
}

#[test]
fn a_launch_takes_few_instructions() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("not run: valgrind is not installed");
        return;
    }
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 16, rotad: &[] });
    let counts = Counts::new(&stage, "launches");
    let valgrind = counts.valgrind("cuLaunchKernel");
    let mut puppet = Puppet::start(&stage, "launches", &valgrind.each_ref().map(String::as_str));
    puppet.does(&format!("launch {LAUNCHES_BEFORE} 0"));
    let all = counts.of_the_rest(puppet, |puppet| puppet.does(&format!("launch {LAUNCHES} 0")));
    let each = all as f64 / LAUNCHES as f64;
    eprintln!("instructions of rota's in a launch: {each:.1}");
    assert!(each > 2.0, "launches are not seen: {all} instructions");
    assert!(each <= INSTRUCTIONS_MAX, "{each} instructions of rota's in a launch");
    stage.finish();
}

/// Instructions of rota's in one wait for a stream that has nothing to do, with waits made so.
fn in_a_wait(stage: &Stage, waits: &str, frozen_before: bool) -> f64 {
    let name = format!("{waits}-{frozen_before}");
    let counts = Counts::new(stage, &name);
    let mut command = stage.under_rota(0, &name);
    command.env("ROTA_WAITS", waits).args(counts.valgrind("cuStreamSynchronize")).arg(PUPPET);
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
    (0..WAITS_BEFORE).for_each(|_| puppet.does("stream"));
    let all = counts.of_the_rest(puppet, |puppet| (0..WAITS).for_each(|_| puppet.does("stream")));
    all as f64 / WAITS as f64
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
    total
}
