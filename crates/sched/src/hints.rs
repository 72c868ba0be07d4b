//! What the hints of one latency-critical tenant are worth: when to act on one, and whether to act at all.
//!
//! The sender says when its next request comes. How far off it is goes into two averages: the bias (requests that
//! always come a millisecond later than hinted are expected a millisecond later) and the deviation from it (the more
//! they scatter, the earlier best-effort work goes and the longer it is waited for). A hint that nothing follows is
//! false: others stood still for it, and one that sends more false ones than true
//! ones is not listened to for a while, longer each time, until it is honest again.
//!
//! Several hints may be pending; requests keep them in the order in which they are expected. Who hints all the time, in
//! the hope that one is right, is found out: all the others are false.
//!
//! Only what one tenant hinted lives here; who is frozen for it is decided elsewhere. Every hint that was planned ends
//! in exactly one count: by [`Hints::came`], [`Hints::came_meanwhile`], [`Hints::withdrawn`] or [`Hints::expired`].

use crate::{Missed, Span, Time};

/// What scatter may add to the margin.
const MARGIN_EXTRA_MAX: Span = Span::from_millis(5);
/// How long after the expected instant a request is waited for, at least.
const PATIENCE_MIN: Span = Span::from_millis(1);
/// And at most.
const PATIENCE_MAX: Span = Span::from_millis(10);
/// A request that comes later than this after the expected instant is late.
const LATE_AFTER: Span = Span::from_millis(1);
/// What is further off says nothing more about the next one.
const ERROR_MAX: Span = Span::from_millis(10);
/// The bias follows an eighth of each error, the deviation a quarter.
const BIAS_PER: i64 = 8;
const DEVIATION_PER: i64 = 4;
/// Hints for instants closer together than this mean the same request.
const SAME_WITHIN: Span = Span::from_micros(500);
/// No request further ahead than this is hinted: whoever names instants that never come would not be found out before.
const WITHIN_MAX: Span = Span::from_secs(10);
/// Hints of one tenant that may be pending.
const PENDING_MAX: usize = 16;
/// So many hints are remembered.
const RECENT_MAX: u32 = u16::BITS;
/// False ones of them before more than half is too many.
const FALSE_MIN: u32 = 4;
/// How long a sender is not listened to, the first time.
const PENALTY_MIN: Span = Span::from_millis(100);
/// And at most.
const PENALTY_MAX: Span = Span::from_secs(10);
/// So many honest hints in a row halve the next penalty.
const HONEST_RUN: u32 = 4;

/// What is known of one sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hints {
    /// Hints that have not ended, by when their requests are expected.
    pending: Vec<Pending>,
    /// The instant that the last false hint named: a request that comes yet teaches how far off it was.
    outlived: Option<Time>,
    /// How much later than hinted requests come on average, in nanoseconds; negative if they come earlier.
    bias: i64,
    /// How far from that they are on average, in nanoseconds.
    deviation: i64,
    /// The last hints that were honest or false, the latest in the lowest bit; a bit that is set is a false one.
    recent: u16,
    /// How many of the bits count.
    recent_len: u32,
    /// Honest hints since the last false one or the last lighter penalty.
    honest: u32,
    /// Not listened to before this.
    distrusted_until: Time,
    /// The next penalty.
    penalty: Span,
    counts: HintCounts,
}

/// A hint that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pending {
    plan: Plan,
    /// The instant that the sender named.
    hinted: Time,
}

/// What to do about a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// When best-effort work has to go.
    pub(crate) freeze_at: Time,
    /// When the request comes, as far as past errors tell.
    pub(crate) expect: Time,
    /// When the hint counts as false, if nothing came.
    pub(crate) until: Time,
}

/// How a request came that was hinted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Came {
    /// Best-effort work was off, and not for long in vain.
    Good,
    /// Before it was expected, and before best-effort work was off.
    Early,
    /// Best-effort work was off for long before it came.
    Late,
    /// When it was expected, but best-effort work was not off.
    Missed,
}

