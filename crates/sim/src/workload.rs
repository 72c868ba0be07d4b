//! What programs do, as a stream of steps: the same for every policy, since each tenant draws from its own chance.

mod requests;

use sched::Span;

pub use self::requests::{Coming, Requests};
use crate::random::Random;
use crate::scenario::Work;

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// So much GPU time.
    Compute(Span),
    /// The host is busy for so long, and work for the GPU follows at once.
    Pause(Span),
    /// Nothing for so long, and the program says so.
    Rest(Span),
    /// It ends.
    Over,
}

/// A pause longer than this is noticed by whoever watches the program.
pub const PAUSE_NOTICED: Span = Span::from_millis(5);

/// A program that computes and pauses; services are [`Requests`].
#[derive(Clone, Debug)]
pub struct Program {
    work: Work,
    random: Random,
    computed: u64,
    computes: bool,
}

impl Program {
    /// That of one tenant. `lane` tells the tenants of a scenario apart.
    pub fn new(work: &Work, seed: u64, lane: u64) -> Self {
        Self { work: work.clone(), random: Random::new(seed, lane), computed: 0, computes: false }
    }

    /// The next step.
    #[expect(clippy::should_implement_trait, reason = "it does not run out: its last step is to end")]
    pub fn next(&mut self) -> Next {
        let (compute, pause, count) = match self.work {
            Work::Steady { total } => (total, Span::ZERO, 1),
            Work::Steps { busy, pause, count } => (busy, pause, count),
            Work::Bursts { on, off, count } => {
                let mean = if self.computes { off } else { on };
                let drawn = self.random.span(mean).max(Span(1));
                (drawn, drawn, count)
            }
            Work::Requests { .. } => return Next::Over,
        };
        if self.computes && pause > Span::ZERO && !self.is_last(count) {
            self.computes = false;
            return match self.work {
                Work::Bursts { .. } => Next::Rest(pause),
                _ if pause > PAUSE_NOTICED => Next::Rest(pause),
                _ => Next::Pause(pause),
            };
        }
        if self.is_last(count) {
            return Next::Over;
        }
        self.computed += 1;
        self.computes = true;
        Next::Compute(compute)
    }

    fn is_last(&self, count: u64) -> bool {
        count != 0 && self.computed >= count
    }
}

/// Does this work end by itself?
pub fn ends(work: &Work) -> bool {
    match work {
        Work::Steady { .. } => true,
        Work::Steps { count, .. } | Work::Bursts { count, .. } | Work::Requests { count, .. } => *count != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(work: &Work) -> Vec<Next> {
        let mut program = Program::new(work, 1, 1);
        let mut steps = Vec::new();
        while steps.len() < 1_000 {
            let next = program.next();
            if next == Next::Over {
                break;
            }
            steps.push(next);
        }
        steps
    }

    #[test]
    fn steady_work_is_one_step() {
        assert_eq!(all(&Work::Steady { total: Span(7) }), [Next::Compute(Span(7))]);
    }

    #[test]
    fn steps_have_pauses_between_them_and_long_ones_are_noticed() {
        let steps = |pause| all(&Work::Steps { busy: Span(7), pause, count: 2 });
        assert_eq!(steps(Span(3)), [Next::Compute(Span(7)), Next::Pause(Span(3)), Next::Compute(Span(7))]);
        let long = Span::from_millis(6);
        assert_eq!(steps(long), [Next::Compute(Span(7)), Next::Rest(long), Next::Compute(Span(7))]);
        assert_eq!(steps(Span::ZERO), [Next::Compute(Span(7)); 2]);
        assert_eq!(all(&Work::Steps { busy: Span(7), pause: Span(1), count: 0 }).len(), 1_000);
    }

    #[test]
    fn bursts_vary_around_their_means() {
        let steps = all(&Work::Bursts { on: Span(1_000_000), off: Span(500_000), count: 400 });
        assert_eq!(steps.len(), 799);
        let sum = |wanted: fn(&Next) -> Option<Span>| steps.iter().filter_map(wanted).sum::<Span>().0 as f64;
        let on = sum(|next| if let Next::Compute(span) = next { Some(*span) } else { None }) / 400.0;
        let off = sum(|next| if let Next::Rest(span) = next { Some(*span) } else { None }) / 399.0;
        assert!((on / 1e6 - 1.0).abs() < 0.2, "{on}");
        assert!((off / 5e5 - 1.0).abs() < 0.2, "{off}");
    }
}
