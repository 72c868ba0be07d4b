//! Are a tenant's pauses short? Then its memory does not go while it has nothing to do.
//!
//! It is the question of whether to rent or to buy. While an idle tenant keeps its place, somebody else's memory goes, and
//! has to come back; if the tenant's own goes and it is back at once, that was for nothing. So a pause is short if it ends
//! within a few times what moving all of the tenant's memory out and back takes, and as long as it is no longer than that,
//! the place is kept. Turns are many times as long as moves take (`moving_share`), so about one choice of whose memory goes
//! falls into that time: a wrong guess costs one needless move.
//!
//! Wrong guesses must be rare too: a tenant that works for a moment every few seconds would cause one each time. So a pause
//! is expected to be short only where the ones before it were: [`Pauses::SURE`] more short ones than long ones, and never
//! more than that, so that who begins to rest for long is found out by the first long one. Averages do worse here: among
//! pauses of random length most are short, and a few long ones make the mean.

use crate::{Span, Time};

/// What is known of a tenant's pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pauses {
    /// How many more short ones than long ones there were of late.
    trust: u8,
    /// While it has nothing to do: when that ceases to be a short one.
    short_until: Option<Time>,
}

impl Pauses {
    /// So many more short ones make it likely that the next one is, too.
    const SURE: u8 = 3;

    /// A pause is short if it takes no longer than so many times what moving the tenant out and back does. From three to six
    /// times, little changes.
    const MOVES: u64 = 4;

    /// It has nothing to do from now on. Moving it out and back would take so long.
    pub(crate) fn begin(&mut self, now: Time, moving: Span) {
        self.short_until = Some(now + moving.times(Self::MOVES));
    }

    /// It has something to do.
    pub(crate) fn end(&mut self, now: Time) {
        match self.short_until.take() {
            Some(until) if now < until => self.trust = Self::SURE.min(self.trust + 1),
            Some(_) => self.trust = self.trust.saturating_sub(1),
            None => {}
        }
    }

    /// Until when its place is kept for it, if it is now.
    pub(crate) fn keep_until(&self, now: Time) -> Option<Time> {
        self.short_until.filter(|&until| self.trust >= Self::SURE && now < until)
    }

    /// The same at another instant. Of a long pause it does not matter how long it is, and not even that, where there is no
    /// trust to lose.
    pub(crate) fn moved(&mut self, now: Time, over: impl Fn(&mut Time)) {
        self.short_until = self.short_until.filter(|&until| now < until || self.trust > 0);
        self.short_until.iter_mut().for_each(over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVING: Span = Span(10);

    /// Pauses of these lengths, one after the other, beginning at 1,000 each time.
    fn after(lengths: &[u64]) -> Pauses {
        let mut pauses = Pauses::default();
        for &length in lengths {
            pauses.begin(Time(1_000), MOVING);
            pauses.end(Time(1_000 + length));
        }
        pauses.begin(Time(1_000), MOVING);
        pauses
    }

    #[test]
    fn a_place_is_kept_after_short_pauses_and_until_this_one_is_long() {
        let pauses = after(&[39; 3]);
        assert_eq!(pauses.keep_until(Time(1_000)), Some(Time(1_040)));
        assert_eq!(pauses.keep_until(Time(1_039)), Some(Time(1_040)));
        assert_eq!(pauses.keep_until(Time(1_040)), None);
    }

    #[test]
    fn nothing_is_kept_for_whom_nobody_knows() {
        assert_eq!(Pauses::default().keep_until(Time(1_000)), None);
        assert_eq!(after(&[]).keep_until(Time(1_000)), None);
        assert_eq!(after(&[1, 1]).keep_until(Time(1_000)), None);
    }

    #[test]
    fn a_long_pause_takes_a_short_one_to_be_forgiven_however_many_there_were() {
        let mut lengths = vec![1; 100];
        lengths.push(40);
        assert_eq!(after(&lengths).keep_until(Time(1_000)), None);
        lengths.push(1);
        assert!(after(&lengths).keep_until(Time(1_000)).is_some());
        lengths.extend([40, 40, 1]);
        assert_eq!(after(&lengths).keep_until(Time(1_000)), None);
        assert_eq!(after(&[40, 40, 40, 40, 1, 1, 1]), after(&[1, 1, 1]), "nobody sinks for ever");
    }

    #[test]
    fn whoever_works_pauses_not() {
        let mut pauses = after(&[1; 3]);
        pauses.end(Time(1_001));
        assert_eq!(pauses.keep_until(Time(1_001)), None);
        let before = pauses;
        pauses.end(Time(2_000));
        assert_eq!(pauses, before, "it ended before");
    }

    #[test]
    fn moved_to_another_instant_it_ends_as_it_would_have() {
        let (from, to) = (Time(1_030), Time(5_000));
        let over = |time: &mut Time| *time = to + time.since(from);
        for (lengths, at) in
            [(&[1, 1, 1][..], 1_039), (&[1, 1, 1], 1_040), (&[1], 1_050), (&[], 1_050), (&[], 1_031)]
        {
            let mut pauses = after(lengths);
            let mut moved = pauses;
            moved.moved(from, over);
            assert_eq!(moved.keep_until(to).is_some(), pauses.keep_until(from).is_some(), "{lengths:?}");
            pauses.end(Time(at));
            moved.end(to + Time(at).since(from));
            assert_eq!(moved, pauses, "{lengths:?} {at}");
        }
        let mut long = after(&[]);
        long.moved(Time(1_040), over);
        assert_eq!(long, Pauses::default(), "it makes no difference any more");
        let mut long = after(&[1]);
        long.moved(Time(1_040), over);
        assert_ne!(long, Pauses { trust: 1, short_until: None });
    }
}
