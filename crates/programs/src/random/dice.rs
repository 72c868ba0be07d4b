//! Numbers by a seed.

use crate::kernels::{GOLDEN, mix};

/// A row of numbers that only the seed tells.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(mix(seed))
    }

    /// The next number.
    pub(super) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u64
    }

    /// The place of one of `count` things.
    pub(super) fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let row = |seed| {
            let mut dice = Dice::new(seed);
            (0..8).map(|_| dice.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(row(1), row(1));
        assert_ne!(row(1), row(2));
        assert!(row(3).iter().all(|number| *number < 1000));
        assert_eq!(Dice::new(1).below(0), 0);
    }
}
