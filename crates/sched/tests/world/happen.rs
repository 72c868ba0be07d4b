//! What an event changes in the world. Events that make no sense (of somebody unknown, about nothing) change nothing:
//! the core has to see that too.

use super::World;
use super::truth::{Gone, Gpu, Handle, Hinted, Job, Op, Place, Stage, Tenant};
use sched::{Bytes, Event, Owned, Scope, Slice, TenantId};
use std::collections::BTreeSet;

impl World {
    /// The world changes.
    pub(crate) fn happen(&mut self, event: &Event) {
        match event {
            Event::Gpu { gpu, spec } => {
                let before = self.gpus.get(gpu);
                let unmanaged = before.map_or(Bytes::ZERO, |gpu| gpu.unmanaged);
                let strangers = before.is_some_and(|gpu| gpu.strangers);
                self.gpus.insert(*gpu, Gpu { spec: spec.clone(), unmanaged, strangers, still: 0 });
                self.upset();
            }
            Event::Settings(settings) => {
                self.settings = (**settings).clone();
                self.upset();
            }
            Event::Unmanaged { gpu, bytes } => {
                if let Some(gpu) = self.gpus.get_mut(gpu) {
                    gpu.unmanaged = *bytes;
                }
                self.upset();
            }
            Event::Strangers { gpu, present } => {
                if let Some(gpu) = self.gpus.get_mut(gpu) {
                    gpu.strangers = *present;
                }
                self.upset();
            }
            Event::Arena(bytes) => {
                self.arena = *bytes;
                self.upset();
            }
            Event::Job { job, terms } => {
                let new = || Job { terms: terms.clone(), paused: false, shares: BTreeSet::new() };
                self.jobs.entry(*job).or_insert_with(new).terms = terms.clone();
                self.upset();
            }
            Event::JobOver(job) => {
                if !self.living().any(|(_, t)| t.job == *job && t.stage != Stage::Refused) {
                    self.jobs.remove(job);
                    self.jobs.values_mut().for_each(|other| other.shares.retain(|with| with != job));
                }
            }
            Event::Pause(job) | Event::Resume(job) => {
                if let Some(job) = self.jobs.get_mut(job) {
                    job.paused = matches!(event, Event::Pause(_));
                }
                self.upset();
            }
            Event::Deep { .. } => self.upset(),
            Event::Arrived { tenant, job, gpu, residue } => {
                if self.tenants.get(tenant).is_some_and(|t| t.stage != Stage::Refused) {
                    self.to_refuse = Some(*tenant);
                    return;
                }
                self.tenants.insert(*tenant, Tenant::new(*job, *gpu, *residue));
                self.upset();
            }
            Event::Rejoined { tenant, job, gpu, residue, handles } => {
                let unknown = !self.gpus.contains_key(gpu) || !self.jobs.contains_key(job);
                if unknown || self.tenants.get(tenant).is_some_and(|t| t.stage != Stage::Refused) {
                    self.to_refuse = Some(*tenant);
                    return;
                }
                let mut t = Tenant::new(*job, *gpu, *residue);
                t.stage = Stage::Admitted;
                t.handles = handles.iter().map(|one| (one.handle, Handle::survived(one))).collect();
                t.next = handles.len() as u64 + 1;
                self.tenants.insert(*tenant, t);
                self.upset();
            }
            Event::Shares(one, other) => self.share(*one, *other),
            Event::Left(tenant) => self.leave(*tenant),
            Event::Lingers(tenant) => {
                if let Some(gone) = self.tenants.get_mut(tenant).and_then(|t| t.gone.as_mut()) {
                    gone.lingers = true;
                }
            }
            Event::Buried(tenant) => {
                if self.tenants.get(tenant).is_some_and(|t| !t.lives()) {
                    self.tenants.remove(tenant);
                }
            }
            Event::Context { tenant, .. }
            | Event::Wants { tenant, .. }
            | Event::Idle(tenant)
            | Event::Hint { tenant, .. }
            | Event::Returned { tenant, .. }
            | Event::Freed { tenant, .. }
            | Event::Residue { tenant, .. }
            | Event::Ask { tenant, .. } => self.happen_to(*tenant, event),
            Event::Claimed { owned, request, bytes } => {
                let known = |t: &&mut Tenant| t.lives() && !t.handles.contains_key(&owned.handle);
                let Some(t) = self.tenants.get_mut(&owned.tenant).filter(known) else { return };
                let Some(left) =
                    t.grants.get_mut(request).filter(|left| *bytes > Bytes::ZERO && *bytes <= **left)
                else {
                    return;
                };
                *left -= *bytes;
                if *left == Bytes::ZERO {
                    t.grants.remove(request);
                }
                let handle = Handle {
                    bytes: *bytes,
                    place: Place::Device,
                    adopted: false,
                    movable: false,
                    pinned: false,
                    clean: false,
                };
                t.handles.insert(owned.handle, handle);
            }
            Event::Adopted { owned, .. } | Event::Pinned { owned, .. } | Event::Copied { owned, .. } => {
                self.happen_to_handle(owned, event);
            }
            // No job here may have memory of the host's.
            Event::AskHost { tenant, request, .. } => {
                let known = |t: &Tenant| t.lives() && t.stage != Stage::Refused;
                if self.tenants.get(tenant).is_some_and(known) {
                    self.to_deny = Some((*tenant, *request));
                }
            }
            Event::ClaimedHost { .. }
            | Event::HostedBefore { .. }
            | Event::Looked { .. }
            | Event::HomeIs { .. } => {}
            Event::User { .. } => self.upset(),
            Event::Place { .. }
            | Event::Measured { .. }
            | Event::Warmed { .. }
            | Event::GivesWay { .. }
            | Event::Answers(_)
            | Event::Done { .. }
            | Event::Tick => {}
        }
    }

