//! Items of work and their order: what runs after what.
//!
//! Streams, events and graphs are only ways to say what an item comes after. An item whose predecessors are all done is
//! ready; who runs it is not known here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use vgpu_messages::quantity::Nanos;
use vgpu_messages::work::HostCall;
use vgpu_messages::{Address, ContextId, EventId, StreamId};

use crate::engine::bus::Way;
use crate::kernels::Kernel;
use crate::space::touch::Toucher;
use crate::transfer::Transfer;

/// An item of work. Later ones have greater ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(pub u64);

/// What an item does.
#[derive(Debug)]
pub enum Job {
    /// Nothing: a place in the order.
    Nothing,
    /// Runs on the compute engine.
    Kernel {
        /// What.
        kernel: Box<dyn Kernel>,
        /// How long it takes to start.
        start: Nanos,
        /// Who touches memory.
        who: Toucher,
    },
    /// Runs on the bus.
    Transfer {
        /// Which way.
        way: Way,
        /// What.
        transfer: Transfer,
        /// With host memory that is not pinned.
        pageable: bool,
        /// From GPU to GPU.
        peer: bool,
        /// Who touches memory.
        who: Toucher,
    },
    /// An event is recorded.
    Mark(EventId),
    /// The program is called back.
    Host(HostCall),
    /// Waits for a value in memory.
    WaitValue {
        /// Where.
        address: Address,
        /// What it is compared with.
        value: u64,
        /// 64 bits.
        wide: bool,
        /// How: `CUstreamWaitValue_flags`.
        flags: u32,
        /// Who touches memory.
        who: Toucher,
    },
    /// Writes a value to memory.
    WriteValue {
        /// Where.
        address: Address,
        /// What.
        value: u64,
        /// 64 bits.
        wide: bool,
        /// Who touches memory.
        who: Toucher,
    },
    /// Memory of a pool goes back to it.
    FreeAsync(u64),
}

#[derive(Debug)]
struct Item {
    context: ContextId,
    stream: Option<StreamId>,
    missing: usize,
    dependents: Vec<ItemId>,
    job: Option<Job>,
    uses: Vec<Range<u64>>,
}

/// All items that are not done.
#[derive(Debug, Default)]
pub struct Items {
    items: BTreeMap<ItemId, Item>,
    contexts: BTreeMap<ContextId, BTreeSet<ItemId>>,
    streams: BTreeMap<StreamId, usize>,
    ready: VecDeque<ItemId>,
    last: u64,
}

impl Items {
    /// A new item that comes after others; those that are done already don't matter.
    pub fn add(
        &mut self,
        context: ContextId,
        stream: Option<StreamId>,
        job: Job,
        after: impl IntoIterator<Item = ItemId>,
    ) -> ItemId {
        self.last += 1;
        let id = ItemId(self.last);
        let mut missing = 0;
        let after: BTreeSet<ItemId> = after.into_iter().collect();
        for before in after {
            if let Some(item) = self.items.get_mut(&before) {
                item.dependents.push(id);
                missing += 1;
            }
        }
        self.items.insert(
            id,
            Item { context, stream, missing, dependents: Vec::new(), job: Some(job), uses: Vec::new() },
        );
        self.contexts.entry(context).or_default().insert(id);
        if let Some(stream) = stream {
            *self.streams.entry(stream).or_default() += 1;
        }
        if missing == 0 {
            self.ready.push_back(id);
        }
        id
    }

    /// An item that can run now: its context and what it does.
    pub fn take_ready(&mut self) -> Option<(ItemId, ContextId, Job)> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(item) = self.items.get_mut(&id) {
                return Some((id, item.context, item.job.take().expect("an item runs once")));
            }
        }
        None
    }

    /// Whether an item can run now.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// An item is done, and those after it come nearer.
    pub fn finish(&mut self, id: ItemId) {
        let Some(item) = self.items.remove(&id) else { return };
        if let Some(of_context) = self.contexts.get_mut(&item.context) {
            of_context.remove(&id);
            if of_context.is_empty() {
                self.contexts.remove(&item.context);
            }
        }
        if let Some(stream) = item.stream {
            let left = self.streams.get_mut(&stream).expect("it was counted");
            *left -= 1;
            if *left == 0 {
                self.streams.remove(&stream);
            }
        }
        for dependent in item.dependents {
            if let Some(next) = self.items.get_mut(&dependent) {
                next.missing -= 1;
                if next.missing == 0 {
                    self.ready.push_back(dependent);
                }
            }
        }
    }

    /// Drops all items of a context: as if they were done, without having run.
    pub fn drop_context(&mut self, context: ContextId) {
        while let Some(id) = self.contexts.get(&context).and_then(|items| items.first().copied()) {
            self.finish(id);
        }
    }

    /// Which memory an item uses.
    pub fn note_uses(&mut self, id: ItemId, uses: Vec<Range<u64>>) {
        if let Some(item) = self.items.get_mut(&id) {
            item.uses = uses;
        }
    }

    /// Whether an item of a context that is not done, and is in another stream, uses some of these addresses.
    pub fn use_memory(&self, context: ContextId, except: Option<StreamId>, range: &Range<u64>) -> bool {
        let of_context = self.contexts.get(&context).into_iter().flatten().map(|id| &self.items[id]);
        let others = of_context.filter(|item| except.is_none() || item.stream != except);
        others.flat_map(|item| &item.uses).any(|used| used.start < range.end && range.start < used.end)
    }

    /// Whether an item is done, or was dropped.
    pub fn is_done(&self, id: ItemId) -> bool {
        !self.items.contains_key(&id)
    }

    /// A context's items.
    pub fn of_context(&self, context: ContextId) -> Vec<ItemId> {
        self.contexts.get(&context).map(|items| items.iter().copied().collect()).unwrap_or_default()
    }

    /// How many items of a stream are not done.
    pub fn in_stream(&self, stream: StreamId) -> usize {
        self.streams.get(&stream).copied().unwrap_or_default()
    }

    /// How many items are not done.
    pub fn count(&self) -> usize {
        self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_dropped_items_hold_nobody_up() {
        let mut items = Items::default();
        let (one, two) = (ContextId(1), ContextId(2));
        let a = items.add(one, None, Job::Nothing, []);
        let b = items.add(two, Some(StreamId(9)), Job::Nothing, [a]);
        let c = items.add(two, Some(StreamId(9)), Job::Nothing, [a, b, ItemId(77)]);
        assert_eq!(items.take_ready().map(|ready| ready.0), Some(a));
        assert!(items.take_ready().is_none(), "the others wait");
        items.drop_context(one);
        assert_eq!(items.take_ready().map(|ready| ready.0), Some(b));
        assert_eq!(items.in_stream(StreamId(9)), 2);
        items.finish(b);
        assert_eq!(items.take_ready().map(|ready| ready.0), Some(c));
        assert_eq!(items.of_context(two), [c]);
        items.finish(c);
        assert_eq!((items.count(), items.in_stream(StreamId(9))), (0, 0));
    }
}
