//! Whether freezing works here, judged by behaviour: a heartbeat kernel's counter has to stand still while
//! frozen and to go on when thawed. A status of the driver is no proof, because some controls return success and do nothing.
//!
//! Pure but for what is passed in: the counter, freeze, thaw and the clock. The caller launches the kernel
//! ([`crate::HEARTBEAT_PTX`]) and stops it.

use std::time::{Duration, Instant};

/// Time as the self-test needs it.
pub trait Clock {
    /// Time since some fixed instant.
    fn now(&self) -> Duration;
    /// Waits.
    fn sleep(&self, time: Duration);
}

/// The system's own clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Counts from now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// How thoroughly to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How often to freeze and thaw.
    pub rounds: u32,
    /// How long the heartbeat runs between rounds.
    pub run: Duration,
    /// How long after a freeze writes that were under way may still arrive.
    pub settle: Duration,
    /// How long the counter is then watched standing still.
    pub watch: Duration,
    /// How long to wait for the counter to move, at first and after each thaw.
    pub patience: Duration,
}

/// The pause between two looks at a counter that should move.
const POLL: Duration = Duration::from_micros(50);

impl Default for Plan {
    fn default() -> Self {
        Self {
            rounds: 5,
            run: Duration::from_millis(5),
            settle: Duration::from_millis(2),
            watch: Duration::from_millis(20),
            // The driver was seen to take 27 ms when busy with other programs; the kernel's start may take longer.
            patience: Duration::from_secs(2),
        }
    }
}

/// What the self-test found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<E> {
    /// Every round froze and thawed.
    Works {
        /// How many rounds.
        rounds: u32,
        /// The longest time that a freeze took to return.
        freeze_ns_max: u64,
        /// The longest time from asking for a thaw until the counter moved.
        thaw_ns_max: u64,
    },
    /// The freeze returned success, and the counter went on.
    DoesNotFreeze {
        /// By how much it went on while it was watched.
        progressed: u64,
    },
    /// The thaw returned success, and the counter stood still.
    DoesNotThaw,
    /// The counter did not move before the first freeze: the kernel does not run, so nothing can be said.
    NoHeartbeat,
    /// Freeze or thaw returned an error.
    ControlFailed(E),
}

/// Freezes and thaws the heartbeat's channels some times and watches its counter.
///
/// Whatever happens, also a panic in what was passed in, the last thing done after a freeze is a thaw.
pub fn run<E>(
    plan: &Plan,
    clock: &impl Clock,
    counter: impl Fn() -> u64,
    mut freeze: impl FnMut() -> Result<(), E>,
    thaw: impl FnMut() -> Result<(), E>,
) -> Verdict<E> {
    if !moves(plan, clock, &counter, counter()) {
        return Verdict::NoHeartbeat;
    }
    let mut thaw = ThawAtEnd { thaw, owed: false };
    let (mut freeze_max, mut thaw_max) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..plan.rounds {
        clock.sleep(plan.run);

        let asked = clock.now();
        // Owed before it is known to have worked: a freeze that failed may have done a part.
        thaw.owed = true;
        if let Err(error) = freeze() {
            return Verdict::ControlFailed(error);
        }
        freeze_max = freeze_max.max(clock.now() - asked);

        clock.sleep(plan.settle);
        let frozen = counter();
        clock.sleep(plan.watch);
        let progressed = counter().wrapping_sub(frozen);
        if progressed != 0 {
            return Verdict::DoesNotFreeze { progressed };
        }

        let asked = clock.now();
        if let Err(error) = (thaw.thaw)() {
            return Verdict::ControlFailed(error);
        }
        if !moves(plan, clock, &counter, frozen) {
            return Verdict::DoesNotThaw;
        }
        thaw.owed = false;
        thaw_max = thaw_max.max(clock.now() - asked);
    }
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Verdict::Works { rounds: plan.rounds, freeze_ns_max: nanos(freeze_max), thaw_ns_max: nanos(thaw_max) }
}

/// Whether the counter leaves `from` within the plan's patience.
fn moves(plan: &Plan, clock: &impl Clock, counter: &impl Fn() -> u64, from: u64) -> bool {
    let begin = clock.now();
    loop {
        if counter() != from {
            return true;
        }
        if clock.now() - begin >= plan.patience {
            return false;
        }
        clock.sleep(POLL);
    }
}

/// Thaws when it goes, if a thaw is owed.
struct ThawAtEnd<E, T: FnMut() -> Result<(), E>> {
    thaw: T,
    owed: bool,
}