/// How hints ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HintCounts {
    /// The request found the GPU free.
    pub good: u64,
    /// The request came before it was expected, and found the GPU busy.
    pub early: u64,
    /// The request came long after it was expected, and found the GPU free.
    pub late: u64,
    /// No request came.
    pub false_: u64,
    /// The hint was not honoured.
    pub missed: u64,
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
            outlived: None,
            bias: 0,
            deviation: 0,
            recent: 0,
            recent_len: 0,
            honest: 0,
            distrusted_until: Time::ZERO,
            penalty: PENALTY_MIN,
            counts: HintCounts::default(),
        }
    }
}

impl Hints {
    /// A hint: a request comes `within` this time. `lead` is what a freeze takes. Nothing is to be done for one that is
    /// pending already. A refusal is not counted here: whoever reports it says so by [`Hints::missed`].
    pub(crate) fn plan(&mut self, now: Time, within: Span, lead: Span) -> Result<Option<Plan>, Missed> {
        if within > WITHIN_MAX {
            return Err(Missed::Early);
        }
        if now < self.distrusted_until || self.pending.len() >= PENDING_MAX {
            return Err(Missed::Distrusted);
        }
        let hinted = now + within;
        let expect = Time(hinted.0.saturating_add_signed(self.bias)).max(now);
        if self.pending.iter().any(|other| same(other.plan.expect, expect)) {
            return Ok(None);
        }
        let deviation = Span(self.deviation.unsigned_abs());
        let margin = lead + deviation.times(2).min(MARGIN_EXTRA_MAX);
        let patience = deviation.times(4).clamp(PATIENCE_MIN, PATIENCE_MAX);
        let plan = Plan { freeze_at: expect.before(margin).max(now), expect, until: expect + patience };
        let at = self.pending.partition_point(|other| other.plan.expect <= expect);
        self.pending.insert(at, Pending { plan, hinted });
        Ok(Some(plan))
    }

    /// The hint whose request is expected first, taken off the list.
    fn next(&mut self) -> Option<Pending> {
        (!self.pending.is_empty()).then(|| self.pending.remove(0))
    }

    /// A request came: the one that was hinted, if a hint is pending. `ready`: was best-effort work off by then?
    /// To be told of every request, since one that comes after its hint expired teaches too.
    pub(crate) fn came(&mut self, now: Time, ready: bool) -> Option<Came> {
        let outlived = self.outlived.take();
        let Some(Pending { plan, hinted }) = self.next() else {
            if let Some(hinted) = outlived.filter(|&hinted| now <= hinted + PATIENCE_MAX) {
                self.learn(now, hinted);
            }
            return None;
        };
        self.learn(now, hinted);
        let came = match ready {
            true if now > plan.expect + LATE_AFTER => Came::Late,
            true => Came::Good,
            false if now < plan.expect => Came::Early,
            false => Came::Missed,
        };
        match came {
            Came::Good => self.counts.good += 1,
            Came::Early => self.counts.early += 1,
            Came::Late => self.counts.late += 1,
            Came::Missed => self.counts.missed += 1,
        }
        // A request before its time says nothing about the hint: it may have been any request.
        if came != Came::Early {
            self.remember_honest();
        }
        Some(came)
    }

    /// The request of the next hint came while another one was served, nobody knows when.
    pub(crate) fn came_meanwhile(&mut self) {
        if self.next().is_some() {
            self.counts.good += 1;
            self.remember_honest();
        }
    }

    /// Nothing followed the next hint.
    pub(crate) fn expired(&mut self, now: Time) {
        let Some(Pending { hinted, .. }) = self.next() else { return };
        self.outlived = Some(hinted);
        self.remember_false();
        self.judge(now);
    }

    /// The next hint cannot be honoured any more, through no fault of the sender.
    pub(crate) fn withdrawn(&mut self) {
        if self.next().is_some() {
            self.missed();
        }
    }

    /// A hint was refused, whatever the reason.
    pub(crate) fn missed(&mut self) {
        self.counts.missed += 1;
    }

