//! The rules against a device whose streams are queues, and whose events are positions in them.

use std::collections::HashMap;

use cuda::types::CUmemoryPool;
use proptest::prelude::*;

use super::*;
use crate::memory::heap::Block;

const STREAMS: usize = 3;

fn stream(number: usize) -> Stream {
    Stream { context: context(), handle: 0x1000 + number as u64, thread: None }
}

fn context() -> CUcontext {
    CUcontext(std::ptr::without_provenance_mut(1))
}

fn event(number: usize) -> CUevent {
    CUevent(std::ptr::without_provenance_mut(number))
}

fn freed(address: u64, bytes: u64) -> Allocation {
    Allocation::of(
        HeapId::test(1),
        bytes,
        Block { address, bytes: rounded(bytes).unwrap() },
        CUmemoryPool::NULL,
    )
}

fn take(reuse: &mut Reuse, number: usize, bytes: u64) -> Option<u64> {
    reuse.take(stream(number), HeapId::test(1), bytes).map(|found| found.block.address)
}

#[test]
fn the_same_stream_has_it_again_at_once_and_nobody_else() {
    let mut reuse = Reuse::default();
    assert!(!reuse.free(stream(1), freed(0x1000, 4096)));
    assert_eq!(take(&mut reuse, 2, 4096), None);
    assert_eq!(take(&mut reuse, 1, 8192), None);
    assert_eq!(take(&mut reuse, 1, 512), None, "much too large");
    assert_eq!(reuse.take(stream(1), HeapId::test(2), 4096), None, "another context's memory");
    assert_eq!(take(&mut reuse, 1, 4000), Some(0x1000));
    assert!(reuse.is_empty() && reuse.point(stream(1)).is_none());
}

#[test]
fn what_was_freed_after_a_point_is_not_before_it() {
    let mut reuse = Reuse::default();
    reuse.free(stream(1), freed(0x1000, 512));
    let point = reuse.point(stream(1)).unwrap();
    reuse.free(stream(1), freed(0x2000, 512));
    reuse.recorded(Mark { point, event: event(7) });
    assert!(reuse.is_unmarked(stream(1)), "the second one");
    let (free, events) = reuse.finished(point);
    assert_eq!(free.iter().map(|free| free.block.address).collect::<Vec<u64>>(), [0x1000]);
    assert_eq!(events, [event(7)]);
    assert!(reuse.finished(point).0.is_empty());
    let rest = reuse.points(context());
    assert_eq!(reuse.finished(rest[0]).0.len(), 1);
}

#[test]
fn a_block_that_was_taken_and_freed_again_is_behind_its_second_free() {
    let mut reuse = Reuse::default();
    reuse.free(stream(1), freed(0x1000, 512));
    let point = reuse.point(stream(1)).unwrap();
    assert_eq!(take(&mut reuse, 1, 512), Some(0x1000));
    reuse.free(stream(1), freed(0x1000, 512));
    assert!(reuse.finished(point).0.is_empty());
}

#[test]
fn an_event_of_a_stream_that_is_gone_says_nothing_about_the_next_one_of_its_name() {
    let mut reuse = Reuse::default();
    reuse.free(stream(1), freed(0x1000, 512));
    let old = Mark { point: reuse.point(stream(1)).unwrap(), event: event(7) };
    reuse.recorded(old);
    assert_eq!(take(&mut reuse, 1, 512), Some(0x1000), "its list is empty then");
    reuse.destroyed(stream(1));
    reuse.free(stream(1), freed(0x2000, 512));
    let marks = reuse.marks(context());
    assert_eq!(marks.iter().map(|mark| mark.event).collect::<Vec<_>>(), [event(7)]);
    for mark in marks {
        assert!(reuse.finished(mark.point).0.is_empty(), "the new stream has not got there");
    }
    assert_eq!(reuse.points(context()).len(), 1);
}

