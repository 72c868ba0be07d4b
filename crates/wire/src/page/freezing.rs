//! What the page says of freezing: is the tenant off the GPU, how often was it taken off, and does it hold its launches back by
//! itself.
//!
//! **Freezing meets channels being born.** The daemon stores an odd `freeze_generation`, then loads
//! `channel_generation`; the tenant stores a new `channel_generation`, then loads `freeze_generation` once the
//! channel is scheduled. All four are sequentially consistent, so at least one side sees the other: either the
//! daemon waits for the report of that channel, or the tenant freezes it itself.
//!
//! **Holding meets new work.** Where the driver cannot freeze, a frozen tenant holds its own launches back: each counts
//! itself, then looks whether it is frozen, and waits for the thaw if so; what was counted before is drained.

use super::Page;
use std::sync::atomic::Ordering::SeqCst;

/// No thaw is more often than this. A tenant that counts wrongly gets no more of the daemon's time.
const FREEZES_MAX: u64 = 64;

impl Page {
    /// Is the tenant to be frozen now?
    pub fn frozen(&self) -> bool {
        !self.freeze_generation.load(SeqCst).is_multiple_of(2)
    }

    /// How often the tenant was frozen and thawed: while it stays the same and even, it ran all the time.
    pub fn freeze_generation(&self) -> u64 {
        self.freeze_generation.load(SeqCst)
    }

    /// Says that the tenant is frozen (`true`) or thawed. Saying it twice changes nothing.
    pub fn set_frozen(&self, frozen: bool) {
        let generation = self.freeze_generation.load(SeqCst);
        if generation.is_multiple_of(2) == frozen {
            self.freeze_generation.store(generation.wrapping_add(1), SeqCst);
        }
    }

    /// Some of the tenant's channels are about to be frozen, by whoever says so. **The driver counts**: what was frozen twice,
    /// by one worker and the next, or by the daemon and the tenant itself, runs only when it was thawed twice.
    pub fn note_freeze(&self) {
        self.freezes.fetch_add(1, SeqCst);
    }

    /// All of the tenant's channels are frozen by now. Not said before: whoever reads it relies on it.
    pub fn note_frozen_wholly(&self) {
        self.frozen_wholly.store(1, SeqCst);
    }

    /// Whether all of the tenant's channels are frozen, but those that came since.
    pub fn frozen_wholly(&self) -> bool {
        self.frozen_wholly.load(SeqCst) != 0
    }

    /// How often channels of the tenant were frozen, as far as nobody said that they were thawed.
    pub fn freezes(&self) -> u64 {
        self.freezes.load(SeqCst)
    }

    /// Channels are about to be thawed: says how often they have to be, to run. More often than needed does no harm.
    pub fn begin_thaw(&self) -> u64 {
        self.frozen_wholly.store(0, SeqCst);
        self.freezes().clamp(1, FREEZES_MAX)
    }

    /// All that were frozen were thawed, so often. Said only then: whoever dies in between leaves too many behind, and no program
    /// that nobody thaws.
    pub fn end_thaw(&self, times: u64) {
        let left = |freezes: u64| Some(freezes.saturating_sub(times));
        let _ = self.freezes.fetch_update(SeqCst, SeqCst, left);
    }

    /// Is the tenant to hold its launches back while it is frozen? Otherwise its channels are taken off the GPU.
    pub fn holds_launches(&self) -> bool {
        self.holds_launches.load(SeqCst) != 0
    }

    /// The daemon cannot take channels off the GPU: the tenant is to hold its launches back.
    pub fn set_holds_launches(&self) {
        self.holds_launches.store(1, SeqCst);
    }

    /// Waits while the tenant is frozen, in a generation that was read before, and a while at most: the caller looks again.
    pub fn wait_while_frozen(&self, generation: u64) {
        let limit = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // SAFETY: the word is mapped for as long as self is, and the kernel reads it and the time. On this machine's byte
        // order the lower half of a word lies at its address; the two sides are in different processes.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.freeze_generation.as_ptr().cast::<u32>(),
                libc::FUTEX_WAIT,
                generation as u32,
                &raw const limit,
            );
        }
    }

    /// Wakes whoever waits in [`Page::wait_while_frozen`].
    pub fn wake_held(&self) {
        // SAFETY: as above.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.freeze_generation.as_ptr().cast::<u32>(),
                libc::FUTEX_WAKE,
                libc::c_int::MAX,
            );
        }
    }
}
