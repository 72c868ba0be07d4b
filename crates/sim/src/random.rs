//! Chance that repeats: the same seed gives the same numbers on every machine.
//!
//! xoshiro256++ seeded by splitmix64, both public domain algorithms of a few lines. Nothing here needs to be hard to
//! guess.

use sched::{Ratio, Span};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of a seed. Streams of one seed for different things are told apart by `lane`, so that one who draws
    /// more often does not change what the others see.
    pub fn new(seed: u64, lane: u64) -> Self {
        let mut mixed = seed ^ lane.wrapping_mul(0xd1b5_4a32_d192_ed03);
        let mut state = [0; 4];
        for word in &mut state {
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = mixed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *word = z ^ (z >> 31);
        }
        Self { state }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Exponential around a mean.
    pub fn span(&mut self, mean: Span) -> Span {
        Span((mean.0 as f64 * self.exponential()) as u64)
    }

    /// From nothing to below `most`.
    pub fn below(&mut self, most: Span) -> Span {
        Span((most.0 as f64 * self.unit()) as u64)
    }

    /// True for this share of the draws. A share of nothing draws nothing.
    pub fn happens(&mut self, share: Ratio) -> bool {
        share != Ratio::ZERO && self.unit() * 1e6 < f64::from(share.0)
    }

    /// `span` with a spread: the median stays, and the mean of what comes on top is this share of it.
    pub fn spread(&mut self, span: Span, jitter: Ratio) -> Span {
        if jitter == Ratio::ZERO {
            return span;
        }
        let share = f64::from(jitter.0) / 1e6;
        Span((span.0 as f64 * (1.0 + share * (self.exponential() - std::f64::consts::LN_2))).max(0.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_lanes_differ() {
        let draw = |seed, lane| {
            let mut random = Random::new(seed, lane);
            [random.number(), random.number(), random.number()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn means_and_medians_are_as_said() {
        let mut random = Random::new(7, 0);
        let draws = 200_000;
        let mean = (0..draws).map(|_| random.exponential()).sum::<f64>() / f64::from(draws);
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        let mean = (0..draws).map(|_| random.unit()).sum::<f64>() / f64::from(draws);
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        let nominal = Span::from_micros(100);
        let above = (0..draws).filter(|_| random.spread(nominal, Ratio::from_percent(4)) > nominal).count();
        assert!((above as f64 / f64::from(draws) - 0.5).abs() < 0.01, "{above}");
        let hits = (0..draws).filter(|_| random.happens(Ratio::from_percent(10))).count();
        assert!((hits as f64 / f64::from(draws) - 0.1).abs() < 0.005, "{hits}");
    }
}
