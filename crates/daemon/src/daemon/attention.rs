//! When the main loop, and the thread that switches, stay awake: just before best-effort work has to go for a hint, and while
//! a request is served whose end brings it back, if requests are as short as that; the thread that switches also in between.
//! Nobody does while nothing is due, nor all the time where something always is ([`Allowance`]).
//!
//! Whoever is awake for a request sees its beginning and its end in the page of a program that says when its requests begin and
//! end: word of them comes some 50 and 80 us later, now and then hundreds. Where requests follow each other at once, one is over
//! only if for a moment none has followed.

use super::{Daemon, Input};
use crate::standby::{self, Allowance, Crowd};
use sched::{GpuId, Span, TenantId, Time};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};
use wire::{Page, monotonic_ns};

/// After a request is expected to end: so much longer it is waited for.
const SLACK: Span = Span::from_micros(100);

/// Where requests follow each other at once, one is over when none has followed for so long.
pub(super) const FOLLOWS_WITHIN: Span = Span::from_micros(30);
const WAITED_OUT: Duration = Duration::from_nanos(FOLLOWS_WITHIN.0);

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

/// What a page shows of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// One is served, and its work has begun or is about to: the program has said so.
    Open,
    /// None is, and there is no work.
    Over,
    /// There is work of none, or none yet, or the program does not say.
    Unknown,
}

impl Sight {
    fn of(page: &Page) -> Self {
        match page.requests_open() {
            0 if page.requests_are_told() && page.idle_since_ns().is_some() => Self::Over,
            0 => Self::Unknown,
            // It only prepares one.
            _ if page.is_watched() => Self::Unknown,
            _ => Self::Open,
        }
    }
}

/// A request that is expected to end.
#[derive(Debug)]
struct Ending {
    tenant: TenantId,
    /// Before this.
    by: Instant,
    /// It is expected to begin before that.
    comes: bool,
    /// Another one may follow at once.
    is_waited_out: bool,
    /// It was seen to be served: what no request is told of may pause in the middle.
    was_open: bool,
    /// Since when it seems to be over.
    seen: Option<Instant>,
}

/// What is seen of such a one.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Begun,
    Over,
    /// It was over, and another one has begun.
    Followed,
}

impl Ending {
    fn look(&mut self, now: Instant, sight: Sight) -> Seen {
        match sight {
            Sight::Over if self.was_open => {
                let since = now.saturating_duration_since(*self.seen.get_or_insert(now));
                if !self.is_waited_out || since >= WAITED_OUT { Seen::Over } else { Seen::Nothing }
            }
            Sight::Open if self.comes => Seen::Begun,
            Sight::Open if self.seen.take().is_some() => Seen::Followed,
            Sight::Open => {
                self.was_open = true;
                Seen::Nothing
            }
            Sight::Over | Sight::Unknown => Seen::Nothing,
        }
    }
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
        if self.attention.awaits_end(gpu, ending) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const MS: Duration = Duration::from_millis(1);
    const GPU: GpuId = GpuId(0);
    const WHO: TenantId = TenantId(3);

    /// Nobody's request is over.
    fn no(_: TenantId) -> Sight {
        Sight::Open
    }

    fn ending(tenant: TenantId, by: Instant) -> Ending {
        Ending { tenant, by, comes: false, is_waited_out: false, was_open: true, seen: None }
    }

    impl Attention {
        /// Waits for the end of somebody's request, for so long.
        fn awaits(&mut self, within: Duration) -> bool {
            self.awaits_end(GPU, ending(WHO, Instant::now() + within))
        }
    }

    /// On a machine with processors to spare.
    fn attentive() -> Attention {
        Attention { is_possible: true, crowd: Crowd::of_nobody(), ..Attention::new(true) }
    }

    #[test]
    fn nobody_stays_awake_on_a_busy_machine_or_where_it_is_turned_off() {
        let (_say, heard) = mpsc::channel::<u32>();
        let within = Duration::from_micros(200);
        assert!(attentive().awaits(within));
        let mut busy = Attention { crowd: Crowd::of_many(), ..attentive() };
        assert!(!busy.awaits(within));
        assert!(attentive().leaves_room() && !busy.leaves_room());
        let due = Instant::now() + MS;
        let nothing = busy.hear(&heard, due + MS, Some((Time(7), due)), no, |_| panic!("others have to run"));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        assert!(Instant::now() >= due, "it is waited for, asleep");
        let mut off = Attention { crowd: Crowd::of_nobody(), ..Attention::new(false) };
        assert!(!off.is_possible && !off.leaves_room());
    }

