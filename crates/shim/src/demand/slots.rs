//! How much work was begun and how much is known to be done, by stream.
//!
//! Work is counted when it is handed to the driver, and again when the driver has taken it; what had been taken when
//! somebody began to wait for the stream is done when that wait ends. A stream has a slot of its own for as long as it
//! lives, so what is said of one stream is never taken for another's. Counts only grow: a slot that changes hands keeps
//! them. All of it is sequentially consistent, and nothing waits.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Streams that can be told apart. Work in others is only known to be done when the whole context is.
pub(super) const SLOTS: usize = 64;

/// The slot of a stream is first looked for at the top bits of its product with this: the launch does the same.
pub(crate) const SPREAD: i32 = 0x9e37_79b1_u32.cast_signed();
pub(crate) const SPREAD_SHIFT: u32 = u64::BITS - SLOTS.ilog2();

/// Who has a slot whose stream was destroyed before its work was known to be done. No stream is called so.
const ORPHAN: u64 = u64::MAX;

/// What the launch takes for the stream of work that is in no stream that can be known.
pub(super) const UNKNOWN: u64 = u64::MAX - 1;

/// A stream, over all contexts; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamKey(pub(super) u64);

impl StreamKey {
    /// Nobody knows which.
    pub(crate) const UNKNOWN: Self = Self(UNKNOWN);
}

/// The work of one stream. The launch knows this layout.
#[derive(Debug)]
#[repr(C, align(32))]
pub(crate) struct Slot {
    owner: AtomicU64,
    begun: AtomicU64,
    taken: AtomicU64,
    done: AtomicU64,
}

pub(crate) const SLOT_BYTES_SHIFT: u32 = size_of::<Slot>().ilog2();
pub(crate) const BEGUN_OFFSET: usize = std::mem::offset_of!(Slot, begun);
pub(crate) const TAKEN_OFFSET: usize = std::mem::offset_of!(Slot, taken);
const _: () = assert!(std::mem::offset_of!(Slot, owner) == 0 && size_of::<Slot>() == 32);

impl Slot {
    const fn new() -> Self {
        let [owner, begun, taken, done] = [const { AtomicU64::new(0) }; 4];
        Self { owner, begun, taken, done }
    }

    /// Work is about to be handed to the driver.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, SeqCst);
    }

    /// The driver has taken it, or refused it.
    pub(super) fn take(&self) {
        self.taken.fetch_add(1, SeqCst);
    }

    /// How much the driver has taken: done when whoever begins to wait for the stream now has waited.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(SeqCst)
    }

    /// So much of it is done.
    pub(super) fn finish(&self, taken: u64) {
        // Looked at first: writing costs much more, and most streams have done nothing since.
        if self.done.load(SeqCst) < taken {
            self.done.fetch_max(taken, SeqCst);
        }
    }

    fn is_done(&self) -> bool {
        // In this order: work that is begun after the first look is missed by a caller who looks once, see `Slots::at_rest`.
        self.done.load(SeqCst) == self.begun.load(SeqCst)
    }
}

/// The slots. The launch knows that the first field is theirs.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slots {
    slots: [Slot; SLOTS],
    /// Work in streams that have no slot.
    rest: Slot,
    /// Calls that may use the GPU until they return.
    calls: Slot,
    /// Which slots ever had an owner.
    used: AtomicU64,
}

const _: () = assert!(SLOTS == u64::BITS as usize);

impl Slots {
    pub(super) const fn new() -> Self {
        let slots = [const { Slot::new() }; SLOTS];
        Self { slots, rest: Slot::new(), calls: Slot::new(), used: AtomicU64::new(0) }
    }

    /// In a forked child: nobody has begun anything.
    pub(super) fn forget(&self) {
        for slot in self.slots.iter().chain([&self.rest, &self.calls]) {
            for word in [&slot.owner, &slot.begun, &slot.taken, &slot.done] {
                word.store(0, SeqCst);
            }
        }
        self.used.store(0, SeqCst);
    }

    /// The slot of a stream that has one.
    pub(super) fn find(&self, key: StreamKey) -> Option<usize> {
        order(key).find(|&index| self.slots[index].owner.load(SeqCst) == key.0)
    }

