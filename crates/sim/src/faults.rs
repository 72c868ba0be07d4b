//! What goes wrong with an action, by chance.

use sched::Span;

use crate::random::Random;
use crate::scenario::Faults;

/// What became of one action's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing: it comes when it should.
    None,
    /// It was done in time, but word of it comes late by this.
    Late(Span),
    /// It was not done, or only in part.
    Failed,
    /// It was done, but word of it never comes.
    Lost,
}

/// Decides what goes wrong.
#[derive(Clone, Debug)]
pub struct Luck {
    faults: Faults,
    random: Random,
}

impl Luck {
    /// That of a seed.
    pub fn new(faults: &Faults, seed: u64) -> Self {
        Self { faults: faults.clone(), random: Random::new(seed, LANE) }
    }

    /// What becomes of the next action.
    pub fn draw(&mut self) -> Mishap {
        if self.random.happens(self.faults.lost) {
            Mishap::Lost
        } else if self.random.happens(self.faults.failed) {
            Mishap::Failed
        } else if self.random.happens(self.faults.late) {
            Mishap::Late(self.faults.late_by)
        } else {
            Mishap::None
        }
    }

    /// One of two.
    pub fn coin(&mut self) -> bool {
        self.random.number() & 1 == 0
    }
}

/// Apart from the lanes of tenants, which are small numbers.
const LANE: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;
    use sched::Ratio;

    #[test]
    fn mishaps_come_as_often_as_said() {
        let faults = Faults {
            late: Ratio::from_percent(20),
            late_by: Span(5),
            failed: Ratio::from_percent(10),
            lost: Ratio::from_percent(5),
        };
        let mut luck = Luck::new(&faults, 3);
        let draws: Vec<_> = (0..100_000).map(|_| luck.draw()).collect();
        let share = |what| draws.iter().filter(|one| **one == what).count() as f64 / draws.len() as f64;
        assert!((share(Mishap::Lost) - 0.05).abs() < 0.005);
        assert!((share(Mishap::Failed) - 0.095).abs() < 0.005);
        assert!((share(Mishap::Late(Span(5))) - 0.171).abs() < 0.006);
        assert!(Luck::new(&Faults::default(), 3).draw() == Mishap::None);
    }
}