    #[test]
    fn an_end_that_was_to_be_seen_is_told_of_also_where_nobody_had_the_time_to_look() {
        let (_say, heard) = mpsc::channel::<u32>();
        for (sight, told) in [(Sight::Over, true), (Sight::Open, false), (Sight::Unknown, false)] {
            let mut attention = attentive();
            let by = Instant::now() + 100 * MS;
            attention.ends.insert(GPU, Ending { is_waited_out: true, ..ending(WHO, by) });
            assert!(attention.sees_end_of(WHO), "so its word is not heeded");
            std::thread::sleep(110 * MS);
            let noticed =
                attention.hear(&heard, Instant::now() + MS, None, |_| sight, |_| panic!("nobody goes"));
            assert_eq!(noticed == Ok(Noticed::Over(WHO)), told, "{noticed:?}");
            assert!(!attention.sees_end_of(WHO));
        }
    }

    /// How many departures may be stayed awake for in that time: for a quarter of it, and two more at first.
    fn departures_in(time: Duration) -> u128 {
        time.as_micros() / (4 * standby::AHEAD).as_micros() + 3
    }

    #[test]
    fn what_is_late_counts_as_stayed_awake_for_too() {
        let (_say, heard) = mpsc::channel::<u32>();
        let mut attention = attentive();
        let mut told = 0;
        let begin = Instant::now();
        for number in 0..50 {
            let late = Instant::now();
            attention.hear(&heard, late + MS, Some((Time(number), late)), no, |_| told += 1).unwrap_err();
        }
        let most = departures_in(begin.elapsed());
        assert!((1..=most).contains(&told), "{told} of 50, {most} at most");
    }

    /// Tries something that needs a thread to wake in time: on a machine with much else to do that takes several.
    fn in_time(mut once: impl FnMut() -> Option<()>) {
        (0..200).find_map(|_| once()).expect("a thread that wakes in time now and then");
    }

    #[test]
    fn what_is_due_is_not_slept_through_and_whoever_does_it_is_told_once_just_before() {
        in_time(|| {
            let (say, heard) = mpsc::channel();
            let mut attention = attentive();
            let due = Instant::now() + 5 * MS;
            let (departure, wake) = (Some((Time(7), due)), due + 5 * MS);
            let mut told = None;
            let nothing =
                attention.hear(&heard, wake, departure, no, |until| told = Some((Instant::now(), until)));
            assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
            assert!(Instant::now() >= due);
            let (at, until) = told?;
            assert!(at + standby::AHEAD >= due && until > due, "no earlier than it has to be");
            let again = attention.hear(&heard, wake, departure, no, |_| panic!("it was told"));
            assert_eq!(again, Err(RecvTimeoutError::Timeout));
            say.send(1).unwrap();
            assert_eq!(
                attention.hear(&heard, wake, departure, no, |_| panic!("it was told")),
                Ok(Noticed::Heard(1))
            );
            std::thread::sleep(MS);
            let mut told = None;
            let other = Some((Time(8), Instant::now()));
            attention.hear(&heard, Instant::now() + MS, other, no, |_| told = Some(())).unwrap_err();
            told
        });
    }

    #[test]
    fn what_is_due_all_the_time_is_slept_through_most_of_it() {
        let (_say, heard) = mpsc::channel::<u32>();
        let mut attention = attentive();
        let mut told = 0;
        let begin = Instant::now();
        for number in 0..200 {
            let due = Instant::now() + standby::AHEAD;
            let departure = Some((Time(number), due));
            attention.hear(&heard, due + MS, departure, no, |_| told += 1).unwrap_err();
            assert!(Instant::now() >= due, "it is waited for, awake or not");
        }
        let most = departures_in(begin.elapsed());
        assert!((2..=most).contains(&told), "{told} of 200, {most} at most");
        let within = Duration::from_micros(200);
        std::thread::sleep(MS);
        assert!(!attention.awaits(standby::LONGEST + MS), "requests are long");
        assert!(attention.awaits(within) && !attention.ends.is_empty());
        let another = |gpu: u16| ending(TenantId(gpu.into()), Instant::now() + within);
        let refused = (1..10).any(|gpu| !attention.awaits_end(GpuId(gpu), another(gpu)));
        assert!(refused && attention.ends.len() < 9, "not all the time");
        attention.is_possible = false;
        std::thread::sleep(MS);
        assert!(!attention.awaits(within), "there are too few processors");
    }

    /// How long this thread was on a processor so far. None where the system does not say.
    fn ran() -> Option<Duration> {
        let said = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        said.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    }

