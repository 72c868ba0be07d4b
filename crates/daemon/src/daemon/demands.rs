//! What tenants want: turns for their work, and memory. What cannot be true is not believed.

use super::{Daemon, Shown};
use crate::executor::Work;
use crate::reasons;
use sched::{Bytes, Event, HandleId, Owned, RequestId, Short, State, TenantId};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use wire::{BLOCK_BYTES, FromDaemon, GrantId};

/// Requests of one tenant without an answer. A thread waits for each, and no program has so many threads.
const ASKED_MAX: usize = 65_536;

/// What a tenant asked for and gives back.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// Without an answer yet.
    asked: BTreeMap<RequestId, Bytes>,
    /// Frees that the mover has not finished.
    frees_under_way: usize,
    /// Denied while frees were under way: asked again after them.
    again: BTreeSet<RequestId>,
    /// Of those without an answer, what will never move.
    keeps: BTreeSet<RequestId>,
    /// Of those without an answer, what is to be in the host's memory.
    pub(super) on_host: BTreeSet<RequestId>,
    /// Grants for such memory that were not used or given back.
    to_keep: BTreeSet<RequestId>,
}

impl Demands {
    /// Is a request for memory that will never move off the device?
    pub(super) fn is_to_be_kept(&self, request: RequestId) -> bool {
        self.keeps.contains(&request)
    }

    /// Has the tenant freed something that the mover has not let go of? Then the request is made again after that.
    pub(super) fn waits_for_frees(&mut self, request: RequestId) -> bool {
        let waits = self.frees_under_way > 0 && self.asked.contains_key(&request);
        if waits {
            self.again.insert(request);
        }
        waits
    }

    /// Does it wait for memory?
    pub(super) fn asks(&self) -> bool {
        !self.asked.is_empty()
    }

    /// A request that waits for its answer. False if there are too many.
    fn open(&mut self, request: RequestId, bytes: Bytes) -> bool {
        let room = self.asked.len() < ASKED_MAX || self.asked.contains_key(&request);
        if room {
            self.asked.insert(request, bytes);
        }
        room
    }

    /// It is answered.
    pub(super) fn settle(&mut self, request: RequestId) {
        self.asked.remove(&request);
        self.on_host.remove(&request);
        self.keeps.remove(&request);
    }
}

impl Daemon {
    /// Whoever has channels takes turns as soon as it has work for them.
    pub(super) fn has_channels(&mut self, tenant: TenantId, present: bool) {
        // The driver may take the channels along when it puts a context away. To the core that is there all the same.
        if self.deep.is_away(tenant) {
            return;
        }
        if self.note_channels(tenant, present) && present {
            self.find_demand(tenant);
        }
    }

    /// A tenant has channels, or none any more. False if that is known.
    pub(super) fn note_channels(&mut self, tenant: TenantId, present: bool) -> bool {
        let now = self.now();
        let Self { core, known, .. } = self;
        let Some(known) = known.get_mut(&tenant) else { return false };
        if std::mem::replace(&mut known.context, present) == present {
            return false;
        }
        if present {
            let page = known.link.grip.page();
            // A move of its memory may be waiting to begin: until then the page says that all is there.
            let moves = core.describe(tenant, now).is_some_and(|described| described.state == State::Moving);
            if page.frozen() && page.resident() && !moves {
                // It was frozen when it gave up its last context, so this one was born frozen. Contexts begin thawed, those
                // of tenants with memory away excepted.
                self.thaw_together(tenant);
            }
        } else {
            self.mustering.is_switched(tenant);
            self.without_demand(tenant);
        }
        self.step(Event::Context { tenant, present });
        true
    }

    pub(super) fn ask(&mut self, tenant: TenantId, request: RequestId, bytes: Bytes) {
        if bytes == Bytes::ZERO || !bytes.0.is_multiple_of(BLOCK_BYTES) {
            let reason = format!(
                "{} bytes were asked for, which is not a multiple of {BLOCK_BYTES}, or nothing",
                bytes.0
            );
            if let Some(known) = self.known.get_mut(&tenant) {
                known.demands.settle(request);
            }
            return self.deny(tenant, request, reason);
        }
        if self.known.get_mut(&tenant).is_some_and(|known| !known.demands.open(request, bytes)) {
            return self.put_out(tenant, "it has more requests for memory open than a program has threads");
        }
        let demands = self.known.get(&tenant).map(|known| &known.demands);
        if demands.is_some_and(|demands| demands.on_host.contains(&request)) {
            return self.step(Event::AskHost { tenant, request, bytes });
        }
        let keeps = demands.is_some_and(|demands| demands.keeps.contains(&request));
        match self.core.cannot_stay(tenant, bytes).filter(|_| keeps) {
            Some(why) => self.deny_or_wait(tenant, request, why),
            None => self.step(Event::Ask { tenant, request, bytes }),
        }
    }

    /// The same for bytes that will never move.
    pub(super) fn ask_to_keep(&mut self, tenant: TenantId, request: RequestId, bytes: Bytes) {
        if let Some(known) = self.known.get_mut(&tenant) {
            known.demands.keeps.insert(request);
        }
        self.ask(tenant, request, bytes);
    }