#[test]
fn many_frees_want_an_event() {
    let mut reuse = Reuse::default();
    let wants: Vec<bool> = (0..300).map(|number| reuse.free(stream(1), freed(number << 20, 512))).collect();
    assert_eq!(wants.iter().position(|wants| *wants), Some(UNMARKED_MAX - 1));
    let point = reuse.point(stream(1)).unwrap();
    reuse.recorded(Mark { point, event: event(1) });
    assert!(!reuse.free(stream(1), freed(1 << 40, 512)), "the event is behind all others");
    let large = |number: u64| freed((number + 1) << 41, UNMARKED_BYTES_MAX);
    for _ in 0..3 {
        assert!(!reuse.free(stream(2), large(0)), "a loop of one stream never records one");
        assert!(take(&mut reuse, 2, UNMARKED_BYTES_MAX).is_some());
    }
    reuse.free(stream(2), large(0));
    assert!(reuse.free(stream(2), large(1)), "much memory does too");
}

#[test]
fn a_new_stream_with_the_handle_of_an_old_one_is_another() {
    let mut reuse = Reuse::default();
    reuse.free(stream(1), freed(0x1000, 512));
    let point = reuse.point(stream(1)).unwrap();
    reuse.recorded(Mark { point, event: event(7) });
    reuse.destroyed(stream(1));
    assert_eq!(take(&mut reuse, 1, 512), None);
    assert!(reuse.finished(point).0.is_empty(), "waiting for the new one says nothing");
    let marks = reuse.marks(context());
    assert_eq!(marks.len(), 1);
    let (free, events) = reuse.finished(marks[0].point);
    assert_eq!((free.len(), events), (1, vec![event(7)]));
}

#[test]
fn a_context_takes_all_of_it_along() {
    let mut reuse = Reuse::default();
    reuse.free(stream(1), freed(0x1000, 512));
    reuse.recorded(Mark { point: reuse.point(stream(1)).unwrap(), event: event(7) });
    let elsewhere = Stream { context: CUcontext(std::ptr::without_provenance_mut(2)), ..stream(1) };
    reuse.free(elsewhere, freed(0x2000, 512));
    reuse.end(context(), &[HeapId::test(1)]);
    assert!(reuse.is_empty() && reuse.marks(context()).is_empty());
}

#[derive(Clone, Debug)]
enum Deed {
    /// Allocates in a stream, and uses it there.
    Allocate(usize, u64),
    /// Frees some allocation in the stream that uses it, or another that waits for that one first.
    Free(usize, usize),
    Record(usize),
    Query,
    Synchronize(usize),
    Destroy(usize),
    /// The device does something in a stream.
    Run(usize, usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        6 => (0..STREAMS, 0..3_u64).prop_map(|(stream, size)| Deed::Allocate(stream, 512 << size)),
        5 => (any::<usize>(), 0..2 * STREAMS).prop_map(|(which, stream)| Deed::Free(which, stream)),
        2 => (0..STREAMS).prop_map(Deed::Record),
        2 => Just(Deed::Query),
        1 => (0..STREAMS).prop_map(Deed::Synchronize),
        1 => (0..STREAMS).prop_map(Deed::Destroy),
        4 => (0..STREAMS, 1..6_usize).prop_map(|(stream, steps)| Deed::Run(stream, steps)),
    ];
    proptest::collection::vec(deed, 1..300)
}

/// A device: how much each stream was given and has done. A stream that is destroyed goes on under its old number.
#[derive(Default)]
struct Device {
    given: Vec<usize>,
    done: Vec<usize>,
    /// Which queue each handle means now.
    queue: Vec<usize>,
}

impl Device {
    fn new() -> Self {
        Self { given: vec![0; STREAMS], done: vec![0; STREAMS], queue: (0..STREAMS).collect() }
    }

    fn give(&mut self, stream: usize) -> (usize, usize) {
        let queue = self.queue[stream];
        self.given[queue] += 1;
        (queue, self.given[queue])
    }

