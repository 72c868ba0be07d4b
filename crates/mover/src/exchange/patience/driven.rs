//! A clock for tests, on which time passes only where an exchange waits; and which can jump, or be the time of a model.

use super::{Clock, WAIT};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What passes at each look that finds nothing.
const STEP: Duration = Duration::from_millis(10);

/// See the module. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub(in crate::exchange) struct Driven(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    now: Duration,
    readings: u64,
    /// At which reading it jumps, and how far.
    jump: Option<(u64, Duration)>,
    model: Option<Model>,
}

/// Has happen what is due by now, and says when something is next.
type Model = Box<dyn FnMut(Duration) -> Option<Duration> + Send>;

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Driven {
    /// For the mover's next exchanges.
    pub(in crate::exchange) fn clock(&self) -> Clock {
        Clock { driven: Some(self.clone()), ..Clock::new() }
    }

    /// From now on time passes until something is next in a model, as [`WAIT`] at the longest.
    pub(in crate::exchange) fn follow(
        &self,
        model: impl FnMut(Duration) -> Option<Duration> + Send + 'static,
    ) {
        self.0.lock().expect("no panic").model = Some(Box::new(model));
    }

    /// What the time is.
    pub(in crate::exchange) fn time(&self) -> Duration {
        self.0.lock().expect("no panic").now
    }

    /// Somebody does something that takes so long.
    pub(in crate::exchange) fn spend(&self, time: Duration) {
        self.0.lock().expect("no panic").now += time;
    }

    /// At the n-th reading (from 1) from now on all have stood still for so long.
    pub(in crate::exchange) fn jump(&self, nth: u64, by: Duration) {
        let mut state = self.0.lock().expect("no panic");
        state.jump = Some((state.readings + nth, by));
    }

    /// Whether it has jumped as it was told.
    pub(in crate::exchange) fn has_jumped(&self) -> bool {
        self.0.lock().expect("no panic").jump.is_none()
    }

    pub(super) fn now(&self) -> Duration {
        let mut state = self.0.lock().expect("no panic");
        state.readings += 1;
        let readings = state.readings;
        if let Some((_, by)) = state.jump.take_if(|(at, _)| *at <= readings) {
            state.now += by;
        }
        let State { now, model, .. } = &mut *state;
        if let Some(model) = model {
            model(*now);
        }
        *now
    }

    pub(super) fn pass(&self) {
        let mut state = self.0.lock().expect("no panic");
        let State { now, model, .. } = &mut *state;
        *now += match model {
            None => STEP,
            Some(model) => {
                let next = model(*now).map_or(WAIT, |next| next.saturating_sub(*now));
                next.clamp(Duration::from_nanos(1), WAIT)
            }
        };
        if let Some(model) = model {
            model(*now);
        }
    }
}
