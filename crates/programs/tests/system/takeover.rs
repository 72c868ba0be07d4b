//! The worker is killed at random instants while programs take turns by moving: the next one takes over from the keeper and
//! from the programs, and no byte is wrong. Keeper and worker together: only what was away is lost.

use rustix::process::{Pid, Signal};
use std::time::{Duration, Instant};

use crate::puppet::Puppet;
use crate::stage::{Program, Setup, Stage, until};

/// Three programs of 24 MiB, on a GPU that has room for one of them.
const LARGE: [&str; 4] = ["--mib", "24", "--piece-mib", "4"];

/// How soon a new worker serves.
const SERVES_WITHIN: Duration = Duration::from_secs(2);

/// Pauses between kills, by a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        // Knuth's numbers.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What was under way when a worker was killed, by its last words.
fn phase(stage: &Stage) -> String {
    let events = stage.events();
    let last = events.iter().rev().find(|event| event["event"] != "worker");
    last.map_or(String::new(), |event| event["event"].to_string())
}

pub(crate) fn kill_workers(stage: &Stage, seed: u64, kills: u32) {
    let mut chance = Chance(seed);
    let mut slowest = Duration::ZERO;
    for kill in 0..kills {
        std::thread::sleep(Duration::from_millis(50 + chance.below(400)));
        let before = stage.status();
        let phase = phase(stage);
        assert!(stage.kill_worker(), "there is a worker to kill");
        let killed = Instant::now();
        // Whoever asks in the gap waits.
        let after = stage.status();
        slowest = slowest.max(killed.elapsed());
        assert_ne!(before.worker_pid, after.worker_pid);
        assert_eq!((before.pid, before.keeper_pid), (after.pid, after.keeper_pid));
        assert_eq!(after.worker_restarts, before.worker_restarts + 1);
        println!("kill {kill} of seed {seed}: after {phase}, served again in {:?}", killed.elapsed());
    }
    assert!(slowest < SERVES_WITHIN * 5, "a new worker took {slowest:?}, which is far too long also here");
}

fn survive(seed: u64, kills: u32) {
    let turns = ["--turn", "40ms", "--turn-jitter", "0.5"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 52, arena_mib: 128, rotad: &turns });
    let mut programs = ["1", "2", "3"].map(|name| {
        let seed = (seed * 10).to_string() + name;
        let more = ["--seed", seed.as_str(), "--steps", "1000000", "--copies", "--kernel-ms", "10"];
        stage.worker(0, name, &[&LARGE[..], &more].concat())
    });
    for program in &mut programs {
        program.goes_on(2);
    }
    // Whoever came when the GPU was full was told that it waits.
    let said_before = programs.each_ref().map(Program::log);
    kill_workers(&stage, seed, kills);
    // Each of them, with every byte looked at.
    for program in &mut programs {
        program.goes_on(2);
    }
    let there = |program: &Program| stage.listing().tenants.iter().any(|tenant| tenant.pid == program.pid());
    assert!(programs.iter().all(there), "a program is not in the list");
    assert_eq!(programs.each_ref().map(Program::log), said_before, "a worker that is replaced is not missed");
    drop(programs);
    stage.finish();
}

#[test]
fn the_worker_is_killed_twenty_times_and_no_byte_is_wrong() {
    survive(1, 20);
}

#[test]
#[ignore = "takes minutes"]
fn the_worker_is_killed_many_times_and_no_byte_is_wrong() {
    for seed in 2..12 {
        survive(seed, 50);
    }
}

#[test]
fn all_but_the_keeper_are_killed_and_the_next_daemon_takes_it_over() {
    let setup = Setup { gpus: 1, gpu_mib: 48, arena_mib: 96, rotad: &["--turn", "500ms"] };
    let mut stage = Stage::new(&setup);
    let programs = ["7", "8"].map(|name| busy(&stage, name));
    one_is_away(&stage);
    let keeper = stage.status().keeper_pid;
    stage.kill_all_but_keeper();
    let waits = |program: &Puppet| program.log().contains("it waits for the next one");
    until("the one that is away waits", || programs.iter().any(waits));
    stage.start_daemon(&Setup { arena_mib: 128, ..setup });
    assert_eq!(stage.status().keeper_pid, keeper);
    let log = std::fs::read_to_string(stage.path("rotad.log")).unwrap();
    assert!(
        log.contains("arena = 128.0 MiB is not in force: the keeper of an earlier daemon has 96.0 MiB"),
        "{log}"
    );
    for mut program in programs {
        program.does("stream");
        program.does("check");
        program.end();
    }
    stage.finish();
}

