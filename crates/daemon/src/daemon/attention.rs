//! When the main loop, and the thread that switches, stay awake: just before best-effort work has to go for a hint, and while
//! a request is served whose end brings it back, if requests are as short as that; the thread that switches also in between.
//! Nobody does while nothing is due, nor all the time where something always is ([`Allowance`]).
//!
//! Whoever is awake for a request sees its beginning and its end in the page of a program that says when its requests begin and
//! end: word of them comes some 50 and 80 us later, now and then hundreds. Where requests follow each other at once, one is over
//! only if for a moment none has followed.

mod ending;
#[cfg(test)]
mod tests;

pub(super) use ending::FOLLOWS_WITHIN;

use super::{Daemon, Input};
use crate::standby::{self, Allowance, Crowd};
use ending::{Ending, Seen, Sight, WAITED_OUT};
use sched::{GpuId, Span, TenantId, Time};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};
use wire::monotonic_ns;

/// After a request is expected to end: so much longer it is waited for.
const SLACK: Span = Span::from_micros(100);

/// Between two looks at a page: about half a microsecond.
const PAUSES: usize = 12;

/// See above.
#[derive(Debug)]
pub(super) struct Attention {
    stands_by: bool,
    /// And there are processors enough.
    is_possible: bool,
    crowd: Crowd,
    allowance: Allowance,
    /// The last departure that was stayed awake for, or was not because the time before was.
    told_of: Option<Time>,
    /// Is it stayed awake for that one?
    stays_awake: bool,
    /// The requests that are expected to come and to end, or to end: at most one on each GPU.
    ends: BTreeMap<GpuId, Ending>,
}

/// What became of waiting.
#[derive(Debug, PartialEq, Eq)]
enum Noticed<T> {
    /// Something was said.
    Heard(T),
    /// A request of this tenant has begun, by its page.
    Begun(TenantId),
    /// The request of this tenant is over, by its page.
    Over(TenantId),
    /// It was, for a moment: another one has followed it.
    Followed(TenantId),
}

impl Attention {
    /// Of a daemon whose threads may stay awake, or not.
    pub(super) fn new(stands_by: bool) -> Self {
        Self {
            stands_by,
            is_possible: stands_by && wire::may_stay_awake(),
            crowd: Crowd::default(),
            allowance: Allowance::of_whoever_waits(),
            told_of: None,
            stays_awake: false,
            ends: BTreeMap::new(),
        }
    }

    /// May programs' threads stay awake? Whether they have the processors, they know themselves.
    pub(super) fn leaves_room(&mut self) -> bool {
        self.stands_by && self.crowd.leaves_room(Instant::now())
    }

    /// Whether to stay awake from here to there.
    fn takes(&mut self, from: Instant, until: Instant) -> bool {
        self.crowd.leaves_room(from) && self.allowance.take(from, until)
    }

    /// Hears something before `wake`, or sees that somebody's request is over. If best-effort work has to go before that,
    /// whoever does it is told to `stand_by`, and the instant itself is not slept through.
    fn hear<T>(
        &mut self,
        heard: &Receiver<T>,
        wake: Instant,
        departure: Option<(Time, Instant)>,
        sight: impl Fn(TenantId) -> Sight,
        stand_by: impl FnOnce(Instant),
    ) -> Result<Noticed<T>, RecvTimeoutError> {
        while let Some(ends_by) = self.last_end() {
            match self.see_ends(heard, ends_by.min(wake), &sight) {
                Err(RecvTimeoutError::Timeout) if ends_by <= wake => match self.relied_upon(&sight) {
                    Some(over) => return Ok(Noticed::Over(over)),
                    None => self.ends.clear(),
                },
                noticed => return noticed,
            }
        }
        let Some((from, due)) = departure.filter(|&(_, due)| due <= wake) else {
            return recv_until(heard, wake).map(Noticed::Heard);
        };
        match recv_until(heard, due.checked_sub(standby::AHEAD).unwrap_or(due)) {
            Err(RecvTimeoutError::Timeout) => {}
            heard => return heard.map(Noticed::Heard),
        }
        let here = Instant::now();
        if self.told_of.replace(from) != Some(from) {
            // One that is late already is stood by for all the same, by whoever is told.
            self.stays_awake =
                self.takes(here.min(due.checked_sub(standby::AHEAD).unwrap_or(due)), here.max(due));
            if self.stays_awake {
                stand_by(due + standby::AHEAD);
            }
        }
        let heard = if self.stays_awake { standby::hear(heard, due) } else { recv_until(heard, due) };
        heard.map(Noticed::Heard)
    }

