//! When best-effort work is let go although the hinted request for which it was held back is still served: putting it back takes a
//! while, in which nobody would use the GPU if that began only when the request is over.
//!
//! So it begins as much earlier as it surely takes, counted from when the request should be over by what the longest of late took.
//! Should one take longer, it still has the GPU: its slice is long, and best-effort work gets only what it leaves.

use crate::lead::Slowest;
use crate::{Ratio, Span, Time};

/// The part of a thaw after which the channels are back: word of it comes later.
pub(crate) const THAW_EFFECT: Ratio = Ratio::from_percent(60);

/// What took longer counts for so much of the difference.
const LONGER_PER: u64 = 32;

/// How long it takes to put best-effort work back that only computes no more, by the quickest of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Thaws(Option<Span>);

impl Thaws {
    pub(crate) fn learn(&mut self, took: Span) {
        self.0 = Some(match self.0 {
            Some(known) if known < took => Span(known.0 + (took.0 - known.0) / LONGER_PER),
            _ => took,
        });
    }

    /// Best-effort work is let go then, for a request that began at this instant and is one of those that took so long. None while
    /// nobody knows.
    pub(crate) fn release(self, began: Time, lasts: Slowest) -> Option<Time> {
        let (lasts, thaw) = (lasts.known()?, self.0?);
        Some(began + lasts.less(THAW_EFFECT.of(thaw)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> Span {
        Span::from_micros(micros)
    }

    /// How long after its beginning, in microseconds, when requests and thaws took so long.
    fn released(requests: &[u64], thaws: &[u64]) -> Option<u64> {
        let (mut known, mut lasts) = (Thaws::default(), Slowest::default());
        requests.iter().for_each(|&took| lasts.learn(us(took)));
        thaws.iter().for_each(|&took| known.learn(us(took)));
        let began = Time(7_000_000);
        known.release(began, lasts).map(|at| at.since(began).0 / 1000)
    }

    #[test]
    fn short_requests_let_go_at_once_and_long_ones_as_late_as_the_longest_of_late_needs_it() {
        assert_eq!(released(&[90, 100], &[260]), Some(0));
        assert_eq!(released(&[500], &[250]), Some(350));
        // It follows half of what took longer, and slowly what took less.
        assert_eq!(released(&[500, 700], &[250]), Some(450));
        assert_eq!(released(&[700, 500], &[250]), Some(543));
    }

    #[test]
    fn a_thaw_that_was_held_up_does_not_let_go_sooner() {
        assert_eq!(released(&[500], &[250, 20_000, 250]), Some(350));
        assert_eq!(released(&[500], &[250, 410]), Some(347));
    }

    #[test]
    fn nobody_is_let_go_before_anything_is_known() {
        assert_eq!((released(&[], &[250]), released(&[100], &[])), (None, None));
    }
}
