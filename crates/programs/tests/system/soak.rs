//! Everything at once: eight programs on two GPUs that allocate, free, copy and compute, frozen at random, and one of them
//! killed every two seconds with another in its place.

use std::time::{Duration, Instant};

use programs::kernels::mix;

use crate::stage::{Program, Setup, Stage};

const GPUS: usize = 2;
/// On each GPU.
const PROGRAMS: usize = 4;
/// Between two deaths.
const KILL_EVERY: Duration = Duration::from_secs(2);

#[test]
fn eight_programs_on_two_gpus_for_a_moment() {
    soak(Duration::from_secs(8));
}

#[test]
#[ignore = "takes more than a minute: make soak"]
fn eight_programs_on_two_gpus_for_a_minute() {
    soak(Duration::from_secs(60));
}

fn soak(length: Duration) {
    let seed = std::env::var("ROTA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let rotad = ["--turn", "40ms", "--turn-jitter", "0.9"];
    let stage = Stage::new(&Setup { gpus: GPUS, gpu_mib: 64, arena_mib: 256, rotad: &rotad });
    let end = Instant::now() + length;
    let mut born = 0;
    let mut bear = |gpu: usize| {
        born += 1;
        let left = end.saturating_duration_since(Instant::now()).as_secs_f64();
        let (name, left) = (format!("{gpu}-{born}"), left.to_string());
        // No two alike.
        let chance = mix(seed ^ born);
        let numbers =
            [20 + chance % 12, 2 * (1 + chance / 16 % 3), chance / 256 % 20, born].map(|n| n.to_string());
        let [mib, piece, kernel, seed] = numbers.each_ref().map(String::as_str);
        let mut memory = vec!["--mib", mib, "--piece-mib", piece, "--copies"];
        if born % 3 == 0 {
            memory.push("--segments");
        }
        let more = ["--kernel-ms", kernel, "--seed", seed, "--seconds", &left];
        (gpu, stage.worker(gpu, &name, &[&memory[..], &more].concat()))
    };
    let mut programs: Vec<(usize, Program)> =
        (0..GPUS * PROGRAMS).map(|number| bear(number % GPUS)).collect();
    let (mut deaths, mut steps) = (0, 0);
    let mut next = Instant::now() + KILL_EVERY;
    while next < end {
        while Instant::now() < next {
            std::thread::sleep(Duration::from_millis(20));
            for (_, program) in &mut programs {
                program.said();
                let ended = program.try_end();
                assert!(ended.is_none_or(|status| status.success()), "{} ended: {ended:?}", program.name);
            }
        }
        let unlucky = mix(seed.wrapping_add(deaths)) as usize % programs.len();
        let (gpu, mut program) = programs.swap_remove(unlucky);
        program.kill();
        steps += program.said().steps;
        programs.push(bear(gpu));
        deaths += 1;
        next += KILL_EVERY;
    }
    for (_, program) in programs {
        steps += program.ends_well().steps;
    }
    let (turns, moves) = (stage.count("turn_begin"), stage.count("move_end"));
    stage.finish();
    println!("{length:?}: {steps} steps, {turns} turns, {moves} moves, {deaths} deaths");
    assert!(steps > 8 && turns > 20 && moves > 10, "too little happened to show anything");
}
