//! `rota run` as the program and its caller see it.

use crate::fake_daemon::{FakeDaemon, UUID, complaint, listing, rota, two_tenants};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A shared object that the loader takes and that does nothing, made once per daemon's folder.
fn empty_shim(daemon: &FakeDaemon) -> PathBuf {
    empty_library(daemon, "librota_shim.so")
}

/// The same under another name.
pub(crate) fn empty_library(daemon: &FakeDaemon, name: &str) -> PathBuf {
    let shim = daemon.folder.path().join(name);
    let made =
        Command::new("cc").args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&shim).status().unwrap();
    assert!(made.success());
    shim
}

/// `rota run -- WORDS` under a daemon with two tenants.
fn run_with(daemon: &FakeDaemon, adjust: impl FnOnce(&mut Command), words: &[&str]) -> Output {
    let mut command = daemon.rota();
    command.env("ROTA_SHIM", empty_shim(daemon)).arg("run");
    adjust(&mut command);
    command.arg("--").args(words).output().unwrap()
}

fn run(words: &[&str]) -> Output {
    run_with(&FakeDaemon::start(listing(two_tenants())), |_| (), words)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_exit_code_is_the_programs_own() {
    assert_eq!(run(&["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(run(&["true"]).status.code(), Some(0));
    // A caller sees the signal itself; a shell makes 128+9 of it.
    assert_eq!(run(&["sh", "-c", "kill -9 $$"]).status.signal(), Some(9));
}

#[test]
fn arguments_arrive_untouched() {
    let words =
        ["sh", "-c", "printf '<%s>' \"$@\"", "sh", "-q", "--", "a b", "", "--name=x", "*", "--socket"];
    assert_eq!(text(&run(&words).stdout), "<-q><--><a b><><--name=x><*><--socket>");
}

#[test]
fn the_program_is_this_very_process_and_gives_its_job_the_name() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let output = run_with(&daemon, |_| (), &["sh", "-c", "echo $$ $ROTA_JOB"]);
    let (pid, job) = text(&output.stdout).trim().split_once(' ').unwrap();
    assert_eq!(job, format!("sh-{pid}"));
    assert_eq!(
        text(&output.stderr),
        format!("rota: job {job} on GPU-5e1f0b2a (NVIDIA H200, 16.0 GiB), no other program there\n")
    );
}

#[test]
fn the_environment_leads_the_program_to_the_daemon() {
    let daemon = FakeDaemon::start(listing(two_tenants()));
    let shim = empty_shim(&daemon);
    let show = "echo $LD_PRELOAD; echo $ROTA_SOCKET; echo $ROTA_JOB; echo $CUDA_VISIBLE_DEVICES; echo $KEPT; echo $ROTA_REQUIRED";
    let output = run_with(
        &daemon,
        |command| {
            // A relative socket: the program may change its working folder.
            command.current_dir(daemon.folder.path()).env("ROTA_SOCKET", "rotad.sock").env("KEPT", "yes");
            command.args(["--name", "nightly"]);
        },
        &["sh", "-c", show],
    );
    let expected = format!("{}\n{}\nnightly\n{UUID}\nyes\n1\n", shim.display(), daemon.socket.display());
    assert_eq!(text(&output.stdout), expected);
    assert!(text(&output.stderr).ends_with("2 other programs there\n"), "{}", text(&output.stderr));
}

#[test]
fn what_was_preloaded_stays_behind_the_shim() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let other = daemon.folder.path().join("other.so");
    std::fs::copy(empty_shim(&daemon), &other).unwrap();
    let output = run_with(
        &daemon,
        |command| {
            command.env("LD_PRELOAD", &other);
        },
        &["sh", "-c", "echo $LD_PRELOAD"],
    );
    assert_eq!(text(&output.stdout), format!("{}:{}\n", empty_shim(&daemon).display(), other.display()));
}

#[test]
fn a_choice_of_gpus_stays_and_is_said() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let output = run_with(
        &daemon,
        |command| {
            command.env("CUDA_VISIBLE_DEVICES", "3");
        },
        &["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"],
    );
    assert_eq!(text(&output.stdout), "3\n");
    assert!(text(&output.stderr).contains("CUDA_VISIBLE_DEVICES stays \"3\""), "{}", text(&output.stderr));
}

#[test]
fn quiet_means_silent() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let output = run_with(
        &daemon,
        |command| {
            command.arg("-q");
        },
        &["true"],
    );
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn a_job_inside_a_job_is_the_same_job() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let inner = format!("{} run -q -- sh -c 'echo $ROTA_JOB'", env!("CARGO_BIN_EXE_rota"));
    let outer = |command: &mut Command| {
        command.args(["-q", "--name", "outer"]);
    };
    assert_eq!(text(&run_with(&daemon, outer, &["sh", "-c", &inner]).stdout), "outer\n");
}

#[test]
fn no_such_program_is_127() {
    let output = run(&["/nowhere/program"]);
    assert_eq!(output.status.code(), Some(127));
    let stderr = text(&output.stderr);
    assert!(
        stderr.ends_with("rota: cannot execute /nowhere/program: No such file or directory (os error 2)\n")
    );
    assert_eq!(run(&["rota-no-such-program"]).status.code(), Some(127));
}

#[test]
fn a_file_that_cannot_be_executed_is_126() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let file = daemon.folder.path().join("notes.txt");
    std::fs::write(&file, "no program").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = run_with(&daemon, |_| (), &[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(126), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("Permission denied"));
}

#[test]
fn a_program_that_the_shim_does_not_fit_is_125_and_does_not_run() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let file = daemon.folder.path().join("old");
    let mut head = [0_u8; 64];
    head[..5].copy_from_slice(b"\x7fELF\x01");
    std::fs::write(&file, head).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = run_with(&daemon, |_| (), &[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("is a 32-bit program") && text(&output.stderr).contains("\nhint: ")
    );
    assert_eq!(daemon.asked(), [], "no job is begun for it");
}

#[test]
fn without_a_daemon_it_is_125_and_nothing_runs() {
    let mut command = rota();
    command.env("ROTA_SHIM", env!("CARGO_BIN_EXE_rota"));
    let output =
        command.args(["run", "--socket", "/nowhere/rotad.sock", "--", "echo", "ran"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("cannot reach /nowhere/rotad.sock: No such file"), "{stderr}");
    assert!(stderr.contains("\nhint: start one with `rotad &`"), "{stderr}");
}

#[test]
fn without_a_shim_it_is_125_with_the_places_tried() {
    let daemon = FakeDaemon::start(listing(vec![]));
    let output = daemon
        .rota()
        .env("ROTA_SHIM", "/nowhere/shim.so")
        .args(["run", "--", "echo", "ran"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("\n  tried /nowhere/shim.so: No such file"), "{stderr}");
}

#[test]
fn no_program_is_wrong_usage() {
    for words in [&["run"][..], &["run", "--"], &["run", "python", "train.py"]] {
        let output = rota().args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
    let text = complaint(rota().args(["--socket", "/s", "run", "python", "train.py"]), 2);
    assert!(text.contains("rota run -- python"), "{text}");
    assert!(!complaint(rota().args(["sim", "run", "bursty", "more"]), 2).contains("rota run"));
}
