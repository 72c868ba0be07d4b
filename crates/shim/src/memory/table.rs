//! The tenant's memory: which ranges of addresses are rota's, what the program has in them, and whether memory lies under
//! them.
//!
//! A **range** is addresses in a row over memory in one or several **parts**; parts are what is moved. An **allocation** is
//! what the program has: a block in a range. The [`Heap`] of a context says which blocks are free.
//!
//! Beside them is what the program created itself, and mapped at addresses of its own ([`Creations`]).
//!
//! Pure bookkeeping; the driver's calls are in [`super::physical`]. The table's lock may be held during calls that
//! make, map, unmap, export or release memory, because those never wait for the GPU. It may not be held during
//! anything that can: a frozen program would keep the agent from bringing its memory back.

mod created;
mod homes;
mod parts;
mod passing;
mod returning;

use std::collections::{BTreeMap, BTreeSet};

use cuda::types::{CUcontext, CUdevice, CUevent, CUmemoryPool};
use wire::{GrantId, HandleId};

use super::heap::{Block, Growth, Heap};
use super::peers::Peers;
use crate::pool::{Accounts, Reuse, Stream};
pub(crate) use created::{Created, Creations, Making, Mapped, is_number};
use parts::{Counted, Parts, Whole};
pub(crate) use parts::{Home, Kind, Mapping, Part, part_sizes};
pub(crate) use returning::{Survivors, Told};

/// The first number of a buffer. The driver counts its own from 1.
const BUFFER_MIN: u64 = 1 << 48;

/// Names a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeapId(u64);

#[cfg(test)]
impl HeapId {
    pub(crate) fn test(number: u64) -> Self {
        Self(number)
    }
}

/// One allocation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// The size that the program asked for, which is what it is told.
    pub(crate) asked_bytes: u64,
    /// Where it is, with the size that is set aside.
    pub(crate) block: Block,
    /// The heap that it is from.
    pub(crate) heap: HeapId,
    /// Its number for the program.
    pub(crate) buffer: u64,
    /// The program's pool that it is from; null for plain memory.
    pub(crate) pool: CUmemoryPool,
    /// The program wants copies of it to synchronise.
    pub(crate) sync_memops: bool,
    /// A thread frees it.
    is_freeing: bool,
}

impl Allocation {
    /// One that has no number yet.
    pub(crate) fn of(heap: HeapId, asked_bytes: u64, block: Block, pool: CUmemoryPool) -> Self {
        Self { asked_bytes, block, heap, buffer: 0, pool, sync_memops: false, is_freeing: false }
    }
}

/// Addresses in a row, and what lies under them.
#[derive(Debug)]
pub(crate) struct Range {
    /// Where it starts, and its size.
    pub(crate) block: Block,
    /// The device it lies on.
    pub(crate) device: CUdevice,
    /// The grant that covers it, until the daemon has the files of all parts.
    pub(crate) grant: GrantId,
    /// The memory under it, in the order of addresses.
    pub(crate) parts: Vec<Part>,
}

/// Memory that is out of the table. Whoever has it lets it go.
#[derive(Debug)]
pub(crate) struct Dropped {
    /// Its addresses, where those were rota's own.
    pub(crate) block: Option<Block>,
    /// The grant that covers it, until the daemon has the files of all parts.
    pub(crate) grant: GrantId,
    /// The memory itself.
    pub(crate) parts: Vec<Part>,
}

