//! How long before a hinted request best-effort work has to go: as long as it took of late until it was off, and from then until
//! the GPU had what the tenant's warm-up needs of it. That may be launched while others are still going off.
//!
//! Too late, and the request waits for the freeze; too early, and nobody uses the GPU. So what is known follows soon what
//! took longer, and slowly what took less: it stays above where most of the last few dozen were. Not at once, since by far the most
//! that take long had to wait for a processor, which says nothing about the next one.

use crate::{Span, Time};

/// What the GPU takes from the launch of an empty kernel until the tenant's context is loaded.
const LOADS: Span = Span::from_micros(90);

/// From when the last one is off until the tenant's context is loaded, before any launch was heard of: a thread that is woken for
/// it by another one launches after 110 us, and nine times in ten within 140.
const THEN: Span = Span::from_micros(200);

/// And at least, whatever was heard. A warm-up that is launched well before the last one is off has loaded its context by then, so
/// this is for threads that wake late.
const THEN_MIN: Span = Span::from_micros(60);

/// What took longer counts for so much of the difference.
const LONGER_PER: u64 = 2;

/// What took less counts for so much of the difference.
const LESS_PER: u64 = 32;

/// What takes longer than so many times what is known had to wait for something else, and says little about the next one.
const LONGER_TIMES_MAX: u64 = 2;

/// What was seen last counts for so much of what is usual.
const USUAL_PER: u64 = 4;

/// Of hints that are too near, one in so many is tried all the same: were none, nobody would go off, and nothing better be seen.
const TRIED_EVERY: u8 = 64;

/// What is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lead {
    /// Until the last one is off.
    off: Slowest,
    /// The same, as it usually is: unlike the slowest, this says whether there is any sense in a hint.
    usual: Option<Span>,
    /// Hints in a row that were too near, and not tried.
    too_near: u8,
    /// From then until the tenant's context is loaded.
    then: Slowest,
    /// When they began to go for the last hint, and when the last one was off, until the launch for that is heard of.
    went: Option<(Time, Time)>,
}

/// How long something takes, by the slowest of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Slowest(Option<Span>);

impl Slowest {
    pub(crate) fn known(self) -> Option<Span> {
        self.0
    }

    pub(crate) fn learn(&mut self, took: Span) {
        let known = match self.0 {
            None => took,
            Some(known) if took >= known => {
                let most = known.times(LONGER_TIMES_MAX).max(Span(1));
                Span(known.0 + (took.min(most).0 - known.0).div_ceil(LONGER_PER))
            }
            Some(known) => Span(known.0 - (known.0 - took.0) / LESS_PER),
        };
        self.0 = Some(known);
    }
}

impl Lead {
    /// It took so long from when best-effort work was to go until it was off. If that was for a hint, at `off_at`, there is a launch
    /// for it, before that or after.
    pub(crate) fn learn(&mut self, took: Span, off_at: Option<Time>) {
        self.off.learn(took);
        let usual = self.usual.unwrap_or(took);
        let seen = took.min(usual.times(LONGER_TIMES_MAX));
        self.usual = Some(Span(usual.0 - usual.0 / USUAL_PER + seen.0 / USUAL_PER));
        self.too_near = 0;
        self.went = off_at.map(|off_at| (off_at.before(took), off_at));
    }

    /// The tenant's warm-up was launched then. One from before anybody had to go was for something else.
    pub(crate) fn launched(&mut self, at: Time) {
        if let Some((_, off_at)) = self.went.take_if(|&mut (from, _)| from <= at) {
            self.then.learn((at + LOADS).since(off_at).max(THEN_MIN));
        }
    }

    /// Is a request so near that best-effort work, told to go now, would usually not be off when it comes? Before anything was
    /// seen no hint is too near.
    pub(crate) fn is_too_near(&mut self, within: Span, most: Span) -> bool {
        let is_too_near = self.usual.is_some_and(|usual| within < usual.min(most));
        self.too_near = if is_too_near { (self.too_near + 1) % TRIED_EVERY } else { 0 };
        self.too_near > 0
    }

    /// How long ahead it has to go, which is never more than `most`.
    pub(crate) fn within(self, most: Span) -> Span {
        self.off.0.map_or(most, |off| most.min(off + self.then.0.unwrap_or(THEN)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Span = Span::from_micros(900);

    fn after(micros: impl IntoIterator<Item = u64>) -> u64 {
        let mut lead = Lead::default();
        micros.into_iter().for_each(|took| lead.learn(Span::from_micros(took), None));
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

    /// Freezes that take 500 us, each with a launch so many microseconds after its end.
    fn after_launches(micros: impl IntoIterator<Item = i64>) -> u64 {
        let mut lead = Lead::default();
        for (number, after) in (1..).zip(micros) {
            let off_at = Time(number * 10_000_000);
            lead.learn(Span::from_micros(500), Some(off_at));
            lead.launched(Time(off_at.0.saturating_add_signed(after * 1000)));
        }
        lead.within(MOST).0 / 1000
    }

    #[test]
    fn how_soon_the_warm_up_is_launched_is_learnt() {
        assert_eq!(after_launches([]), 900, "nothing was seen");
        assert_eq!(after_launches([5]), 595);
        assert_eq!(after_launches([135]), 725);
        assert_eq!(after_launches([-10; 10]), 580, "it may come before the end is noticed");
        assert_eq!(
            after_launches([-200; 10]),
            560,
            "while others go off: then only a thread that wakes late matters"
        );
        assert_eq!(after_launches([-501; 10]), 700, "but not before they began to");
        let with_one_of = |late| after_launches([5; 50].into_iter().chain([late]).chain([5; 10]));
        assert!((620..=640).contains(&with_one_of(300)), "{}", with_one_of(300));
        assert!((620..=640).contains(&with_one_of(30_000)), "{}", with_one_of(30_000));
        assert!(
            after_launches((0..300).map(|n| if n < 100 { 200 } else { 5 })) < 600,
            "what is over is forgotten"
        );
    }

    #[test]
    fn a_launch_that_was_for_something_else_says_nothing() {
        let mut lead = Lead::default();
        lead.launched(Time(1_000_000));
        lead.learn(Span::from_micros(500), Some(Time(10_000_000)));
        lead.launched(Time(9_400_000));
        assert_eq!(lead.within(MOST), Span::from_micros(700), "it was before");
        lead.launched(Time(10_020_000));
        assert_eq!(lead.within(MOST), Span::from_micros(610));
        lead.launched(Time(10_800_000));
        assert_eq!(lead.within(MOST), Span::from_micros(610), "there is one for each");
        lead.learn(Span::from_micros(500), None);
        lead.launched(Time(20_000_000));
        assert_eq!(lead.within(MOST), Span::from_micros(610), "nobody was to be loaded");
    }
}
