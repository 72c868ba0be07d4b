//! The worker is killed while a program is on several GPUs, which read each other's memory: it comes back on all of them before
//! anything of it moves or runs.

use crate::parts::SPREAD;
use crate::stage::{Program, Setup, Stage, until};
use crate::takeover::kill_workers;

/// A program on two GPUs, and a competitor on each.
fn contended(stage: &Stage) -> (Program, [Program; 2]) {
    let busy = ["--mib", "16", "--piece-mib", "4", "--kernel-ms", "20", "--steps", "1000000", "--seed", "7"];
    let others = [0, 1].map(|gpu| stage.worker(gpu, &format!("beside{gpu}"), &busy));
    let work = [SPREAD, "--mib", "16", "--piece-mib", "4", "--kernel-ms", "10", "--steps", "1000000"];
    let spread = stage.program("both", &["--name", "both", "--gpus", "2"], &work);
    (spread, others)
}

fn sessions(stage: &Stage, program: &Program) -> usize {
    stage.listing().tenants.iter().filter(|tenant| tenant.pid == program.pid()).count()
}

#[test]
fn a_program_on_two_gpus_outlives_workers_with_every_byte_right() {
    let turns = ["--turn", "60ms", "--turn-jitter", "0.5"];
    let stage = Stage::new(&Setup { gpus: 2, gpu_mib: 48, arena_mib: 160, rotad: &turns });
    let (mut spread, mut others) = contended(&stage);
    spread.goes_on(2);
    let said_before = spread.log();
    kill_workers(&stage, 3, 12);
    spread.goes_on(3);
    for other in &mut others {
        other.goes_on(1);
    }
    until("it is back on both", || sessions(&stage, &spread) == 2);
    assert_eq!(spread.log(), said_before, "a worker that is replaced is not missed");
    spread.kill();
    drop(others);
    stage.finish();
}

#[test]
fn one_that_has_all_of_its_memory_goes_on_and_comes_back_on_both() {
    let stage = Stage::new(&Setup { gpus: 2, gpu_mib: 48, arena_mib: 128, rotad: &["--turn", "60ms"] });
    let work = [SPREAD, "--mib", "16", "--piece-mib", "4", "--kernel-ms", "5", "--steps", "1000000"];
    let mut spread = stage.program("both", &["--name", "both", "--gpus", "2"], &work);
    spread.goes_on(2);
    kill_workers(&stage, 5, 3);
    until("it is back on both", || sessions(&stage, &spread) == 2);
    // It makes room for others as before.
    let busy = ["--mib", "16", "--piece-mib", "4", "--kernel-ms", "20", "--steps", "1000000", "--seed", "7"];
    let mut others = [0, 1].map(|gpu| stage.worker(gpu, &format!("beside{gpu}"), &busy));
    for other in &mut others {
        other.goes_on(2);
    }
    spread.goes_on(2);
    spread.kill();
    drop(others);
    stage.finish();
}
