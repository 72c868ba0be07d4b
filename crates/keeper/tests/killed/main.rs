//! Workers in processes of their own are killed at random instants, and no tenant loses a byte.
//!
//! - [`ground`]: what outlives a worker: the tenants and their device, as they are, in memory that the test shares with it.
//! - [`worker`]: a worker that moves handles out and in, as the real one does, and checks all it finds when it starts.
//! - [`pattern`]: bytes that say whose they are.
//!
//! The device goes on after its worker's death: what the worker had reserved and was copying to is scribbled over a little
//! later, while the next worker is there already.

mod ground;
mod pattern;
mod worker;

use ground::Ground;
use pattern::Random;
use rota_keeper::*;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How many workers are killed.
const KILLS: u64 = 80;
/// The most steps that a worker gets to take before it is killed.
const STEPS_MAX: u64 = 60;
/// The most that the instant is off the step, in microseconds.
const OFF_US_MAX: u64 = 400;
/// Tests wait for what happens, so this is only how long a broken one takes.
const PATIENCE: Patience = Patience { connect: Duration::from_secs(60), answer: Duration::from_secs(60) };
/// Chooses another history, or the one that failed.
const SEED: &str = "ROTA_SEED";

/// Killed when it is dropped.
struct Running(Child);

impl Running {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn no_byte_is_lost_however_workers_die() {
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().expect("the seed is a number"),
        Err(_) => u64::from(std::process::id()),
    };
    println!("{SEED}={seed}");
    let mut random = Random(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("keeper");
    let ground_file = folder.path().join("ground");
    let ground = Ground::create(&ground_file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rota-keeper"));
    command.arg("--socket").arg(&socket).args(["--part", "64MiB", "--part", "6MiB@0"]).stderr(Stdio::null());
    let mut keeper = Running(command.spawn().expect("the keeper can be started"));
    // The device's way to the arena.
    let mut first = Client::connect(&socket, PATIENCE).expect("the keeper is there");
    let view = worker::map(&mut first);
    first.leave(End::Stay).expect("it may leave");

    let mut scribbled_bytes = 0;
    for kill in 0..KILLS {
        let until = ground.steps() + 1 + random.below(STEPS_MAX);
        // Half of them right behind a step, however short what follows is; the others anywhere.
        let (halt_at, off_us) = if kill % 2 == 0 { (until, 0) } else { (u64::MAX, random.below(OFF_US_MAX)) };
        ground.halt_at(halt_at);
        // The device of the last worker is still at work for a while.
        let quiet_at = ground.steps() + random.below(STEPS_MAX / 2);
        let mut process = Running(worker::start(&socket, &ground_file, random.next()));
        let mut is_there = || {
            let ended = process.0.try_wait().expect("it is ours");
            assert!(
                ended.is_none(),
                "worker {kill} found something wrong, or ended: {ended:?}; {SEED}={seed}"
            );
        };
        let begin = Instant::now();
        while ground.steps() < until {
            if ground.is_busy() && ground.steps() >= quiet_at {
                scribbled_bytes += ground.scribble(&view);
            }
            is_there();
            assert!(begin.elapsed() < Duration::from_secs(60), "worker {kill} stands still; {SEED}={seed}");
            std::thread::sleep(Duration::from_micros(20));
        }
        std::thread::sleep(Duration::from_micros(off_us));
        is_there();
        process.kill();
        scribbled_bytes += ground.scribble(&view);
        ground.bury_worker();
    }
    scribbled_bytes += ground.scribble(&view);
    let mut last = Client::connect(&socket, PATIENCE).expect("the keeper is there");
    let found = worker::check(&mut last, &ground, &view);
    let counts = ground.counts();
    println!(
        "{KILLS} kills, {} steps: {} out, {} in, {} blocks were there already, {} times facts were missing; {} MiB were written to after \
         their worker's death; {found} handles are away at the end",
        ground.steps(),
        counts.out,
        counts.back,
        counts.reused,
        counts.refused,
        scribbled_bytes >> 20,
    );
    // What did not happen was not shown.
    assert!(counts.out > 0 && counts.back > 0 && scribbled_bytes > 0, "{SEED}={seed}");
    assert!(counts.reused > 0 && counts.refused > 0, "{SEED}={seed}");
    assert!(last.leave(End::Forced).expect("it may leave").0);
    assert!(keeper.0.wait().expect("it ends").success());
}
