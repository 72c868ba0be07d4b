//! What a request to the keeper costs, from a worker in another process: there and back, and a whole switch.
//!
//! A switch of 12 GiB is 96 handles of 128 MiB, each reserved, recorded out and recorded in once. Here they are smaller, so
//! that the arena fits anywhere; one of 256 MiB, with its 128 facts, is measured by itself.

use rota_keeper::*;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// As many as 12 GiB have.
const HANDLES: u64 = 48;
const ROUNDS: usize = 2000;
const SWITCHES: usize = 100;
const PATIENCE: Patience = Patience { connect: Duration::from_secs(20), answer: Duration::from_secs(20) };
const TENANT: TenantNumber = TenantNumber(1);
/// The largest handle, with as many facts as it has.
const LARGE_BLOCKS: u64 = 128;

/// Killed when it is dropped.
struct Keeper(Child);

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let folder = std::env::temp_dir().join(format!("rota-keeper-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let socket = folder.join("keeper");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rota-keeper"));
    command.arg("--socket").arg(&socket).args(["--part", "512MiB"]).stderr(Stdio::null());
    let start = Instant::now();
    let keeper = Keeper(command.spawn().expect("the keeper can be started"));
    let mut worker = Client::connect(&socket, PATIENCE).expect("the keeper is there");
    while worker.progress().expect("an answer").growing {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("512 MiB ready after {} ms", start.elapsed().as_millis());
    worker.introduce(TENANT, Process::this()).expect("an answer");
    println!("{:44} {:>8} {:>8} {:>8}", "us", "p50", "p99", "max");
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(timed(|| drop(worker.progress().expect("an answer"))));
    }
    print("there and back", &mut rounds);
    one_large(&mut worker);
    for batch in [1, 8, HANDLES as usize] {
        switches(&mut worker, batch);
    }
    drop(keeper);
    let _ = std::fs::remove_dir_all(&folder);
}

/// The largest handle there is, alone.
fn one_large(worker: &mut Client) {
    let wanted = [Wanted { key: key(0), bytes: LARGE_BLOCKS * BLOCK_BYTES }];
    let outs = [Out { key: key(0), facts: facts(LARGE_BLOCKS) }];
    let back = [In { key: key(0), keep_clean: false }];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        times[0].push(timed(|| drop(worker.reserve(None, &wanted).expect("an answer"))));
        times[1].push(timed(|| drop(worker.record_out(&outs).expect("an answer"))));
        times[2].push(timed(|| drop(worker.record_in(&back).expect("an answer"))));
    }
    for (name, times) in ["reserve", "record out, 128 facts", "record in"].iter().zip(&mut times) {
        print(&format!("256 MiB: {name}"), times);
    }
}

/// All that is said to the keeper in a switch, so many handles in a message.
fn switches(worker: &mut Client, batch: usize) {
    let blocks = 2;
    let wanted: Vec<Wanted> =
        (0..HANDLES).map(|handle| Wanted { key: key(handle), bytes: blocks * BLOCK_BYTES }).collect();
    let outs: Vec<Out> = wanted.iter().map(|wanted| Out { key: wanted.key, facts: facts(blocks) }).collect();
    let backs: Vec<In> = wanted.iter().map(|wanted| In { key: wanted.key, keep_clean: true }).collect();
    let mut times = Vec::new();
    for _ in 0..SWITCHES {
        times.push(timed(|| {
            for wanted in wanted.chunks(batch) {
                worker.reserve(None, wanted).expect("an answer");
            }
            for outs in outs.chunks(batch) {
                worker.record_out(outs).expect("an answer");
            }
            for backs in backs.chunks(batch) {
                worker.record_in(backs).expect("an answer");
            }
        }));
    }
    print(&format!("a switch of {HANDLES} handles, {batch} in a message"), &mut times);
}

fn key(handle: u64) -> HandleKey {
    HandleKey { tenant: TENANT, handle }
}

fn facts(blocks: u64) -> Vec<BlockFact> {
    (0..blocks).map(|block| BlockFact { hash: [block as u8; 16], zero: false }).collect()
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn print(name: &str, times: &mut [Duration]) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!("{name:44} {:8.1} {:8.1} {:8.1}", at(0.5), at(0.99), at(1.0));
}