    /// The slot for work in a stream, from now on its own if one is free.
    pub(super) fn claim(&self, key: StreamKey) -> &Slot {
        if key == StreamKey::UNKNOWN {
            return &self.rest;
        }
        if let Some(index) = self.find(key) {
            return &self.slots[index];
        }
        for index in order(key) {
            let slot = &self.slots[index];
            let free = match slot.owner.load(SeqCst) {
                0 => 0,
                ORPHAN if slot.is_done() => ORPHAN,
                // Another thread with work for the same stream has just taken it.
                owner if owner == key.0 => return slot,
                _ => continue,
            };
            // Before it is somebody's: whoever counts in it is looked for.
            self.used.fetch_or(1 << index, SeqCst);
            match slot.owner.compare_exchange(free, key.0, SeqCst, SeqCst) {
                Ok(_) => return slot,
                // Another thread with work for the same stream.
                Err(owner) if owner == key.0 => return slot,
                Err(_) => {}
            }
        }
        &self.rest
    }

    /// A call begins that may use the GPU until it returns.
    pub(super) fn enter(&self) {
        self.calls.begin();
    }

    /// It returns.
    pub(super) fn leave(&self) {
        self.calls.take();
        self.calls.finish(self.calls.taken());
    }

    pub(super) fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// How much was begun that the driver has not taken yet, and how many calls have not returned. What is begun during the
    /// look may be missed, what is taken may be counted.
    pub(super) fn inside(&self) -> u64 {
        let slots = self.slots.iter().chain([&self.rest, &self.calls]);
        slots.fold(0, |sum, slot| {
            // In this order: what is taken was begun before.
            let taken = slot.taken();
            sum + slot.begun.load(SeqCst).saturating_sub(taken)
        })
    }

    /// Whether the driver has taken work that is not known to be done. Calls are none, nor what was begun and not taken.
    pub(super) fn has_unfinished(&self) -> bool {
        let mut slots = self.slots.iter().chain([&self.rest]);
        slots.any(|slot| slot.done.load(SeqCst) < slot.taken())
    }

    /// A stream was destroyed; its work goes on.
    pub(super) fn orphan(&self, key: StreamKey) {
        for slot in &self.slots {
            let _ = slot.owner.compare_exchange(key.0, ORPHAN, SeqCst, SeqCst);
        }
    }

    /// What every slot had taken, to be said done by [`Slots::finish_all`] when the whole context is.
    pub(super) fn taken(&self) -> [u64; SLOTS + 1] {
        let mut taken = [0; SLOTS + 1];
        for (taken, slot) in taken.iter_mut().zip(self.slots.iter().chain([&self.rest])) {
            *taken = slot.taken();
        }
        taken
    }

    /// So much is done in every slot.
    pub(super) fn finish_all(&self, taken: &[u64; SLOTS + 1]) {
        for (taken, slot) in taken.iter().zip(self.slots.iter().chain([&self.rest])) {
            slot.finish(*taken);
        }
    }

    /// How much work was ever begun, without calls that only may have had some.
    pub(super) fn handed_over(&self) -> u64 {
        let slots = self.slots.iter().chain([&self.rest]);
        slots.fold(0, |sum, slot| sum.wrapping_add(slot.begun.load(SeqCst)))
    }

    /// How much was ever begun, if all of it was done at some instant of the call; else None. Twice the same number with no
    /// other in between: nothing was begun meanwhile.
    pub(super) fn at_rest(&self) -> Option<u64> {
        let mut begun = 0u64;
        for slot in [&self.rest, &self.calls] {
            begun = begun.wrapping_add(slot.begun.load(SeqCst));
            if !slot.is_done() {
                return None;
            }
        }
        let mut used = self.used.load(SeqCst);
        while used != 0 {
            let slot = &self.slots[used.trailing_zeros() as usize];
            if !slot.is_done() {
                return None;
            }
            begun = begun.wrapping_add(slot.begun.load(SeqCst));
            used &= used - 1;
        }
        Some(begun)
    }
}

