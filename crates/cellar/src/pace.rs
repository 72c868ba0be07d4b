//! How fast things are, measured while they happen. The clock is the caller's: everything here takes `now`.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// Bytes after which a window ends and counts.
const WINDOW_BYTES: u64 = 16 << 20;
/// Windows that are remembered.
const WINDOWS_MAX: usize = 16;

/// Bytes a second. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Speed(f64);

impl Speed {
    /// So many bytes in so much time; none if nothing happened, or no time passed.
    pub fn of(bytes: u64, took: Duration) -> Option<Speed> {
        (bytes > 0 && !took.is_zero()).then(|| Speed(bytes as f64 / took.as_secs_f64()))
    }

    /// So many bytes a second, at least one.
    pub fn bytes_per_second(bytes: u64) -> Speed {
        Speed(bytes.max(1) as f64)
    }

    /// As a number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} MB/s", self.0 / 1e6)
    }
}

/// What several at once get out of one thing: a disk. Time counts while anybody uses it.
///
/// The speed is the best of the last windows, not the mean: a disk that has little to do looks slow, and would look
/// slower the more is packed before it. When it really becomes slower, the better windows are forgotten soon.
#[derive(Debug, Default)]
pub struct Meter {
    users: u32,
    busy_since: Option<Instant>,
    busy: Duration,
    bytes: u64,
    windows: VecDeque<Speed>,
}

impl Meter {
    /// Somebody begins.
    pub fn begin(&mut self, now: Instant) {
        self.users += 1;
        self.busy_since.get_or_insert(now);
    }

    /// Somebody has moved this many bytes, none if it failed.
    pub fn end(&mut self, now: Instant, bytes: u64) {
        let since = self.busy_since.take().unwrap_or(now);
        self.users = self.users.saturating_sub(1);
        self.busy_since = (self.users > 0).then_some(now);
        self.add(now.saturating_duration_since(since), bytes);
    }

    /// It was used for so long, for so many bytes: where time is not the clock's, but a processor's.
    pub fn add(&mut self, took: Duration, bytes: u64) {
        self.busy += took;
        self.bytes += bytes;
        if self.bytes >= WINDOW_BYTES {
            if let Some(speed) = Speed::of(self.bytes, self.busy) {
                if self.windows.len() == WINDOWS_MAX {
                    self.windows.pop_front();
                }
                self.windows.push_back(speed);
            }
            (self.bytes, self.busy) = (0, Duration::ZERO);
        }
    }

    /// Whether nobody uses it now.
    pub fn is_idle(&self) -> bool {
        self.users == 0
    }

    /// The best of late, once there was a window.
    pub fn speed(&self) -> Option<Speed> {
        self.windows.iter().copied().reduce(|a, b| if a > b { a } else { b })
    }
}

/// What share of a processor a thread gets while it computes: less than one where others want them, too.
///
/// A trial of microseconds never notices that: it is over before anybody else has the processor. Whole blocks do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    processor_s: f64,
    clock_s: f64,
}

/// What is left of the past with each new measurement: about fifty of them count.
const PAST: f64 = 0.98;
/// A share is never less.
const SHARE_MIN: f64 = 0.001;

impl Share {
    /// A thread computed for so much processor time, which took so long by the clock.
    pub fn add(&mut self, processor: Duration, clock: Duration) {
        self.processor_s = self.processor_s * PAST + processor.as_secs_f64();
        self.clock_s = self.clock_s * PAST + clock.as_secs_f64();
    }

    /// Between just above zero and one, if anything was measured.
    pub fn get(&self) -> Option<f64> {
        (self.clock_s > 0.0).then(|| (self.processor_s / self.clock_s).clamp(SHARE_MIN, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const MIB: u64 = 1 << 20;

    #[test]
    fn time_counts_once_for_all_who_use_it() {
        let mut meter = Meter::default();
        let start = Instant::now();
        meter.begin(start);
        meter.begin(start + 2 * MS);
        meter.end(start + 8 * MS, 8 * MIB);
        assert_eq!(meter.speed(), None, "no window is over yet");
        assert!(!meter.is_idle());
        meter.end(start + 10 * MS, 8 * MIB);
        assert_eq!(meter.speed(), Speed::of(16 * MIB, 10 * MS));
        // Nobody used it in the second after.
        meter.begin(start + 1010 * MS);
        meter.end(start + 1015 * MS, 16 * MIB);
        assert_eq!(meter.speed(), Speed::of(16 * MIB, 5 * MS));
    }

    #[test]
    fn the_best_of_late_counts_and_is_forgotten() {
        let mut meter = Meter::default();
        let mut now = Instant::now();
        let mut window = |meter: &mut Meter, took: Duration| {
            meter.begin(now);
            now += took;
            meter.end(now, 16 * MIB);
        };
        window(&mut meter, 5 * MS);
        for _ in 0..WINDOWS_MAX - 1 {
            window(&mut meter, 20 * MS);
            assert_eq!(meter.speed(), Speed::of(16 * MIB, 5 * MS));
        }
        window(&mut meter, 20 * MS);
        assert_eq!(meter.speed(), Speed::of(16 * MIB, 20 * MS));
    }

    #[test]
    fn what_fails_moves_no_bytes() {
        let mut meter = Meter::default();
        let start = Instant::now();
        meter.begin(start);
        meter.end(start + 5 * MS, 0);
        meter.begin(start + 10 * MS);
        meter.end(start + 15 * MS, 16 * MIB);
        assert_eq!(meter.speed(), Speed::of(16 * MIB, 10 * MS));
    }

    #[test]
    fn time_can_be_another_than_the_clocks() {
        let mut meter = Meter::default();
        meter.add(2 * MS, 8 * MIB);
        meter.add(2 * MS, 8 * MIB);
        assert_eq!(meter.speed(), Speed::of(16 * MIB, 4 * MS));
    }

    #[test]
    fn a_share_follows_what_is_measured() {
        let mut share = Share::default();
        assert_eq!(share.get(), None);
        for _ in 0..300 {
            share.add(MS, 4 * MS);
        }
        assert!(share.get().is_some_and(|share| (0.24..0.26).contains(&share)), "{share:?}");
        for _ in 0..300 {
            share.add(MS, MS);
        }
        assert!(share.get() > Some(0.95), "{share:?}");
        // Two clocks are never quite the same.
        share.add(20 * MS, MS);
        assert_eq!(share.get(), Some(1.0));
        let mut starved = Share::default();
        starved.add(Duration::ZERO, MS);
        assert_eq!(starved.get(), Some(SHARE_MIN));
    }

    #[test]
    fn there_is_no_speed_of_nothing() {
        assert_eq!(Speed::of(0, MS), None);
        assert_eq!(Speed::of(1, Duration::ZERO), None);
        assert_eq!(Speed::bytes_per_second(0).get(), 1.0);
        assert_eq!(Speed::bytes_per_second(2_500_000).to_string(), "2 MB/s");
    }
}
