//! Events chosen on purpose: those that a tenant in its present state has not seen yet.

use super::execute::How;
use super::life::Life;
use super::matrix::{KINDS, Matrix, Seen};
use super::truth::{Op, Tenant};
use sched::{
    Bytes, Event, GpuId, HandleId, JobId, OpId, Owned, Ratio, RequestId, Span, TenantId, TicketId, UserId,
};
use std::collections::BTreeSet;

const NOBODY: u64 = 9_999_999;

impl Life {
    /// One event that is missing in the state that somebody is in now, if there is such a one.
    pub(crate) fn fill(&mut self, so_far: &Matrix) {
        // Those who are there, those who are buried and still named by an action, and one who never came.
        let mut everybody: BTreeSet<TenantId> = self.world.tenants.keys().copied().collect();
        everybody.extend(self.world.ops.values().flat_map(Op::concerns));
        everybody.insert(TenantId(self.tenant_last + 7));
        for tenant in everybody {
            let seen = Matrix::seen(&self.world, tenant);
            let missing = |kind: &&'static str| !so_far.has(kind, seen) && !self.matrix.has(kind, seen);
            let missing: Vec<&'static str> = KINDS.into_iter().filter(missing).collect();
            for kind in missing {
                if self.provoke(kind, tenant, seen) {
                    return;
                }
            }
        }
    }

    /// Somebody dies and is buried while an inspection of it is open, if that has not been seen to its end yet.
    pub(crate) fn orphan(&mut self, so_far: &Matrix) {
        let missing =
            |kind: &'static str| !so_far.has(kind, Seen::Nobody) && !self.matrix.has(kind, Seen::Nobody);
        let open =
            self.world.ops.values().flat_map(Op::concerns).any(|id| !self.world.tenants.contains_key(&id));
        if open || !["Done", "DoneFailed", "DoneLate"].into_iter().any(missing) {
            return;
        }
        let still = |(id, t): &(TenantId, &Tenant)| t.admitted() && self.can_bury(*id);
        let Some(tenant) = self.world.living().find(still).map(|(id, _)| id) else { return };
        self.tell(Event::Answers(tenant));
        if let Some(op) = self.op_about(tenant, false) {
            self.put_off(op);
        }
        self.tell(Event::Left(tenant));
        self.world.settle_overdue_of(tenant);
        self.tell(Event::Buried(tenant));
    }

    fn provoke(&mut self, kind: &str, tenant: TenantId, seen: Seen) -> bool {
        let how = match kind {
            "Done" => Some((How::Well, false)),
            "DoneFailed" => Some((How::Fail, false)),
            "DoneLate" => Some((How::Well, true)),
            _ => None,
        };
        if let Some((how, late)) = how {
            if let Some(op) = self.op_about(tenant, late) {
                self.end(op, how);
                return true;
            }
            // An inspection is about anybody. It is there next time, and late some time.
            if seen != Seen::Nobody && self.op_about(tenant, false).is_none() {
                self.tell(Event::Answers(tenant));
                if let Some(op) = self.op_about(tenant, false) {
                    self.put_off(op);
                }
            }
            return false;
        }
        let Some(event) = self.event_about(kind, tenant, seen) else { return false };
        self.tell(event);
        true
    }

    fn op_about(&self, tenant: TenantId, late: bool) -> Option<OpId> {
        let mut ops = self.world.ops.iter().filter(|(_, op)| op.overdue == late && !op.lost);
        ops.find(|(_, op)| op.concerns().contains(&tenant)).map(|(&id, _)| id)
    }

