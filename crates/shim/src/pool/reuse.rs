//! Memory that was freed in a stream: who may have it next, and when.
//!
//! A free in a stream takes effect when the stream gets there. So the same stream can have the block again at once, since its
//! new use comes later in the same queue. Anybody else has to know that the stream got past the free: somebody waited for
//! the stream, or an event behind the free has passed. Events are only recorded where they are needed: a loop of one stream
//! never records one.
//!
//! Pure bookkeeping. What is freed in a stream has a **number** there, counting up; an event is behind all numbers that were
//! given before it was recorded.

use std::collections::BTreeMap;
use std::thread::ThreadId;

use cuda::types::{CUcontext, CUevent};

use crate::memory::heap::{are_alike, rounded};
use crate::memory::quick::QuickMap;
use crate::memory::table::{Allocation, HeapId};

/// A stream with so many blocks or bytes that no event is behind gets one. Not for a single block, however large: the stream
/// itself is the likeliest to have it next.
const UNMARKED_MAX: usize = 256;
const UNMARKED_BYTES_MAX: u64 = 64 << 20;

/// A block that is larger than a request by up to one part in so many serves it.
const LARGER_BY: u64 = 8;

/// A stream, in so far as two calls mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) context: CUcontext,
    /// Its handle; a number of no stream once it is destroyed.
    pub(crate) handle: u64,
    /// The thread whose default stream it is.
    pub(crate) thread: Option<ThreadId>,
}

/// Handles from here on are of streams that are gone.
const GONE: u64 = u64::MAX / 2;

impl Stream {
    /// Whether it was destroyed.
    pub(crate) fn is_gone(&self) -> bool {
        self.handle >= GONE
    }
}

/// How far a stream had got: all frees up to this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) stream: Stream,
    number: u64,
}

#[derive(Debug, Default)]
struct List {
    /// What was freed, by its heap and size, each with its number.
    blocks: BTreeMap<(HeapId, u64, u64), (u64, Allocation)>,
    last_number: u64,
    /// An event is behind all up to this one.
    marked_number: u64,
    unmarked: usize,
    unmarked_bytes: u64,
}

/// An event behind all frees up to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) point: Point,
    pub(crate) event: CUevent,
}

/// All streams in which something was freed.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    lists: QuickMap<Stream, List>,
    /// Oldest first.
    marks: Vec<Mark>,
    /// For streams that are gone.
    dead: u64,
}

impl Reuse {
    /// Something was freed in a stream. True if an event should be recorded there.
    pub(crate) fn free(&mut self, stream: Stream, freed: Allocation) -> bool {
        let list = self.lists.entry(stream).or_default();
        list.last_number += 1;
        let key = (freed.heap, freed.block.bytes, freed.block.address);
        list.blocks.insert(key, (list.last_number, freed));
        list.unmarked += 1;
        list.unmarked_bytes += freed.block.bytes;
        list.unmarked >= UNMARKED_MAX || (list.unmarked > 1 && list.unmarked_bytes >= UNMARKED_BYTES_MAX)
    }

    /// Takes a block out that the same stream freed, for a request of about its size.
    pub(crate) fn take(&mut self, stream: Stream, heap: HeapId, asked: u64) -> Option<Allocation> {
        let bytes = rounded(asked)?;
        let list = self.lists.get_mut(&stream)?;
        let sizes = (heap, bytes, 0)..=(heap, bytes.saturating_add(bytes / LARGER_BY), u64::MAX);
        let mut found = list.blocks.range(sizes);
        // Blocks of different kinds of memory may be of one size.
        let (&key, _) = found.find(|(_, (_, freed))| are_alike(freed.asked_bytes, asked))?;
        let (number, freed) = list.blocks.remove(&key)?;
        if number > list.marked_number {
            list.unmarked -= 1;
            list.unmarked_bytes -= freed.block.bytes;
        }
        Some(freed)
    }

