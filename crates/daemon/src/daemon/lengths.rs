//! Turns that vary in length at random, so that they do not fall into step with a program's own rhythm.
//!
//! The core knows no randomness: it is told other bounds at the beginning of each turn.

use sched::{Settings, Span};

/// No turn is shorter than this share of what was set.
const SHARE_MIN: f64 = 0.05;

/// See the module.
#[derive(Debug)]
pub(super) struct Lengths {
    usual: Settings,
    jitter: f64,
    random: u64,
}

impl Lengths {
    pub(super) fn new(usual: Settings, jitter: f64, seed: u64) -> Self {
        Self { usual, jitter, random: seed }
    }

    /// The settings for the next turn, if they are others than usual.
    pub(super) fn next(&mut self) -> Option<Settings> {
        if self.jitter == 0.0 {
            return None;
        }
        let share = (1.0 + self.jitter * self.draw()).max(SHARE_MIN);
        let scaled = |span: Span| Span((span.0 as f64 * share) as u64);
        Some(Settings {
            turn_min: scaled(self.usual.turn_min),
            turn_max: scaled(self.usual.turn_max),
            ..self.usual.clone()
        })
    }

    /// From -1 to 1, by splitmix64: a stream of its own, so that the same seed gives the same turns.
    fn draw(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(length: Span) -> Settings {
        Settings { turn_min: length, turn_max: length, ..Settings::default() }
    }

    #[test]
    fn without_jitter_nothing_changes() {
        assert_eq!(Lengths::new(fixed(Span::from_secs(1)), 0.0, 1).next(), None);
    }

    #[test]
    fn lengths_vary_within_their_bounds_and_the_same_for_the_same_seed() {
        let draw = |seed| {
            let mut lengths = Lengths::new(fixed(Span::from_secs(1)), 0.5, seed);
            let drawn = std::iter::from_fn(move || lengths.next());
            drawn.map(|settings| (settings.turn_min, settings.turn_max)).take(1000).collect::<Vec<_>>()
        };
        let drawn = draw(7);
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
        assert!(drawn.iter().all(|(min, max)| min == max));
        let all = Span::from_millis(500)..=Span::from_millis(1500);
        assert!(drawn.iter().all(|(min, _)| all.contains(min)));
        let (short, long) = (Span::from_millis(600), Span::from_millis(1400));
        assert!(drawn.iter().any(|(min, _)| *min < short) && drawn.iter().any(|(min, _)| *min > long));
    }
}
