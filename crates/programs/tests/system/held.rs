//! The driver cannot freeze: programs hold their launches back when their turn is over, and find every byte of theirs as
//! they left it all the same.

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until, until_counted};

const NOTHING_FREEZES: &str = "control = { freeze_does_nothing = true }\n";

/// Two programs of 24 MiB, on a GPU that has room for one and a half.
const LARGE: [&str; 4] = ["--mib", "24", "--piece-mib", "4"];

fn log(stage: &Stage) -> String {
    std::fs::read_to_string(stage.path("rotad.log")).unwrap()
}

#[test]
fn a_driver_that_cannot_freeze_is_found_out_and_programs_take_turns_all_the_same() {
    let turns = ["--turn", "50ms"];
    let setup = Setup { gpus: 1, gpu_mib: 52, arena_mib: 64, rotad: &turns };
    let stage = Stage::with_faults(&setup, NOTHING_FREEZES);
    let said = log(&stage);
    assert!(said.contains("warning: freezing cannot be relied on"), "{said}");
    assert!(said.contains("shared by holding launches back instead"), "{said}");

    let mut programs = ["1", "2"].map(|seed| {
        let more = ["--seed", seed, "--steps", "1000000", "--copies", "--kernel-ms", "10", "--streams", "2"];
        stage.worker(0, seed, &[&LARGE[..], &more].concat())
    });
    until_counted("memory was moved so often", 20, || stage.count("move_end"));
    for program in &mut programs {
        program.goes_on(2);
    }
    drop(programs);
    stage.finish();
}

#[test]
fn turns_can_be_made_without_freezing_by_a_setting() {
    let turns = ["--turn", "50ms", "--freeze", "launches"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 52, arena_mib: 64, rotad: &turns });
    assert!(log(&stage).contains("as `freeze` says"), "{}", log(&stage));
    let refused = stage.rota().args(["run", "--vgpu", "--class", "lc", "--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(125));
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(words.contains("cannot be interrupted in the middle of a kernel"), "{words}");

    // Graphs, streams that do not wait for each other, and captures, in turns with somebody who always has work.
    let mut puppet = Puppet::start(&stage, "puppet", &[]);
    puppet.does("keep 20");
    let busy = stage.worker(0, "busy", &[&LARGE[..], &["--seed", "3", "--steps", "1000000"]].concat());
    for round in 0.. {
        puppet.does("launch 2 5");
        puppet.does("launch-beside 2 5");
        puppet.does("graph 2 5");
        puppet.does("synchronize");
        puppet.does("check");
        if round >= 5 && stage.count("move_end") >= 10 {
            break;
        }
        assert!(round < 10_000, "nothing moves");
    }
    puppet.end();
    drop(busy);
    stage.finish();
}

#[test]
fn a_kernel_that_takes_long_keeps_the_gpu_and_nothing_else_happens() {
    let turns = ["--turn", "50ms", "--freeze", "launches"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &turns });
    let mut long = Puppet::start(&stage, "long", &[]);
    long.does("keep 40");
    // Before the kernel begins, because to start takes long on a busy machine.
    let mut other = Puppet::start(&stage, "other", &[]);
    long.does("launch 1 4000");
    other.begin("keep 40");
    until("its turn could not be ended", || {
        let not_drained = |event: &serde_json::Value| {
            event["event"] == "error"
                && event["what"].as_str().is_some_and(|what| what.contains("did not end within"))
        };
        stage.events().iter().any(|event| not_drained(event))
    });
    long.begin("synchronize");
    other.has_done("keep 40");
    long.has_done("synchronize");
    long.does("check");
    other.does("check");
    long.end();
    other.end();
}

/// Has a program fail to drain a few times; returns what it said meanwhile.
fn keeps_the_gpu(prepare: impl FnOnce(&Stage, &mut Puppet), until_it_says: &str) -> String {
    let turns = ["--turn", "50ms", "--freeze", "launches"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &turns });
    let mut keeper = Puppet::start(&stage, "keeper", &[]);
    keeper.does("keep 40");
    prepare(&stage, &mut keeper);
    let mut other = Puppet::start(&stage, "other", &[]);
    other.begin("keep 40");
    let not_drained = |event: &serde_json::Value| {
        event["event"] == "error"
            && event["what"].as_str().is_some_and(|what| what.contains("did not end within"))
    };
    until("it says why", || keeper.log().contains(until_it_says));
    let before = stage.events().iter().filter(|event| not_drained(event)).count();
    until_counted("its turn could not be ended", before + 2, || {
        stage.events().iter().filter(|event| not_drained(event)).count()
    });
    let said = keeper.log();
    keeper.kill();
    other.has_done("keep 40");
    other.does("check");
    other.end();
    said
}

#[test]
fn a_program_whose_work_is_not_seen_says_once_that_it_keeps_the_gpu() {
    const WHY: &str = "uses the GPU in ways that cannot be held back";
    let said = keeps_the_gpu(
        |stage, keeper| {
            let library = stage.path("libnvcuvid.so.1");
            std::fs::write(&library, "a library for video").unwrap();
            keeper.does(&format!("map {}", library.display()));
            // Looked at when there are new channels.
            keeper.does("context");
        },
        WHY,
    );
    assert_eq!(said.matches(WHY).count(), 1, "{said}");
}

#[test]
fn a_program_that_captures_for_ever_says_once_that_it_keeps_the_gpu() {
    const WHY: &str = "a stream is captured for more than 10 s";
    let said = keeps_the_gpu(|_, keeper| keeper.does("capture"), WHY);
    assert_eq!(said.matches(WHY).count(), 1, "{said}");
}