/// The slots in the order in which a stream's is looked for.
fn order(key: StreamKey) -> impl Iterator<Item = usize> {
    let first = (key.0.wrapping_mul(i64::from(SPREAD).cast_unsigned()) >> SPREAD_SHIFT) as usize;
    (0..SLOTS).map(move |step| (first + step) % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does so much work in a stream; returns what waiting for the stream now would say done.
    fn work(slots: &Slots, key: u64) -> u64 {
        let slot = slots.claim(StreamKey(key));
        slot.begin();
        slot.take();
        slot.taken()
    }

    #[test]
    fn work_is_done_when_its_own_stream_was_waited_for_and_no_other() {
        let slots = Slots::new();
        assert_eq!(slots.at_rest(), Some(0));
        for key in 1..=SLOTS as u64 {
            work(&slots, key);
        }
        for key in 1..=SLOTS as u64 {
            assert_eq!(slots.at_rest(), None, "{key} and those after it are not done");
            let slot = slots.slot(slots.find(StreamKey(key)).unwrap());
            slot.finish(slot.taken());
        }
        assert_eq!(slots.at_rest(), Some(SLOTS as u64));
    }

    #[test]
    fn what_the_driver_has_not_taken_yet_is_not_done_by_a_wait() {
        let slots = Slots::new();
        let slot = slots.claim(StreamKey(7));
        slot.begin();
        slot.finish(slot.taken());
        assert_eq!(slots.at_rest(), None, "another thread is about to hand it over");
        slot.take();
        assert_eq!(slots.at_rest(), None);
        slot.finish(slot.taken());
        assert_eq!(slots.at_rest(), Some(1));
    }

    #[test]
    fn more_streams_than_slots_are_done_with_the_context_only() {
        let slots = Slots::new();
        for key in 1..=SLOTS as u64 + 1 {
            let taken = work(&slots, key);
            if let Some(index) = slots.find(StreamKey(key)) {
                slots.slot(index).finish(taken);
            }
        }
        assert_eq!(slots.find(StreamKey(SLOTS as u64 + 1)), None);
        assert_eq!(slots.at_rest(), None);
        let taken = slots.taken();
        slots.finish_all(&taken);
        assert_eq!(slots.at_rest(), Some(SLOTS as u64 + 1));
    }

    #[test]
    fn the_work_of_a_stream_that_was_destroyed_is_not_done_by_its_successor() {
        let slots = Slots::new();
        let old = work(&slots, 5);
        let index = slots.find(StreamKey(5)).unwrap();
        slots.orphan(StreamKey(5));
        let new = work(&slots, 5);
        let successor = slots.find(StreamKey(5)).unwrap();
        assert_ne!(index, successor);
        slots.slot(successor).finish(new);
        assert_eq!(slots.at_rest(), None);
        // An event that was recorded behind it.
        slots.slot(index).finish(old);
        assert_eq!(slots.at_rest(), Some(2));
        // Then the slot is free for others, and its counts go on.
        slots.orphan(StreamKey(5));
        let taken = work(&slots, 5);
        assert_eq!(slots.at_rest(), None);
        slots.slot(slots.find(StreamKey(5)).unwrap()).finish(taken);
        assert_eq!(slots.at_rest(), Some(3));
    }

    #[test]
    fn only_what_the_driver_has_taken_is_unfinished() {
        let slots = Slots::new();
        slots.enter();
        let slot = slots.claim(StreamKey(7));
        slot.begin();
        assert!(!slots.has_unfinished(), "one thread waits before it hands over, another in a call");
        slot.take();
        assert!(slots.has_unfinished());
        slot.begin();
        slot.finish(slot.taken());
        assert!(!slots.has_unfinished());
        let taken = work(&slots, UNKNOWN);
        assert!(slots.has_unfinished(), "work in no stream is work");
        slots.finish_all(&[taken; SLOTS + 1]);
        assert!(!slots.has_unfinished());
    }

    #[test]
    fn a_call_is_done_when_it_returns_and_not_before() {
        let slots = Slots::new();
        slots.enter();
        slots.enter();
        slots.leave();
        assert_eq!(slots.at_rest(), None, "the other is still inside");
        let taken = slots.taken();
        slots.finish_all(&taken);
        assert_eq!(slots.at_rest(), None);
        slots.leave();
        assert_eq!(slots.at_rest(), Some(2));
    }

    #[test]
    fn work_in_no_stream_is_done_with_the_context_only() {
        let slots = Slots::new();
        work(&slots, UNKNOWN);
        assert_eq!((slots.find(StreamKey::UNKNOWN), slots.at_rest()), (None, None));
        let taken = slots.taken();
        slots.finish_all(&taken);
        assert_eq!(slots.at_rest(), Some(1));
    }

    #[test]
    fn a_stream_has_one_slot_whoever_comes_first() {
        let slots = Slots::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (1..=20).map(|key| work(&slots, key * 512)).max());
            }
        });
        let taken: u64 =
            (1..=20).map(|key| slots.slot(slots.find(StreamKey(key * 512)).unwrap()).taken()).sum();
        assert_eq!(taken, 80);
    }
}
