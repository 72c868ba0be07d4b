//! Service: whoever may run gets on, in programs that behave as real ones do.
//!
//! Random programs take their memory in pieces, work, pause, grow, free, pin, are paused, killed and come late, on a machine
//! that does what the core says, at the costs that were measured. Nothing goes wrong here; that is what `lives` is for. Instead
//! it is watched how long everybody waits, and for what: see [`oracle`].
//!
//! A failing run prints its seed. `ROTA_SEED=… cargo test -p rota-sched --test service` runs that one, with a diary;
//! `ROTA_SEEDS=…` runs so many.

extern crate rota_sched as sched;

mod draw;
mod machine;
mod oracle;
mod program;
#[path = "../world/random.rs"]
#[allow(dead_code, reason = "lives draw more kinds of things")]
mod random;

use oracle::Complaint;

/// Seeds, unless the environment says otherwise.
const SEEDS: u64 = 24;

fn complaints(seed: u64, diary: bool) -> Vec<Complaint> {
    let mut machine = draw::machine(seed);
    machine.diary = diary;
    machine.run();
    machine.complaints()
}

#[test]
fn whoever_may_run_gets_on() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let one = number("ROTA_SEED");
    let seeds = match one {
        Some(seed) => vec![seed],
        None => (1..=number("ROTA_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let mut bad = 0;
    for seed in seeds {
        let all = complaints(seed, one.is_some());
        for complaint in &all {
            println!("ROTA_SEED={seed}: {complaint}");
        }
        bad += usize::from(!all.is_empty());
    }
    assert_eq!(bad, 0, "seeds in which somebody was not served");
}
