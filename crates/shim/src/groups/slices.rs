//! How often the daemon is told that the program has given itself time slices: it sets its own again each time, in all groups
//! of the session, and a program may do it in a loop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Told at once so often, and beyond that once in so long.
const AT_ONCE: u64 = 10;
const EACH_NS: u64 = 100_000_000;

/// What is to be done about a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// It is told.
    Now,
    /// It is told after so many nanoseconds.
    After(u64),
    /// There is nothing to tell, or it is known already that there will be.
    Nothing,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    /// There is something that was not told.
    late: AtomicBool,
    /// What was told would have taken so long, had it been told once in [`EACH_NS`].
    told_until_ns: AtomicU64,
}

impl Slices {
    /// The program has given itself a slice.
    pub(super) fn changed(&self, now_ns: u64) -> Telling {
        match self.allow(now_ns) {
            Ok(()) => Telling::Now,
            Err(_) if self.late.swap(true, SeqCst) => Telling::Nothing,
            Err(wait_ns) => Telling::After(wait_ns),
        }
    }

    /// Whether to tell what was not told before.
    pub(super) fn look(&self, now_ns: u64) -> Telling {
        if !self.late.swap(false, SeqCst) {
            return Telling::Nothing;
        }
        match self.allow(now_ns) {
            Ok(()) => Telling::Now,
            Err(wait_ns) => {
                self.late.store(true, SeqCst);
                Telling::After(wait_ns)
            }
        }
    }

    fn allow(&self, now_ns: u64) -> Result<(), u64> {
        let until = |told_ns: u64| told_ns.max(now_ns) + EACH_NS;
        let latest = now_ns + AT_ONCE * EACH_NS;
        let allowed = |told_ns: u64| Some(until(told_ns)).filter(|until| *until <= latest);
        let told = self.told_until_ns.fetch_update(SeqCst, SeqCst, allowed);
        told.map(drop).map_err(|told_ns| until(told_ns) - latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_loop_of_changes_is_told_ten_times_a_second_and_its_end_too() {
        let slices = Slices::default();
        let mut told = Vec::new();
        // One in each 1 ms, for five seconds, and the agent looks as often.
        let end_ns = 12 * SECOND_NS - 1_000_000;
        for now_ns in (7 * SECOND_NS..=end_ns).step_by(1_000_000) {
            for telling in [slices.changed(now_ns), slices.look(now_ns)] {
                if telling == Telling::Now {
                    told.push(now_ns);
                }
            }
        }
        assert_eq!(told[..10].last(), Some(&(7 * SECOND_NS + 9_000_000)), "a few are told at once");
        assert!((58..=60).contains(&told.len()), "{}", told.len());
        let Telling::After(wait_ns) = slices.look(end_ns) else { panic!("the last is told of, too") };
        assert!(wait_ns <= EACH_NS);
        assert_eq!(slices.look(end_ns + wait_ns), Telling::Now);
        assert_eq!(slices.look(13 * SECOND_NS), Telling::Nothing);
    }

    #[test]
    fn the_agent_is_woken_once_for_what_is_told_later() {
        let slices = Slices::default();
        assert!((0..AT_ONCE).all(|_| slices.changed(SECOND_NS) == Telling::Now));
        assert_eq!(slices.changed(SECOND_NS), Telling::After(EACH_NS));
        assert_eq!(slices.changed(SECOND_NS), Telling::Nothing);
        // Long after, as many as at first.
        assert!((0..AT_ONCE).all(|_| slices.changed(3 * SECOND_NS) == Telling::Now));
    }
}