    fn is_done(&self, (queue, position): (usize, usize)) -> bool {
        self.done[queue] >= position
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nobody_gets_memory_that_a_stream_may_still_use(deeds in deeds()) {
        let (mut reuse, mut device) = (Reuse::default(), Device::new());
        // Blocks that are free for all; what is in use, with where; and the last uses of each block.
        let mut free: Vec<Allocation> = Vec::new();
        let mut used: Vec<(Allocation, usize)> = Vec::new();
        let mut uses: HashMap<u64, Vec<(usize, usize)>> = HashMap::new();
        let mut events: HashMap<usize, (usize, usize)> = HashMap::new();
        let mut next = 1_u64 << 20;
        for (now, deed) in deeds.into_iter().enumerate() {
            match deed {
                Deed::Allocate(number, bytes) => {
                    let same = reuse.take(stream(number), HeapId::test(1), bytes);
                    let found = same.or_else(|| {
                        let index = free.iter().position(|free| free.block.bytes == bytes)?;
                        Some(free.swap_remove(index))
                    });
                    let block = found.unwrap_or_else(|| {
                        next += 1 << 20;
                        freed(next, bytes)
                    });
                    let queue = device.queue[number];
                    for earlier in uses.entry(block.block.address).or_default().drain(..) {
                        prop_assert!(earlier.0 == queue || device.is_done(earlier), "{block:?} is in use");
                    }
                    uses.entry(block.block.address).or_default().push(device.give(number));
                    prop_assert!(!used.iter().any(|(other, _)| other.block == block.block), "handed out twice");
                    used.push((block, number));
                }
                Deed::Free(which, other) if !used.is_empty() => {
                    let (block, number) = used.swap_remove(which % used.len());
                    let last = uses[&block.block.address].last().copied().expect("it was used");
                    // In another stream only by a program that waited for the first, or where the first is gone.
                    let elsewhere = other % STREAMS;
                    let may_elsewhere = device.is_done(last);
                    let number = if may_elsewhere { elsewhere } else { number };
                    if device.queue[number] == last.0 || may_elsewhere {
                        reuse.free(stream(number), block);
                    } else {
                        used.push((block, number));
                    }
                }
                Deed::Free(..) => {}
                Deed::Record(number) => {
                    if let Some(point) = reuse.point(stream(number)) {
                        events.insert(now + 1, device.give(number));
                        reuse.recorded(Mark { point, event: event(now + 1) });
                    }
                }
                Deed::Query => {
                    for mark in reuse.marks(context()) {
                        if device.is_done(events[&mark.event.0.addr()]) {
                            free.extend(reuse.finished(mark.point).0);
                        }
                    }
                }
                Deed::Synchronize(number) => {
                    let point = reuse.point(stream(number));
                    let queue = device.queue[number];
                    device.done[queue] = device.given[queue];
                    if let Some(point) = point {
                        free.extend(reuse.finished(point).0);
                    }
                }
                Deed::Destroy(number) => {
                    if let Some(point) = reuse.point(stream(number)) {
                        events.insert(now + 1, device.give(number));
                        reuse.recorded(Mark { point, event: event(now + 1) });
                    }
                    reuse.destroyed(stream(number));
                    device.queue[number] = device.given.len();
                    device.given.push(0);
                    device.done.push(0);
                }
                Deed::Run(number, steps) => {
                    let queue = device.queue[number];
                    device.done[queue] = (device.done[queue] + steps).min(device.given[queue]);
                }
            }
        }
        // In the end everything comes back.
        for point in reuse.points(context()) {
            free.extend(reuse.finished(point).0);
        }
        prop_assert!(reuse.is_empty());
        let all: std::collections::BTreeSet<u64> =
            free.iter().chain(used.iter().map(|(block, _)| block)).map(|block| block.block.address).collect();
        prop_assert_eq!(all.len(), free.len() + used.len(), "each once");
        prop_assert_eq!(all.len(), uses.len(), "none is lost");
    }
}
