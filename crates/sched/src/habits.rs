//! What a tenant usually does: for how long it has work once it has some, and for how long it then has none. Forecasts go by
//! it, and whether it is worth freezing one service for another; whose memory goes is decided by `pauses.rs`, which knows
//! less and forgets sooner.

use crate::{Span, Time};

/// What is longer than the mean by so many times what others are off is another kind of thing: of those that come at random
/// and are many, one in fifty is.
const FAR_OFF: u64 = 4;

/// A length of time that comes again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Usual {
    mean: Span,
    /// How far from it they are, on the average.
    off: Span,
}

impl Usual {
    /// Three quarters of what was known and one quarter of what was seen.
    fn learn(known: &mut Option<Self>, seen: Span) {
        let next = |known: Span, seen: Span| Span(known.0 / 4 * 3 + seen.0 / 4);
        *known = Some(match *known {
            None => Self { mean: seen, off: Span::ZERO },
            Some(Self { mean, off }) => {
                Self { mean: next(mean, seen), off: next(off, Span(mean.0.abs_diff(seen.0))) }
            }
        });
    }

    /// How much longer one of these lasts that has lasted so long: half of them, by no more. None if it is none of these.
    fn rest(&self, so_far: Span) -> Option<Span> {
        if so_far > self.mean + self.off.times(FAR_OFF).max(Span(self.mean.0 / 4)) {
            // Those that were seen say nothing of it. Were it expected to end at any moment, or soon, it would be for ever.
            return None;
        }
        if self.off.0 <= self.mean.0 / 4 {
            return Some(self.mean.less(so_far).max(self.off));
        }
        // Without a rule that one could see, how long it has lasted says nothing. ln 2 of the mean is the half of them.
        Some(Span(self.mean.0 / 100 * 69))
    }
}

/// What a tenant usually does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Habits {
    /// GPU time that it needs until it has nothing to do.
    work: Option<Usual>,
    /// How long it then has nothing to do.
    pause: Option<Usual>,
    /// What it has had of its GPU time, up to `awake_since`.
    had: Span,
    /// Since when it is on the GPU with something to do.
    awake_since: Option<Time>,
    /// Since when it has nothing to do, if it ever had something.
    idle_since: Option<Time>,
    /// Nothing more is learnt: what follows is itself expected, not seen.
    settled: bool,
}

impl Habits {
    /// It is on the GPU with something to do from now on, or no longer.
    pub(crate) fn awake(&mut self, now: Time, awake: bool) {
        self.had = self.so_far(now);
        self.awake_since = awake.then_some(now);
    }

    /// It has something to do from now on, or nothing.
    pub(crate) fn wants(&mut self, now: Time, wants: bool) {
        let worked = self.so_far(now);
        let paused = self.idle_since.take().map(|since| now.since(since));
        if !wants {
            self.idle_since = Some(now);
        }
        match paused {
            _ if self.settled => {}
            _ if !wants => Usual::learn(&mut self.work, worked),
            Some(paused) => Usual::learn(&mut self.pause, paused),
            None => {}
        }
        self.had = Span::ZERO;
        self.awake_since = self.awake_since.map(|_| now);
    }

    /// The GPU time that it usually needs until it has nothing to do, if that was seen.
    pub(crate) fn usual_work(&self) -> Option<Span> {
        self.work.map(|work| work.mean)
    }

    /// The same, as they are now and stay.
    pub(crate) fn settled(&self) -> Self {
        Self { settled: true, ..self.clone() }
    }

    fn so_far(&self, now: Time) -> Span {
        self.had + self.awake_since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// When it will have nothing more to do, if it stays on the GPU and that can be said.
    pub(crate) fn idle_at(&self, now: Time) -> Option<Time> {
        Some(now + self.work?.rest(self.so_far(now))?)
    }

    /// When it will have something to do again, if that can be said.
    pub(crate) fn wants_at(&self, now: Time) -> Option<Time> {
        let (pause, since) = (self.pause?, self.idle_since?);
        Some(now + pause.rest(now.since(since))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// Works for so long, of which it is on the GPU for the second half, and pauses for as long as it worked.
    fn round(habits: &mut Habits, at: u64, work: u64) -> u64 {
        habits.wants(ms(at), true);
        habits.awake(ms(at + work), true);
        habits.awake(ms(at + work * 2), false);
        habits.wants(ms(at + work * 2), false);
        at + work * 3
    }

    #[test]
    fn who_does_the_same_again_and_again_is_expected_to() {
        let mut habits = Habits::default();
        assert_eq!((habits.idle_at(ms(0)), habits.wants_at(ms(0))), (None, None), "nothing is known");
        let mut at = 0;
        for _ in 0..5 {
            at = round(&mut habits, at, 20);
        }
        assert_eq!(habits.wants_at(ms(at - 15)), Some(ms(at)));
        habits.wants(ms(at), true);
        assert_eq!(habits.wants_at(ms(at)), None, "it does");
        habits.awake(ms(at), true);
        assert_eq!(habits.idle_at(ms(at + 5)), Some(ms(at + 20)));
        habits.awake(ms(at + 5), false);
        assert_eq!(habits.idle_at(ms(at + 90)), Some(ms(at + 105)), "it was off meanwhile");
        habits.awake(ms(at + 90), true);
        assert_eq!(habits.idle_at(ms(at + 109)), Some(ms(at + 109)), "at any moment");
    }

    #[test]
    fn what_has_lasted_far_longer_than_usual_is_not_expected_to_end() {
        let mut habits = Habits::default();
        let at = round(&mut habits, 0, 20);
        habits.wants(ms(at), true);
        habits.awake(ms(at), true);
        assert_eq!(habits.idle_at(ms(at + 15)), Some(ms(at + 20)));
        assert_eq!(habits.idle_at(ms(at + 25)), Some(ms(at + 25)), "a little late");
        assert_eq!(habits.idle_at(ms(at + 30)), None, "once was no rule");
        habits.wants(ms(at + 500), false);
        assert_eq!(habits.wants_at(ms(at + 505)), Some(ms(at + 520)));
        assert_eq!(habits.wants_at(ms(at + 530)), None, "the same of what it does not do");
    }

    #[test]
    fn without_a_rule_what_has_been_says_nothing() {
        let mut habits = Habits::default();
        let mut at = 0;
        for work in [10, 100, 10, 100, 10, 100, 10, 100] {
            at = round(&mut habits, at, work);
        }
        habits.wants(ms(at), true);
        habits.awake(ms(at), true);
        let ahead = |now| habits.idle_at(now).map(|at| at.since(now));
        assert_eq!(ahead(ms(at)), ahead(ms(at + 150)));
        let half = ahead(ms(at)).expect("something is known");
        assert!(half > Span::from_millis(30) && half < Span::from_millis(50), "{half}");
        assert_eq!(ahead(ms(at + 500)), None, "only that this is none of these");
    }

    #[test]
    fn what_is_only_expected_teaches_nothing() {
        let mut habits = Habits::default();
        let at = round(&mut habits, 0, 20);
        round(&mut habits, at, 20);
        let mut settled = habits.settled();
        let at = round(&mut settled, at * 2, 500);
        settled.wants(ms(at), true);
        settled.awake(ms(at), true);
        assert_eq!(settled.idle_at(ms(at)), Some(ms(at + 20)));
    }
}
