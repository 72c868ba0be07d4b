//! Those who have connected and not said a word yet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::Connection;

/// The most who wait at a time. Whoever comes then takes the place of the first: workers speak at once.
const GUESTS_MAX: usize = 8;
/// How long somebody may take to say its first word.
const FIRST_WORD_WITHIN: Duration = Duration::from_secs(5);

/// See the module. In the order they came.
#[derive(Debug, Default)]
pub(super) struct Door {
    guests: VecDeque<(Connection, Instant)>,
}

impl Door {
    pub(super) fn guests(&self) -> impl Iterator<Item = &Connection> {
        self.guests.iter().map(|(connection, _)| connection)
    }

    pub(super) fn add(&mut self, connection: Connection, now: Instant) {
        if self.guests.len() >= GUESTS_MAX {
            self.guests.pop_front();
        }
        self.guests.push_back((connection, now));
    }

    pub(super) fn take(&mut self, at: usize) -> Option<Connection> {
        self.guests.remove(at).map(|(connection, _)| connection)
    }

    /// How long until somebody has been silent for too long.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let (_, since) = self.guests.front()?;
        Some(FIRST_WORD_WITHIN.saturating_sub(now.saturating_duration_since(*since)))
    }

    /// Hangs up on those who have been silent for too long.
    pub(super) fn close_to_the_silent(&mut self, now: Instant) {
        self.guests.retain(|(_, since)| now.saturating_duration_since(*since) < FIRST_WORD_WITHIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_go_and_the_others_stay() {
        let (mut door, start) = (Door::default(), Instant::now());
        assert_eq!(door.patience(start), None);
        for seconds in 0..GUESTS_MAX as u64 {
            door.add(Connection::pair().expect("a socket").0, start + Duration::from_secs(seconds));
        }
        let now = start + FIRST_WORD_WITHIN;
        assert_eq!(door.patience(now), Some(Duration::ZERO));
        door.close_to_the_silent(now);
        assert_eq!(door.guests().count(), GUESTS_MAX - 1);
        assert_eq!(door.patience(now), Some(Duration::from_secs(1)));
        assert!(door.take(GUESTS_MAX - 1).is_none() && door.take(0).is_some());
    }

    #[test]
    fn a_full_door_lets_the_first_one_go() {
        let (mut door, start) = (Door::default(), Instant::now());
        for seconds in 0..=GUESTS_MAX as u64 {
            door.add(Connection::pair().expect("a socket").0, start + Duration::from_secs(seconds));
        }
        assert_eq!(door.guests().count(), GUESTS_MAX);
        assert_eq!(door.patience(start + Duration::from_secs(1)), Some(FIRST_WORD_WITHIN));
    }
}
