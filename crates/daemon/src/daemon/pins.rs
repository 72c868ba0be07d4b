//! What must stay on the device: memory that others use who know no freeze. A tenant is told once its handles are there and
//! nothing moves them any more: one whose memory is away waits until its turn brings it back.

use super::Daemon;
use crate::executor::Work;
use crate::reasons;
use sched::{Event, HandleId, Owned, RequestId, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use wire::{FromDaemon, GrantId};

/// Requests of one tenant without an answer. A thread waits for each.
const WAITING_MAX: usize = 4096;

/// Handles in such requests: all of them are looked at whenever something was moved.
const HANDLES_WAITING_MAX: usize = 16_384;

/// What one tenant has pinned.
#[derive(Debug, Default)]
pub(super) struct Pins {
    /// How often each handle is pinned.
    counts: BTreeMap<HandleId, u32>,
    /// What it came back with and has not shown: it stays until a file follows.
    pub(super) unshown: BTreeSet<HandleId>,
    /// Without an answer yet.
    waiting: Vec<(RequestId, Vec<HandleId>)>,
}

impl Pins {
    /// Of somebody who comes back and does not show these.
    pub(super) fn with_unshown(unshown: impl Iterator<Item = HandleId>) -> Self {
        Self { unshown: unshown.collect(), ..Self::default() }
    }

    /// Whether a handle is pinned.
    pub(super) fn has(&self, handle: HandleId) -> bool {
        self.counts.contains_key(&handle)
    }
}

impl Daemon {
    pub(super) fn pin(&mut self, tenant: TenantId, request: RequestId, handles: Vec<HandleId>) {
        if handles.iter().any(|&handle| self.core.is_on_host(Owned { tenant, handle })) {
            let reason = "memory that lies in the host's, because the GPU cannot have it, is to be pinned";
            return self.deny(tenant, request, reason.into());
        }
        // Freed by another thread of the program, perhaps: that is its own matter.
        if !handles.iter().all(|&handle| self.core.has_handle(Owned { tenant, handle })) {
            return self.deny(tenant, request, "memory is to be pinned that is not there".into());
        }
        // Before anybody else can have them: what follows of this comes behind.
        self.order_for(tenant, Work::NeverPass(tenant, handles.clone()));
        let Some(known) = self.known.get_mut(&tenant) else { return };
        // What was not shown is there, and cannot be moved all the same.
        let is_more = |handle: &HandleId| !known.pins.has(*handle) && !known.pins.unshown.contains(handle);
        let more: BTreeSet<_> = handles.iter().copied().filter(is_more).collect();
        let sizes = more.into_iter().filter_map(|handle| self.core.handle_bytes(Owned { tenant, handle }));
        if let Some(why) = self.core.cannot_stay(tenant, sizes.sum()) {
            return self.deny(tenant, request, reasons::words(why));
        }
        let mut first = Vec::new();
        for &handle in &handles {
            let count = known.pins.counts.entry(handle).or_default();
            if *count == 0 {
                first.push(handle);
            }
            *count = count.saturating_add(1);
        }
        known.pins.waiting.push((request, handles));
        let handles_waiting: usize = known.pins.waiting.iter().map(|(_, handles)| handles.len()).sum();
        if known.pins.waiting.len() > WAITING_MAX || handles_waiting > HANDLES_WAITING_MAX {
            return self.put_out(tenant, "it pins more at a time than a program has threads");
        }
        for handle in first {
            self.step(Event::Pinned { owned: Owned { tenant, handle }, pinned: true });
        }
        self.pins_wait = true;
        self.pins_may_stay = true;
    }

    /// What is not pinned is passed over: it may have been freed.
    pub(super) fn unpin(&mut self, tenant: TenantId, handles: &[HandleId]) {
        for &handle in handles {
            let Some(known) = self.known.get_mut(&tenant) else { return };
            let Some(count) = known.pins.counts.get_mut(&handle) else { continue };
            *count -= 1;
            if *count == 0 {
                known.pins.counts.remove(&handle);
                self.step(Event::Pinned { owned: Owned { tenant, handle }, pinned: false });
            }
        }
    }

    /// These handles are gone.
    pub(super) fn forget_pins(&mut self, tenant: TenantId, handles: &[HandleId]) {
        if let Some(known) = self.known.get_mut(&tenant) {
            for handle in handles {
                known.pins.counts.remove(handle);
            }
        }
    }

    /// Answers those whose handles stay where they are from now on.
    pub(super) fn answer_pins(&mut self) {
        // Nothing changes for them but by a move that ended, and what follows from it.
        if !self.pins_wait || !std::mem::take(&mut self.pins_may_stay) {
            return;
        }
        self.pins_wait = false;
        let waits =
            |(tenant, known): (&TenantId, &super::Known)| (!known.pins.waiting.is_empty()).then_some(*tenant);
        for tenant in self.known.iter().filter_map(waits).collect::<Vec<_>>() {
            let Some(known) = self.known.get_mut(&tenant) else { continue };
            for (request, handles) in std::mem::take(&mut known.pins.waiting) {
                let stay = |&handle: &HandleId| self.core.stays(Owned { tenant, handle });
                let stays = handles.iter().map(stay).try_fold(true, |all, one| one.map(|one| all && one));
                match stays {
                    Some(true) => self.say(tenant, FromDaemon::Pinned { request: GrantId(request.0) }),
                    None => self.deny(tenant, request, "memory was freed while it was to be pinned".into()),
                    Some(false) => {
                        self.pins_wait = true;
                        if let Some(known) = self.known.get_mut(&tenant) {
                            known.pins.waiting.push((request, handles));
                        }
                    }
                }
            }
        }
    }
}