    /// Moves all instants by `at` and forgets what is only counted.
    pub(crate) fn moved(&mut self, at: impl Fn(&mut Time)) {
        for Pending { plan, hinted } in &mut self.pending {
            [&mut plan.freeze_at, &mut plan.expect, &mut plan.until, hinted].into_iter().for_each(&at);
        }
        self.outlived.iter_mut().for_each(&at);
        at(&mut self.distrusted_until);
        self.counts = HintCounts::default();
    }

    /// How hints ended so far.
    pub(crate) fn counts(&self) -> HintCounts {
        self.counts
    }

    fn learn(&mut self, now: Time, hinted: Time) {
        let later = now.since(hinted).min(ERROR_MAX).0 as i64;
        let sooner = hinted.since(now).min(ERROR_MAX).0 as i64;
        let off = later - sooner - self.bias;
        self.deviation += (off.abs() - self.deviation) / DEVIATION_PER;
        self.bias += off / BIAS_PER;
    }

    /// Too many false hints have a price.
    fn judge(&mut self, now: Time) {
        let false_ones = self.recent.count_ones();
        if false_ones >= FALSE_MIN && false_ones * 2 > self.recent_len {
            self.distrusted_until = now + self.penalty;
            self.penalty = self.penalty.times(2).min(PENALTY_MAX);
            // It is judged anew afterwards, not by what it was punished for.
            self.recent = 0;
            self.recent_len = 0;
        }
    }

    fn remember_honest(&mut self) {
        self.remember(false);
        self.honest += 1;
        if self.honest == HONEST_RUN {
            self.honest = 0;
            self.penalty = Span(self.penalty.0 / 2).max(PENALTY_MIN);
        }
    }

    fn remember_false(&mut self) {
        self.counts.false_ += 1;
        self.honest = 0;
        self.remember(true);
    }

    fn remember(&mut self, false_one: bool) {
        self.recent = self.recent << 1 | u16::from(false_one);
        self.recent_len = (self.recent_len + 1).min(RECENT_MAX);
    }
}

