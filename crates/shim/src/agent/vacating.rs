//! Answering the order to keep out of the driver.

use std::time::{Duration, Instant};

use wire::{Occupant, ToDaemon};

use super::Next;
use crate::demand::vacate;
use crate::session::Session;

/// How often it is looked whether everybody is out of the driver.
const LOOK: Next = Next::Within(200_000);

/// How long work may be left although nobody is inside any more: whoever has waited for it says so a moment after it is out.
const SETTLES_WITHIN: Duration = Duration::from_millis(250);

/// An order that is not answered yet.
#[derive(Debug)]
pub(super) struct Vacating {
    number: u64,
    /// Since when nobody is inside, and something is left.
    occupied_since: Option<Instant>,
}

impl Vacating {
    pub(super) fn of(number: u64) -> Self {
        Self { number, occupied_since: None }
    }

    /// What to say, if that is certain now.
    fn answer(&mut self, vacant: bool, occupant: Option<Occupant>, now: Instant) -> Option<ToDaemon> {
        let number = self.number;
        if !vacant {
            self.occupied_since = None;
            return None;
        }
        match occupant {
            None => Some(ToDaemon::Vacated { number }),
            Some(by @ Occupant::Foreign) => Some(ToDaemon::Occupied { number, by }),
            Some(by @ Occupant::Work) => {
                let since = *self.occupied_since.get_or_insert(now);
                (now.duration_since(since) >= SETTLES_WITHIN).then_some(ToDaemon::Occupied { number, by })
            }
        }
    }
}

/// Says that the driver is vacant, as soon as it is, or what else it has to stay for.
pub(super) fn go_on(session: &Session, vacating: &mut Option<Vacating>) -> Next {
    let Some(order) = vacating else { return Next::WhenWoken };
    let Some(answer) = order.answer(vacate::is_vacant(), vacate::occupant(), Instant::now()) else {
        return LOOK;
    };
    *vacating = None;
    if matches!(answer, ToDaemon::Vacated { .. }) {
        vacate::clear();
    }
    session.say(answer);
    Next::AtOnce
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_nobody_waits_for_is_told_of_after_a_moment_and_foreign_memory_at_once() {
        let (begin, number) = (Instant::now(), 3);
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut order = Vacating::of(number);
        let work = Some(Occupant::Work);
        assert_eq!(order.answer(false, work, at(0)), None, "somebody is inside");
        assert_eq!(order.answer(true, work, at(100)), None);
        assert_eq!(order.answer(false, work, at(200)), None);
        assert_eq!(order.answer(true, work, at(300)), None);
        assert_eq!(order.answer(true, work, at(549)), None, "not for long enough");
        let by = Occupant::Work;
        assert_eq!(order.answer(true, work, at(550)), Some(ToDaemon::Occupied { number, by }));
        assert_eq!(order.answer(true, None, at(550)), Some(ToDaemon::Vacated { number }));
        let by = Occupant::Foreign;
        assert_eq!(
            Vacating::of(number).answer(true, Some(by), at(0)),
            Some(ToDaemon::Occupied { number, by })
        );
        assert_eq!(order.answer(false, None, at(600)), None);
    }
}