    /// How far a stream will have got when all is done that it has now; None if nothing was freed there.
    pub(crate) fn point(&self, stream: Stream) -> Option<Point> {
        let list = self.lists.get(&stream).filter(|list| !list.blocks.is_empty())?;
        Some(Point { stream, number: list.last_number })
    }

    /// The same for all streams of a context.
    pub(crate) fn points(&self, context: CUcontext) -> Vec<Point> {
        let streams = self.lists.keys().filter(|stream| stream.context == context);
        streams.filter_map(|stream| self.point(*stream)).collect()
    }

    /// An event was recorded in the stream after this point was taken.
    pub(crate) fn recorded(&mut self, mark: Mark) {
        let Point { stream, number } = mark.point;
        self.marks.push(mark);
        if let Some(list) = self.lists.get_mut(&stream)
            && number > list.marked_number
        {
            list.marked_number = number;
            let unmarked = list.blocks.values().filter(|(freed, _)| *freed > number);
            (list.unmarked, list.unmarked_bytes) =
                unmarked.fold((0, 0), |(count, bytes), (_, freed)| (count + 1, bytes + freed.block.bytes));
        }
    }

    /// Whether something freed in this stream has no event behind it.
    pub(crate) fn is_unmarked(&self, stream: Stream) -> bool {
        self.lists.get(&stream).is_some_and(|list| list.unmarked > 0)
    }

    /// All events of a context that nobody has seen pass, oldest first.
    pub(crate) fn marks(&self, context: CUcontext) -> Vec<Mark> {
        self.marks.iter().filter(|mark| mark.point.stream.context == context).copied().collect()
    }

    /// The stream has got to this point. Returns what is free for everybody now, and the events that have served.
    pub(crate) fn finished(&mut self, point: Point) -> (Vec<Allocation>, Vec<CUevent>) {
        let has_served = |mark: &Mark| mark.point.stream == point.stream && mark.point.number <= point.number;
        let events = self.marks.iter().filter(|mark| has_served(mark)).map(|mark| mark.event).collect();
        self.marks.retain(|mark| !has_served(mark));
        let Some(list) = self.lists.get_mut(&point.stream) else { return (Vec::new(), events) };
        let mut free = Vec::new();
        let marked_number = list.marked_number;
        let (unmarked, unmarked_bytes) = (&mut list.unmarked, &mut list.unmarked_bytes);
        list.blocks.retain(|_, (number, freed)| {
            let stays = *number > point.number;
            if !stays {
                free.push(*freed);
                if *number > marked_number {
                    *unmarked -= 1;
                    *unmarked_bytes -= freed.block.bytes;
                }
            }
            stays
        });
        (free, events)
    }

    /// A stream is destroyed: its handle may be another's next. What was freed there waits for the events behind it.
    pub(crate) fn destroyed(&mut self, stream: Stream) {
        self.dead += 1;
        let dead = Stream { handle: GONE + self.dead, ..stream };
        // Also where nothing waits for them any more: they must not say anything about the next stream of that name.
        for mark in self.marks.iter_mut().filter(|mark| mark.point.stream == stream) {
            mark.point.stream = dead;
        }
        if let Some(list) = self.lists.remove(&stream).filter(|list| !list.blocks.is_empty()) {
            self.lists.insert(dead, list);
        }
    }

    /// Contexts are gone, and with them these heaps, their streams and events.
    pub(crate) fn end(&mut self, context: CUcontext, heaps: &[HeapId]) {
        self.lists.retain(|stream, _| stream.context != context);
        self.marks.retain(|mark| mark.point.stream.context != context);
        for list in self.lists.values_mut() {
            list.blocks.retain(|(heap, _, _), _| !heaps.contains(heap));
        }
    }

    /// Whether nothing waits anywhere.
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.values().all(|list| list.blocks.is_empty())
    }
}

#[cfg(test)]
mod tests;
