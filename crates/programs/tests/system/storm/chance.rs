//! What a seed decides. Each deed and each program has numbers of its own, so that one that took longer, or ended early, does not
//! change what comes after it.

use programs::kernels::mix;

/// Chooses a storm.
#[derive(Clone, Copy)]
pub(super) struct Seed(pub(super) u64);

impl Seed {
    /// What `ROTA_SEED` says.
    pub(super) fn chosen() -> u64 {
        std::env::var("ROTA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
    }

    pub(super) fn of_program(&self, number: u64) -> Chance {
        Chance(mix(self.0) ^ mix(2 * number), 0)
    }

    pub(super) fn of_deed(&self, number: u64) -> Chance {
        Chance(mix(self.0) ^ mix(2 * number + 1), 0)
    }
}

/// Numbers that are the same for the same seed.
pub(super) struct Chance(u64, u64);

impl Chance {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.1 += 1;
        mix(self.0 ^ mix(self.1)) % limit
    }
}

/// Tells of the seed if the test fails.
pub(super) struct Reminder(pub(super) Seed);

impl Drop for Reminder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Seed(seed) = self.0;
            eprintln!(
                "Once more: ROTA_SEED={seed} cargo test -p rota-programs --test system -- --nocapture \
                 a_storm_of_a_thousand"
            );
        }
    }
}
