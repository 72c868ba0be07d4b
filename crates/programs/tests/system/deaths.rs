//! Programs and the daemon are killed at the worst moments: the others go on, and nothing of the dead is left.

use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

/// Seen in the daemon's events: moments at which a program can die.
const MOMENTS: [&str; 6] = ["turn_begin", "freeze", "moving_out", "away", "moving_in", "thaw"];

fn program(stage: &Stage, name: &str, seed: &str) -> Program {
    let memory = ["--mib", "24", "--piece-mib", "4"];
    stage.worker(0, name, &[&memory[..], &["--steps", "1000000", "--seed", seed]].concat())
}

#[test]
fn one_dies_at_every_moment_and_the_other_goes_on() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &["--turn", "60ms"] });
    let mut survivor = program(&stage, "survivor", "1");
    survivor.goes_on(1);
    let alone = stage.figures(0).memory_used_bytes;
    for moment in MOMENTS {
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
                && figures.memory_used_bytes == alone
        });
        survivor.goes_on(2);
    }
    survivor.kill();
    stage.finish();
}

#[test]
fn the_daemon_dies_and_programs_that_are_there_end_right() {
    let mut stage = Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 96, rotad: &["--turn", "50ms"] });
    let mut programs = ["5", "6"].map(|seed| {
        let memory = ["--mib", "24", "--piece-mib", "4", "--copies", "--kernel-ms", "10"];
        stage.worker(0, seed, &[&memory[..], &["--seed", seed, "--steps", "12"]].concat())
    });
    for program in &mut programs {
        program.goes_on(2);
    }
    until("they have had some turns", || stage.count("turn_begin") >= 6);
    stage.kill_daemon();
    for program in programs {
        until("it says so", || program.log().contains("the daemon is gone; running on without rota"));
        program.ends_well();
    }
    stage.finish();
}

#[test]
fn nobody_need_read_what_the_daemon_says() {
    let setup = Setup { gpus: 1, gpu_mib: 48, arena_mib: 64, rotad: &["--turn", "30ms"] };
    let mut stage = Stage::new(&setup);
    stage.kill_daemon();
    // A pipe that is full from the start, so that every line would have to wait.
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let small = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    rustix::io::write(&writer, &vec![b'x'; small - 1]).unwrap();
    stage.start_daemon_logging_to(&setup, writer.into());
    let mut programs = ["1", "2"].map(|seed| program(&stage, seed, seed));
    programs.iter_mut().for_each(|program| program.goes_on(2));
    let [first, mut second] = programs;
    drop(first);
    until("its end is seen", || stage.listing().tenants.len() == 1);
    drop(reader);
    drop(program(&stage, "3", "3"));
    second.goes_on(2);
    drop(second);
    stage.finish();
}

#[test]
fn programs_that_are_there_join_the_next_daemon() {
    let setup = Setup { gpus: 1, gpu_mib: 88, arena_mib: 112, rotad: &["--turn", "50ms"] };
    let mut stage = Stage::new(&setup);
    let mut programs = ["1", "2"].map(|seed| program(&stage, seed, seed));
    for round in 1..=2 {
        programs.iter_mut().for_each(|program| program.goes_on(1));
        stage.kill_daemon();
        let mentions = |program: &Program| program.log().matches("there is a daemon again").count();
        until("they say so", || programs.iter().all(|program| program.log().contains("the daemon is gone")));
        programs.iter_mut().for_each(|program| program.goes_on(1));
        stage.start_daemon(&setup);
        until("they are there, with their memory", || {
            let listing = stage.listing();
            let is_there = |program: &Program| {
                let mine = listing.tenants.iter().find(|tenant| tenant.pid == program.pid());
                mine.is_some_and(|tenant| tenant.resident_bytes >= 24 << 20)
            };
            programs.iter().all(is_there)
        });
        // The daemon has them before they have heard of it.
        until("they say so, once for each", || programs.each_ref().map(mentions) == [round; 2]);
    }
    // They are tenants like any other: they move for somebody who does not fit beside them.
    let third = ["--mib", "36", "--piece-mib", "4", "--steps", "1000000", "--seed", "3"];
    let mut third = stage.worker(0, "third", &third);
    until("memory of theirs moves", || {
        let moved = |program: &Program| {
            let pid = program.pid();
            stage.events().iter().any(|event| event["event"] == "moving_in" && event["pid"] == pid)
        };
        programs.iter().all(moved)
    });
    third.goes_on(2);
    programs.iter_mut().for_each(|program| program.goes_on(2));
    drop((third, programs));
    stage.finish();
}

#[test]
fn the_daemon_dies_and_one_whose_memory_is_away_ends_when_the_next_one_says_that_it_is_lost() {
    // So long that a turn that was seen to begin is still on when the daemon is killed.
    let setup = Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &["--turn", "2s"] };
    let mut stage = Stage::new(&setup);
    // Both have work all the time, so that no turn ends before its time.
    let mut programs = ["7", "8"].map(|name| {
        let mut program = Puppet::start(&stage, name, &[]);
        program.does("keep 40");
        program.does("launch 60 100");
        program
    });
    // A turn that begins after the other went away: nothing moves for a while.
    until("one is away and the other has its turn", || {
        let events = stage.events();
        let last = |name: &str| events.iter().rposition(|event| event["event"] == name);
        last("away").is_some_and(|away| last("turn_begin") > Some(away) && last("moving_out") < Some(away))
    });
    stage.kill_daemon();
    let waits = |program: &Puppet| program.log().contains("it waits for the next one");
    until("the one that is away waits", || programs.iter().any(waits));
    stage.start_daemon(&setup);
    let mut ended = None;
    until("the one that is away ends", || {
        ended = programs.iter_mut().position(Puppet::has_ended);
        ended.is_some()
    });
    let [first, second] = programs;
    let (mut gone, mut stays) = if ended == Some(0) { (first, second) } else { (second, first) };
    assert!(gone.log().contains("the memory of this program that was not on the GPU"), "{}", gone.log());
    assert_eq!(gone.exit_code(), Some(125));
    stays.does("stream");
    stays.does("check");
    stays.end();
    stage.finish();
}

/// A copy fails, and with it all that the worker has of the GPU: the next one takes over by itself, and both go on.
#[test]
fn a_worker_whose_copy_fails_is_followed_by_one_whose_copies_work() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 96, rotad: &["--turn", "60ms"] });
    let mut programs = ["1", "2"].map(|seed| program(&stage, seed, seed));
    for nth in [1, 2, 7] {
        for program in &mut programs {
            program.goes_on(2);
        }
        let worker = stage.status().worker_pid;
        let faults = format!("pids = [{worker}]\n[copy]\nfails_at = {nth}\n");
        std::fs::write(stage.path("faults.toml"), faults).unwrap();
        until("another worker serves", || stage.status().worker_pid != worker);
        std::fs::remove_file(stage.path("faults.toml")).unwrap();
    }
    for program in &mut programs {
        program.goes_on(2);
        program.kill();
    }
    let errors = stage.events();
    let told = |words: &str| {
        errors.iter().filter(|event| event["what"].as_str().is_some_and(|what| what.contains(words))).count()
    };
    assert!(told("the next one takes over") >= 3, "each is told");
    stage.finish_after_errors();
}
