//! Work of a known amount at a known rate: how much of it is due.

use std::ops::Range;

use vgpu_messages::quantity::{Nanos, Rate};

/// The most units (bytes, mostly) that one step should do.
const STEP_MAX: u64 = 1 << 20;

/// So much to do, at such a rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rate: Rate,
    total: u64,
    done: u64,
    spent: Nanos,
}

impl Pace {
    /// Nothing is done yet.
    pub fn new(total: u64, rate: Rate) -> Self {
        Self { rate, total, done: 0, spent: Nanos::ZERO }
    }

    /// What is to be done in this time.
    pub fn advance(&mut self, time: Nanos) -> Range<u64> {
        self.spent += time;
        let due = if self.spent >= self.rate.time_of(self.total) {
            self.total
        } else {
            self.rate.amount_in(self.spent).min(self.total)
        };
        let range = self.done..due.max(self.done);
        self.done = range.end;
        range
    }

    /// Whether all is done.
    pub fn is_over(&self) -> bool {
        self.done == self.total && self.spent >= self.rate.time_of(self.total)
    }

    /// The time that is left.
    pub fn remaining(&self) -> Nanos {
        self.rate.time_of(self.total).since(self.spent)
    }

    /// The time of a step that does not do too much at once.
    pub fn longest_step(&self) -> Nanos {
        Nanos(self.rate.time_of(STEP_MAX).0.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_and_take_the_time_of_the_whole() {
        let mut pace = Pace::new(1_000_003, Rate(7_000_000));
        let whole = pace.remaining();
        let (mut next, mut time) = (0, Nanos::ZERO);
        while !pace.is_over() {
            let step = Nanos(1_234_567.min(pace.remaining().0));
            let range = pace.advance(step);
            assert_eq!(range.start, next);
            next = range.end;
            time += step;
        }
        assert_eq!((next, time), (1_000_003, whole));
    }

    #[test]
    fn nothing_to_do_is_over_at_once() {
        let mut pace = Pace::new(0, Rate(5));
        assert_eq!(pace.advance(Nanos::ZERO), 0..0);
        assert!(pace.is_over());
    }
}
