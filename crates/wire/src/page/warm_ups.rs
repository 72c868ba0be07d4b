//! What the page says of warm-ups: kernels that load the tenant's context before a request needs it.
//!
//! **The page is the order.** The daemon counts up; whoever launches remembers up to where it has, so that however often and by
//! whatever way it hears of an order, it launches once. The message `WarmUp` only says to look here: at an order, or that one
//! is about to come. A tenant that stays awake then sees it within a microsecond; to be woken by the message takes it a hundred.
//! An order may be for an instant that is to come: whoever gives it is busy then, freezing those who are in the way.

use super::{Page, monotonic_ns};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// For no longer than this an order is expected, or its instant waited for: longer than a freeze takes. One for an instant further
/// away is for now.
pub const WARM_UP_WAITED_FOR_NS: u64 = 1_500_000;

impl Page {
    /// The daemon wants a warm-up kernel launched, at once.
    pub fn order_warm_up(&self) {
        self.order_warm_up_at(0);
    }

    /// The daemon wants a warm-up kernel launched at an instant of the monotonic clock, or at once if that is past.
    pub fn order_warm_up_at(&self, due_ns: u64) {
        self.warm_up_due_ns.store(due_ns, SeqCst);
        self.warm_ups_ordered.fetch_add(1, SeqCst);
        self.expect_no_warm_up();
    }

    /// How long the last one that was ordered is to be put off, at this instant. What stands too far in the future is due.
    pub fn warm_up_is_due_in(&self, now_ns: u64) -> Option<u64> {
        let left = self.warm_up_due_ns.load(SeqCst).saturating_sub(now_ns);
        Some(left).filter(|left| (1..=WARM_UP_WAITED_FOR_NS).contains(left))
    }

    /// How often the daemon wanted one.
    pub fn warm_ups_ordered(&self) -> u64 {
        self.warm_ups_ordered.load(SeqCst)
    }

    /// The daemon is about to want one.
    pub fn expect_warm_up(&self) {
        self.warm_up_expected_ns.store(monotonic_ns() + WARM_UP_WAITED_FOR_NS, SeqCst);
    }

    /// It is not any more.
    pub fn expect_no_warm_up(&self) {
        self.warm_up_expected_ns.store(0, SeqCst);
    }

    /// Is it about to want one, at this instant? Whatever stands here, no longer than is said above.
    pub fn warm_up_is_expected(&self, now_ns: u64) -> bool {
        let left = self.warm_up_expected_ns.load(SeqCst).saturating_sub(now_ns);
        (1..=WARM_UP_WAITED_FOR_NS).contains(&left)
    }

    /// The tenant stays awake for those that are about to be wanted.
    pub fn await_warm_ups(&self) {
        self.awaits_warm_ups.store(1, SeqCst);
    }

    /// Is it worth while to tell the tenant that one is about to be wanted?
    pub fn awaits_warm_ups(&self) -> bool {
        self.awaits_warm_ups.load(SeqCst) != 0
    }

    /// The tenant launched one because it was awake for it.
    pub fn count_awaited_warm_up(&self) {
        self.warm_ups_awaited.fetch_add(1, Relaxed);
    }

    /// How many it launched because it was awake for them.
    pub fn warm_ups_awaited(&self) -> u64 {
        self.warm_ups_awaited.load(Relaxed)
    }

    /// The tenant launched a warm-up kernel, or could not.
    pub fn count_warm_up(&self, launched: bool) {
        let count = if launched { &self.warm_ups } else { &self.warm_ups_failed };
        count.fetch_add(1, Relaxed);
        if launched {
            self.warmed_ns.store(monotonic_ns(), Relaxed);
        }
    }

    /// When the last warm-up kernel was launched, if one was.
    pub fn warmed_ns(&self) -> Option<u64> {
        Some(self.warmed_ns.load(Relaxed)).filter(|&at| at != 0)
    }

    /// How many warm-up kernels were launched, and how many could not be.
    pub fn warm_ups(&self) -> (u64, u64) {
        (self.warm_ups.load(Relaxed), self.warm_ups_failed.load(Relaxed))
    }

    /// Whoever launches goes on counting where it is. What this page's daemon wanted already comes on top.
    pub(super) fn take_warm_ups_from(&self, other: &Self) {
        self.warm_ups_ordered.fetch_add(other.warm_ups_ordered(), SeqCst);
        self.awaits_warm_ups.store(other.awaits_warm_ups.load(SeqCst), SeqCst);
    }
}
