//! A virtual GPU is used when it is asked for, and only then; and when it cannot be used, the reason comes at once.

use std::process::{Command, Output};

use crate::parts::{WORKER, newest, on_virtual_gpu, with_parts};
use crate::stage::{Setup, Stage};

/// The exit code of rota's own failures.
const ROTA_FAILED: i32 = 125;

fn stage() -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad: &[] })
}

fn texts(output: &Output) -> (&str, &str) {
    (str::from_utf8(&output.stdout).unwrap(), str::from_utf8(&output.stderr).unwrap())
}

#[test]
fn two_commands_run_a_program_without_a_gpu() {
    let stage = stage();
    let output =
        stage.rota().args(["run", "--vgpu", "--", WORKER, "--mib", "8", "--steps", "2"]).output().unwrap();
    let (said, notice) = texts(&output);
    assert!(output.status.success(), "{notice}");
    assert!(said.ends_with("{\"ended\":true,\"steps\":2,\"wrong\":0}\n"), "{said}");
    assert!(notice.contains("(rota virtual GPU, 64.0 MiB, virtual)"), "{notice}");
    stage.finish();
}

#[test]
fn nothing_runs_there_unasked() {
    let stage = stage();
    let output = stage.rota().args(["run", "--", WORKER]).output().unwrap();
    let (said, complaint) = texts(&output);
    assert_eq!((output.status.code(), said), (Some(ROTA_FAILED), ""));
    assert!(
        complaint.contains("shares a virtual GPU") && complaint.contains("`rota run --vgpu`"),
        "{complaint}"
    );
    stage.finish();
}

#[test]
fn a_listing_says_that_a_gpu_is_virtual() {
    let stage = stage();
    let folder = stage.folder().canonicalize().unwrap();
    let output = stage.rota().arg("ps").output().unwrap();
    let (said, _) = texts(&output);
    assert!(said.contains(&format!("virtual, in {}", folder.display())), "{said}");
    assert_eq!(stage.listing().gpus[0].vgpu.as_deref(), folder.to_str());
    stage.finish();
}

#[test]
fn a_description_that_cannot_be_used_is_refused_by_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vgpu.toml"), "memory = '64MiB'\ngpus = 17\n").unwrap();
    let mut daemon = Command::new(newest("rotad"));
    with_parts(&mut daemon);
    daemon.arg("--vgpu").arg(folder.path()).arg("--socket").arg(folder.path().join("rotad.sock"));
    let mut program = Command::new(WORKER);
    on_virtual_gpu(&mut program, folder.path());
    for mut command in [daemon, program] {
        let output = command.output().unwrap();
        let (_, complaint) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains("gpus = 17: a virtual machine has 1 to 16"), "{complaint}");
        assert!(!folder.path().join("vgpud.log").exists(), "the device was started to find it out");
    }
}

#[test]
fn parts_that_are_missing_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let rotad = |variable: &str| {
        let mut daemon = Command::new(newest("rotad"));
        with_parts(&mut daemon);
        let socket = folder.path().join("rotad.sock");
        let output = daemon
            .env(variable, "/nowhere/part")
            .arg("--vgpu")
            .arg(folder.path())
            .arg("--socket")
            .arg(socket)
            .output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        texts(&output).1.to_owned()
    };
    let complaint = rotad("ROTA_LIBVGPU");
    assert!(complaint.contains("\n  tried /nowhere/part: no such file\nhint: put libvgpu.so"), "{complaint}");
    let complaint = rotad("ROTA_VGPUD");
    assert!(complaint.contains("cannot start /nowhere/part: No such file"), "{complaint}");
}
