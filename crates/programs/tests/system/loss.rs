//! The device is killed while programs share it: the daemon says so and ends, programs get errors as from a lost GPU, and
//! nobody waits for ever.

use crate::stage::{Program, Setup, Stage, until};

/// How a program ended, which it has to in bounded time.
fn end(program: &mut Program) -> (Option<i32>, String) {
    let mut status = None;
    until(&format!("{} ends", program.name), || {
        status = program.try_end();
        status.is_some()
    });
    // None of its bytes was wrong up to the end.
    program.said();
    (status.unwrap().code(), program.log())
}

/// The daemon says what happened, and ends as one that failed.
fn daemon_fails(stage: &mut Stage) {
    let (status, log) = stage.daemon_ends();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("ERROR the virtual GPU is gone: vgpud ended"), "{log}");
    assert!(log.contains("\nrotad: the virtual GPU is gone"), "{log}");
    assert!(!stage.socket().exists(), "nobody is to find a daemon there");
    assert_eq!(stage.count("lost"), 1);
}

#[test]
fn programs_that_are_there_get_errors() {
    let mut stage = Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 96, rotad: &["--turn", "50ms"] });
    let mut programs = ["1", "2"].map(|seed| {
        let memory = ["--mib", "24", "--piece-mib", "4", "--copies", "--kernel-ms", "10"];
        stage.worker(0, seed, &[&memory[..], &["--seed", seed, "--steps", "1000000"]].concat())
    });
    for program in &mut programs {
        program.goes_on(2);
    }
    until("they have had some turns", || stage.count("turn_begin") >= 6);
    stage.kill_device();
    daemon_fails(&mut stage);
    for program in &mut programs {
        let (code, log) = end(program);
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("CUDA_ERROR_UNKNOWN") && log.contains("the device is gone"), "{log}");
    }
}

#[test]
fn programs_that_take_turns_by_moving_end_too() {
    let mut stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &["--turn", "100ms"] });
    let mut programs = ["3", "4"].map(|seed| {
        let memory = ["--mib", "24", "--piece-mib", "4", "--seed", seed, "--steps", "1000000"];
        stage.worker(0, seed, &memory)
    });
    until("they have had some turns", || stage.count("turn_begin") >= 4);
    stage.kill_device();
    daemon_fails(&mut stage);
    for program in &mut programs {
        let (code, log) = end(program);
        let called = code == Some(1) && log.contains("the device is gone");
        let away = code == Some(125) && log.contains("the memory of this program that was not on the GPU");
        assert!(called || away, "{code:?}: {log}");
    }
}

#[test]
fn a_daemon_without_programs_ends_too() {
    let mut stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad: &[] });
    stage.kill_device();
    daemon_fails(&mut stage);
}
