//! Waiting for what comes within moments without going to sleep.
//!
//! A thread that sleeps is woken some 20 to 60 us after it could go on, and now and then hundreds of them, above all where the
//! processor is a virtual one. On the way from a hint to a freeze and from the end of a request to the thaw several threads
//! wake one another, and best-effort work stands still meanwhile. So where it is known to the instant that something follows,
//! and there are processors to spare, they stay awake, for a millisecond at most. However often something is due, whoever waits
//! for it does so for no more than a quarter of the time, and whoever is told to stand by, one thread for each GPU, for no more
//! than half ([`Allowance`]). And where threads have to wait for a processor, all have something to do: then nobody stays awake
//! ([`Crowd`]), so as not to keep a service's own threads from theirs. `standby = "off"` says that nobody ever does.

mod crowd;

pub use crowd::Crowd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// So long before something is due whoever has to do with it is woken: nine times in ten a thread is awake after 60 us, but one in a
/// hundred takes up to 400 of them, where the processor is a virtual one.
pub const AHEAD: Duration = Duration::from_micros(450);

/// For no longer than this whoever waits for something stays awake for it.
pub const LONGEST: Duration = Duration::from_micros(400);

/// So long whoever stands by stays awake in one go: from before a freeze to the end of the request that it is for.
const STANDS_BY_MAX: Duration = Duration::from_millis(1);

/// How long a thread may stay awake: so long in one go, and such a part of the time in all.
#[derive(Debug)]
pub struct Allowance {
    most: Duration,
    per: u32,
    left: Duration,
    /// When that was so.
    seen: Option<Instant>,
}

impl Allowance {
    /// Of whoever waits for what is due: for that, and for the end of the request that it is for.
    pub fn of_whoever_waits() -> Self {
        Self::of(AHEAD + LONGEST, 4)
    }

    /// Of whoever is told to stand by.
    pub fn of_whoever_stands_by() -> Self {
        Self::of(STANDS_BY_MAX, 2)
    }

    fn of(most: Duration, per: u32) -> Self {
        Self { most, per, left: most, seen: None }
    }

    /// Whether it may from here to there, for something to wait for. Whoever is told so does.
    pub fn take(&mut self, from: Instant, until: Instant) -> bool {
        self.recover(from);
        let awake = until.saturating_duration_since(from);
        let may = awake <= self.left;
        if may {
            self.left -= awake;
        }
        may
    }

    /// It did not until there, as what it waited for came here.
    pub fn give_back(&mut self, from: Instant, until: Instant) {
        self.left = (self.left + until.saturating_duration_since(from)).min(self.most);
    }

    /// Whether it could be awake until then, if it had not been for a while.
    pub fn reaches(&self, now: Instant, until: Instant) -> bool {
        until.saturating_duration_since(now) <= self.most
    }

    /// Hears something until then, awake for as long as it may.
    pub fn hear<T>(&mut self, from: &Receiver<T>, until: Instant) -> Result<T, RecvTimeoutError> {
        let begin = Instant::now();
        self.recover(begin);
        let heard = hear(from, until.min(begin + self.left));
        self.left = self.left.saturating_sub(begin.elapsed());
        heard
    }

    fn recover(&mut self, now: Instant) {
        let rested = self.seen.map_or(Duration::ZERO, |seen| now.saturating_duration_since(seen)) / self.per;
        self.left = (self.left + rested).min(self.most);
        self.seen = self.seen.max(Some(now));
    }
}

