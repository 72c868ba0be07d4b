//! How long before a hinted request best-effort work has to go: as long as it took of late until it was off, and what the
//! GPU needs after that.
//!
//! Too late, and the request waits for the freeze; too early, and nobody uses the GPU. So what is known follows at once what
//! took longer, and slowly what took less: it stays about where the slowest of the last few dozen were.

use crate::Span;

/// From when that is heard of until the tenant's context is loaded. It is told to warm up some 40 us earlier, by whoever took
/// the last one off; its threads launch the empty kernel 110 us after that, nine times in ten within 140, and the GPU takes 90.
const THEN: Span = Span::from_micros(200);

/// What took less counts for so much of the difference.
const LESS_PER: u64 = 32;

/// What takes longer than so many times what is known had to wait for something else, and says little about the next one.
const LONGER_TIMES_MAX: u64 = 2;

/// What is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lead(Option<Span>);

impl Lead {
    /// It took so long from when best-effort work was to go until it was off.
    pub(crate) fn learn(&mut self, took: Span) {
        let known = match self.0 {
            None => took,
            Some(known) if took >= known => took.min(known.times(LONGER_TIMES_MAX).max(Span(1))),
            Some(known) => Span(known.0 - (known.0 - took.0) / LESS_PER),
        };
        self.0 = Some(known);
    }

    /// How long ahead it has to go, which is never more than `most`.
    pub(crate) fn within(self, most: Span) -> Span {
        self.0.map_or(most, |known| most.min(known + THEN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Span = Span::from_micros(900);

    fn after(micros: impl IntoIterator<Item = u64>) -> u64 {
        let mut lead = Lead::default();
        micros.into_iter().for_each(|took| lead.learn(Span::from_micros(took)));
        lead.within(MOST).0 / 1000
    }

    #[test]
    fn what_is_known_stays_near_the_slowest_of_late() {
        assert_eq!(after([]), 900, "nothing was seen");
        assert_eq!(after([500]), 700);
        // As on an H200: 450 to 505 us.
        let usual = (0..1000).map(|n| 450 + n * 37 % 56);
        assert!((685..=706).contains(&after(usual.clone())), "{}", after(usual));
        assert!(after((0..200).map(|n| if n < 100 { 600 } else { 400 })) < 620, "what is over is forgotten");
    }

    #[test]
    fn one_that_was_held_up_does_not_matter_for_long() {
        let with_one_of = |slow| after([500; 50].into_iter().chain([slow]).chain([500; 50]));
        assert_eq!(after([500; 50].into_iter().chain([40_000])), 900, "never more than the most");
        assert!(with_one_of(40_000) < 810, "{}", with_one_of(40_000));
    }
}
