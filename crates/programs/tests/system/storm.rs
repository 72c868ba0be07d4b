//! Everything goes wrong at once, in one history of real processes: programs that do not fit together, an arena that is always
//! full, programs that are killed or stand still, copies that fail, and workers that are killed, at random. No byte of a program
//! is ever wrong, and when all are gone nothing is left.
//!
//! `ROTA_SEED` chooses what happens, though not when: real processes are never twice at the same step.
//! `crates/mover/src/exchange/tests/history.rs` has histories that are.

use std::time::{Duration, Instant};

use programs::kernels::mix;
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{Program, Setup, Stage, until};

const PROGRAMS: usize = 4;
/// For how long a program stands still.
const STILL: Duration = Duration::from_millis(300);

/// Says how a failure can be seen again.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "Once more: ROTA_SEED={seed} cargo test -p rota-programs --test system -- --nocapture storm"
            );
        }
    }
}

/// Numbers that are the same for the same seed.
struct Chance(u64, u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.1 += 1;
        mix(self.0 ^ mix(self.1)) % limit
    }
}

/// How often what happened.
#[derive(Debug, Default)]
struct Counts {
    killed: u32,
    still: u32,
    workers: u32,
    copies: u32,
}

struct Storm {
    stage: Stage,
    chance: Chance,
    programs: Vec<Program>,
    born: u64,
    counts: Counts,
}

impl Storm {
    fn bear(&mut self) {
        self.born += 1;
        let (name, mib) = (self.born.to_string(), (20 + self.chance.below(12)).to_string());
        let numbers =
            [2 * (1 + self.chance.below(3)), self.chance.below(20)].map(|number| number.to_string());
        let mut words = vec!["--mib", &mib, "--piece-mib", &numbers[0], "--kernel-ms", &numbers[1]];
        words.extend(["--seed", &name, "--steps", "1000000", "--copies"]);
        if self.born.is_multiple_of(3) {
            words.push("--segments");
        }
        self.programs.push(self.stage.worker(0, &name, &words));
    }

    /// All who are there are well.
    fn look(&mut self) {
        for program in &mut self.programs {
            program.said();
            let ended = program.try_end();
            assert!(ended.is_none(), "{} ended: {ended:?}\n{}", program.name, program.log());
        }
    }

    fn happen(&mut self) {
        let whom = self.chance.below(PROGRAMS as u64) as usize;
        match self.chance.below(10) {
            0..3 => {
                self.programs.swap_remove(whom).kill();
                self.bear();
                self.counts.killed += 1;
            }
            3 | 4 => {
                let pid = Pid::from_raw(self.programs[whom].pid().cast_signed()).expect("a process");
                kill_process(pid, Signal::STOP).expect("it is there");
                std::thread::sleep(STILL);
                kill_process(pid, Signal::CONT).expect("it is there");
                self.counts.still += 1;
            }
            5 | 6 => self.fail_a_copy(),
            _ => self.kill_worker(),
        }
    }

    fn kill_worker(&mut self) {
        let before = self.stage.status();
        self.stage.kill_worker();
        until("another worker serves", || self.stage.status().worker_pid != before.worker_pid);
        self.counts.workers += 1;
    }

    /// A copy of the worker fails, and with it its context. It is of no use then, and is killed.
    fn fail_a_copy(&mut self) {
        let worker = self.stage.status().worker_pid;
        let errors = self.stage.count("error");
        let nth = 1 + self.chance.below(30);
        let faults = format!("pids = [{worker}]\n[copy]\nfails_at = {nth}\n");
        std::fs::write(self.stage.path("faults.toml"), faults).expect("a folder that can be written to");
        let limit = Instant::now() + Duration::from_secs(2);
        while self.stage.count("error") == errors && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.counts.copies += u32::from(self.stage.count("error") > errors);
        self.kill_worker();
        std::fs::remove_file(self.stage.path("faults.toml")).expect("it is there");
    }
}

fn storm(length: Duration) {
    let seed = std::env::var("ROTA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let _seed = Seed(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("plain letters");
    let rotad = ["--turn", "40ms", "--turn-jitter", "0.9", "--cellar", folder, "--cellar-limit", "512MiB"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 72, arena_mib: 24, rotad: &rotad });
    let chance = Chance(seed, 0);
    let mut storm = Storm { stage, chance, programs: Vec::new(), born: 0, counts: Counts::default() };
    for _ in 0..PROGRAMS {
        storm.bear();
    }
    let end = Instant::now() + length;
    while Instant::now() < end {
        let next = Instant::now() + Duration::from_millis(100 + storm.chance.below(400));
        while Instant::now() < next {
            std::thread::sleep(Duration::from_millis(20));
            storm.look();
        }
        storm.happen();
    }
    let Storm { stage, mut programs, counts, .. } = storm;
    // Each of them, with every byte looked at.
    let steps: u64 = programs
        .iter_mut()
        .map(|program| {
            program.goes_on(1);
            program.said().steps
        })
        .sum();
    drop(programs);
    let (turns, moves) = (stage.count("turn_begin"), stage.count("move_end"));
    println!("{length:?}, seed {seed}: {steps} steps, {turns} turns, {moves} moves, {counts:?}");
    assert!(
        counts.killed > 0 && counts.workers > 0 && turns > 20 && moves > 10,
        "too little happened: {counts:?}"
    );
    stage.finish_after_errors();
}

#[test]
fn a_storm_for_a_moment() {
    storm(Duration::from_secs(10));
}

#[test]
#[ignore = "takes minutes: make soak"]
fn a_storm_for_minutes() {
    storm(Duration::from_secs(120));
}
