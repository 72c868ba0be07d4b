//! Where memory is: claims, the arena and the copies in it, and who is asked where things are.

use sched::{Bytes, Event, HandleId, OpId, Outcome, Owned, RequestId, Span, TenantId};

use super::Engine;
use super::queue::Happening;
use super::tenant::{Handle, Life, Spot};
use crate::faults::Mishap;

/// From a grant to a handle, and from a handle to one the mover knows.
const CLAIM: Span = Span::from_micros(100);
/// To look where handles are.
const INSPECTION: Span = Span::from_millis(1);

impl Engine<'_> {
    /// Device memory is used from now on.
    pub(super) fn take(&mut self, gpu: usize, bytes: Bytes, what: &str) {
        let truth = &mut self.gpus[gpu];
        truth.used += bytes;
        let landing =
            truth.moving.as_ref().map_or(Bytes::ZERO, |moving| moving.bytes_in.less(moving.bytes_out));
        let (used, capacity) = (truth.used + landing, truth.gpu.capacity);
        self.require(used <= capacity, || {
            format!("{what} of {bytes} makes {used} on GPU {gpu} of {capacity}")
        });
    }

    pub(super) fn granted(&mut self, tenant: usize, request: RequestId) {
        if !self.tenants[tenant].is_alive() {
            return;
        }
        let Some(&(_, asked)) = self.tenants[tenant].asked.get(&request) else {
            self.broken(&format!("request {request} of tenant {tenant} is granted, but nobody asks"));
        };
        self.waited(tenant, self.now.since(asked));
        self.queue.push(self.now + CLAIM, Happening::Claims(tenant, request));
    }

    pub(super) fn claims(&mut self, tenant: usize, request: RequestId) {
        if !self.tenants[tenant].is_alive() {
            return;
        }
        let gpu = self.tenants[tenant].gpu;
        let dirty = u64::from(self.scenario.jobs[self.tenants[tenant].job].memory.dirty.0.min(1_000_000));
        let it = &mut self.tenants[tenant];
        let Some((bytes, _)) = it.asked.remove(&request) else { return };
        // Spread evenly: of any number in a row the share that changes is the same.
        let number = it.handles.len() as u64;
        let changes = (number + 1) * dirty / 1_000_000 > number * dirty / 1_000_000;
        let handle = HandleId(request.0);
        let held = Handle { bytes, spot: Spot::Device, adopted: false, changes, copy: false, told: false };
        it.handles.insert(handle, held);
        self.take(gpu, bytes, "a handle");
        self.note_new(tenant, handle);
        let owned = Owned { tenant: self.id(tenant), handle };
        self.tell(Event::Claimed { owned, request, bytes });
        self.queue.push(self.now + CLAIM, Happening::Adopts(owned));
        // The program goes on: it does not wait for the mover.
        let pause = self.scenario.jobs[self.tenants[tenant].job].memory.pause;
        match (self.tenants[tenant].life, pause) {
            (Life::Loading, None) => self.loads(tenant),
            (Life::Loading, Some(pause)) => self.queue.push(self.now + pause, Happening::Loads(tenant)),
            _ => self.may_be_over(tenant),
        }
    }

    pub(super) fn adopts(&mut self, owned: Owned) {
        let tenant = self.index(owned.tenant);
        if !self.tenants[tenant].is_alive() {
            return;
        }
        if let Some(handle) = self.tenants[tenant].handles.get_mut(&owned.handle) {
            handle.adopted = true;
            self.tell(Event::Adopted { owned, movable: true });
        }
    }

    pub(super) fn is_there(&self, id: TenantId) -> bool {
        self.tenants[self.index(id)].is_alive()
    }

    pub(super) fn put(&mut self, owned: Owned, spot: Spot) {
        let index = self.index(owned.tenant);
        let gpu = self.tenants[index].gpu;
        let Some(handle) = self.tenants[index].handles.get_mut(&owned.handle) else { return };
        let (before, bytes) = (handle.spot, handle.bytes);
        handle.spot = spot;
        // What came in is still in the arena, until somebody writes to it.
        handle.copy = before == Spot::Arena && spot == Spot::Device;
        handle.told = false;
        match (before.takes_device(), spot.takes_device()) {
            (false, true) => self.gpus[gpu].used += bytes,
            (true, false) => self.gpus[gpu].used -= bytes,
            _ => {}
        }
    }

    /// What is in the arena: what is nowhere else, and copies that the core counts on.
    pub(super) fn arena_used(&self) -> Bytes {
        let takes = |handle: &&Handle| handle.spot != Spot::Device || handle.told;
        let handles = self.tenants.iter().filter(|it| it.is_alive()).flat_map(|it| it.handles.values());
        handles.filter(takes).map(|handle| handle.bytes).sum()
    }

    /// What moves under way will add to it.
    pub(super) fn arena_awaited(&self) -> Bytes {
        let under_way = self.gpus.iter().filter_map(|truth| truth.moving.as_ref());
        under_way.map(|moving| moving.stored.less(moving.bytes_in)).sum()
    }

    /// Who was silent is heard again. What was neither here nor there turns out to be in the arena.
    pub(super) fn answers(&mut self, tenant: usize) {
        if !self.tenants[tenant].is_alive() {
            return;
        }
        let id = self.id(tenant);
        let handles = self.tenants[tenant].handles.iter();
        let unsettled = handles.filter(|(_, held)| matches!(held.spot, Spot::Unsettled | Spot::Returning));
        let unsettled: Vec<_> = unsettled.map(|(&handle, _)| Owned { tenant: id, handle }).collect();
        unsettled.into_iter().for_each(|owned| self.put(owned, Spot::Arena));
        self.tell(Event::Answers(id));
    }

    pub(super) fn inspects(&mut self, op: OpId, tenants: Vec<TenantId>) {
        let answer = match self.luck.draw() {
            Mishap::Lost => return,
            Mishap::Failed => Happening::Done(op, Outcome::Failed),
            Mishap::Late(by) => {
                self.queue.push(self.now + INSPECTION + by, Happening::Inspected(op, tenants));
                return;
            }
            Mishap::None => Happening::Inspected(op, tenants),
        };
        self.queue.push(self.now + INSPECTION, answer);
    }

    /// Says where everything is now, and which copies are still good: whoever asks may have forgotten.
    pub(super) fn inspected(&mut self, op: OpId, tenants: &[TenantId]) {
        let (mut away, mut unsettled, mut copied) = (Vec::new(), Vec::new(), Vec::new());
        for &id in tenants {
            for (&handle, held) in &self.tenants[self.index(id)].handles {
                let owned = Owned { tenant: id, handle };
                match held.spot {
                    Spot::Device if held.copy && held.told => copied.push(owned),
                    Spot::Device => {}
                    Spot::Arena => away.push(owned),
                    Spot::Unsettled | Spot::Returning => unsettled.push(owned),
                }
            }
        }
        self.tell(Event::Done { op, outcome: Outcome::Found { away, unsettled } });
        copied.into_iter().for_each(|owned| self.tell(Event::Copied { owned, clean: true }));
    }

    /// Copies in the arena are given up.
    pub(super) fn drops(&mut self, copies: &[Owned]) {
        for owned in copies {
            let tenant = self.index(owned.tenant);
            // It was not copied out again because of this copy: without it, what it holds would be nowhere.
            let moving = self.gpus.iter().filter_map(|truth| truth.moving.as_ref());
            let needed = moving.flat_map(|moving| &moving.out).any(|going| going == owned);
            self.require(!needed, || format!("the copy of {owned:?} is dropped while that goes out"));
            if let Some(handle) = self.tenants[tenant].handles.get_mut(&owned.handle)
                && handle.spot == Spot::Device
            {
                (handle.copy, handle.told) = (false, false);
            }
        }
    }

    /// Somebody is off the GPU: which of the copies in the arena are still good? Those that found no place there are not.
    pub(super) fn compares(&mut self, tenant: usize) {
        let id = self.id(tenant);
        let mut room = self.scenario.arena.less(self.arena_used() + self.arena_awaited());
        let mut found = Vec::new();
        for (&handle, held) in &mut self.tenants[tenant].handles {
            if held.copy && !held.told && held.bytes > room {
                held.copy = false;
            }
            if held.spot == Spot::Device && held.copy != held.told {
                held.told = held.copy;
                if held.told {
                    room -= held.bytes;
                }
                found.push(Event::Copied { owned: Owned { tenant: id, handle }, clean: held.copy });
            }
        }
        found.into_iter().for_each(|event| self.tell(event));
    }

    /// A tenant runs: what it writes to is not what the arena has.
    pub(super) fn writes(&mut self, tenant: usize) {
        for held in self.tenants[tenant].handles.values_mut().filter(|held| held.changes) {
            held.copy = false;
        }
    }

    /// Word of an action that is over.
    pub(super) fn reply(&mut self, op: OpId, outcome: Outcome, mishap: Mishap) {
        self.after(Span::ZERO, op, outcome, mishap);
    }

    /// Word of an action that is over then.
    pub(super) fn after(&mut self, span: Span, op: OpId, outcome: Outcome, mishap: Mishap) {
        let late = match mishap {
            Mishap::Lost => return,
            Mishap::Late(by) => by,
            _ => Span::ZERO,
        };
        self.queue.push(self.now + span + late, Happening::Done(op, outcome));
    }
}
