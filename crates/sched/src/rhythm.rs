//! The rhythm of past requests: whether they come so evenly that the next one can be foretold, and when it comes.
//!
//! Every request is compared with what would have been foretold for it, whether anybody was told or not. So a rhythm is
//! believed once nearly all of the last requests came when they were due, and no longer as soon as several did not; requests
//! that come by chance are never believed, whatever their mean. What is learnt is the median of the last gaps: a request
//! that was left out, or one more, changes nothing.
//!
//! Pure data: no clock, nothing is sent.

use crate::{Span, Time};

/// So many gaps are remembered.
const GAPS: usize = 9;
/// So many requests are judged by whether they came when they were due.
const JUDGED: u32 = u16::BITS;
/// Of them so many in time, and the rhythm is believed.
const BELIEVED_FROM: u32 = 14;
/// And no longer below so many.
const BELIEVED_TO: u32 = 11;
/// In time is whoever comes this close to when it was due, or within an eighth of the gap, whichever is less.
const CLOSE: Span = Span::from_millis(1);
/// Shorter gaps leave no time to put anybody on between two requests.
const GAP_MIN: Span = Span::from_millis(3);
/// What is further apart belongs to no rhythm that anybody waits for.
const GAP_MAX: Span = Span::from_secs(5);

/// What is known of one tenant's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rhythm {
    last: Option<Time>,
    /// The last gaps, the newest at the end.
    gaps: Vec<Span>,
    /// The last requests that could be judged, the latest in the lowest bit; set if it came when it was due.
    in_time: u16,
    judged: u32,
    believed: bool,
}

impl Rhythm {
    /// A request came. Says when the next one is due, if that can be foretold.
    pub fn came(&mut self, now: Time) -> Option<Time> {
        let gap = now.since(self.last.replace(now)?);
        if gap > GAP_MAX {
            // Whatever it was, it has ended.
            *self = Self { last: Some(now), ..Self::default() };
            return None;
        }
        if let Some(usual) = self.median() {
            let off = Span(gap.0.abs_diff(usual.0));
            self.judge(usual >= GAP_MIN && off <= CLOSE.min(Span(usual.0 / 8)));
        }
        if self.gaps.len() == GAPS {
            self.gaps.remove(0);
        }
        self.gaps.push(gap);
        self.gap().map(|gap| now + gap)
    }

    /// The time between requests, while it is believed.
    pub fn gap(&self) -> Option<Span> {
        self.median().filter(|_| self.believed)
    }

    fn median(&self) -> Option<Span> {
        if self.gaps.len() < GAPS {
            return None;
        }
        let mut sorted = self.gaps.clone();
        sorted.sort_unstable();
        Some(sorted[GAPS / 2])
    }

    fn judge(&mut self, in_time: bool) {
        self.in_time = self.in_time << 1 | u16::from(in_time);
        self.judged = (self.judged + 1).min(JUDGED);
        let hits = self.in_time.count_ones();
        self.believed = if self.believed { hits >= BELIEVED_TO } else { hits >= BELIEVED_FROM };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small, the same everywhere, and good enough: no crate of the core's has randomness.
    struct Chance(u64);

    impl Chance {
        /// Even between 0 and 1.
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    const MS: f64 = 1e6;

    /// How many requests with these gaps were foretold, and how many of those came within a millisecond of it.
    fn foretold(gaps: impl Iterator<Item = f64>) -> (usize, usize) {
        let (mut rhythm, mut now, mut due) = (Rhythm::default(), Time(1), None::<Time>);
        let (mut told, mut right) = (0, 0);
        rhythm.came(now);
        for gap in gaps {
            now = now + Span(gap as u64);
            if let Some(due) = due {
                told += 1;
                right += usize::from(now.0.abs_diff(due.0) <= 1_000_000);
            }
            due = rhythm.came(now);
        }
        (told, right)
    }

    #[test]
    fn an_even_rhythm_is_foretold_after_a_few_requests() {
        let mut chance = Chance(1);
        let (told, right) = foretold((0..1000).map(|_| 10.0 * MS + (chance.next() - 0.5) * 0.6 * MS));
        assert!(told > 970 && right == told, "{told} told, {right} right");
    }

    #[test]
    fn requests_by_chance_are_never_foretold() {
        for (seed, mean) in [(3, 10.0), (5, 3.3), (7, 50.0), (9, 1.0)] {
            let mut chance = Chance(seed);
            let gaps = (0..20_000).map(|_| -(1.0 - chance.next()).ln() * mean * MS);
            assert_eq!(foretold(gaps).0, 0, "seed {seed}, mean {mean} ms");
        }
    }

    #[test]
    fn a_rhythm_that_ends_is_not_foretold_for_long_and_a_new_one_is_found() {
        let mut chance = Chance(11);
        let even = |gap: f64| std::iter::repeat_n(gap * MS, 100);
        let (told, right) = foretold(even(10.0).chain(even(25.0)));
        assert!(told - right <= 6, "{} wrong", told - right);
        assert!(right > 100, "{right} right");
        let by_chance = (0..1000).map(|_| -(1.0 - chance.next()).ln() * 10.0 * MS);
        let (told, right) = foretold(even(10.0).chain(by_chance));
        assert!(told - right <= 8, "{} wrong", told - right);
    }

    #[test]
    fn single_requests_that_are_missing_or_too_many_do_not_end_it() {
        let gaps = (0..1000).map(|n| match n % 20 {
            7 => 20.0 * MS,
            _ => 10.0 * MS,
        });
        let (told, right) = foretold(gaps);
        assert!(told > 950 && right >= told * 9 / 10, "{told} told, {right} right");
    }

    #[test]
    fn what_leaves_no_time_in_between_is_not_foretold() {
        assert_eq!(foretold(std::iter::repeat_n(2.0 * MS, 1000)).0, 0);
        let bursts = (0..1000).map(|n| if n % 8 == 0 { 100.0 * MS } else { 0.5 * MS });
        assert_eq!(foretold(bursts).0, 0);
    }

    #[test]
    fn a_long_silence_is_the_end_of_what_was_learnt() {
        let mut rhythm = Rhythm::default();
        for request in 0..40 {
            rhythm.came(Time(request * 10_000_000));
        }
        assert_eq!(rhythm.gap(), Some(Span::from_millis(10)));
        assert_eq!(rhythm.came(Time(60_000_000_000)), None);
        assert_eq!(rhythm.gap(), None);
    }
}
