//! Programs that create and map their memory themselves, as frameworks do whose segments grow: it counts and moves like
//! any other, under all of its addresses.

use crate::parts::WORKER;
use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, turns_at_random, until, until_counted};

/// Pieces of several handles, that come and go and change their addresses.
const SEGMENTS: [&str; 6] = ["--segments", "--copies", "--mib", "24", "--piece-mib", "6"];

fn program(stage: &Stage, name: &str, seed: &str) -> Program {
    stage.worker(0, name, &[&SEGMENTS[..], &["--steps", "1000000", "--seed", seed]].concat())
}

#[test]
fn it_moves_under_all_of_its_addresses() {
    let turns_min = turns_at_random(40);
    let turns = ["--turn", "20ms", "--turn-jitter", "0.9"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &turns });
    let mut programs = ["1", "2"].map(|seed| program(&stage, seed, seed));
    until("rota ps shows what is away", || {
        stage.listing().tenants.iter().any(|tenant| tenant.away_bytes >= 8 << 20)
    });
    until_counted("there were so many turns", turns_min, || stage.count("turn_begin"));
    for program in &mut programs {
        program.goes_on(3);
    }
    drop(programs);
    assert!(stage.count("move_end") >= turns_min / 2, "there were turns without moves");
    stage.finish();
}

#[test]
fn it_is_beside_plain_memory_and_ends_in_peace() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &["--turn", "50ms"] });
    // The first has steps enough to be there when it is paused.
    let long = ["--steps", "20", "--kernel-ms", "30"];
    let mut segments = stage.worker(0, "segments", &[&SEGMENTS[..], &long].concat());
    segments.goes_on(1);
    // However late the other comes, this one is there, and makes room for it.
    assert!(stage.rota().args(["pause", "segments"]).output().unwrap().status.success());
    let short = ["--steps", "8", "--kernel-ms", "30"];
    let mut plain = stage.worker(0, "plain", &[&SEGMENTS[1..], &short].concat());
    plain.goes_on(1);
    assert!(stage.rota().args(["resume", "segments"]).output().unwrap().status.success());
    segments.ends_well();
    plain.ends_well();
    assert!(stage.count("move_end") > 0, "they did not meet");
    stage.finish();
}

#[test]
fn it_counts_against_the_limit_of_the_job() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad: &[] });
    let run = |memory: &str| {
        let mut command = stage.rota();
        command.args(["run", "--vgpu", "-q", "--memory", memory, "--", WORKER, "--segments"]);
        command.args(["--mib", "24", "--piece-mib", "4", "--steps", "2"]).output().unwrap()
    };
    let output = run("40MiB");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = run("20MiB");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("OUT_OF_MEMORY"), "{said}");
    assert!(said.contains("cuMemCreate"), "{said}");
    stage.finish();
}

#[test]
fn nothing_is_left_of_one_that_dies_in_the_middle_of_a_move() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &["--turn", "60ms"] });
    let mut survivor = program(&stage, "survivor", "1");
    survivor.goes_on(1);
    for moment in ["moving_out", "away", "moving_in"] {
        let mut victim = program(&stage, moment, "2");
        let pid = victim.pid();
        victim.goes_on(1);
        let before = stage.events().len();
        until(&format!("the victim meets a {moment}"), || {
            let events = stage.events();
            events[before..].iter().any(|event| event["event"] == moment && event["pid"] == pid)
        });
        victim.kill();
        until(&format!("nothing is left of one that died at {moment}"), || {
            let (listing, figures) = (stage.listing(), stage.figures(0));
            listing.tenants.iter().all(|tenant| tenant.pid != pid)
                && listing.gpus[0].arena_used_bytes == 0
                && figures.processes.iter().all(|process| process.pid.unsigned_abs() != pid)
        });
        survivor.goes_on(2);
    }
    survivor.kill();
    stage.finish();
}

#[test]
fn it_is_the_programs_own_once_the_daemon_is_gone() {
    let mut stage = Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 96, rotad: &["--turn", "50ms"] });
    let mut programs = ["5", "6"].map(|seed| {
        let more = ["--kernel-ms", "10", "--seed", seed, "--steps", "12"];
        stage.worker(0, seed, &[&SEGMENTS[..], &more].concat())
    });
    for program in &mut programs {
        program.goes_on(2);
    }
    stage.kill_daemon();
    for program in programs {
        program.ends_well();
    }
    stage.finish();
}

#[test]
fn it_stays_where_it_is_once_others_have_it_and_not_when_the_driver_refused_them() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 64, rotad: &[] });
    let pinned_bytes = || {
        let output = stage.rota().args(["describe", "--json", "puppet"]).output().unwrap();
        let described = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
        described["jobs"][0]["tenants"][0]["pinned_bytes"].as_u64().unwrap()
    };
    let mut puppet = Puppet::start(&stage, "puppet", &[]);
    puppet.does(&format!("create {}", 4 << 20));
    puppet.does("no-access 7");
    until("what is for nobody else may move", || pinned_bytes() == 0);
    puppet.does("export");
    until("what was exported stays", || pinned_bytes() == 4 << 20);
    // Refused once more, it stays all the same. Exported memory after that is counted after the refusal was.
    puppet.does("no-access 7");
    puppet.does(&format!("create {}", 2 << 20));
    puppet.does("export");
    until("what was exported stays", || pinned_bytes() == 6 << 20);
    puppet.end();
    stage.finish();
}
