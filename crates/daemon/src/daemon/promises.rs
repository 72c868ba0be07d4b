//! What those who wait were told about when they are next. A forecast goes by what programs usually do; where one does something
//! else, the figure may stand still though time goes by. Such a one is not told any more.

use sched::{Span, TenantId, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The same wait begins at the same instant, but for the time that asking takes.
const SAME_WAIT: Span = Span::from_millis(100);

/// A forecast that has grown by more than this, and by a quarter, is another one: somebody came, or grew.
const GROWN: Span = Span::from_secs(1);

/// Of how many this is remembered.
const PROMISES_MAX: usize = 4096;

/// What somebody was told.
#[derive(Clone, Copy, Debug)]
struct Promise {
    waits_since: Time,
    /// When it would be next.
    due: Time,
    /// How long that was when it was told last.
    last: Span,
}

/// See the module. Whoever asks how things are changes nothing else.
#[derive(Debug, Default)]
pub(super) struct Promises(RefCell<BTreeMap<TenantId, Promise>>);

impl Promises {
    /// A forecast for somebody who has waited for so long, if it is worth saying: not if the first one has failed by more time
    /// than this one says is left.
    pub(super) fn worth_saying(
        &self,
        tenant: TenantId,
        now: Time,
        waited: Span,
        forecast: Option<Span>,
    ) -> Option<Span> {
        let forecast = forecast?;
        let waits_since = now.before(waited);
        let new = Promise { waits_since, due: now + forecast, last: forecast };
        let mut told = self.0.borrow_mut();
        let is_same = |promise: &Promise| {
            let (begun, begins) = (promise.waits_since, waits_since);
            begun.since(begins).max(begins.since(begun)) <= SAME_WAIT
                && forecast <= promise.last + Span(promise.last.0 / 4).max(GROWN)
        };
        match told.get_mut(&tenant).filter(|promise| is_same(promise)) {
            Some(promise) if now.since(promise.due) > forecast => return None,
            Some(promise) => promise.last = forecast,
            None => {
                // Those who are gone are not told of.
                if told.len() >= PROMISES_MAX {
                    told.clear();
                }
                told.insert(tenant, new);
            }
        }
        Some(forecast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId(1);

    fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    /// What is told of a forecast to somebody who waits since the beginning.
    fn told(promises: &Promises, at_ms: u64, forecast_ms: u64) -> bool {
        let now = Time::ZERO + ms(at_ms);
        promises.worth_saying(ONE, now, ms(at_ms), Some(ms(forecast_ms))).is_some()
    }

    #[test]
    fn a_figure_that_stands_still_is_not_told_for_ever() {
        let promises = Promises::default();
        assert!(
            told(&promises, 500, 1_500) && told(&promises, 1_500, 1_500) && told(&promises, 3_000, 1_500)
        );
        assert!(!told(&promises, 3_600, 1_500) && !told(&promises, 30_000, 1_500));
        // A turn later it is another wait, and somebody else's is another anyway.
        let now = Time::ZERO + ms(31_000);
        assert!(promises.worth_saying(ONE, now, ms(10), Some(ms(1_500))).is_some());
        assert!(promises.worth_saying(TenantId(2), now, ms(31_000), Some(ms(1_500))).is_some());
        assert!(promises.worth_saying(ONE, now, ms(10), None).is_none());
    }

    #[test]
    fn one_that_comes_nearer_is_told_to_the_end_and_one_that_grows_is_another() {
        let promises = Promises::default();
        assert!((0..=20).all(|second| told(&promises, second * 1_000, 20_000 - second * 1_000)));
        // A little late.
        assert!(told(&promises, 20_500, 1_000));
        // Somebody came between.
        assert!(told(&promises, 30_000, 15_000) && told(&promises, 44_000, 1_000));
        assert!(!told(&promises, 47_000, 1_000));
    }
}
