//! Device time out of real time.

use std::time::{Duration, Instant};

use vgpu_messages::quantity::Nanos;

/// The most real time that the machine may make up for by going faster than its clock. What is beyond that, it is late.
const LATE_MAX: Duration = Duration::from_millis(20);

/// Real time, scaled, less what the machine could not keep up with.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    scale: f64,
    slipped: Nanos,
}

impl Clock {
    pub(super) fn new(scale: f64) -> Self {
        Self { start: Instant::now(), scale, slipped: Nanos::ZERO }
    }

    fn scaled(&self, time: Duration) -> Nanos {
        Nanos((time.as_nanos() as f64 * self.scale) as u64)
    }

    /// Where the machine should be by now.
    pub(super) fn target(&self) -> Nanos {
        self.scaled(self.start.elapsed()).since(self.slipped)
    }

    /// The machine could not be carried to `target` in the time there was, only to `machine`.
    pub(super) fn fell_behind(&mut self, target: Nanos, machine: Nanos) {
        self.slipped += target.since(machine).since(self.scaled(LATE_MAX));
    }

    /// Real time until the machine should be there.
    pub(super) fn until(&self, instant: Nanos) -> Duration {
        Duration::from_nanos((instant.since(self.target()).0 as f64 / self.scale) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_scaled_and_only_long_delays_are_given_up() {
        let mut clock = Clock::new(10.0);
        clock.start -= Duration::from_secs(1);
        let begin = Instant::now();
        let target = clock.target();
        assert!(target >= Nanos(10_000_000_000));
        clock.fell_behind(target, target.since(Nanos(199_000_000)));
        assert!(clock.target() >= target, "this can be made up for");
        clock.fell_behind(target, Nanos(5_000_000_000));
        let late = clock.target().since(Nanos(5_000_000_000));
        // Ten times what has passed since the target was asked for.
        let passed = clock.scaled(begin.elapsed());
        assert!(late >= Nanos(200_000_000) && late < Nanos(200_001_000) + passed, "{late:?}");
        let begin = Instant::now();
        let wait = clock.until(clock.target() + Nanos(1_000_000_000));
        let passed = begin.elapsed();
        assert!(wait <= Duration::from_millis(100) && wait + passed > Duration::from_millis(99), "{wait:?}");
    }
}
