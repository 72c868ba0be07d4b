//! Random lives of ten thousand events each: all that always holds is checked from outside after every one of them.
//!
//! A failing run prints its last events and a seed. `ROTA_SEED=… cargo test -p rota-sched --test lives properties` runs that
//! one, `ROTA_SEEDS=…` runs so many.

use crate::world::life::Life;

/// Events of one life.
const EVENTS: u64 = 10_000;
/// Lives, unless the environment says otherwise.
const SEEDS: u64 = 12;

fn live(seed: u64) {
    let mut life = Life::new(seed);
    life.live(EVENTS);
    life.end_well();
}

/// The seeds to try: the one from `ROTA_SEED`, or as many as `ROTA_SEEDS` says, or a few.
fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    match number("ROTA_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("ROTA_SEEDS").unwrap_or(SEEDS)).collect(),
    }
}

#[test]
fn what_always_holds_holds_in_random_lives() {
    for seed in seeds() {
        live(seed);
    }
}