    /// An event of a kind that is about this tenant: one that changes as little as it can.
    fn event_about(&mut self, kind: &str, tenant: TenantId, seen: Seen) -> Option<Event> {
        let known = self.world.tenants.get(&tenant);
        let (job, gpu) = known.map_or((JobId(NOBODY), GpuId(0)), |t| (t.job, t.gpu));
        let there = self.world.gpus.get(&gpu)?;
        let owned = Owned { tenant, handle: HandleId(NOBODY) };
        let request = RequestId(NOBODY);
        if known.is_none()
            && ["Gpu", "Settings", "Unmanaged", "Strangers", "Arena", "User", "Place", "Tick"].contains(&kind)
        {
            return None;
        }
        Some(match kind {
            "Gpu" => Event::Gpu { gpu, spec: there.spec.clone() },
            "Settings" => Event::Settings(Box::new(self.world.settings.clone())),
            "Unmanaged" => Event::Unmanaged { gpu, bytes: there.unmanaged },
            "Strangers" => Event::Strangers { gpu, present: there.strangers },
            "Arena" => Event::Arena(self.world.arena),
            "User" => Event::User { user: UserId(0), weight: 1 },
            "Job" => Event::Job { job, terms: self.world.jobs.get(&job)?.terms.clone() },
            "JobOver" => Event::JobOver(job),
            "Pause" => Event::Pause(job),
            "Resume" => Event::Resume(job),
            "Deep" => Event::Deep { job, deep: true },
            "Place" => {
                self.ticket_last += 1;
                let ticket = TicketId(self.ticket_last);
                Event::Place {
                    ticket,
                    job,
                    count: 1,
                    among: Vec::new(),
                    bytes: Bytes::from_gib(1),
                    residue: None,
                }
            }
            // Somebody who left the door is forgotten at once.
            "Arrived" | "Rejoined"
                if known.is_some_and(|t| t.gone.is_some_and(|gone| gone.device == Bytes::ZERO)) =>
            {
                return None;
            }
            "Arrived" => Event::Arrived { tenant, job, gpu, residue: Bytes::from_mib(500) },
            "Rejoined" => {
                let (residue, handles) = (Bytes::from_mib(500), Vec::new());
                Event::Rejoined { tenant, job, gpu, residue, handles }
            }
            "Context" => Event::Context { tenant, present: true },
            "ContextGone" => Event::Context { tenant, present: false },
            "Shares" => Event::Shares(tenant, tenant),
            "Ask" => Event::Ask { tenant, request, bytes: Bytes::ZERO },
            "AskHost" => Event::AskHost { tenant, request, bytes: Bytes::from_mib(2) },
            "ClaimedHost" => Event::ClaimedHost { owned, request, bytes: Bytes::from_mib(2) },
            "Looked" => {
                let sighting = sched::Sighting { handle: owned.handle, blocks: 8, changed: 8 };
                Event::Looked { tenant, seen: vec![sighting] }
            }
            "HomeIs" => Event::HomeIs { owned, on_host: true },
            "HostedBefore" => {
                Event::HostedBefore { tenant, handles: vec![(owned.handle, Bytes::from_mib(2))] }
            }
            "Claimed" => Event::Claimed { owned, request, bytes: Bytes::from_mib(2) },
            "Adopted" => Event::Adopted { owned, movable: true },
            "Pinned" => Event::Pinned { owned, pinned: true },
            "Copied" => Event::Copied { owned, clean: true },
            "Returned" => Event::Returned { tenant, request },
            "Freed" => Event::Freed { tenant, handles: vec![owned.handle] },
            "Wants" => Event::wants(tenant),
            "Idle" => Event::Idle(tenant),
            "Measured" => Event::Measured { tenant, busy: Ratio::ONE },
            "Warmed" => Event::Warmed { tenant, at: self.world.now },
            "GivesWay" => Event::GivesWay { tenant, gives_way: true },
            "Hint" => Event::Hint { tenant, within: Span::from_millis(1) },
            "Answers" => Event::Answers(tenant),
            "Left" => Event::Left(tenant),
            "Lingers" => Event::Lingers(tenant),
            "Buried" if seen != Seen::Left => Event::Buried(tenant),
            "Tick" => Event::Tick,
            "Residue" => {
                let bytes = known.map_or(Bytes::from_gib(1), |t| t.residue);
                Event::Residue { tenant, bytes }
            }
            _ => return None,
        })
    }
}
