//! How much of the time best-effort work was held back, and whether holding it longer would break its guarantee.
//!
//! A window is one second: two half-seconds of the clock that follow each other. In every such pair best-effort work
//! gets at least its guaranteed share. Who is held back and why is not known here: whoever holds says from when to
//! when, each stretch once, and in pieces if it takes long, since a stretch that was not told is not counted.

use crate::{Ratio, Span, Time};

/// Over which the share is guaranteed.
const WINDOW: Span = Span(HALF.0 * 2);
/// Half of it: what is counted together.
pub(crate) const HALF: Span = Span::from_millis(500);

/// What was held back lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Guarantee {
    /// The latest half-second that is known, counted from the beginning.
    half: u64,
    /// Held back within it.
    held: Span,
    /// Held back within the one before.
    held_before: Span,
}

impl Guarantee {
    /// Best-effort work was held back from here to there.
    pub(crate) fn hold(&mut self, from: Time, to: Time) {
        if to <= from {
            return;
        }
        // An instant on the border is the end of the half before it, since nothing of the one after has passed.
        let last = (to.0 - 1) / HALF.0;
        for half in last.saturating_sub(1)..=last {
            let begin = Time(half.saturating_mul(HALF.0));
            self.add(half, (begin + HALF).min(to).since(begin.max(from)));
        }
    }

    /// May best-effort work be held back for so much longer, and still have its share of every window?
    pub(crate) fn allows(&self, now: Time, more: Span, guarantee: Ratio) -> bool {
        if more == Span::ZERO {
            return true;
        }
        let held_max = guarantee.rest().of(WINDOW);
        let mut after = self.clone();
        // Longer than a whole window is as bad as that.
        let end = now + more.min(WINDOW + HALF);
        // Each border ends a window of its own, so each is looked at, not only the last.
        for half in now.0 / HALF.0..=end.0 / HALF.0 {
            let begin = Time(half * HALF.0);
            after.hold(begin.max(now), (begin + HALF).min(end));
            if after.held + after.held_before > held_max {
                return false;
            }
        }
        true
    }

    /// The same books with the half-second `from` in the place of `to`; what is older than a window is forgotten.
    pub(crate) fn moved(&mut self, from: u64, to: u64) {
        if self.half + 1 < from || self.held + self.held_before == Span::ZERO {
            *self = Self { half: to, ..Self::default() };
            return;
        }
        self.half = to + self.half - from;
    }

