//! Waiting for what comes within moments without going to sleep.
//!
//! A thread that sleeps is woken some 20 to 60 us after it could go on, and now and then hundreds of them, above all where the
//! processor is a virtual one. On the way from a hint to a freeze and from the end of a request to the thaw several threads
//! wake one another, and best-effort work stands still meanwhile. So where it is known to the instant that something follows,
//! and there are processors to spare, they stay awake, for fractions of a millisecond. However often something is due,
//! whoever waits for it does so for no more than a quarter of the time, and whoever is told to stand by for no more than half. And
//! where threads have to wait for a processor, all have something to do: then nobody stays awake ([`Crowd`]), so as not to keep a
//! service's own threads from theirs. `standby = "off"` says that nobody ever does.

mod crowd;

pub use crowd::Crowd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// So long before something is due whoever has to do with it is woken.
pub const AHEAD: Duration = Duration::from_micros(120);

/// For no longer than this anybody stays awake for what may come.
pub const LONGEST: Duration = Duration::from_micros(300);

/// After having stayed awake, a thread does not do so again for so many times as long.
const REST_TIMES: u32 = 3;

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