    fn happen_to(&mut self, tenant: TenantId, event: &Event) {
        let now = self.now;
        // Is all its memory on the device, as far as anybody knows?
        let here = self
            .tenants
            .get(&tenant)
            .is_some_and(|t| t.handles.is_empty() || t.whole() && !self.touched(tenant));
        let known = self.tenants.get_mut(&tenant).filter(|t| t.lives() && t.admitted());
        let Some(t) = known else {
            // Somebody at the door who asks is waiting for an answer; somebody who is gone is not.
            let waits = self.tenants.get(&tenant).is_some_and(|t| t.lives() && t.stage == Stage::Door);
            if let (Event::Ask { request, .. }, true) = (event, waits) {
                self.to_deny = Some((tenant, *request));
            }
            return;
        };
        match event {
            Event::Context { present: true, .. } if t.stage == Stage::Admitted => {
                (t.stage, t.slices) = (Stage::Context, BTreeSet::from([Slice::Own]));
                t.frozen = (!here).then_some(Scope::All);
                self.forget_grips(tenant);
            }
            Event::Context { present: false, .. } => {
                (t.stage, t.frozen, t.hinted) = (Stage::Admitted, None, None);
                t.slices.clear();
                self.forget_grips(tenant);
            }
            Event::Wants { .. } if !t.wants => {
                (t.wants, t.patience, t.ticks, t.hinted) = (true, 0, 0, None);
            }
            Event::Idle(_) => (t.wants, t.hinted) = (false, None),
            Event::Hint { within, .. } => {
                // Of several hints the soonest is watched.
                let at = now + *within;
                if t.hinted.is_none_or(|hint| at < hint.at) {
                    t.hinted = Some(Hinted { at, warmed: false });
                }
            }
            Event::Returned { request, .. } => {
                t.grants.remove(request);
                t.asks.remove(request);
            }
            Event::Residue { bytes, .. } => t.residue = *bytes,
            Event::Freed { handles, .. } => t.handles.retain(|handle, _| !handles.contains(handle)),
            Event::Ask { request, bytes, .. } => {
                let known = t.asks.contains_key(request) || t.grants.contains_key(request);
                if known || *bytes == Bytes::ZERO {
                    self.to_deny = Some((tenant, *request));
                } else {
                    t.asks.insert(*request, *bytes);
                }
            }
            _ => {}
        }
    }

    fn happen_to_handle(&mut self, owned: &Owned, event: &Event) {
        let Some(handle) = self.handle_mut(owned) else { return };
        match event {
            Event::Adopted { movable, .. } => (handle.adopted, handle.movable) = (true, *movable),
            Event::Pinned { pinned, .. } => handle.pinned = *pinned,
            Event::Copied { clean, .. } if handle.place == Place::Device => handle.clean = *clean,
            _ => {}
        }
    }

    fn share(&mut self, one: TenantId, other: TenantId) {
        let known = |t: &&Tenant| t.lives() && t.stage != Stage::Refused;
        let job = |id| self.tenants.get(&id).filter(known).map(|t| t.job);
        let (Some(one), Some(other)) = (job(one), job(other)) else { return };
        for (job, with) in [(one, other), (other, one)] {
            self.jobs.entry(job).and_modify(|job| job.shares.extend([with]));
        }
        self.upset();
    }

    fn leave(&mut self, tenant: TenantId) {
        let Some(t) = self.tenants.get_mut(&tenant).filter(|t| t.lives()) else { return };
        t.gone = Some(Gone { device: t.device(), lingers: false });
        (t.wants, t.hinted, t.frozen) = (false, None, None);
        t.handles.clear();
        t.asks.clear();
        t.grants.clear();
        self.forget_grips(tenant);
        self.upset();
    }

    /// Nobody waits any more for what was to be done to channels that are gone. It ends all the same.
    fn forget_grips(&mut self, tenant: TenantId) {
        self.forget(|op| op.grips() == Some(tenant));
    }

    /// Nobody waits for these any more.
    pub(crate) fn forget(&mut self, test: impl Fn(&Op) -> bool) {
        for op in self.ops.values_mut().filter(|op| test(op)) {
            op.forgotten |= !op.overdue;
            op.overdue = true;
        }
    }

    /// Something went wrong or changed on purpose: nobody's patience is measured across it.
    pub(crate) fn upset(&mut self) {
        self.upset_at = self.now;
        for t in self.tenants.values_mut() {
            (t.patience, t.ticks) = (0, 0);
        }
        self.gpus.values_mut().for_each(|gpu| gpu.still = 0);
    }
}
