//! What events say about work: behind how much of which stream each was recorded, and which streams wait for others.
//!
//! A few are forgotten where the table has no room for all: then waiting for them says nothing, and the program counts as
//! busy for longer than it is.

use super::slots::{SLOTS, Slots};

/// Events remembered: the last one at each place of the table.
const EVENTS: usize = 1024;

/// A point in the work of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) slot: usize,
    /// All that had been taken so far.
    pub(super) taken: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Recorded {
    events: Vec<Option<(u64, Point, u64)>>,
    /// By waiting slot and slot that it waits for: when so much of the first is done, so much of the second is.
    waits: Vec<Option<(u64, u64)>>,
    number: u64,
}

impl Recorded {
    pub(super) fn new() -> Self {
        Self { events: vec![None; EVENTS], waits: vec![None; SLOTS * SLOTS], number: 0 }
    }

    fn place(event: u64) -> usize {
        (event.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - EVENTS.ilog2())) as usize
    }

    /// From here on nothing is known of this event.
    pub(super) fn forget(&mut self, event: u64) {
        let entry = &mut self.events[Self::place(event)];
        if entry.is_some_and(|(known, ..)| known == event) {
            *entry = None;
        }
    }

    /// An event was recorded behind this.
    pub(super) fn record(&mut self, event: u64, point: Point) {
        self.number += 1;
        self.events[Self::place(event)] = Some((event, point, self.number));
    }

    /// Behind what an event was recorded, and a number that changes when it is recorded again.
    pub(super) fn point(&self, event: u64) -> Option<(Point, u64)> {
        let (known, point, number) = self.events[Self::place(event)]?;
        (known == event).then_some((point, number))
    }

    /// A slot waits for a point of another: what it takes from here on comes after that.
    pub(super) fn wait(&mut self, waiting: Point, for_: Point) {
        if waiting.slot != for_.slot {
            self.waits[waiting.slot * SLOTS + for_.slot] = Some((waiting.taken, for_.taken));
        }
    }

    /// Says in `slots` that all up to a point is done, and with it all that had to be before.
    pub(super) fn finish(&self, slots: &Slots, point: Point) {
        let mut reached = [0u64; SLOTS];
        let mut open = vec![point];
        while let Some(Point { slot, taken }) = open.pop() {
            if taken <= reached[slot] {
                continue;
            }
            reached[slot] = taken;
            slots.slot(slot).finish(taken);
            let waits = &self.waits[slot * SLOTS..(slot + 1) * SLOTS];
            open.extend(waits.iter().enumerate().filter_map(|(other, wait)| {
                let (when, done) = (*wait)?;
                (when <= taken).then_some(Point { slot: other, taken: done })
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::StreamKey;
    use super::*;

    fn work(slots: &Slots, key: u64) -> Point {
        let slot = slots.claim(StreamKey(key));
        slot.begin();
        slot.take();
        let index = slots.find(StreamKey(key)).unwrap();
        Point { slot: index, taken: slot.taken() }
    }

    #[test]
    fn what_a_stream_waited_for_is_done_with_it() {
        let (slots, mut recorded) = (Slots::new(), Recorded::new());
        let a = work(&slots, 1);
        let (b1, b2) = (work(&slots, 2), work(&slots, 2));
        recorded.wait(b2, a);
        let c = work(&slots, 3);
        recorded.wait(c, b2);
        recorded.finish(&slots, b1);
        assert_eq!(slots.slot(a.slot).taken(), 1);
        recorded.finish(&slots, c);
        assert_eq!(slots.at_rest(), Some(4), "c waited for b, and b for a");
    }

    #[test]
    fn a_wait_says_nothing_about_what_was_done_before_it() {
        let (slots, mut recorded) = (Slots::new(), Recorded::new());
        let a = work(&slots, 1);
        let before = work(&slots, 2);
        let behind = work(&slots, 2);
        recorded.wait(behind, a);
        recorded.finish(&slots, before);
        let b = slots.slot(before.slot);
        b.finish(b.taken());
        assert_eq!(slots.at_rest(), None, "nobody waited for a");
        // Streams may wait for each other in turn.
        recorded.wait(work(&slots, 1), behind);
        let last = work(&slots, 2);
        recorded.wait(last, Point { slot: a.slot, taken: 2 });
        recorded.finish(&slots, last);
        assert_eq!(slots.at_rest(), Some(5));
    }

    #[test]
    fn an_event_is_what_it_was_recorded_for_last() {
        let mut recorded = Recorded::new();
        assert_eq!(recorded.point(8), None);
        let (one, two) = (Point { slot: 1, taken: 1 }, Point { slot: 2, taken: 2 });
        recorded.record(8, one);
        let (point, number) = recorded.point(8).unwrap();
        assert_eq!(point, one);
        recorded.record(8, two);
        let again = recorded.point(8).unwrap();
        assert_eq!(again.0, two);
        assert_ne!(again.1, number);
        recorded.forget(8);
        assert_eq!(recorded.point(8), None);
    }
}