    #[test]
    fn whoever_waits_for_what_is_not_due_sleeps() {
        let (_say, heard) = mpsc::channel::<u32>();
        let mut attention = attentive();
        let Some(before) = ran() else { return };
        let far = Some((Time(9), Instant::now() + Duration::from_secs(60)));
        for departure in [None, far] {
            let wake = Instant::now() + 100 * MS;
            let nothing = attention.hear(&heard, wake, departure, no, |_| panic!("nothing is due"));
            assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        }
        // What is due soon is slept through up to just before.
        let due = Instant::now() + 100 * MS;
        attention.hear(&heard, due + MS, Some((Time(1), due)), no, |_| ()).unwrap_err();
        let awake = ran().unwrap_or_default().saturating_sub(before);
        assert!(awake < 20 * MS, "{awake:?} of 300 ms");
    }

    #[test]
    fn what_comes_first_is_waited_for() {
        let (say, heard) = mpsc::channel();
        let mut attention = attentive();
        let later = Some((Time(7), Instant::now() + Duration::from_secs(60)));
        let wake = Instant::now() + 2 * MS;
        let nothing = attention.hear(&heard, wake, later, no, |_| panic!("it is far away"));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        attention.ends.insert(GPU, ending(WHO, Instant::now() + Duration::from_secs(60)));
        say.send(1).unwrap();
        assert_eq!(
            attention.hear(&heard, wake, later, no, |_| panic!("it is far away")),
            Ok(Noticed::Heard(1))
        );
        let nothing = attention.hear(&heard, Instant::now() + MS, later, no, |_| panic!("it is far away"));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout), "not for longer than until then");
        attention.ends.insert(GPU, ending(WHO, Instant::now()));
        let nothing = attention.hear(&heard, Instant::now() + MS, later, no, |_| panic!("it is far away"));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        assert!(attention.ends.is_empty(), "it is over");
        drop(say);
        let over = attention.hear(&heard, wake, None, no, |_| panic!("there is none"));
        assert_eq!(over, Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn an_end_is_seen_once_and_each_ones_own() {
        let (say, heard) = mpsc::channel();
        let mut attention = attentive();
        let (far, other) = (Instant::now() + Duration::from_secs(60), TenantId(4));
        attention.ends.insert(GPU, ending(WHO, far));
        attention.ends.insert(GpuId(1), ending(other, far));
        let all = |_| Sight::Over;
        say.send(1).unwrap();
        let mut hear = |sight: &dyn Fn(TenantId) -> Sight| {
            let wake = Instant::now() + 2 * MS;
            attention.hear(&heard, wake, None, sight, |_| panic!("nothing is due"))
        };
        assert_eq!(hear(&all), Ok(Noticed::Heard(1)), "what was said before goes first");
        let only_other = |tenant| if tenant == other { Sight::Over } else { Sight::Open };
        assert_eq!(hear(&only_other), Ok(Noticed::Over(other)));
        assert_eq!(hear(&all), Ok(Noticed::Over(WHO)));
        assert_eq!(hear(&all), Err(RecvTimeoutError::Timeout), "nobody waits for one");
    }

    #[test]
    fn ends_that_are_not_seen_are_not_waited_for_beyond_their_time() {
        let (_say, heard) = mpsc::channel::<u32>();
        let mut attention = attentive();
        let begin = Instant::now();
        attention.ends.insert(GPU, ending(WHO, begin + MS));
        attention.ends.insert(GpuId(1), ending(TenantId(4), begin + 2 * MS));
        let nothing = attention.hear(&heard, begin + 5 * MS, None, no, |_| panic!("nothing is due"));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        assert!(attention.ends.is_empty() && begin.elapsed() >= 5 * MS);
    }

    #[test]
    fn where_another_may_follow_an_end_counts_only_if_none_has() {
        let now = Instant::now();
        let mut end = Ending { is_waited_out: true, ..ending(WHO, now + MS) };
        assert_eq!(end.look(now, Sight::Over), Seen::Nothing, "another one may follow");
        assert_eq!(end.look(now + WAITED_OUT / 2, Sight::Over), Seen::Nothing);
        assert_eq!(end.look(now + WAITED_OUT, Sight::Over), Seen::Over, "none did");
        let mut end = Ending { is_waited_out: true, ..ending(WHO, now + MS) };
        assert_eq!(end.look(now, Sight::Over), Seen::Nothing);
        assert_eq!(end.look(now + WAITED_OUT / 2, Sight::Unknown), Seen::Nothing, "it has work again");
        assert_eq!(end.look(now + WAITED_OUT / 2, Sight::Open), Seen::Followed);
        assert_eq!(
            ending(WHO, now).look(now, Sight::Over),
            Seen::Over,
            "where each comes alone nobody waits"
        );
    }

    #[test]
    fn what_was_not_seen_to_be_served_is_not_seen_to_be_over() {
        let now = Instant::now();
        let mut end = Ending { was_open: false, ..ending(WHO, now + MS) };
        assert_eq!(end.look(now, Sight::Over), Seen::Nothing, "it may pause in the middle of one");
        assert_eq!(end.look(now, Sight::Open), Seen::Nothing);
        assert_eq!(end.look(now, Sight::Over), Seen::Over);
    }

    #[test]
    fn whoever_is_awake_for_a_request_sees_it_begin_and_what_was_not_needed_is_given_back() {
        let (_say, heard) = mpsc::channel::<u32>();
        let mut attention = attentive();
        let far = Instant::now() + standby::LONGEST;
        let coming = Ending { comes: true, was_open: false, ..ending(WHO, far) };
        assert!(attention.awaits_end(GPU, coming));
        let begun = attention.hear(&heard, far, None, no, |_| panic!("nothing is due"));
        assert!(
            begun == Ok(Noticed::Begun(WHO)) || Instant::now() >= far,
            "{begun:?}, unless this machine is far too busy"
        );
        assert!(attention.ends.is_empty(), "it is told of once");
        for _ in 0..20 {
            let until = Instant::now() + standby::LONGEST;
            assert!(attention.awaits_end(GPU, ending(WHO, until)));
            attention.awaits_no_end(TenantId(4));
            assert!(!attention.ends.is_empty(), "that is another one");
            attention.awaits_no_end(WHO);
        }
        let mut coming = Ending { comes: true, was_open: false, ..ending(WHO, far) };
        assert_eq!(coming.look(far, Sight::Over), Seen::Nothing, "it is yet to come");
        assert_eq!(coming.look(far, Sight::Unknown), Seen::Nothing);
    }

    #[test]
    fn only_an_end_that_is_waited_out_is_left_to_be_seen() {
        let mut attention = attentive();
        attention.ends.insert(GPU, ending(WHO, Instant::now() + Duration::from_secs(60)));
        assert!(!attention.sees_end_of(WHO), "whoever is told first goes on");
        attention.ends.get_mut(&GPU).unwrap().is_waited_out = true;
        assert!(attention.sees_end_of(WHO) && !attention.sees_end_of(TenantId(4)));
        attention.ends.get_mut(&GPU).unwrap().was_open = false;
        assert!(!attention.sees_end_of(WHO), "its page does not tell");
        attention.ends.insert(GPU, Ending { is_waited_out: true, ..ending(WHO, Instant::now()) });
        assert!(!attention.sees_end_of(WHO), "nobody looks any more by then");
    }

    #[test]
    fn a_page_shows_the_end_of_requests_that_its_program_tells_of_and_of_no_others() {
        let page = wire::SharedPage::create(1).unwrap();
        assert_eq!(Sight::of(&page), Sight::Unknown, "it has work, or nobody knows");
        assert!(page.rest(1));
        assert_eq!(Sight::of(&page), Sight::Unknown, "it may wait several times in a request");
        page.tell_requests();
        page.set_requests_open(1);
        assert_eq!(Sight::of(&page), Sight::Open);
        assert!(page.is_idle_when_watched());
        assert_eq!(Sight::of(&page), Sight::Unknown, "it is prepared");
        assert!(page.take_watch());
        assert_eq!(Sight::of(&page), Sight::Open);
        page.set_requests_open(0);
        assert_eq!(Sight::of(&page), Sight::Over);
        assert!(!page.wake(2));
        assert_eq!(Sight::of(&page), Sight::Unknown, "it has work of its own");
    }

    #[test]
    fn the_end_of_short_requests_is_waited_for_from_when_they_come() {
        let (us, now) = (Span::from_micros, Time(1_000_000_000));
        let within = |comes, took| ends_within(now, comes, us(took)).map(|within| within.as_micros());
        assert_eq!(within(now, 80), Some(180));
        assert_eq!(within(now.before(us(50)), 80), Some(130), "it was heard of a while later");
        assert_eq!(within(now + us(700), 80), Some(880), "it is yet to come");
        assert_eq!(within(now.before(us(5_000)), 80), Some(0), "it is over by now");
        assert_eq!((within(now, 300), within(now, 301)), (Some(400), None), "others are too long");
    }
}
