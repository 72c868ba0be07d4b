//! Waiting for what comes within moments without going to sleep.
//!
//! A thread that sleeps is woken some 20 to 60 us after it could go on, and now and then hundreds of them, above all where the
//! processor is a virtual one. On the way from a hint to a freeze and from the end of a request to the thaw several threads
//! wake one another, and best-effort work stands still meanwhile. So where it is known to the instant that something follows,
//! and there are processors to spare, they stay awake, for fractions of a millisecond. However often something is due,
//! whoever waits for it does so for no more than a quarter of the time ([`Allowance`]), and whoever is told to stand by for no more
//! than half ([`Stamina`]). And where threads have to wait for a processor, all have something to do: then nobody stays awake
//! ([`Crowd`]), so as not to keep a service's own threads from theirs. `standby = "off"` says that nobody ever does.

mod crowd;

pub use crowd::Crowd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// So long before something is due whoever has to do with it is woken: nine times in ten a thread is awake after 60 us, but there are
/// phases in which it takes hundreds.
pub const AHEAD: Duration = Duration::from_micros(250);

/// For no longer than this anybody stays awake for what may come.
pub const LONGEST: Duration = Duration::from_micros(300);

/// After having stayed awake, a thread does not do so again for so many times as long.
const REST_TIMES: u32 = 3;

/// So long whoever stands by stays awake in one go: from before a freeze to the end of the request that it is for.
const STAMINA_MAX: Duration = Duration::from_millis(1);

/// It has so much of the time that passes.
const STAMINA_PER: u32 = 2;

/// How often a thread may stay awake, by when it did.
#[derive(Debug, Default)]
pub struct Allowance {
    not_before: Option<Instant>,
}

impl Allowance {
    /// Whether it may from here to there. Whoever is told so does.
    pub fn take(&mut self, from: Instant, until: Instant) -> bool {
        let awake = until.saturating_duration_since(from);
        let may = awake <= LONGEST && self.not_before.is_none_or(|at| at <= from);
        if may {
            self.not_before = Some(until + REST_TIMES * awake);
        }
        may
    }
}

/// How long a thread that stands by can stay awake: whatever it is told, it does so for half of the time at most.
#[derive(Debug)]
pub struct Stamina {
    left: Duration,
    seen: Instant,
}

impl Default for Stamina {
    fn default() -> Self {
        Self { left: STAMINA_MAX, seen: Instant::now() }
    }
}

impl Stamina {
    /// Hears something until then, awake for as long as that lasts.
    pub fn hear<T>(&mut self, from: &Receiver<T>, until: Instant) -> Result<T, RecvTimeoutError> {
        let begin = Instant::now();
        self.recover(begin);
        let heard = hear(from, until.min(begin + self.left));
        self.left = self.left.saturating_sub(begin.elapsed());
        heard
    }

    fn recover(&mut self, now: Instant) {
        let rested = now.saturating_duration_since(self.seen) / STAMINA_PER;
        (self.left, self.seen) = ((self.left + rested).min(STAMINA_MAX), now);
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

    #[test]
    fn nobody_stays_awake_for_more_than_a_quarter_of_the_time() {
        let mut allowance = Allowance::default();
        let (begin, us) = (Instant::now(), Duration::from_micros);
        assert!(!allowance.take(begin, begin + LONGEST + us(1)), "nor for too long at a time");
        assert!(allowance.take(begin, begin + us(100)));
        assert!(!allowance.take(begin + us(100), begin + us(200)));
        assert!(!allowance.take(begin + us(399), begin + us(499)));
        assert!(allowance.take(begin + us(400), begin + us(500)));
        let asks = (1_000..101_000).map(|at| (begin + us(at), begin + us(at + 120)));
        let awake = asks.filter(|&(from, until)| allowance.take(from, until)).count() as u64 * 120;
        assert!((24_000..=25_120).contains(&awake), "{awake} of 100,000 us");
        assert!(allowance.take(begin + us(200_000), begin + us(200_300)));
        let back = begin + us(200_000);
        assert!(!allowance.take(back + us(10), back + us(5)), "what is over already");
    }

    #[test]
    fn whoever_stands_by_all_the_time_is_awake_for_half_of_it() {
        let (_say, heard) = mpsc::channel::<u32>();
        let (mut stamina, begin) = (Stamina::default(), Instant::now());
        let (mut awake, mut first) = (Duration::ZERO, None);
        while awake < 10 * STAMINA_MAX {
            let from = Instant::now();
            let nothing = stamina.hear(&heard, from + Duration::from_secs(60));
            assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
            // A thread that others keep off the processor was not awake for longer than it says.
            awake += from.elapsed().min(STAMINA_MAX);
            first.get_or_insert(awake);
        }
        assert_eq!(first, Some(STAMINA_MAX), "as long as it can, and no longer");
        let most = begin.elapsed() / STAMINA_PER + 2 * STAMINA_MAX;
        assert!(awake <= most, "{awake:?} of {:?}", begin.elapsed());
    }

    #[test]
    fn what_was_heard_at_once_costs_no_stamina() {
        let (say, heard) = mpsc::channel();
        let mut stamina = Stamina::default();
        let until = Instant::now() + Duration::from_secs(60);
        for number in 0..100 {
            say.send(number).unwrap();
            assert_eq!(stamina.hear(&heard, until), Ok(number));
        }
        let (left, seen) = (Duration::ZERO, Instant::now());
        say.send(7).unwrap();
        let mut tired = Stamina { left, seen };
        assert_eq!(tired.hear(&heard, until), Ok(7), "what is there is heard");
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
