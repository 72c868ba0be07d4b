//! How much of the time something was so, of late: half-second by half-second, each counting for less the older it is.
//!
//! For what is to be believed only once it lasts: a burst of requests is over after a few half-seconds, a load that is too
//! high is not.

use crate::guarantee::HALF;
use crate::{Span, Time};

/// What a half-second counts for in the mean once it is over: one part of so many.
const PARTS: u64 = 4;

/// After so many half-seconds of nothing, nothing is left.
const FORGOTTEN_AFTER: u64 = 72;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Load {
    /// The latest half-second that is known, counted from the beginning.
    half: u64,
    /// For how long it was so within it.
    held: Span,
    /// The mean of those before.
    mean: Span,
}

impl Load {
    /// It was so from here to there. Each stretch is told once, and in their order.
    pub(crate) fn hold(&mut self, from: Time, to: Time) {
        let mut from = from;
        while from < to {
            let half = from.0 / HALF.0;
            let end = Time((half + 1).saturating_mul(HALF.0)).min(to);
            self.roll(half);
            self.held = (self.held + end.since(from)).min(HALF);
            from = end;
        }
    }

    /// The mean of the half-seconds that are over.
    pub(crate) fn mean(&mut self, now: Time) -> Span {
        self.roll(now.0 / HALF.0);
        self.mean
    }

    /// The same with the half-second `from` in the place of `to`.
    pub(crate) fn moved(&mut self, from: u64, to: u64) {
        self.roll(from);
        self.half = to;
    }

    fn roll(&mut self, half: u64) {
        if half > self.half.saturating_add(FORGOTTEN_AFTER) {
            *self = Self { half, ..Self::default() };
        }
        while self.half < half {
            let held = std::mem::take(&mut self.held);
            self.mean = self.mean.less(Span(self.mean.0.div_ceil(PARTS))) + Span(held.0 / PARTS);
            self.half += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn mean(load: &Load, at: u64) -> u64 {
        load.clone().mean(ms(at)).0 / 1_000_000
    }

    #[test]
    fn a_burst_weighs_little_and_what_lasts_weighs_all() {
        let mut load = Load::default();
        load.hold(ms(0), ms(499));
        assert_eq!(mean(&load, 499), 0, "it is not over yet");
        load.hold(ms(499), ms(1_000));
        assert_eq!([1_000, 1_500].map(|at| mean(&load, at)), [218, 164]);
        load.hold(ms(1_000), ms(10_000));
        assert!(mean(&load, 10_000) > 495);
        assert!(mean(&load, 15_000) < 40);
        assert_eq!(load.mean(ms(60_000)), Span::ZERO);
    }

    #[test]
    fn a_part_of_each_half_second_is_that_part_of_the_mean() {
        let mut load = Load::default();
        (0..40).for_each(|half| load.hold(ms(half * 500 + 100), ms(half * 500 + 400)));
        assert!((295..=300).contains(&mean(&load, 20_000)), "{}", mean(&load, 20_000));
        let before = load.mean(ms(20_000));
        load.moved(40, 7);
        assert_eq!(load.mean(ms(3_500)), before);
    }
}
