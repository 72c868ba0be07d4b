//! Programs that are larger than their GPU: what of their memory lies in the host's, mapped at addresses of the device. They
//! make it themselves; the daemon counts it. It never goes to the arena, but the core may have it change places with memory on the
//! device.

use super::Daemon;
use crate::executor::Work;
use sched::{Bytes, Event, OpId, Outcome, Owned, RequestId, TenantId};
use std::os::fd::OwnedFd;
use wire::{FromDaemon, GrantId};

impl Daemon {
    /// A tenant asks for the host's memory by name.
    pub(super) fn ask_for_host(&mut self, tenant: TenantId, request: RequestId, bytes: Bytes) {
        if let Some(known) = self.known.get_mut(&tenant) {
            known.demands.on_host.insert(request);
        }
        self.ask(tenant, request, bytes);
    }

    /// A request is granted, so much of it in the host's memory.
    pub(super) fn grant_on_host(&mut self, tenant: TenantId, request: RequestId, host: Bytes) {
        let Some(known) = self.known.get_mut(&tenant) else { return };
        let is_named = known.demands.on_host.contains(&request);
        // Nothing lies in the host's memory for good because the mover has not let go yet of what was freed.
        if !is_named && known.demands.waits_for_frees(request) {
            return self.step(Event::Returned { tenant, request });
        }
        let stays = known.demands.is_to_be_kept(request);
        known.demands.settle(request);
        if stays {
            self.step(Event::Returned { tenant, request });
            let reason = "the GPU has no room for memory of the driver's own, which cannot be the host's";
            return self.deny(tenant, request, reason.into());
        }
        self.say(tenant, FromDaemon::GrantedHost { grant: GrantId(request.0), host_bytes: host.0 });
    }

    /// A tenant shows a handle in the host's memory, so that it may change its home. One that is gone meanwhile, or that counts as
    /// less than it is, stays; so does what of one that is put away or about to be is shown: nobody is to have a hold of it.
    pub(super) fn host_shown(&mut self, owned: Owned, bytes: Bytes, file: OwnedFd) {
        if !self.deep.is_away(owned.tenant) && self.core.hosted_bytes(owned) == Some(bytes) {
            self.order_for(owned.tenant, Work::AdoptHosted(owned, bytes, file));
        }
    }

    /// A tenant makes memory of the host's for handles that are to go there.
    pub(super) fn prepare(&mut self, op: OpId, tenant: TenantId, handles: Vec<Owned>) {
        match self.known.get(&tenant) {
            Some(known) => self.executor(known.gpu).order(Work::Prepare(op, tenant, handles)),
            // It left in the same moment.
            None => self.step(Event::Done { op, outcome: Outcome::Failed }),
        }
    }

    /// Handles of a tenant change their homes.
    pub(super) fn rehome(&mut self, op: OpId, tenant: TenantId, down: Vec<Owned>, up: Vec<Owned>) {
        match self.known.get(&tenant) {
            Some(known) => self.executor(known.gpu).order(Work::Rehome(op, tenant, down, up)),
            None => self.step(Event::Done { op, outcome: Outcome::Failed }),
        }
    }

    /// A tenant says that it used a grant in the host's memory for this.
    pub(super) fn host(&mut self, request: RequestId, owned: Owned, bytes: Bytes) {
        let granted = self.core.has_host_grant(owned.tenant, request).unwrap_or_default();
        if self.core.has_handle(owned) || self.core.is_on_host(owned) {
            self.put_out(owned.tenant, "it named a handle twice");
        } else if bytes > granted {
            self.put_out(owned.tenant, "it used more of the host's memory than it was granted");
        } else {
            self.step(Event::ClaimedHost { owned, request, bytes });
        }
    }
}