impl<E, T: FnMut() -> Result<(), E>> Drop for ThawAtEnd<E, T> {
    fn drop(&mut self) {
        if self.owed {
            // The verdict already says what is wrong; this is the last try.
            let _ = (self.thaw)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A GPU in virtual time, whose counter goes up by one every microsecond unless it is frozen.
    #[derive(Default)]
    struct FakeGpu {
        now_us: Cell<u64>,
        beats: Cell<u64>,
        frozen: Cell<bool>,
        freezes: Cell<u32>,
        thaws: Cell<u32>,
        dead: bool,
        freeze_ignored_from: Option<u32>,
        freeze_fails_from: Option<u32>,
        thaw_ignored: bool,
        thaw_fails_once: bool,
    }

    impl FakeGpu {
        fn pass(&self, us: u64) {
            self.now_us.set(self.now_us.get() + us);
            if !self.frozen.get() && !self.dead {
                self.beats.set(self.beats.get() + us);
            }
        }

        fn freeze(&self) -> Result<(), &'static str> {
            self.pass(600);
            self.freezes.set(self.freezes.get() + 1);
            let reached = |from: Option<u32>| from.is_some_and(|from| self.freezes.get() >= from);
            if !reached(self.freeze_ignored_from) {
                self.frozen.set(true);
            }
            if reached(self.freeze_fails_from) { Err("refused") } else { Ok(()) }
        }

        fn thaw(&self) -> Result<(), &'static str> {
            self.pass(300);
            self.thaws.set(self.thaws.get() + 1);
            if self.thaw_fails_once && self.thaws.get() == 1 {
                return Err("refused");
            }
            if !self.thaw_ignored {
                self.frozen.set(false);
            }
            Ok(())
        }

        fn verdict(&self) -> Verdict<&'static str> {
            run(&Plan::default(), self, || self.beats.get(), || self.freeze(), || self.thaw())
        }
    }

    impl Clock for FakeGpu {
        fn now(&self) -> Duration {
            Duration::from_micros(self.now_us.get())
        }

        fn sleep(&self, time: Duration) {
            self.pass(time.as_micros() as u64);
        }
    }

    #[test]
    fn a_gpu_that_obeys() {
        let gpu = FakeGpu::default();
        let works = Verdict::Works { rounds: 5, freeze_ns_max: 600_000, thaw_ns_max: 350_000 };
        assert_eq!(gpu.verdict(), works);
        assert_eq!((gpu.freezes.get(), gpu.thaws.get(), gpu.frozen.get()), (5, 5, false));
    }

    #[test]
    fn success_without_effect_is_seen_even_in_a_late_round() {
        for from in [1, 4] {
            let gpu = FakeGpu { freeze_ignored_from: Some(from), ..FakeGpu::default() };
            assert_eq!(gpu.verdict(), Verdict::DoesNotFreeze { progressed: 20_000 });
            assert_eq!(gpu.thaws.get(), from, "thawed at the end all the same");
        }
    }

    #[test]
    fn a_thaw_without_effect_is_seen_and_tried_again() {
        let gpu = FakeGpu { thaw_ignored: true, ..FakeGpu::default() };
        assert_eq!(gpu.verdict(), Verdict::DoesNotThaw);
        assert_eq!(gpu.thaws.get(), 2);
    }

    #[test]
    fn errors_are_reported_and_the_gpu_is_left_thawed() {
        let gpu = FakeGpu { freeze_fails_from: Some(2), ..FakeGpu::default() };
        assert_eq!(gpu.verdict(), Verdict::ControlFailed("refused"));
        assert!(!gpu.frozen.get(), "a freeze that failed may have done a part");

        let gpu = FakeGpu { thaw_fails_once: true, ..FakeGpu::default() };
        assert_eq!(gpu.verdict(), Verdict::ControlFailed("refused"));
        assert!(!gpu.frozen.get());
    }

    #[test]
    fn without_a_heartbeat_nothing_is_frozen() {
        let gpu = FakeGpu { dead: true, ..FakeGpu::default() };
        assert_eq!(gpu.verdict(), Verdict::NoHeartbeat);
        assert_eq!((gpu.freezes.get(), gpu.thaws.get()), (0, 0));
    }

    #[test]
    fn a_panic_leaves_the_gpu_thawed() {
        let gpu = FakeGpu::default();
        let counter = || {
            assert!(!gpu.frozen.get(), "the counter's memory is gone");
            gpu.beats.get()
        };
        let test = std::panic::AssertUnwindSafe(|| {
            run(&Plan::default(), &gpu, counter, || gpu.freeze(), || gpu.thaw())
        });
        assert!(std::panic::catch_unwind(test).is_err());
        assert!(!gpu.frozen.get());
    }
}