/// Hears something, or sees that instant come.
pub fn hear<T>(from: &Receiver<T>, until: Instant) -> Result<T, RecvTimeoutError> {
    loop {
        match from.try_recv() {
            Ok(heard) => return Ok(heard),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) if Instant::now() >= until => return Err(RecvTimeoutError::Timeout),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn nobody_waits_awake_for_more_than_a_quarter_of_the_time() {
        let mut allowance = Allowance::of_whoever_waits();
        let begin = Instant::now();
        assert!(!allowance.take(begin, begin + AHEAD + LONGEST + us(1)), "nor for too long at a time");
        let asks = (1_000..101_000).map(|at| (begin + us(at), begin + us(at + 120)));
        let awake = asks.filter(|&(from, until)| allowance.take(from, until)).count() as u64 * 120;
        let at_first = (AHEAD + LONGEST).as_micros() as u64;
        assert!((24_800..=25_000 + at_first).contains(&awake), "{awake} of 100,000 us");
        let back = begin + us(200_000);
        assert!(allowance.take(back, back + LONGEST) && allowance.take(back, back + AHEAD));
        assert!(!allowance.take(back + us(10), back + us(20)));
        assert!(allowance.take(back + us(10), back + us(5)), "what is over already costs nothing");
        allowance.give_back(back + us(10), back + us(60));
        assert!(allowance.take(back + us(10), back + us(60)), "nor what was not needed");
        assert!(!allowance.take(back + us(10), back + us(20)));
    }

    #[test]
    fn whoever_was_awake_for_a_departure_may_be_for_the_end_of_its_request() {
        // Each 5 ms, as soon after the departure as freezes ever are.
        let (mut allowance, begin) = (Allowance::of_whoever_waits(), Instant::now());
        for request in 0..100 {
            let due = begin + us(5_000) * request;
            let comes = due + us(400);
            assert!(allowance.take(due, due + AHEAD) && allowance.take(comes, comes + LONGEST), "{request}");
        }
    }

    #[test]
    fn whoever_stands_by_is_awake_for_half_of_the_time_at_most() {
        let (_say, heard) = mpsc::channel::<u32>();
        let (mut allowance, begin) = (Allowance::of_whoever_stands_by(), Instant::now());
        assert!(allowance.reaches(begin, begin + us(1_000)) && !allowance.reaches(begin, begin + us(1_001)));
        let nothing = allowance.hear(&heard, begin + Duration::from_secs(60));
        assert_eq!((nothing, allowance.left), (Err(RecvTimeoutError::Timeout), Duration::ZERO));
        assert!(begin.elapsed() >= STANDS_BY_MAX, "as long as it may");
        // By instants of our own: nobody knows how long this thread is kept from its processor.
        let mut allowance = Allowance::of_whoever_stands_by();
        allowance.recover(begin);
        allowance.left = Duration::ZERO;
        allowance.recover(begin + us(500));
        assert_eq!(allowance.left, us(250));
        allowance.recover(begin + us(400));
        assert_eq!(allowance.left, us(250), "time does not go back");
        allowance.recover(begin + us(500));
        assert_eq!(allowance.left, us(250), "and none counts twice");
        allowance.recover(begin + Duration::from_secs(60));
        assert_eq!(allowance.left, STANDS_BY_MAX);
    }

    #[test]
    fn what_is_there_is_heard_by_whoever_may_not_stay_awake_any_more() {
        let (say, heard) = mpsc::channel();
        let mut allowance = Allowance { left: Duration::ZERO, ..Allowance::of_whoever_stands_by() };
        say.send(7).unwrap();
        assert_eq!(allowance.hear(&heard, Instant::now() + Duration::from_secs(60)), Ok(7));
    }

    #[test]
    fn what_comes_is_heard_and_what_does_not_come_is_not_waited_for() {
        let (say, heard) = mpsc::channel();
        let until = Instant::now() + Duration::from_millis(5);
        assert_eq!(hear(&heard, until), Err(RecvTimeoutError::Timeout));
        assert!(Instant::now() >= until);
        say.send(7).unwrap();
        assert_eq!(hear(&heard, until), Ok(7), "what is there is heard, however late it is");
        let speaker = std::thread::spawn(move || say.send(8).unwrap());
        assert_eq!(hear(&heard, Instant::now() + Duration::from_secs(60)), Ok(8));
        speaker.join().unwrap();
        assert_eq!(hear(&heard, Instant::now()), Err(RecvTimeoutError::Disconnected));
    }
}
