//! Whether processors are to spare, by how long a thread had to wait for one of late.
//!
//! The system counts for each thread how often it came to run, and how long it had to wait for that. On a machine with
//! processors to spare that is a few microseconds each time, whatever else goes on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// So often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Who has to wait for longer than this, on average, is on a machine that is busy.
const WAIT_MAX_NS: u64 = 50_000;

/// Of the thread that asks it first, which is to be the only one.
#[derive(Debug, Default)]
pub struct Crowd {
    looked: Option<Instant>,
    /// None where the system says nothing: then nobody is crowded.
    said: Option<File>,
    seen: Option<Waits>,
    is_crowded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waits {
    waited_ns: u64,
    times: u64,
}

impl Crowd {
    /// Are there processors to spare?
    pub fn leaves_room(&mut self, now: Instant) -> bool {
        match self.looked {
            Some(looked) if now.saturating_duration_since(looked) < LOOK_EVERY => return !self.is_crowded,
            Some(_) => {}
            None => self.said = File::open("/proc/thread-self/schedstat").ok(),
        }
        self.looked = Some(now);
        let seen = self.said.as_ref().and_then(read);
        if let (Some(before), Some(seen)) = (self.seen, seen) {
            self.is_crowded = seen.are_long_since(&before);
        }
        self.seen = seen;
        !self.is_crowded
    }
}

impl Waits {
    fn are_long_since(&self, before: &Self) -> bool {
        let times = self.times.saturating_sub(before.times).max(1);
        self.waited_ns.saturating_sub(before.waited_ns) / times > WAIT_MAX_NS
    }

    fn of(said: &str) -> Option<Self> {
        let mut numbers = said.split_whitespace().map_while(|number| number.parse().ok());
        // The first is how long it ran.
        let (waited_ns, times) = (numbers.nth(1)?, numbers.next()?);
        Some(Self { waited_ns, times })
    }
}

fn read(said: &File) -> Option<Waits> {
    let mut text = [0; 64];
    let length = said.read_at(&mut text, 0).ok()?;
    Waits::of(std::str::from_utf8(&text[..length]).ok()?)
}

#[cfg(test)]
impl Crowd {
    /// On a machine that has always processors to spare.
    pub fn of_nobody() -> Self {
        Self { looked: Some(Instant::now() + Duration::from_secs(3600)), ..Self::default() }
    }

    /// On a machine that has none.
    pub fn of_many() -> Self {
        Self { is_crowded: true, ..Self::of_nobody() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_long_for_a_processor_is_on_a_busy_machine() {
        let before = Waits::of("1000 7000000 40\n").unwrap();
        assert_eq!(before, Waits { waited_ns: 7_000_000, times: 40 });
        let after = |waited_us: u64, times: u64| {
            let waited_ns = before.waited_ns + 1000 * waited_us;
            Waits { waited_ns, times: before.times + times }.are_long_since(&before)
        };
        assert!(!after(0, 0) && !after(200, 40), "5 us each time");
        assert!(after(4_000, 40), "100 us each time");
        assert!(after(900, 0), "it waits still");
        assert_eq!(Waits::of("1 2"), None);
        assert_eq!(Waits::of("one two three"), None);
    }

    /// What the system says, by a file that a test writes.
    fn says(file: &tempfile::NamedTempFile, waited_us: u64, times: u64) {
        std::fs::write(file.path(), format!("1000 {} {times}\n", 1000 * waited_us)).unwrap();
    }

    #[test]
    fn it_is_looked_at_now_and_then_and_the_last_look_counts() {
        let (file, begin) = (tempfile::NamedTempFile::new().unwrap(), Instant::now());
        let looks = |count: u32| begin + count * LOOK_EVERY;
        let mut crowd = Crowd { looked: Some(begin), said: Some(file.reopen().unwrap()), ..Crowd::default() };
        says(&file, 7_000, 40);
        assert!(crowd.leaves_room(looks(1)), "nothing is known yet");
        says(&file, 17_000, 50);
        assert!(crowd.leaves_room(looks(1) + LOOK_EVERY / 2), "it was looked at just now");
        assert!(!crowd.leaves_room(looks(2)), "1 ms each time");
        says(&file, 17_100, 60);
        assert!(!crowd.leaves_room(looks(2) + LOOK_EVERY / 2), "it was looked at just now");
        assert!(crowd.leaves_room(looks(3)), "10 us each time");
    }

    #[test]
    fn the_system_is_asked_of_the_thread_that_asks() {
        let waits = || {
            let mut crowd = Crowd::default();
            crowd.leaves_room(Instant::now());
            crowd.seen
        };
        let is_told = std::fs::read_to_string("/proc/thread-self/schedstat").is_ok();
        assert_eq!(waits().is_some(), is_told);
        let Some(before) = waits() else { return };
        std::thread::sleep(Duration::from_millis(1));
        assert!(waits().unwrap().times > before.times, "it slept in between");
        let other = std::thread::spawn(waits).join().unwrap().unwrap();
        let sleeps = 1000;
        (0..sleeps).for_each(|_| std::thread::sleep(Duration::from_micros(1)));
        assert!(
            waits().unwrap().times >= other.times + sleeps / 2,
            "that was another thread, which did not sleep"
        );
    }
}
