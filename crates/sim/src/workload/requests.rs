//! Requests as they come to a service, with the hints ahead of them.

use sched::Span;

use crate::random::Random;
use crate::scenario::{Hints, Work};

/// One request that will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// How long after the one before it, or after the beginning.
    pub after: Span,
    /// GPU time of it.
    pub service: Span,
    /// A hint: how long ahead it is sent, and how wrongly it names the instant.
    pub hint: Option<Wrong>,
    /// A hint for nothing: how long after the request before it is sent, and in which time nothing comes.
    pub false_hint: Option<(Span, Span)>,
}

/// How a hint names an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// How long before the request it is sent.
    pub ahead: Span,
    /// It says the request comes this much later than it will.
    pub late: Span,
    /// It says the request comes this much earlier than it will.
    pub early: Span,
}

/// The stream of requests of a tenant.
#[derive(Clone, Debug)]
pub struct Requests {
    period: Span,
    poisson: bool,
    service: Span,
    left: Option<u64>,
    hints: Option<Hints>,
    random: Random,
}

impl Requests {
    /// That of one tenant; none for work of another kind. `lane` tells the tenants of a scenario apart.
    pub fn new(work: &Work, seed: u64, lane: u64) -> Option<Self> {
        let Work::Requests { per_second, poisson, service, count, ref hints } = *work else { return None };
        Some(Self {
            period: Span((1e9 / per_second.max(1e-9)) as u64),
            poisson,
            service,
            left: (count != 0).then_some(count),
            hints: hints.clone(),
            random: Random::new(seed, lane),
        })
    }
}

impl Iterator for Requests {
    type Item = Coming;

    fn next(&mut self) -> Option<Coming> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let after = if self.poisson { self.random.span(self.period) } else { self.period };
        let (mut hint, mut false_hint) = (None, None);
        if let Some(hints) = &self.hints {
            if !self.random.happens(hints.missing) {
                let error = self.random.below(hints.error);
                let (late, early) =
                    if self.random.number() & 1 == 0 { (error, Span::ZERO) } else { (Span::ZERO, error) };
                hint = Some(Wrong { ahead: hints.ahead, late, early });
            }
            if self.random.happens(hints.false_per_request) {
                false_hint = Some((self.random.below(after), hints.ahead));
            }
        }
        Some(Coming { after, service: self.service, hint, false_hint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::Ratio;

    fn work(poisson: bool, hints: Option<Hints>) -> Work {
        Work::Requests { per_second: 100.0, poisson, service: Span(70_000), count: 10_000, hints }
    }

    fn all(work: &Work) -> Vec<Coming> {
        Requests::new(work, 5, 1).expect("it is a service").collect()
    }

    #[test]
    fn they_come_evenly_or_at_random_around_the_mean() {
        let even = all(&work(false, None));
        assert_eq!(even.len(), 10_000);
        assert!(even.iter().all(|one| one.after == Span::from_millis(10) && one.hint.is_none()));
        let mean = all(&work(true, None)).iter().map(|one| one.after.0).sum::<u64>() as f64 / 1e4;
        assert!((mean / 1e7 - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn hints_are_missing_wrong_or_false_as_often_as_said() {
        let hints = Hints {
            ahead: Span::from_millis(3),
            error: Span(400_000),
            missing: Ratio::from_percent(25),
            false_per_request: Ratio::from_percent(10),
        };
        let all = all(&work(false, Some(hints)));
        let hinted = all.iter().filter_map(|one| one.hint).collect::<Vec<_>>();
        assert!((hinted.len() as f64 / 7_500.0 - 1.0).abs() < 0.05);
        assert!(hinted.iter().all(|hint| hint.late + hint.early < Span(400_000)));
        assert!(hinted.iter().any(|hint| hint.late > Span::ZERO));
        assert!(hinted.iter().any(|hint| hint.early > Span::ZERO));
        let wrong = all.iter().filter(|one| one.false_hint.is_some()).count();
        assert!((wrong as f64 / 1_000.0 - 1.0).abs() < 0.15, "{wrong}");
    }
}