#[test]
fn a_signal_to_all_of_its_processes_asks_the_daemon_once_to_end() {
    let mut stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 96, rotad: &["--turn", "500ms"] });
    let programs = ["7", "8"].map(|name| busy(&stage, name));
    one_is_away(&stage);
    stage.signal_all(Signal::TERM);
    until("it ends when its programs have", || {
        let log = std::fs::read_to_string(stage.path("rotad.log")).unwrap();
        log.contains("stopping when 2 programs have ended")
    });
    for mut program in programs {
        program.does("stream");
        program.does("check");
        program.end();
    }
    let (status, log) = stage.daemon_ends();
    assert!(status.success(), "{log}");
    stage.finish();
}

/// A program of 40 MiB that has work all the time, so that no turn ends before its time.
fn busy(stage: &Stage, name: &str) -> Puppet {
    let mut program = Puppet::start(stage, name, &[]);
    program.does("keep 24");
    program.does("launch 60 100");
    program
}

/// Waits for a turn that begins after the other program went away: nothing moves for a while.
fn one_is_away(stage: &Stage) {
    until("one is away and the other has its turn", || {
        let events = stage.events();
        let last = |name: &str| events.iter().rposition(|event| event["event"] == name);
        last("away").is_some_and(|away| last("turn_begin") > Some(away) && last("moving_out") < Some(away))
    });
}

#[test]
fn jobs_and_their_terms_outlive_the_worker() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 96, rotad: &["--turn", "50ms"] });
    let mut command = stage.under_rota_with(0, "night", &["--memory", "60MiB", "--weight", "3"]);
    command.arg(crate::parts::WORKER).args(["--mib", "16", "--seed", "1", "--steps", "1000000"]);
    let mut program = stage.start("night", command);
    program.goes_on(1);
    let describe = || {
        let said = stage.rota().args(["describe", "night"]).output().unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let terms = |text: &str| {
        // How much it has changes; how much it may have does not.
        let after = |line: &str, word| Some(line.split_once(word)?.1.to_owned());
        let kept = text.lines().filter_map(|line| after(line, "weight").or_else(|| after(line, "at most")));
        kept.collect::<Vec<_>>()
    };
    let before = describe();
    assert!(terms(&before).len() >= 2, "{before}");
    assert!(stage.kill_worker());
    until("it is back", || stage.listing().tenants.iter().any(|tenant| tenant.pid == program.pid()));
    assert_eq!(terms(&describe()), terms(&before));
    drop(program);
    until("the job is over", || stage.status().jobs == 0);
    stage.finish();
}

#[test]
fn keeper_and_worker_are_killed_and_only_what_was_away_is_lost() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 96, rotad: &["--turn", "500ms"] });
    let mut programs = ["7", "8"].map(|name| busy(&stage, name));
    one_is_away(&stage);
    stage.kill_worker_and_keeper();
    let mut ended = None;
    until("the one that is away ends", || {
        ended = programs.iter_mut().position(Puppet::has_ended);
        ended.is_some()
    });
    let [first, second] = programs;
    let (mut gone, mut stays) = if ended == Some(0) { (first, second) } else { (second, first) };
    let said = gone.log();
    assert!(said.contains("the memory of this program that was not on the GPU is lost"), "{said}");
    assert!(said.contains("the keeper of its memory is gone"), "{said}");
    assert_eq!(gone.exit_code(), Some(125));
    stays.does("stream");
    stays.does("check");
    until("the other is back", || stage.listing().tenants.iter().any(|tenant| tenant.pid == stays.pid()));
    stays.does("check");
    stays.end();
    stage.finish();
}

/// A configuration that can be spoiled, and mended again.
struct Spoilable(tempfile::NamedTempFile);

