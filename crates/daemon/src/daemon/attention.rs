//! When the main loop, and the thread that switches, stay awake: just before best-effort work has to go for a hint, and while
//! a request is served whose end brings it back, if requests are as short as that. Nobody does while nothing is due, nor all
//! the time where something always is ([`Allowance`]).

use super::{Daemon, Input};
use crate::standby::{self, Allowance, Crowd};
use sched::{Span, TenantId, Time};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// After a request is expected to end: so much longer it is waited for.
const SLACK: Span = Span::from_micros(100);

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
    /// A request is expected to end before this.
    ends_by: Option<Instant>,
}

impl Attention {
    /// Of a daemon whose threads may stay awake, or not.
    pub(super) fn new(stands_by: bool) -> Self {
        Self {
            stands_by,
            is_possible: stands_by && wire::may_stay_awake(),
            crowd: Crowd::default(),
            allowance: Allowance::default(),
            told_of: None,
            stays_awake: false,
            ends_by: None,
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

    /// Hears something before `wake`. If best-effort work has to go before that, whoever does it is told to `stand_by`, and the
    /// instant itself is not slept through.
    fn hear<T>(
        &mut self,
        heard: &Receiver<T>,
        wake: Instant,
        departure: Option<(Time, Instant)>,
        stand_by: impl FnOnce(Instant),
    ) -> Result<T, RecvTimeoutError> {
        if let Some(ends_by) = self.ends_by {
            match standby::hear(heard, ends_by.min(wake)) {
                Err(RecvTimeoutError::Timeout) if ends_by <= wake => self.ends_by = None,
                heard => return heard,
            }
        }
        let Some((from, due)) = departure.filter(|&(_, due)| due <= wake) else {
            return recv_until(heard, wake);
        };
        match recv_until(heard, due.checked_sub(standby::AHEAD).unwrap_or(due)) {
            Err(RecvTimeoutError::Timeout) => {}
            heard => return heard,
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
        if self.stays_awake { standby::hear(heard, due) } else { recv_until(heard, due) }
    }

    /// A request is served that ends within so long, as the last one did. Whether its end is stayed awake for.
    fn awaits_end(&mut self, within: Duration) -> Option<Instant> {
        let here = Instant::now();
        let until = here + within;
        self.ends_by = (self.is_possible && self.takes(here, until)).then_some(until);
        self.ends_by
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
        // Both by the same instant: what the core wakes for is not to seem later than its waking.
        let (now, here) = (self.now(), Instant::now());
        let wake = here + within;
        let departure = self.core.next_departure();
        let due = |from: Time| here + Duration::from_nanos(from.since(now).0);
        let executors = &self.executors;
        let stand_by = |until| {
            if let Some((gpu, _)) = departure {
                executors[usize::from(gpu.0)].stand_by(until);
            }
        };
        self.attention.hear(heard, wake, departure.map(|(_, from)| (from, due(from))), stand_by)
    }

    /// A request of somebody latency-critical came, or is over, as far as the daemon has seen.
    pub(super) fn mind_request(&mut self, tenant: TenantId, came: bool) {
        if !self.is_critical(tenant) {
            return;
        }
        self.attention.ends_by = None;
        let now = self.now();
        let Some(known) = self.known.get_mut(&tenant) else { return };
        let took = match came {
            true => known.hinting.request_came(now),
            false => return known.hinting.request_is_over(now),
        };
        let gpu = known.gpu;
        let Some(within) = took.filter(|_| self.core.holds_for_hint(gpu)).map(|took| took + SLACK) else {
            return;
        };
        if let Some(ends_by) = self.attention.awaits_end(Duration::from_nanos(within.0)) {
            self.executor(gpu).stand_by(ends_by);
        }
    }
}

fn recv_until<T>(heard: &Receiver<T>, until: Instant) -> Result<T, RecvTimeoutError> {
    heard.recv_timeout(until.saturating_duration_since(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const MS: Duration = Duration::from_millis(1);

    /// On a machine with processors to spare.
    fn attentive() -> Attention {
        Attention { is_possible: true, crowd: Crowd::of_nobody(), ..Attention::new(true) }
    }

    #[test]
    fn nobody_stays_awake_on_a_busy_machine_or_where_it_is_turned_off() {
        let (_say, heard) = mpsc::channel::<u32>();
        let within = Duration::from_micros(200);
        assert!(attentive().awaits_end(within).is_some());
        let mut busy = Attention { crowd: Crowd::of_many(), ..attentive() };
        assert_eq!(busy.awaits_end(within), None);
        assert!(attentive().leaves_room() && !busy.leaves_room());
        let due = Instant::now() + MS;
        let nothing = busy.hear(&heard, due + MS, Some((Time(7), due)), |_| panic!("others have to run"));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        assert!(Instant::now() >= due, "it is waited for, asleep");
        let mut off = Attention { crowd: Crowd::of_nobody(), ..Attention::new(false) };
        assert!(!off.is_possible && !off.leaves_room());
    }

    #[test]
    fn what_is_late_counts_as_stayed_awake_for_too() {
        let (_say, heard) = mpsc::channel::<u32>();
        let mut attention = attentive();
        let mut told = 0;
        let begin = Instant::now();
        for number in 0..50 {
            let late = Instant::now();
            attention.hear(&heard, late + MS, Some((Time(number), late)), |_| told += 1).unwrap_err();
        }
        let most = begin.elapsed().as_micros() / (3 * standby::AHEAD).as_micros() + 1;
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
                attention.hear(&heard, wake, departure, |until| told = Some((Instant::now(), until)));
            assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
            assert!(Instant::now() >= due);
            let (at, until) = told?;
            assert!(at + standby::AHEAD >= due && until > due, "no earlier than it has to be");
            let again = attention.hear(&heard, wake, departure, |_| panic!("it was told"));
            assert_eq!(again, Err(RecvTimeoutError::Timeout));
            say.send(1).unwrap();
            assert_eq!(attention.hear(&heard, wake, departure, |_| panic!("it was told")), Ok(1));
            std::thread::sleep(MS);
            let mut told = None;
            let other = Some((Time(8), Instant::now()));
            attention.hear(&heard, Instant::now() + MS, other, |_| told = Some(())).unwrap_err();
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
            attention.hear(&heard, due + MS, departure, |_| told += 1).unwrap_err();
            assert!(Instant::now() >= due, "it is waited for, awake or not");
        }
        let most = begin.elapsed().as_micros() / (4 * standby::AHEAD).as_micros() + 1;
        assert!((2..=most).contains(&told), "{told} of 200, {most} at most");
        let within = Duration::from_micros(200);
        std::thread::sleep(MS);
        assert!(attention.awaits_end(standby::LONGEST + MS).is_none(), "requests are long");
        assert!(attention.awaits_end(within).is_some());
        assert!(attention.awaits_end(within).is_none() && attention.ends_by.is_none());
        attention.is_possible = false;
        std::thread::sleep(MS);
        assert!(attention.awaits_end(within).is_none(), "there are too few processors");
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
            let nothing = attention.hear(&heard, wake, departure, |_| panic!("nothing is due"));
            assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        }
        // What is due soon is slept through up to just before.
        let due = Instant::now() + 100 * MS;
        attention.hear(&heard, due + MS, Some((Time(1), due)), |_| ()).unwrap_err();
        let awake = ran().unwrap_or_default().saturating_sub(before);
        assert!(awake < 20 * MS, "{awake:?} of 300 ms");
    }

    #[test]
    fn what_comes_first_is_waited_for() {
        let (say, heard) = mpsc::channel();
        let mut attention = attentive();
        let later = Some((Time(7), Instant::now() + Duration::from_secs(60)));
        let wake = Instant::now() + 2 * MS;
        let nothing = attention.hear(&heard, wake, later, |_| panic!("it is far away"));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        attention.ends_by = Some(Instant::now() + Duration::from_secs(60));
        say.send(1).unwrap();
        assert_eq!(attention.hear(&heard, wake, later, |_| panic!("it is far away")), Ok(1));
        let nothing = attention.hear(&heard, Instant::now() + MS, later, |_| panic!("it is far away"));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout), "not for longer than until then");
        attention.ends_by = Some(Instant::now());
        let nothing = attention.hear(&heard, Instant::now() + MS, later, |_| panic!("it is far away"));
        assert_eq!((nothing, attention.ends_by), (Err(RecvTimeoutError::Timeout), None), "it is over");
        drop(say);
        let over = attention.hear(&heard, wake, None, |_| panic!("there is none"));
        assert_eq!(over, Err(RecvTimeoutError::Disconnected));
    }
}
