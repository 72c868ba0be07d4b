//! The shim's own hints: in a latency-critical program that gives none itself, an input that goes to the device after a pause
//! says that kernels follow.
//!
//! How soon they follow is learnt: from the first call that looks up addresses after a pause (a copy, a memset) to the first
//! launch. To see that launch, launches are sent the long way once (`demand`). Where kernels follow at once there is no time
//! to take anybody off the GPU, and no hint is given.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use wire::{HintSource, Page, ToDaemon, monotonic_ns};

use super::requests;
use crate::settings;

/// A pause shorter than this is within a request.
pub(super) const PAUSE_MIN_NS: u64 = 1_000_000;
/// Kernels that follow sooner leave no time for anything.
const LEAD_MIN_NS: u64 = 500_000;
/// A launch that comes later belongs to something else.
pub(super) const LEAD_MAX_NS: u64 = 50_000_000;
/// So many times it must have been seen.
const SEEN_MIN: u64 = 4;

/// The program gives hints itself.
static LEFT: AtomicBool = AtomicBool::new(false);
/// When the input of the request that is on went to the device; 0 if its first launch was seen, or nothing is awaited.
static INPUT_NS: AtomicU64 = AtomicU64::new(0);
/// How soon kernels follow, on average.
static LEAD_NS: AtomicU64 = AtomicU64::new(0);
/// How often that was seen.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// The program gives hints itself from now on.
pub(super) fn leave_it_to_the_program() {
    LEFT.store(true, Relaxed);
}

/// What goes to the device after a pause: the next launch is to be told to [`launches`].
#[must_use]
pub(crate) struct Input {
    /// When kernels follow, if a hint is worth giving.
    kernels_at_ns: Option<u64>,
}

/// A call that looks up addresses is about to be made.
pub(crate) fn takes_input(page: &Page) -> Option<Input> {
    let since = page.idle_since_ns().filter(|_| page.critical())?;
    if LEFT.load(Relaxed) || !settings::hints().sight() {
        return None;
    }
    let now = monotonic_ns();
    if now.saturating_sub(since) < PAUSE_MIN_NS {
        return None;
    }
    INPUT_NS.store(now, SeqCst);
    let lead = worth(LEAD_NS.load(Relaxed), SEEN.load(Relaxed));
    Some(Input { kernels_at_ns: lead.map(|lead| now.saturating_add(lead)) })
}

impl Input {
    /// Gives the hint. To be called once the page says that there is work, which the daemon takes for the request's first: it would
    /// take what it hears of after the hint for the kernels.
    pub(crate) fn tell(&self) {
        if let Some(at_ns) = self.kernels_at_ns {
            requests::tell(&ToDaemon::Hint { at_ns, source: HintSource::Shim });
        }
    }
}

/// When the input went to the device whose first launch is still to come, if one is.
pub(super) fn awaited_since() -> Option<u64> {
    Some(INPUT_NS.load(SeqCst)).filter(|&input| input != 0)
}

/// The first launch after that.
pub(crate) fn launches() {
    let input = INPUT_NS.swap(0, SeqCst);
    let lead = monotonic_ns().saturating_sub(input);
    if input != 0 && lead <= LEAD_MAX_NS {
        // Two threads that learn at the same time lose what one of them saw.
        LEAD_NS.store(learnt(LEAD_NS.load(Relaxed), SEEN.fetch_add(1, Relaxed), lead), Relaxed);
    }
}

/// In a forked child: nothing was seen.
pub(super) fn forget() {
    LEFT.store(false, SeqCst);
    for word in [&INPUT_NS, &LEAD_NS, &SEEN] {
        word.store(0, SeqCst);
    }
}

/// The average with one more.
fn learnt(lead: u64, seen: u64, new: u64) -> u64 {
    if seen == 0 { new } else { lead - lead / 4 + new / 4 }
}

/// How soon kernels are expected, if a hint is worth giving.
fn worth(lead: u64, seen: u64) -> Option<u64> {
    (seen >= SEEN_MIN && lead >= LEAD_MIN_NS).then_some(lead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_given_only_where_kernels_leave_time_for_it() {
        let after = |leads: &[u64]| {
            let (mut lead, mut seen) = (0, 0);
            for &new in leads {
                (lead, seen) = (learnt(lead, seen, new), seen + 1);
            }
            worth(lead, seen)
        };
        assert_eq!(after(&[2_000_000; 3]), None, "seen too seldom");
        assert_eq!(after(&[2_000_000; 4]), Some(2_000_000));
        assert_eq!(after(&[50_000; 100]), None, "they follow at once");
        let changed: Vec<u64> = [2_000_000; 20].into_iter().chain([50_000; 8]).collect();
        assert_eq!(after(&changed), None, "and do so by now");
        let (lead, again) = (after(&[[50_000; 20], [2_000_000; 20]].concat()), 2_000_000u64);
        assert!(lead.is_some_and(|lead| lead.abs_diff(again) < 50_000), "{lead:?}");
    }
}