/// A heap and whose it is.
#[derive(Debug)]
struct Owned {
    /// Null while that one is being destroyed.
    context: CUcontext,
    device: CUdevice,
    heap: Heap,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Table {
    heaps: BTreeMap<HeapId, Owned>,
    /// Ranges by their start, each with its heap.
    ranges: BTreeMap<u64, (HeapId, Range)>,
    /// What the program created itself.
    created: Creations,
    parts: Parts,
    /// Memory for parts that are to have another home.
    prepared: homes::Prepared,
    allocations: BTreeMap<u64, Allocation>,
    /// What the program has in ranges, rounded up.
    used_bytes: u64,
    /// What the driver itself has for the program, as it is booked.
    kept_bytes: u64,
    /// Of that, what NVML counts for nobody.
    managed_bytes: u64,
    /// What was freed in streams.
    pub(crate) reuse: Reuse,
    /// The program's pools.
    pub(crate) pools: Accounts,
    /// Events of rota's own that are not used now, each with its context.
    events: Vec<(CUcontext, CUevent)>,
    next_heap: u64,
    buffers: u64,
    /// What the daemon knows and has no file of, because it was there before that.
    unshown: BTreeSet<HandleId>,
    /// The agent is unmapping some.
    is_unmapping: bool,
    /// The agent looks again by itself for ranges that are idle.
    pub(crate) is_watched: bool,
    /// Other devices that may use the memory.
    pub(crate) peers: Peers,
    /// What a new daemon was asked to take in, by the number of the request.
    returning: BTreeMap<u64, Whole>,
}

/// What the program asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) context: CUcontext,
    pub(crate) asked_bytes: u64,
    pub(crate) pool: CUmemoryPool,
}

impl Table {
    /// Whether a context has a heap here.
    pub(crate) fn knows(&self, context: CUcontext) -> bool {
        self.heaps.values().any(|owned| owned.context == context)
    }

    /// Finds room for an allocation in the ranges that are there.
    pub(crate) fn take(&mut self, wanted: Wanted) -> Option<Allocation> {
        // More than one heap only after the end of a green context.
        let mut heaps = self.heaps.iter_mut().filter(|(_, owned)| owned.context == wanted.context);
        let (heap, block) =
            heaps.find_map(|(id, owned)| Some((*id, owned.heap.take(wanted.asked_bytes)?)))?;
        Some(self.hand_out(Allocation::of(heap, wanted.asked_bytes, block, wanted.pool)))
    }

    /// Finds room for an allocation in the order of a stream: in what that stream freed, or in the ranges. Without a pool it
    /// is of the one that the device allocates from.
    pub(crate) fn take_in_stream(
        &mut self,
        stream: Stream,
        asked_bytes: u64,
        pool: Option<CUmemoryPool>,
    ) -> Option<Allocation> {
        let context = stream.context;
        let (&heap, owned) = self.heaps.iter().find(|(_, owned)| owned.context == context)?;
        let pool = match pool {
            Some(pool) => self.pools.get(pool).is_some_and(|account| !account.is_native).then_some(pool)?,
            None => self.pools.own_current(owned.device)?,
        };
        match self.reuse.take(stream, heap, asked_bytes) {
            Some(freed) => Some(self.hand_out(Allocation::of(heap, asked_bytes, freed.block, pool))),
            None => self.take(Wanted { context, asked_bytes, pool }),
        }
    }

    fn hand_out(&mut self, allocation: Allocation) -> Allocation {
        self.buffers += 1;
        let allocation = Allocation { buffer: BUFFER_MIN + self.buffers, ..allocation };
        self.used_bytes += allocation.block.bytes;
        self.pools.taken(allocation.pool, allocation.asked_bytes, allocation.block.bytes);
        let before = self.allocations.insert(allocation.block.address, allocation);
        debug_assert!(before.is_none(), "a block was handed out twice");
        allocation
    }

    /// How large a range is best added for a request; None if no such memory can exist.
    pub(crate) fn growth(&self, context: CUcontext, asked: u64) -> Option<Growth> {
        let owned = self.heaps.values().find(|owned| owned.context == context);
        owned.map_or_else(|| Heap::default().growth(asked), |owned| owned.heap.growth(asked))
    }

