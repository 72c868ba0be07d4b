//! `rota pause --deep`: nothing of a program is left on the GPU, and it goes on where it was.

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

fn stage() -> Stage {
    Stage::new(&Setup { gpus: 1, gpu_mib: 96, arena_mib: 96, rotad: &["--turn", "100ms"] })
}

/// A program with memory and no work.
fn idle(stage: &Stage, name: &str) -> Puppet {
    let mut program = Puppet::start(stage, name, &[]);
    program.does("keep 24");
    program.does("synchronize");
    program
}

fn rota(stage: &Stage, words: &[&str]) -> String {
    let said = stage.rota().args(words).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// What the device has of a program.
fn on_device(stage: &Stage, program: &Puppet) -> Option<u64> {
    let its = |pid: i32| u32::try_from(pid) == Ok(program.pid());
    let processes = stage.figures(0).processes;
    processes.iter().find(|process| its(process.pid)).map(|process| process.memory_bytes)
}

/// Pauses it, and waits until it is nowhere.
fn put_away(stage: &Stage, name: &str, program: &Puppet) {
    let before = stage.count("deep");
    rota(stage, &["pause", "--deep", name]);
    until("it is put away", || stage.count("deep") > before);
    assert_eq!(on_device(stage, program), None);
}

#[test]
fn a_program_without_work_gives_up_everything_and_comes_back_as_it_was() {
    let stage = stage();
    let mut program = idle(&stage, "deep");
    assert!(on_device(&stage, &program).is_some());
    for _ in 0..3 {
        put_away(&stage, "deep", &program);
        let described = rota(&stage, &["describe", "deep"]);
        assert!(described.contains("it has nothing on the GPU"), "{described}");
        // The call waits, and is right once all is back.
        program.begin("check");
        let mut other = idle(&stage, "other");
        other.does("check");
        other.end();
        assert_eq!(on_device(&stage, &program), None);
        let back = stage.count("deep_back");
        rota(&stage, &["resume", "deep"]);
        program.has_done("check");
        assert_eq!(stage.count("deep_back"), back + 1);
        assert!(on_device(&stage, &program).is_some());
        program.does("launch 2 20");
        program.does("synchronize");
        program.does("check");
    }
    program.end();
    stage.finish();
}

#[test]
fn one_in_the_middle_of_its_work_is_refused_and_goes_on_later() {
    let stage = stage();
    let mut program = idle(&stage, "busy");
    program.does("launch 40 100");
    rota(&stage, &["pause", "--deep", "busy"]);
    until("the driver refuses", || stage.count("deep_refused") > 0);
    let described = rota(&stage, &["describe", "busy"]);
    assert!(
        described.contains("its context stays on the GPU: cuCheckpointProcessLock answers"),
        "{described}"
    );
    assert!(on_device(&stage, &program).is_some());
    rota(&stage, &["resume", "busy"]);
    program.does("synchronize");
    program.does("check");
    program.end();
    stage.finish();
}

#[test]
fn the_next_worker_finds_who_is_put_away_and_brings_it_back() {
    let stage = stage();
    let mut program = idle(&stage, "deep");
    put_away(&stage, "deep", &program);
    assert!(stage.kill_worker());
    until("the next one finds it", || {
        stage.events().iter().any(|event| event["event"] == "deep" && event["found"] == true)
    });
    assert_eq!(on_device(&stage, &program), None);
    rota(&stage, &["resume", "deep"]);
    program.does("check");
    program.does("launch 2 20");
    program.does("synchronize");
    program.end();
    stage.finish();
}

#[test]
fn one_that_dies_meanwhile_leaves_nothing() {
    let stage = stage();
    let program = idle(&stage, "deep");
    put_away(&stage, "deep", &program);
    program.kill();
    until("nothing of it is left", || stage.listing().tenants.is_empty());
    let mut other = idle(&stage, "other");
    other.does("check");
    other.end();
    stage.finish();
}