    fn add(&mut self, half: u64, span: Span) {
        if half > self.half {
            self.held_before = if half == self.half + 1 { self.held } else { Span::ZERO };
            self.held = Span::ZERO;
            self.half = half;
        }
        if half == self.half {
            self.held = (self.held + span).min(HALF);
        } else if half + 1 == self.half {
            self.held_before = (self.held_before + span).min(HALF);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Ratio = Ratio::from_percent(10);

    fn ms(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn held(stretches: &[(u64, u64)]) -> Guarantee {
        let mut guarantee = Guarantee::default();
        for &(from, to) in stretches {
            guarantee.hold(ms(from), ms(to));
        }
        guarantee
    }

    fn books(half: u64, held: u64, before: u64) -> Guarantee {
        Guarantee { half, held: Span::from_millis(held), held_before: Span::from_millis(before) }
    }

    #[test]
    fn a_stretch_counts_in_the_half_second_it_is_in() {
        assert_eq!(held(&[(100, 150)]), books(0, 50, 0));
        assert_eq!(held(&[(100, 150), (200, 260)]), books(0, 110, 0));
        assert_eq!(held(&[(700, 750)]), books(1, 50, 0));
        assert_eq!(held(&[(100, 130), (700, 750)]), books(1, 50, 30));
    }

    #[test]
    fn a_stretch_over_a_border_counts_on_both_sides() {
        assert_eq!(held(&[(480, 510)]), books(1, 10, 20));
        assert_eq!(held(&[(480, 500)]), books(0, 20, 0));
        assert_eq!(held(&[(500, 510)]), books(1, 10, 0));
        assert_eq!(held(&[(999, 1000)]), books(1, 1, 0));
        let mut guarantee = Guarantee::default();
        guarantee.hold(Time(ms(500).0 - 3), Time(ms(500).0 + 1));
        assert_eq!(guarantee, Guarantee { half: 1, held: Span(1), held_before: Span(3) });
    }

    #[test]
    fn what_is_older_than_a_window_is_forgotten() {
        assert_eq!(held(&[(0, 400), (1000, 1010)]), books(2, 10, 0));
        assert_eq!(held(&[(0, 400), (600, 700), (1000, 1010)]), books(2, 10, 100));
        assert_eq!(held(&[(0, 400), (60_000, 60_001)]), books(120, 1, 0));
    }

    #[test]
    fn a_long_stretch_fills_the_last_two_halves() {
        assert_eq!(held(&[(0, 10_250)]), books(20, 250, 500));
        assert_eq!(held(&[(0, 10_000)]), books(19, 500, 500));
    }

    #[test]
    fn news_of_old_stretches_still_count_where_they_belong() {
        assert_eq!(held(&[(600, 610), (100, 130)]), books(1, 10, 30));
        assert_eq!(held(&[(1100, 1110), (100, 130)]), books(2, 10, 0));
    }

    #[test]
    fn a_half_second_holds_no_more_than_itself() {
        assert_eq!(held(&[(0, 400), (0, 400)]), books(0, 500, 0));
        assert_eq!(held(&[(0, 400), (600, 601), (0, 400)]), books(1, 1, 500));
    }

    #[test]
    fn nothing_and_backwards_count_nothing() {
        assert_eq!(held(&[(700, 700)]), Guarantee::default());
        assert_eq!(held(&[(700, 600)]), Guarantee::default());
        assert_eq!(held(&[(0, 0)]), Guarantee::default());
    }

    #[test]
    fn the_last_nanosecond_that_fits_is_allowed() {
        // 450 + 440 of 900 ms: 10 are left.
        let guarantee = held(&[(0, 450), (500, 940)]);
        let left = Span::from_millis(10);
        assert!(guarantee.allows(ms(940), left, TENTH));
        assert!(!guarantee.allows(ms(940), left + Span(1), TENTH));
        assert!(guarantee.allows(ms(940), left + Span(1), Ratio::from_percent(9)));
        assert!(!guarantee.allows(ms(940), left, Ratio::from_percent(11)));
    }

    #[test]
    fn a_new_half_second_forgets_the_one_before_the_last() {
        let guarantee = held(&[(0, 450), (550, 1000)]);
        assert!(!guarantee.allows(ms(999), Span(1), TENTH), "900 ms of this window are gone already");
        assert!(guarantee.allows(ms(1000), Span::from_millis(450), TENTH));
        assert!(!guarantee.allows(ms(1000), Span(450_000_001), TENTH));
        assert!(guarantee.allows(ms(1500), Span::from_millis(500), TENTH), "a second later all is forgotten");
    }

    #[test]
    fn each_window_on_the_way_counts_not_only_the_last() {
        // At 1 s the window is full by 1 ms too much, although the window after it would have room.
        let guarantee = held(&[(0, 450), (500, 900)]);
        assert!(guarantee.allows(ms(950), Span::from_millis(50), TENTH));
        assert!(!guarantee.allows(ms(949), Span::from_millis(51), TENTH));
        assert!(!guarantee.allows(ms(949), Span::from_millis(60), TENTH));
        assert!(guarantee.allows(ms(950), Span::from_millis(60), TENTH));
    }

    #[test]
    fn endless_holding_is_allowed_only_where_nothing_is_guaranteed() {
        let guarantee = Guarantee::default();
        assert!(guarantee.allows(ms(0), Span::MAX, Ratio::ZERO));
        assert!(!guarantee.allows(ms(0), Span::MAX, Ratio(1)));
        assert!(!guarantee.allows(ms(0), Span(1), Ratio::ONE));
        assert!(guarantee.allows(ms(0), Span::ZERO, Ratio::ONE));
        assert!(held(&[(0, 1000)]).allows(ms(1000), Span::ZERO, TENTH), "no longer is no worse");
        assert!(guarantee.allows(Time(u64::MAX - 5), Span::MAX, TENTH));
    }

    #[test]
    fn asking_changes_nothing() {
        let guarantee = held(&[(0, 450)]);
        let before = guarantee.clone();
        assert!(guarantee.allows(ms(450), Span::from_millis(20), TENTH));
        assert_eq!(guarantee, before);
    }

    #[test]
    fn books_that_are_moved_keep_what_still_counts() {
        let moved = |mut books: Guarantee| {
            books.moved(7, 100);
            books
        };
        assert_eq!(moved(books(7, 30, 20)), books(100, 30, 20));
        assert_eq!(moved(books(6, 30, 20)), books(99, 30, 20), "the half-second before still counts");
        assert_eq!(moved(books(5, 30, 20)), books(100, 0, 0), "what is older does not");
        assert_eq!(moved(books(6, 0, 0)), books(100, 0, 0), "nothing is nothing, whenever it was");
    }

    #[test]
    fn whatever_is_asked_best_effort_keeps_its_share() {
        // A sender that wants 5 ms out of every 5 ms gets nine tenths of each pair of half-seconds, and not more.
        let mut guarantee = Guarantee::default();
        let mut halves = [0u64; 20];
        for now in (0..10_000).step_by(5) {
            if guarantee.allows(ms(now), Span::from_millis(5), TENTH) {
                guarantee.hold(ms(now), ms(now + 5));
                halves[(now / 500) as usize] += 5;
            }
        }
        for pair in halves.windows(2) {
            assert_eq!(pair[0] + pair[1], 900, "{halves:?}");
        }
    }
}