    pub(super) fn grant(&mut self, tenant: TenantId, request: RequestId) {
        let Some(known) = self.known.get_mut(&tenant) else { return };
        let keeps =
            known.demands.keeps.contains(&request).then(|| known.demands.asked.get(&request)).flatten();
        // Others may have grown while it waited.
        if let Some(why) = keeps.and_then(|&bytes| self.core.cannot_stay(tenant, bytes)) {
            self.step(Event::Returned { tenant, request });
            return self.deny_or_wait(tenant, request, why);
        }
        if let Some(known) = self.known.get_mut(&tenant) {
            if known.demands.keeps.contains(&request) {
                known.demands.to_keep.insert(request);
            }
            known.demands.settle(request);
        }
        self.say(tenant, FromDaemon::Granted { grant: GrantId(request.0) });
    }

    /// Denies a request, unless the tenant has just freed something: a program that frees memory and asks for as much is
    /// not out of memory because the mover has not let go of it yet.
    pub(super) fn deny_or_wait(&mut self, tenant: TenantId, request: RequestId, why: Short) {
        if let Some(known) = self.known.get_mut(&tenant) {
            let demands = &mut known.demands;
            let lacks_room = !matches!(why, Short::Malformed | Short::Unknown);
            if lacks_room && demands.waits_for_frees(request) {
                return;
            }
            demands.settle(request);
        }
        self.deny(tenant, request, reasons::words(why));
    }

    pub(super) fn free(&mut self, tenant: TenantId, handles: Vec<HandleId>) {
        if let Some(known) = self.known.get_mut(&tenant) {
            known.demands.frees_under_way += 1;
        }
        self.order_for(tenant, Work::Forget(tenant, handles));
    }

    /// Handles are gone, the mover's import too.
    pub(super) fn forgotten(&mut self, tenant: TenantId, handles: Vec<HandleId>) {
        self.forget_pins(tenant, &handles);
        let handles = self.free_published(tenant, handles);
        self.step(Event::Freed { tenant, handles });
        let Some(known) = self.known.get_mut(&tenant) else { return };
        let demands = &mut known.demands;
        demands.frees_under_way = demands.frees_under_way.saturating_sub(1);
        if demands.frees_under_way > 0 {
            return;
        }
        for request in std::mem::take(&mut demands.again) {
            let asked = self.known.get(&tenant).and_then(|known| known.demands.asked.get(&request));
            if let Some(&bytes) = asked {
                self.ask(tenant, request, bytes);
            }
        }
    }

    pub(super) fn deny(&self, tenant: TenantId, request: RequestId, reason: String) {
        self.note("denied", tenant, json!({ "why": reason }));
        self.say(tenant, FromDaemon::Denied { grant: GrantId(request.0), reason });
    }

    /// A tenant says that it used a grant for this handle.
    pub(super) fn claim(&mut self, request: RequestId, owned: Owned, bytes: Bytes, shown: Shown) {
        if self.believe(request, owned, bytes) {
            self.order_for(owned.tenant, Work::Adopt(owned, bytes, shown));
        }
    }

    /// A tenant says that it used a grant for memory that never moves.
    pub(super) fn keep(&mut self, request: RequestId, owned: Owned, bytes: Bytes) {
        if !self.known.get(&owned.tenant).is_some_and(|known| known.demands.to_keep.contains(&request)) {
            return self.put_out(owned.tenant, "it keeps memory that it asked for as memory that moves");
        }
        if self.believe(request, owned, bytes) {
            self.step(Event::Pinned { owned, pinned: true });
        }
        self.forget_spent(owned.tenant, request);
    }

    /// A grant for memory that is kept may be used up.
    pub(super) fn forget_spent(&mut self, tenant: TenantId, request: RequestId) {
        if self.core.has_grant(tenant, request).is_none()
            && let Some(known) = self.known.get_mut(&tenant)
        {
            known.demands.to_keep.remove(&request);
        }
    }

    /// Books what a tenant says that it used a grant for. Believed only if that is so.
    fn believe(&mut self, request: RequestId, owned: Owned, bytes: Bytes) -> bool {
        let granted = self.core.has_grant(owned.tenant, request).unwrap_or_default();
        if self.core.has_handle(owned) || self.core.is_on_host(owned) {
            self.put_out(owned.tenant, "it named a handle twice");
        } else if bytes > granted {
            self.put_out(owned.tenant, "it used a grant that it does not have, or more than that");
        } else {
            self.step(Event::Claimed { owned, request, bytes });
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_an_answer_have_a_bound() {
        let mut demands = Demands::default();
        for request in 0..ASKED_MAX as u64 {
            assert!(demands.open(RequestId(request), Bytes(1)), "{request}");
        }
        assert!(!demands.open(RequestId(u64::MAX), Bytes(1)));
        assert!(demands.open(RequestId(0), Bytes(2)), "the same again is not one more");
        assert_eq!(demands.asked.len(), ASKED_MAX);
    }
}
