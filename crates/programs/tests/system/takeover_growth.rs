//! Memory that programs take while workers are killed, and what they have that never moves: the next worker counts all of it.

use std::time::Duration;

use serde_json::Value;

use crate::puppet::Puppet;
use crate::stage::{Setup, Stage, until};

const MIB: u64 = 1 << 20;

/// None where it is not known: a new worker may be asked before the program has come back to it.
fn described(stage: &Stage, what: &str) -> Option<Value> {
    let output = stage.rota().args(["describe", what, "--json"]).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_program_that_takes_memory_while_workers_are_killed_stays_a_tenant() {
    let turns = ["--turn", "40ms"];
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 48, arena_mib: 128, rotad: &turns });
    // They do not fit together, so memory has to be waited for.
    let large = ["--mib", "24", "--piece-mib", "4", "--steps", "1000000", "--kernel-ms", "10"];
    let mut other = stage.worker(0, "other", &large);
    other.goes_on(1);
    let mut taker = Puppet::start(&stage, "taker", &[]);
    for round in 0..12_u64 {
        taker.begin(&format!("large 16 {round}"));
        std::thread::sleep(Duration::from_millis(round * 7 % 40));
        assert!(stage.kill_worker(), "there is a worker to kill");
        taker.has_done(&format!("large 16 {round}"));
        taker.does("see-large");
        taker.does("free-large");
        stage.status();
    }
    other.goes_on(1);
    until("both are tenants", || stage.listing().tenants.len() == 2);
    assert!(!taker.log().contains("without rota"), "{}", taker.log());
    taker.end();
    drop(other);
    stage.finish();
}

#[test]
fn what_never_moves_counts_after_a_worker_was_killed() {
    let stage = Stage::new(&Setup { gpus: 1, gpu_mib: 128, arena_mib: 64, rotad: &["--turn", "50ms"] });
    let mut puppet = Puppet::start_with(&stage, "p", &["--memory", "40MiB"], &[]);
    puppet.does("keep 8");
    puppet.does(&format!("managed {}", 16 * MIB));
    puppet.does(&format!("no-managed {}", 16 * MIB));
    let number = |key: &str| {
        let found = described(&stage, "p").map(|found| found["jobs"][0]["tenants"][0][key].as_u64());
        found.flatten().unwrap_or(0)
    };
    let before = number("resident_bytes");
    assert!(before >= 24 * MIB, "{before}");
    for _ in 0..2 {
        assert!(stage.kill_worker());
        until("all of it counts", || number("resident_bytes") == before);
        puppet.does(&format!("no-managed {}", 16 * MIB));
    }
    until("what never moves is pinned", || number("pinned_bytes") == 16 * MIB);
    puppet.does("check");
    puppet.does("free-managed");
    until("it is gone", || number("resident_bytes") == before - 16 * MIB);
    puppet.does(&format!("managed {}", 16 * MIB));
    puppet.does("free-managed");
    puppet.end();
    stage.finish();
}