impl Spoilable {
    fn new() -> Self {
        let file = Self(tempfile::NamedTempFile::new().unwrap());
        file.write("turn = \"500ms\"\n");
        file
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn write(&self, text: &str) {
        std::fs::write(self.0.path(), text).unwrap();
    }

    /// Makes one of two programs go away, and has workers fail at their start from then on.
    fn spoil(&self, stage: &Stage) {
        one_is_away(stage);
        self.write("turn = oops\n");
        assert!(stage.kill_worker());
        until("a worker has failed", || {
            let log = std::fs::read_to_string(stage.path("rotad.log")).unwrap();
            log.contains("the worker died (an error)")
        });
    }

    fn mend(&self) {
        self.write("turn = \"500ms\"\n");
    }
}

#[test]
fn a_worker_that_cannot_begin_costs_nobody_a_byte() {
    let config = Spoilable::new();
    let flags = ["--config", config.path()];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 96, rotad: &flags });
    let programs = ["7", "8"].map(|name| busy(&stage, name));
    let before = stage.status();
    config.spoil(&stage);
    config.mend();
    let after = stage.status();
    assert_eq!((before.pid, before.keeper_pid), (after.pid, after.keeper_pid));
    for mut program in programs {
        program.does("stream");
        program.does("check");
        program.end();
    }
    stage.finish();
}

#[test]
fn a_daemon_that_is_told_to_end_while_no_worker_can_begin_leaves_the_keeper_to_the_next() {
    let config = Spoilable::new();
    let flags = ["--config", config.path()];
    let setup = Setup { gpus: 1, gpu_mib: 48, arena_mib: 96, rotad: &flags };
    let mut stage = Stage::new(&setup);
    let programs = ["7", "8"].map(|name| busy(&stage, name));
    let keeper = stage.status().keeper_pid;
    config.spoil(&stage);
    let daemon = Pid::from_raw(stage.daemon_pid().cast_signed()).unwrap();
    rustix::process::kill_process(daemon, Signal::TERM).unwrap();
    let (status, log) = stage.daemon_ends();
    assert!(status.success(), "{log}");
    config.mend();
    stage.start_daemon(&setup);
    assert_eq!(stage.status().keeper_pid, keeper);
    for mut program in programs {
        program.does("stream");
        program.does("check");
        program.end();
    }
    stage.finish();
}

#[test]
fn a_keeper_that_is_silent_for_a_while_is_found_by_the_next_worker() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 96, rotad: &["--turn", "100ms"] });
    let programs = ["7", "8"].map(|name| busy(&stage, name));
    one_is_away(&stage);
    let before = stage.status();
    stage.signal_keeper(Signal::STOP);
    until("the worker gives up", || {
        let log = std::fs::read_to_string(stage.path("rotad.log")).unwrap();
        log.contains("the worker died")
    });
    stage.signal_keeper(Signal::CONT);
    let after = stage.status();
    assert_eq!((before.pid, before.keeper_pid), (after.pid, after.keeper_pid));
    assert!(after.worker_restarts > before.worker_restarts);
    for mut program in programs {
        program.does("stream");
        program.does("check");
        program.end();
    }
}

#[test]
fn no_memory_is_given_before_all_who_have_some_are_back() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &["--turn", "50ms"] });
    let [mut late, mut asks] = ["9", "10"].map(|name| Puppet::start(&stage, name, &[]));
    late.does("keep 40");
    let pid = Pid::from_raw(late.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    assert!(stage.kill_worker());
    asks.begin("keep 30");
    // Time enough for a worker that gives what is not there.
    std::thread::sleep(Duration::from_millis(500));
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    asks.has_done("keep 30");
    for mut program in [late, asks] {
        program.does("check");
        program.end();
    }
    stage.finish();
}

#[test]
fn one_that_waits_at_the_door_outlives_the_worker_it_said_hello_to() {
    let rotad = ["--turn", "50ms", "--tenants-max", "1"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 64, arena_mib: 96, rotad: &rotad });
    let first = Puppet::start(&stage, "11", &[]);
    let mut second = Puppet::spawn(&stage, "12", stage.under_rota(0, "12"));
    for times in 1..=2 {
        until("it says that it waits", || second.log().matches("waiting for the GPU").count() >= times);
        let worker = stage.status().worker_pid;
        assert!(stage.kill_worker());
        until("another worker serves", || stage.status().worker_pid != worker);
    }
    first.end();
    second.is_ready();
    second.does("keep 8");
    second.does("check");
    second.end();
    stage.finish();
}