    /// Nobody looks any more. Somebody's request that is over by now, and whose end was not heeded when it was told because it was
    /// about to be seen.
    fn relied_upon(&mut self, sight: impl Fn(TenantId) -> Sight) -> Option<TenantId> {
        let is_over = |end: &Ending| end.is_waited_out && end.was_open && sight(end.tenant) == Sight::Over;
        let over = self.ends.extract_if(.., |_, end| is_over(end)).next();
        over.map(|(_, end)| end.tenant)
    }

    /// Until when ends are waited for.
    fn last_end(&self) -> Option<Instant> {
        self.ends.values().map(|ending| ending.by).max()
    }

    /// Hears something, or sees a request end, or that instant come. An end is seen once, whatever becomes of it.
    fn see_ends<T>(
        &mut self,
        heard: &Receiver<T>,
        until: Instant,
        sight: impl Fn(TenantId) -> Sight,
    ) -> Result<Noticed<T>, RecvTimeoutError> {
        loop {
            match heard.try_recv() {
                Ok(said) => return Ok(Noticed::Heard(said)),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            let now = Instant::now();
            let seen = self.ends.iter_mut().find_map(|(&gpu, end)| {
                let seen = end.look(now, sight(end.tenant));
                (seen != Seen::Nothing).then_some((gpu, seen))
            });
            if let Some((gpu, seen)) = seen
                && let Some(Ending { tenant, by, .. }) = self.ends.remove(&gpu)
            {
                self.allowance.give_back(now, by);
                return Ok(match seen {
                    Seen::Begun => Noticed::Begun(tenant),
                    Seen::Followed => Noticed::Followed(tenant),
                    Seen::Over | Seen::Nothing => Noticed::Over(tenant),
                });
            }
            if now >= until {
                return Err(RecvTimeoutError::Timeout);
            }
            // Whoever serves it writes to that page: what is looked at all the time is fetched back for each word of that.
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
        }
    }

    /// A request of a tenant is served that ends `by` then, as the last one did. Whether its end is stayed awake for.
    fn awaits_end(&mut self, gpu: GpuId, ending: Ending) -> bool {
        let awaits = self.is_possible && self.takes(Instant::now(), ending.by);
        if awaits {
            self.ends.insert(gpu, ending);
        }
        awaits
    }

    /// The end of a tenant's request is not waited for any more.
    fn awaits_no_end(&mut self, of: TenantId) {
        let now = Instant::now();
        for (_, end) in self.ends.extract_if(.., |_, end| end.tenant == of) {
            self.allowance.give_back(now, end.by);
        }
    }

    /// Whether it is about to be seen if a tenant's request is over, and none follows: then nobody has to be told.
    pub(super) fn sees_end_of(&self, tenant: TenantId) -> bool {
        let until = Instant::now() + 2 * WAITED_OUT;
        self.ends
            .values()
            .any(|end| end.tenant == tenant && end.is_waited_out && end.was_open && end.by > until)
    }
}

impl Daemon {
    /// Waits for something to hear, for so long at most.
    pub(super) fn hear(
        &mut self,
        heard: &Receiver<Input>,
        within: Duration,
    ) -> Result<Input, RecvTimeoutError> {
        if !self.attention.is_possible {
            return heard.recv_timeout(within);
        }
        let wake = Instant::now() + within;
        loop {
            match self.notice(heard, wake)? {
                Noticed::Heard(input) => return Ok(input),
                Noticed::Begun(tenant) => return Ok(Input::Wants(tenant, monotonic_ns())),
                Noticed::Over(tenant) => return Ok(Input::Served(tenant)),
                // To the core it is still the same one.
                Noticed::Followed(tenant) => {
                    self.mind_request(tenant, None);
                    self.mind_request(tenant, Some(self.now()));
                }
            }
        }
    }

