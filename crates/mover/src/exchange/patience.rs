//! How long an exchange waits while nothing moves.
//!
//! What counts is time in which somebody looked and nothing had moved. Where all stood still, this process too, the clock went
//! on and nobody looked: a machine that was asleep, or far too busy, is no reason to give a move up.

use super::Reply;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long to wait for an answer before looking at the copies again.
const WAIT: Duration = Duration::from_micros(100);

/// So often somebody has looked at least before a move is given up, however late each look came.
const LOOKS_MIN: u32 = 8;

/// The time as exchanges see it.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// In tests: time that passes only where an exchange waits.
    #[cfg(test)]
    driven: Option<driven::Driven>,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock {
            start: Instant::now(),
            #[cfg(test)]
            driven: None,
        }
    }

    /// How long it is since this clock was made.
    pub(super) fn now(&self) -> Duration {
        #[cfg(test)]
        if let Some(driven) = &self.driven {
            return driven.now();
        }
        self.start.elapsed()
    }

    /// Waits for an answer, but not long.
    pub(super) fn wait(&self, replies: &Receiver<Reply>) -> Option<Reply> {
        #[cfg(test)]
        if let Some(driven) = &self.driven {
            driven.pass();
            return replies.try_recv().ok();
        }
        match replies.recv_timeout(WAIT) {
            Ok(reply) => Some(reply),
            Err(RecvTimeoutError::Timeout) => None,
            // Nobody answers any more: copies under way still end, the rest runs into the deadline.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(WAIT);
                None
            }
        }
    }
}

/// How long nothing has moved.
#[derive(Debug)]
pub(super) struct Idleness {
    deadline: Duration,
    idle: Duration,
    /// When somebody looked last.
    looked: Duration,
}

impl Idleness {
    pub(super) fn new(deadline: Duration, now: Duration) -> Idleness {
        Idleness { deadline, idle: Duration::ZERO, looked: now }
    }

    /// Something has moved.
    pub(super) fn moved(&mut self, now: Duration) {
        self.idle = Duration::ZERO;
        self.looked = now;
    }

    /// Nothing has moved since the last look. Says for how long by now, if that is too long.
    pub(super) fn look(&mut self, now: Duration) -> Option<Duration> {
        self.idle += now.saturating_sub(self.looked).min(self.deadline / LOOKS_MIN);
        self.looked = now;
        (self.idle >= self.deadline).then_some(self.idle)
    }
}

#[cfg(test)]
pub(super) mod driven;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_moves_is_waited_for_and_what_does_not_is_given_up() {
        let mut idleness = Idleness::new(100 * MS, 7 * MS);
        for at in 8..107 {
            assert_eq!(idleness.look(at * MS), None, "at {at} ms");
        }
        idleness.moved(107 * MS);
        assert_eq!(idleness.look(119 * MS), None);
        for at in 120..207 {
            assert_eq!(idleness.look(at * MS), None, "at {at} ms");
        }
        assert_eq!(idleness.look(207 * MS), Some(100 * MS));
    }

    #[test]
    fn time_in_which_nobody_looked_counts_little() {
        let mut idleness = Idleness::new(800 * MS, Duration::ZERO);
        for hour in 1..LOOKS_MIN {
            assert_eq!(idleness.look(hour * 3_600_000 * MS), None, "after {hour} hours");
        }
        assert_eq!(idleness.look(100 * 3_600_000 * MS), Some(800 * MS));
        assert_eq!(Idleness::new(Duration::ZERO, MS).look(MS), Some(Duration::ZERO), "no patience at all");
    }
}
