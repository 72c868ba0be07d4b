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

    /// When the hinted request was expected that came then, if it may be one: of those, the first. One that came long before is
    /// another; before both instants, or a bias of requests that are on time again would never be forgotten.
    pub(crate) fn awaited(&self, came: Time) -> Option<Time> {
        let Pending { plan, hinted } = self.pending.first()?;
        (plan.expect.min(*hinted).since(came) <= ERROR_MAX).then_some(plan.expect)
    }

    /// The hint whose request was expected then, taken off the list.
    fn take(&mut self, expect: Time) -> Option<Pending> {
        let at = self.pending.iter().position(|pending| pending.plan.expect == expect)?;
        Some(self.pending.remove(at))
    }

    /// A request came: the one that was hinted, if a hint is pending. `ready`: was best-effort work off by then?
    /// To be told of every request, since one that comes after its hint expired teaches too.
    pub(crate) fn came(&mut self, now: Time, ready: bool) -> Option<Came> {
        let outlived = self.outlived.take();
        let hint = self.awaited(now).and_then(|expect| self.take(expect));
        let Some(Pending { plan, hinted }) = hint else {
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

    /// The request that was expected then came while another one was served, nobody knows when. What is never confirmed is
    /// forgotten: a bias for which hints always end while their sender is served would stay for ever.
    pub(crate) fn came_meanwhile(&mut self, expect: Time) {
        if self.take(expect).is_some() {
            self.bias -= self.bias / BIAS_PER;
            self.counts.good += 1;
            self.remember_honest();
        }
    }

    /// The request that was expected then did not come.
    pub(crate) fn expired(&mut self, now: Time, expect: Time) {
        let Some(Pending { hinted, .. }) = self.take(expect) else { return };
        self.outlived = Some(hinted);
        self.remember_false();
        self.judge(now);
    }

    /// The hint of a request that is expected then cannot be honoured any more, through no fault of the sender.
    pub(crate) fn withdrawn(&mut self, expect: Time) {
        if self.take(expect).is_some() {
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

    /// When the requests of hints that have not ended are expected, in this order.
    pub(crate) fn pending(&self) -> impl Iterator<Item = Time> {
        self.pending.iter().map(|pending| pending.plan.expect)
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
mod tests;