    fn notice(&mut self, heard: &Receiver<Input>, wake: Instant) -> Result<Noticed<Input>, RecvTimeoutError> {
        // Both by the same instant: what the core wakes for is not to seem later than its waking.
        let (now, here) = (self.now(), Instant::now());
        let departure = self.core.next_departure();
        let due = |from: Time| here + Duration::from_nanos(from.since(now).0);
        let (executors, known) = (&self.executors, &self.known);
        let stand_by = |until| {
            if let Some((gpu, _)) = departure {
                executors[usize::from(gpu.0)].stand_by(until);
            }
        };
        let sight = |tenant: TenantId| {
            known.get(&tenant).map_or(Sight::Unknown, |known| Sight::of(known.link.grip.page()))
        };
        self.attention.hear(heard, wake, departure.map(|(_, from)| (from, due(from))), sight, stand_by)
    }

    /// A request of somebody latency-critical came, at this instant, or is over, as far as the daemon has seen.
    pub(super) fn mind_request(&mut self, tenant: TenantId, came: Option<Time>) {
        if !self.is_critical(tenant) {
            return;
        }
        self.attention.awaits_no_end(tenant);
        let now = self.now();
        let Some(known) = self.known.get_mut(&tenant) else { return };
        let Some(at) = came else {
            return known.hinting.request_is_noticed_over(now);
        };
        known.hinting.request_came(at);
        let (gpu, is_waited_out) = (known.gpu, known.hinting.follows_at_once());
        let was_open = Sight::of(known.link.grip.page()) == Sight::Open;
        let Some(by) = self.ends_about(tenant, at).filter(|_| self.core.holds_for_hint(gpu)) else {
            return;
        };
        let ending = Ending { tenant, by, comes: false, is_waited_out, was_open, seen: None };
        // Where best-effort work is on its way back already, its end is waited for all the same: it teaches when to begin with that.
        if self.attention.awaits_end(gpu, ending) && self.core.aim(gpu).is_some() {
            self.executor(gpu).stand_by(by);
        }
    }

    /// The way is free for a request of a tenant that tells of them: it is stayed awake for, and for its end.
    pub(super) fn await_request(&mut self, tenant: TenantId) {
        let Some(known) = self.known.get(&tenant).filter(|known| !known.idleness.wants()) else { return };
        let (gpu, is_waited_out) = (known.gpu, known.hinting.follows_at_once());
        if !known.link.grip.page().requests_are_told() {
            return;
        }
        let expect = self.core.aim(gpu).map(|(_, expect)| expect);
        if let Some(by) = expect.and_then(|expect| self.ends_about(tenant, expect)) {
            self.attention.awaits_no_end(tenant);
            let ending = Ending { tenant, by, comes: true, is_waited_out, was_open: false, seen: None };
            self.attention.awaits_end(gpu, ending);
        }
    }

    /// Until when whoever takes somebody off for a request stays awake, to put it back: until that is over, if it is as short
    /// as the last one.
    pub(super) fn stands_by_for(&mut self, tenant: TenantId, expect: Time) -> Option<Instant> {
        let until = self.ends_about(tenant, expect).filter(|_| self.attention.is_possible)?;
        self.attention.leaves_room().then_some(until)
    }

    /// When a request that comes then is over at the latest, if it takes as long as the last one. None if nobody stays awake for
    /// one that takes so long.
    fn ends_about(&self, tenant: TenantId, comes: Time) -> Option<Instant> {
        let took = self.known.get(&tenant)?.hinting.took()?;
        let (now, here) = (self.now(), Instant::now());
        ends_within(now, comes, took).map(|within| here + within)
    }
}

/// In which time a request is over that comes then and takes so long, if anybody stays awake for such a one.
fn ends_within(now: Time, comes: Time, took: Span) -> Option<Duration> {
    let lasts = took + SLACK;
    let is_short = Duration::from_nanos(lasts.0) <= standby::LONGEST;
    is_short.then(|| Duration::from_nanos((comes + lasts).since(now).0))
}

fn recv_until<T>(heard: &Receiver<T>, until: Instant) -> Result<T, RecvTimeoutError> {
    heard.recv_timeout(until.saturating_duration_since(Instant::now()))
}