/// Do two hints mean the same request?
fn same(one: Time, other: Time) -> bool {
    one.since(other).max(other.since(one)) < SAME_WITHIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAD: Span = Span::from_micros(900);

    fn us(micros: u64) -> Time {
        Time(micros * 1_000)
    }

    fn span(micros: u64) -> Span {
        Span::from_micros(micros)
    }

    /// At `at`, a hint for 5 ms later, which a request follows that is off by `error` us. Returns the plan.
    fn hinted(hints: &mut Hints, at: u64, error: i64) -> Plan {
        let plan = hints.plan(us(at), span(5_000), LEAD).expect("trusted").expect("new");
        hints.came(us((at + 5_000).saturating_add_signed(error)), true);
        plan
    }

    /// At `at`, a hint for 1 ms later that nothing follows.
    fn lie(hints: &mut Hints, at: u64) -> Result<(), Missed> {
        let plan = hints.plan(us(at), span(1_000), LEAD)?.expect("new");
        hints.expired(plan.until);
        Ok(())
    }

    /// So many of them, from `at` on, 2 ms apart.
    fn lies(hints: &mut Hints, at: u64, many: u64) {
        for each in 0..many {
            lie(hints, at + each * 2_000).expect("still trusted");
        }
    }

    fn refused(hints: &Hints, now: Time) -> bool {
        hints.clone().plan(now, span(1_000), LEAD) == Err(Missed::Distrusted)
    }

    #[test]
    fn the_first_hint_is_taken_at_its_word() {
        let mut hints = Hints::default();
        let plan = hints.plan(us(10_000), span(5_000), LEAD).expect("trusted").expect("new");
        assert_eq!(plan, Plan { freeze_at: us(14_100), expect: us(15_000), until: us(16_000) });
        assert_eq!(hints.pending.len(), 1);
        assert_eq!(hints.came(us(15_000), true), Some(Came::Good));
        assert!(hints.pending.is_empty());
        assert_eq!(hints.counts(), HintCounts { good: 1, ..HintCounts::default() });
    }

    #[test]
    fn a_hint_that_leaves_too_little_time_acts_now() {
        let mut hints = Hints::default();
        let plan = hints.plan(us(10_000), span(899), LEAD).expect("trusted").expect("new");
        assert_eq!(plan, Plan { freeze_at: us(10_000), expect: us(10_899), until: us(11_899) });
        let mut hints = Hints::default();
        let plan = hints.plan(us(10_000), span(901), LEAD).expect("trusted").expect("new");
        assert_eq!(plan.freeze_at, us(10_001));
    }

    #[test]
    fn the_first_error_moves_the_averages_by_an_eighth_and_a_quarter() {
        let mut hints = Hints::default();
        hinted(&mut hints, 10_000, 800);
        assert_eq!((hints.bias, hints.deviation), (100_000, 200_000));
        // 900 less than the bias: a deviation of 1,000 us from it.
        hinted(&mut hints, 20_000, -900);
        assert_eq!((hints.bias, hints.deviation), (-25_000, 400_000));
        let plan = hints.plan(us(30_000), span(5_000), LEAD).expect("trusted").expect("new");
        assert_eq!(plan.expect, us(34_975));
        assert_eq!(plan.freeze_at, us(34_975 - 900 - 800));
        assert_eq!(plan.until, us(34_975 + 1_600));
    }

    #[test]
    fn requests_that_always_come_later_are_expected_later() {
        let mut hints = Hints::default();
        for round in 0..100 {
            hinted(&mut hints, 10_000 * (round + 1), 1_000);
        }
        let plan = hints.plan(us(2_000_000), span(5_000), LEAD).expect("trusted").expect("new");
        assert!(plan.expect.since(us(2_006_000)) == Span::ZERO && us(2_006_000).since(plan.expect) < Span(8));
        let margin = plan.expect.since(plan.freeze_at);
        assert!(margin >= LEAD && margin < LEAD + Span(100), "{margin}");
        assert_eq!(hints.counts().good + hints.counts().late, 100);
        assert_eq!(hints.counts().false_, 0);
    }

    #[test]
    fn requests_that_always_come_earlier_are_expected_earlier() {
        let mut hints = Hints::default();
        for round in 0..100 {
            hinted(&mut hints, 10_000 * (round + 1), -1_000);
        }
        let plan = hints.plan(us(2_000_000), span(5_000), LEAD).expect("trusted").expect("new");
        assert!(plan.expect.since(us(2_004_000)) < Span(8) && us(2_004_000).since(plan.expect) == Span::ZERO);
        // The bias never makes a request be expected in the past.
        hints.missed();
        let plan = hints.plan(us(2_000_000), span(500), LEAD).expect("trusted").expect("new");
        assert_eq!((plan.freeze_at, plan.expect), (us(2_000_000), us(2_000_000)));
    }

    #[test]
    fn scatter_widens_the_margin_and_the_patience_up_to_their_bounds() {
        let wide = |error: i64| {
            let mut hints = Hints::default();
            for round in 0..200 {
                hinted(&mut hints, 20_000 * (round + 1), if round % 2 == 0 { error } else { -error });
            }
            let plan = hints.plan(us(9_000_000), span(50_000), LEAD).expect("trusted").expect("new");
            (plan.expect.since(plan.freeze_at), plan.until.since(plan.expect))
        };
        let (none, patience) = wide(0);
        assert_eq!((none, patience), (LEAD, PATIENCE_MIN));
        let (some, patience) = wide(500);
        assert!(some > LEAD + span(900) && some < LEAD + span(1_200), "{some}");
        assert!(patience > span(1_800) && patience < span(2_400), "{patience}");
        let (most, patience) = wide(4_900);
        assert_eq!((most, patience), (LEAD + MARGIN_EXTRA_MAX, PATIENCE_MAX));
    }

    #[test]
    fn margins_narrow_again_when_the_sender_is_exact_again() {
        let mut hints = Hints::default();
        for round in 0..50 {
            hinted(&mut hints, 20_000 * (round + 1), if round % 2 == 0 { 3_000 } else { -3_000 });
        }
        for round in 50..150 {
            hinted(&mut hints, 20_000 * (round + 1), 0);
        }
        let plan = hints.plan(us(9_000_000), span(5_000), LEAD).expect("trusted").expect("new");
        assert!(plan.expect.since(plan.freeze_at) < LEAD + Span(100));
    }

    #[test]
    fn what_is_far_off_counts_as_ten_milliseconds() {
        let mut hints = Hints::default();
        hints.plan(us(0), WITHIN_MAX, LEAD).expect("trusted");
        assert_eq!(hints.came(us(10), false), Some(Came::Early));
        assert_eq!((hints.bias, hints.deviation), (-1_250_000, 2_500_000));
        let mut hints = Hints::default();
        hints.plan(us(0), Span::ZERO, LEAD).expect("trusted");
        hints.came(Time::MAX, true);
        assert_eq!((hints.bias, hints.deviation), (1_250_000, 2_500_000));
    }

    #[test]
    fn every_way_to_come_is_counted_once() {
        let come = |at: Time, ready: bool| {
            let mut hints = Hints::default();
            hints.plan(us(0), span(5_000), LEAD).expect("trusted");
            let came = hints.came(at, ready);
            (came, hints.counts())
        };
        let none = HintCounts::default();
        assert_eq!(come(us(4_000), true), (Some(Came::Good), HintCounts { good: 1, ..none }));
        assert_eq!(come(us(6_000), true), (Some(Came::Good), HintCounts { good: 1, ..none }));
        assert_eq!(come(Time(6_000_001), true), (Some(Came::Late), HintCounts { late: 1, ..none }));
        assert_eq!(come(Time(4_999_999), false), (Some(Came::Early), HintCounts { early: 1, ..none }));
        assert_eq!(come(us(5_000), false), (Some(Came::Missed), HintCounts { missed: 1, ..none }));
        assert_eq!(come(us(9_000), false), (Some(Came::Missed), HintCounts { missed: 1, ..none }));
    }

    #[test]
    fn requests_without_a_hint_change_nothing() {
        let mut hints = Hints::default();
        assert_eq!(hints.came(us(5_000), true), None);
        hints.expired(us(6_000));
        assert_eq!(hints, Hints::default());
    }

    #[test]
    fn four_false_hints_are_too_many_and_three_are_not() {
        let mut hints = Hints::default();
        lies(&mut hints, 0, 3);
        assert!(!refused(&hints, us(6_000)));
        lies(&mut hints, 6_000, 1);
        // The last expired at 8 ms: for 100 ms nothing is believed.
        assert!(refused(&hints, us(8_000)));
        assert!(refused(&hints, Time(us(108_000).0 - 1)));
        assert!(!refused(&hints, us(108_000)));
    }

    #[test]
    fn half_of_the_hints_may_be_false_and_not_more() {
        let mut hints = Hints::default();
        for round in 0..4 {
            hinted(&mut hints, round * 10_000, 0);
        }
        lies(&mut hints, 40_000, 4);
        assert!(!refused(&hints, us(48_000)), "4 of 8");
        lies(&mut hints, 48_000, 1);
        assert!(refused(&hints, us(50_000)), "5 of 9");
    }

    #[test]
    fn only_the_last_sixteen_hints_count() {
        let mut hints = Hints::default();
        for round in 0..100 {
            hinted(&mut hints, round * 10_000, 0);
        }
        lies(&mut hints, 1_000_000, 8);
        assert!(!refused(&hints, us(1_016_000)), "8 of the last 16");
        lies(&mut hints, 1_016_000, 1);
        assert!(refused(&hints, us(1_018_000)), "9 of the last 16");
    }

    #[test]
    fn penalties_double_up_to_ten_seconds() {
        let mut hints = Hints::default();
        let mut at = 0;
        for expected in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000] {
            lies(&mut hints, at, 4);
            at += 8_000 + expected * 1_000;
            assert!(refused(&hints, Time(us(at).0 - 1)), "{expected} ms");
            assert!(!refused(&hints, us(at)), "{expected} ms");
        }
    }

    #[test]
    fn honest_hints_make_the_next_penalty_lighter_again() {
        let penalty_after = |honest: u64| {
            let mut hints = Hints::default();
            lies(&mut hints, 0, 4);
            lies(&mut hints, 200_000, 4);
            for round in 0..honest {
                hinted(&mut hints, 1_000_000 + round * 10_000, 0);
            }
            hints.penalty
        };
        assert_eq!(penalty_after(0), Span::from_millis(400));
        assert_eq!(penalty_after(3), Span::from_millis(400));
        assert_eq!(penalty_after(4), Span::from_millis(200));
        assert_eq!(penalty_after(7), Span::from_millis(200));
        assert_eq!(penalty_after(8), Span::from_millis(100));
        assert_eq!(penalty_after(40), Span::from_millis(100));
    }

    #[test]
    fn a_false_hint_ends_a_run_of_honest_ones() {
        let mut hints = Hints::default();
        lies(&mut hints, 0, 4);
        for round in 0..3 {
            hinted(&mut hints, 1_000_000 + round * 10_000, 0);
        }
        lies(&mut hints, 1_100_000, 1);
        hinted(&mut hints, 1_200_000, 0);
        assert_eq!(hints.penalty, Span::from_millis(200));
    }

    #[test]
    fn requests_before_their_time_are_neither_honest_nor_false() {
        let mut hints = Hints::default();
        lies(&mut hints, 0, 3);
        for round in 0..20 {
            hints.plan(us(10_000 + round), span(5_000), LEAD).expect("trusted");
            assert_eq!(hints.came(us(10_000 + round), false), Some(Came::Early));
        }
        hints.bias = 0;
        hints.deviation = 0;
        lies(&mut hints, 20_000, 1);
        assert!(refused(&hints, us(22_000)));
    }

    #[test]
    fn a_hint_that_was_kept_but_could_not_be_honoured_is_honest() {
        let mut hints = Hints::default();
        for round in 0..4 {
            hints.plan(us(round * 10_000), span(500), LEAD).expect("trusted");
            assert_eq!(hints.came(us(round * 10_000 + 500), false), Some(Came::Missed));
        }
        lies(&mut hints, 40_000, 4);
        assert!(!refused(&hints, us(48_000)));
    }

    #[test]
    fn requests_that_come_after_the_patience_teach_it() {
        // Always 3 ms late: the first ones count as false, then the bias is known.
        let mut hints = Hints::default();
        for round in 0..40 {
            let at = round * 20_000;
            let plan = hints.plan(us(at), span(5_000), LEAD).expect("never distrusted").expect("new");
            if plan.until < us(at + 8_000) {
                hints.expired(plan.until);
            }
            hints.came(us(at + 8_000), true);
        }
        let counts = hints.counts();
        assert!(counts.false_ <= 2, "{counts:?}");
        assert!(counts.good >= 30, "{counts:?}");
    }

    #[test]
    fn only_the_first_request_after_a_false_hint_teaches() {
        let mut hints = Hints::default();
        lies(&mut hints, 0, 1);
        hints.came(us(1_800), true);
        assert_eq!((hints.bias, hints.deviation), (100_000, 200_000));
        hints.came(us(1_800), true);
        assert_eq!((hints.bias, hints.deviation), (100_000, 200_000));
    }

    #[test]
    fn a_request_long_after_a_false_hint_teaches_nothing() {
        let teaches = |at: Time| {
            let mut hints = Hints::default();
            lies(&mut hints, 0, 1);
            hints.came(at, true);
            hints.bias
        };
        assert_eq!(teaches(us(11_000)), 1_250_000);
        assert_eq!(teaches(Time(us(11_000).0 + 1)), 0);
    }

    #[test]
    fn who_hints_all_the_time_is_not_listened_to() {
        // A hint every millisecond, whether or not a request comes.
        for (within, every) in [(1, 20), (1, 10), (1, 5), (3, 10), (10, 20), (10, 10), (1, 1_000_000)] {
            let mut hints = Hints::default();
            let mut refused = 0;
            for now in 0..5_000u64 {
                let at = us(now * 1_000);
                let over = hints.pending.iter().take_while(|next| at >= next.plan.until).count();
                (0..over).for_each(|_| hints.expired(at));
                if now % every == every / 2 {
                    let ready = hints.pending.first().is_some_and(|next| at >= next.plan.freeze_at + LEAD);
                    hints.came(at, ready);
                }
                refused += u32::from(hints.plan(at, Span::from_millis(within), LEAD).is_err());
            }
            assert!(refused > 4_000, "{refused} of 5000 refused: {within} ms ahead, one in {every}");
        }
    }

    #[test]
    fn who_hints_several_requests_ahead_is_honest() {
        // Requests 4 ms apart, each hinted 10 ms ahead, and once more 6 ms ahead; off by up to 0.8 ms.
        let mut hints = Hints::default();
        for round in 3..500u64 {
            let request = us(round * 4_000 + round % 3 * 400);
            let now = us(round * 4_000 - 2_000);
            for ahead in [2, 1] {
                hints.plan(now, us((round + ahead) * 4_000).since(now), LEAD).expect("trusted");
            }
            let ends: Vec<_> = hints.pending.iter().map(|next| next.plan.until).collect();
            ends.into_iter().take_while(|&end| request > end).for_each(|end| hints.expired(end));
            hints.came(request, true);
        }
        assert_eq!(hints.counts().false_, 0);
        assert!(hints.counts().good > 200);
    }

    #[test]
    fn an_honest_sender_with_a_lie_now_and_then_stays_trusted() {
        let mut hints = Hints::default();
        for round in 0..200 {
            if round % 3 == 0 {
                lie(&mut hints, round * 10_000).expect("trusted");
            } else {
                hinted(&mut hints, round * 10_000, 0);
            }
        }
        assert_eq!(hints.counts(), HintCounts { good: 133, false_: 67, ..HintCounts::default() });
    }

    #[test]
    fn several_requests_may_be_hinted_and_come_in_their_order() {
        let mut hints = Hints::default();
        let later = hints.plan(us(0), span(9_000), LEAD).expect("trusted").expect("new");
        let sooner = hints.plan(us(0), span(5_000), LEAD).expect("trusted").expect("new");
        assert_eq!(hints.plan(us(0), span(5_499), LEAD), Ok(None), "the same request");
        assert_eq!(hints.plan(us(0), span(4_501), LEAD), Ok(None), "the same request");
        assert!(hints.plan(us(0), span(5_500), LEAD).expect("trusted").is_some(), "another one");
        let expected: Vec<_> = hints.pending.iter().map(|next| next.plan.expect).collect();
        assert_eq!(expected, [sooner.expect, us(5_500), later.expect]);
        assert_eq!(hints.came(us(5_000), true), Some(Came::Good));
        hints.came_meanwhile();
        hints.expired(us(10_000));
        assert_eq!(hints.counts(), HintCounts { good: 2, false_: 1, ..HintCounts::default() });
        hints.came_meanwhile();
        assert_eq!(hints.counts().good, 2, "none is pending");
    }

    #[test]
    fn what_is_too_far_ahead_is_hinted_when_it_is_nearer() {
        let mut hints = Hints::default();
        for ahead in [WITHIN_MAX + Span(1), Span::from_secs(3_600), Span::MAX] {
            assert_eq!(hints.plan(us(0), ahead, LEAD), Err(Missed::Early));
        }
        assert!(hints.pending.is_empty());
        assert!(hints.plan(us(0), WITHIN_MAX, LEAD).expect("near enough").is_some());
    }

    #[test]
    fn so_many_hints_may_be_pending_and_no_more() {
        let mut hints = Hints::default();
        for step in 0..PENDING_MAX as u64 {
            hints.plan(us(0), span(1_000 + step * 500), LEAD).expect("trusted").expect("new");
        }
        assert_eq!(hints.plan(us(0), span(90_000), LEAD), Err(Missed::Distrusted));
        hints.came(us(1_000), true);
        assert!(hints.plan(us(0), span(90_000), LEAD).is_ok());
    }

    #[test]
    fn a_refused_hint_is_counted_and_costs_no_trust() {
        let mut hints = Hints::default();
        for _ in 0..20 {
            hints.missed();
        }
        assert_eq!(hints.counts(), HintCounts { missed: 20, ..HintCounts::default() });
        assert!(hints.plan(us(0), span(1_000), LEAD).is_ok());
    }
}
