//! The lives of programs and of the device.

use std::io::{BufRead as _, BufReader};

use rustix::fs::FlockOperation;

use crate::bench::{Bench, until};

const SPEC: &str = "memory = \"256MiB\"\ncontext_memory = \"16MiB\"\nlinger = \"1s\"\n";

fn text(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The line that begins with a word.
fn said(output: &std::process::Output, word: &str) -> String {
    let text = text(output);
    let line =
        text.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("no {word}: {text}"));
    line.to_owned()
}

#[test]
fn a_program_starts_the_device_which_ends_by_itself() {
    let bench = Bench::new(SPEC);
    bench.play("copy");
    // The device holds a lock as long as it lives. (To connect would be to keep it alive.)
    let lock = std::fs::File::open(bench.path().join("vgpud.lock")).unwrap();
    until("the device ends", || rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
    drop(lock);
    bench.play("copy");
    assert_eq!(bench.misuse(), "");
}

#[test]
fn programs_that_start_at_once_share_one_device() {
    // So long that one which comes late still finds the device that another one started.
    let bench = Bench::new(&SPEC.replace("1s", "3s"));
    let mut programs: Vec<_> = (0..4).map(|_| bench.start("copy")).collect();
    for program in &mut programs {
        assert!(program.wait().unwrap().success());
    }
    let log = std::fs::read_to_string(bench.path().join("vgpud.log")).unwrap();
    assert_eq!(log.matches("GPU(s)").count(), 1, "{log}");
}

#[test]
fn a_killed_program_gives_everything_back() {
    let bench = Bench::new(SPEC);
    let mut program = bench.start("hold");
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "holding"));
    let used = |bench: &Bench| said(&bench.play("all free"), "used ")[5..].parse::<u64>().unwrap();
    assert!(used(&bench) > 64 << 20);
    program.kill().unwrap();
    program.wait().unwrap();
    // Its own context is all that is left.
    until("the memory comes back", || used(&bench) == 16 << 20);
}

#[test]
fn without_a_machine_there_is_no_device_and_a_reason() {
    let bench = Bench::new(SPEC).with("ROTA_VGPU", "");
    let output = bench.play("nothing");
    assert!(text(&output).contains("ROTA_VGPU is not set"), "{}", text(&output));
    let bench = Bench::new(SPEC).with("ROTA_VGPU", "/nonexistent");
    assert!(text(&bench.play("nothing")).contains("/nonexistent"));
}

#[test]
fn the_environment_chooses_devices() {
    let bench = Bench::new("gpus = 3\n");
    assert_eq!(said(&bench.play("count"), "count "), "count 3 0");
    let bench = Bench::new("gpus = 3\n").with("CUDA_VISIBLE_DEVICES", "2,0");
    assert_eq!(said(&bench.play("count"), "count "), "count 2 0");
    let bench = Bench::new("gpus = 3\n").with("CUDA_VISIBLE_DEVICES", "");
    assert_eq!(said(&bench.play("count"), "count "), "count -1 100");
}

#[test]
fn a_forked_child_has_no_driver_and_its_parent_goes_on() {
    Bench::new(SPEC).play("fork");
}

#[test]
fn callbacks_are_made_and_may_not_call_the_driver() {
    Bench::new(SPEC).play("callback");
}

#[test]
fn threads_work_beside_each_other() {
    let bench = Bench::new(SPEC);
    bench.play("threads");
    assert_eq!(bench.misuse(), "");
}

#[test]
fn a_kernel_of_the_project_runs_and_an_unknown_one_is_refused_by_name() {
    let bench = Bench::new(SPEC);
    bench.play("kernel");
    let output = bench.play("unknown kernel");
    assert!(text(&output).contains("`strange`"), "{}", text(&output));
}

#[test]
fn managed_memory_is_the_hosts_and_the_devices() {
    let bench = Bench::new(SPEC);
    bench.play("managed");
    assert_eq!(bench.misuse(), "");
}
