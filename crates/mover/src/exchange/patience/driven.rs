//! A clock for tests, on which time passes only where an exchange waits; and which can jump.

use super::Clock;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What passes at each look that finds nothing.
const STEP: Duration = Duration::from_millis(10);

/// See the module. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub(in crate::exchange) struct Driven(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now: Duration,
    readings: u64,
    /// At which reading it jumps, and how far.
    jump: Option<(u64, Duration)>,
}

impl Driven {
    /// For the mover's next exchanges.
    pub(in crate::exchange) fn clock(&self) -> Clock {
        Clock { driven: Some(self.clone()), ..Clock::new() }
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
        state.now
    }

    pub(super) fn pass(&self) {
        self.0.lock().expect("no panic").now += STEP;
    }
}