    /// Adds a range for requests like this one.
    pub(crate) fn add(&mut self, context: CUcontext, asked: u64, mut range: Range, now_ns: u64) {
        let known = self.heaps.iter().find(|(_, owned)| owned.context == context).map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| {
            self.next_heap += 1;
            HeapId(self.next_heap)
        });
        let owned = self.heaps.entry(id).or_insert_with(|| Owned {
            context,
            device: range.device,
            heap: Heap::default(),
        });
        owned.heap.add(asked, range.block, now_ns);
        self.parts.allow_passing(&mut range.parts);
        self.parts.insert(Whole::Range(range.block.address), &range.parts);
        let before = self.ranges.insert(range.block.address, (id, range));
        debug_assert!(before.is_none(), "the driver reserved an address twice");
    }

    /// The allocation that an address lies in. What was rounded up belongs to nobody.
    pub(crate) fn around(&self, address: u64) -> Option<&Allocation> {
        let (start, allocation) = self.allocations.range(..=address).next_back()?;
        (address - start < allocation.asked_bytes).then_some(allocation)
    }

    /// The range that an address lies in.
    pub(crate) fn range_around(&self, address: u64) -> Option<&Range> {
        let (start, (_, range)) = self.ranges.range(..=address).next_back()?;
        (address - start < range.block.bytes).then_some(range)
    }

    /// Notes whether copies of the allocation around an address synchronise. False if there is none.
    pub(crate) fn set_sync_memops(&mut self, address: u64, is_on: bool) -> bool {
        let Some(start) = self.around(address).map(|found| found.block.address) else { return false };
        let found = self.allocations.get_mut(&start);
        found.map(|found| found.sync_memops = is_on).is_some()
    }

    /// Whether a range of addresses has something in common with memory of this table, also with what nobody has.
    pub(crate) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let last = address.saturating_add(bytes.saturating_sub(1));
        let before = self.ranges.range(..=last).next_back();
        before.is_some_and(|(start, (_, range))| start + (range.block.bytes - 1) >= address)
    }

    /// Whether an address is in a range, or in what the program created and mapped.
    pub(crate) fn knows_address(&self, address: u64) -> bool {
        self.overlaps(address, 1) || !self.created.touched_by(address, 1).is_empty()
    }

    /// The context and device of a heap.
    pub(crate) fn owner(&self, heap: HeapId) -> Option<(CUcontext, CUdevice)> {
        self.heaps.get(&heap).map(|owned| (owned.context, owned.device))
    }

    /// A thread is about to free what starts at an address. None if nothing does, or another thread is at it already.
    pub(crate) fn claim(&mut self, address: u64) -> Option<Allocation> {
        let allocation = self.allocations.get_mut(&address).filter(|allocation| !allocation.is_freeing)?;
        allocation.is_freeing = true;
        Some(*allocation)
    }

    /// It was not freed after all.
    pub(crate) fn unclaim(&mut self, address: u64) {
        if let Some(allocation) = self.allocations.get_mut(&address) {
            allocation.is_freeing = false;
        }
    }

    /// The program has it no longer. Its block stays set aside until [`Table::give`]. None if its context ended meanwhile.
    pub(crate) fn forget(&mut self, address: u64) -> Option<Allocation> {
        let allocation = self.allocations.remove(&address)?;
        self.used_bytes -= allocation.block.bytes;
        self.pools.freed(allocation.pool, allocation.asked_bytes, allocation.block.bytes);
        Some(allocation)
    }

    /// The device is done with what the program had: its block is free for others. Nothing happens if the heap is gone.
    pub(crate) fn give(&mut self, allocation: &Allocation, now_ns: u64) {
        if let Some(owned) = self.heaps.get_mut(&allocation.heap) {
            owned.heap.give(allocation.asked_bytes, allocation.block, now_ns);
        }
    }

    /// What the program has, rounded up.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes + self.created.used_bytes() + self.kept_bytes
    }

    /// The driver itself has so much for the program.
    pub(crate) fn set_kept_bytes(&mut self, bytes: u64) {
        self.kept_bytes = bytes;
    }

    /// Bytes of ranges that nothing is in, and of what the program created and let go.
    pub(crate) fn idle_bytes(&self) -> u64 {
        let in_ranges: u64 = self.heaps.values().map(|owned| owned.heap.idle_bytes()).sum();
        in_ranges + self.created.idle_bytes()
    }

    /// Since when that is idle which is so for longest.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        let ranges = self.heaps.values().filter_map(|owned| owned.heap.idle_since());
        ranges.chain(self.created.idle_since()).min()
    }

    /// Takes memory out that is idle since this time or longer, but not much more than so many bytes.
    pub(crate) fn drop_idle(&mut self, since_ns: u64, bytes_max: u64) -> Vec<Dropped> {
        let mut starts = Vec::new();
        let mut left = bytes_max;
        for owned in self.heaps.values_mut() {
            let before = owned.heap.idle_bytes();
            starts.extend(owned.heap.drop_idle(since_ns, left));
            left = left.saturating_sub(before - owned.heap.idle_bytes());
        }
        let created = self.drop_created(since_ns, left);
        let ranges = starts.into_iter().filter_map(|start| self.remove(start));
        ranges.chain(created).collect()
    }

    fn remove(&mut self, start: u64) -> Option<Dropped> {
        let (_, Range { block, grant, parts, .. }) = self.ranges.remove(&start)?;
        self.parts.remove(&parts);
        Some(Dropped { block: Some(block), grant, parts })
    }

    /// The driver has mapped what has a number at an address.
    pub(crate) fn map_created(&mut self, number: u64, address: u64) {
        self.buffers += 1;
        self.created.map(number, address, BUFFER_MIN + self.buffers);
    }

    fn drop_created(&mut self, since_ns: u64, bytes_max: u64) -> Vec<Dropped> {
        let dropped = self.created.drop_idle(since_ns, bytes_max).into_iter().map(
            |Created { grant, parts, .. }| {
                self.parts.remove(&parts);
                Dropped { block: None, grant, parts }
            },
        );
        dropped.collect()
    }

    /// Takes memory out that the program let go and that others may have: it serves nobody else.
    pub(crate) fn drop_shared(&mut self) -> Vec<Dropped> {
        self.drop_created(0, u64::MAX)
    }

    /// What the program created itself.
    pub(crate) fn created(&self) -> &Creations {
        &self.created
    }

    /// The same, to change what it says about the program; parts are changed by this table.
    pub(crate) fn created_mut(&mut self) -> &mut Creations {
        &mut self.created
    }

    /// Adds what the program created; returns its number for the program, which has it once.
    pub(crate) fn add_created(&mut self, created: Created) -> u64 {
        let number = self.created.add(created);
        if let Some(created) = self.created.get(number) {
            self.parts.insert(Whole::Created(number), &created.parts);
        }
        number
    }

    /// Takes its memory away from a context that is about to be destroyed, so that the agent no longer enters it.
    pub(crate) fn detach(&mut self, context: CUcontext) -> Vec<HeapId> {
        let mine = self.heaps.iter_mut().filter(|(_, owned)| owned.context == context);
        mine.map(|(id, owned)| {
            owned.context = CUcontext::NULL;
            *id
        })
        .collect()
    }

    /// Gives it back to a context that lives on.
    pub(crate) fn attach(&mut self, heaps: &[HeapId], context: CUcontext) {
        for id in heaps {
            if let Some(owned) = self.heaps.get_mut(id) {
                owned.context = context;
            }
        }
    }

    /// A context is gone, and all that is in these heaps of it.
    pub(crate) fn end(&mut self, context: CUcontext, heaps: &[HeapId]) -> Vec<Dropped> {
        self.reuse.end(context, heaps);
        self.events.retain(|(owner, _)| *owner != context);
        let ending = self.allocations.iter().filter(|(_, allocation)| heaps.contains(&allocation.heap));
        let ending: Vec<u64> = ending.map(|(address, _)| *address).collect();
        for address in ending {
            self.forget(address);
        }
        self.heaps.retain(|id, _| !heaps.contains(id));
        let starts: Vec<u64> = self
            .ranges
            .iter()
            .filter(|(_, (heap, _))| heaps.contains(heap))
            .map(|(start, _)| *start)
            .collect();
        starts.into_iter().filter_map(|start| self.remove(start)).collect()
    }

    /// Keeps events that have served, for the next use in their context.
    pub(crate) fn keep_events(&mut self, context: CUcontext, events: &[CUevent]) {
        self.events.extend(events.iter().map(|event| (context, *event)));
    }

    /// An event of a context that is there to be used.
    pub(crate) fn take_event(&mut self, context: CUcontext) -> Option<CUevent> {
        let found = self.events.iter().position(|(owner, _)| *owner == context)?;
        Some(self.events.swap_remove(found).1)
    }

    /// Whether a part is of a range, and not of what the program created.
    pub(crate) fn is_in_a_range(&self, handle: HandleId) -> bool {
        matches!(self.parts.place(handle), Some((Whole::Range(_), _)))
    }

    /// All parts of ranges.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.ranges.values().flat_map(|(_, range)| &range.parts)
    }

    /// A part, with the context of its range; what the program created is of no context.
    pub(crate) fn part(&self, handle: HandleId) -> Option<(CUcontext, Part)> {
        let (whole, place) = self.parts.place(handle)?;
        let (context, parts) = match whole {
            Whole::Range(start) => {
                let (heap, range) = self.ranges.get(&start)?;
                (self.heaps.get(heap)?.context, &range.parts)
            }
            Whole::Created(number) => (CUcontext::NULL, &self.created.get(number)?.parts),
        };
        Some((context, parts.get(place)?.clone()))
    }

    /// Changes a part that is there.
    fn change(&mut self, handle: HandleId, change: impl FnOnce(&mut Part)) {
        let Some((whole, place)) = self.parts.place(handle) else { return };
        let parts = match whole {
            Whole::Range(start) => self.ranges.get_mut(&start).map(|(_, range)| &mut range.parts),
            Whole::Created(number) => self.created.parts_mut(number),
        };
        if let Some(part) = parts.and_then(|parts| parts.get_mut(place)) {
            let before = Counted::of(part);
            change(part);
            self.parts.changed(before, Counted::of(part));
        }
    }

    /// The daemon has the file of a part.
    pub(crate) fn set_exported(&mut self, handle: HandleId) {
        self.change(handle, |part| part.exported = true);
    }

    /// The next part whose file the daemon lacks. Whoever gets it exports it, or says that it failed.
    pub(crate) fn next_unexported(&mut self) -> Option<Part> {
        let handle = self.parts.next_unexported()?;
        Some(self.part(handle)?.1)
    }

    /// The grant that covers a part; None if it is gone.
    pub(crate) fn grant(&self, handle: HandleId) -> Option<GrantId> {
        match self.parts.place(handle)?.0 {
            Whole::Range(start) => self.ranges.get(&start).map(|(_, range)| range.grant),
            Whole::Created(number) => self.created.get(number).map(|created| created.grant),
        }
    }

    /// An export failed: the handle goes to the end of the queue.
    pub(crate) fn export_later(&mut self, handle: HandleId) {
        self.parts.export_later(handle);
    }

    /// The agent is about to unmap: from now on the gate stays closed.
    pub(crate) fn begin_unmapping(&mut self) {
        self.is_unmapping = true;
    }

    /// It is done.
    pub(crate) fn end_unmapping(&mut self) {
        self.is_unmapping = false;
    }

    /// Whether any part has no memory under it, or may have none in a moment.
    pub(crate) fn needs_gate(&self) -> bool {
        self.is_unmapping || self.parts.any_absent()
    }
}

#[cfg(test)]
mod tests;
