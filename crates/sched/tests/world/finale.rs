//! How a life ends: nothing goes wrong any more, everybody who wants gets a turn, all leave, and the books are empty.

use super::life::Life;
use super::rules::Rule;
use super::truth::{Handle, Stage};
use sched::{
    Bytes, Event, GpuId, HandleId, JobId, Owned, PolicyKind, RequestId, Settings, Span, TenantId, Terms,
};
use std::collections::{BTreeMap, BTreeSet};

/// What may happen until everybody has had a turn.
const STEPS_MAX: usize = 40_000;
/// And how long that may take. Turns are at most 2 s here, and there are at most 14 tenants, some with a fifth of the
/// time at most, some with a fiftieth of the weight of others.
const WAIT_MAX: Span = Span::from_secs(1200);

impl Life {
    /// Ends well, or panics.
    pub(crate) fn end_well(&mut self) {
        self.settle_down();
        self.everybody_runs();
        self.everybody_leaves();
        self.nothing_is_left();
    }

    fn settle_down(&mut self) {
        self.hurry();
        let settings = Settings { headroom: Bytes::ZERO, tenants_max: 64, ..self.world.settings.clone() };
        self.tell(Event::Settings(Box::new(settings)));
        for gpu in self.world.gpus.keys().copied().collect::<Vec<GpuId>>() {
            self.tell(Event::Unmanaged { gpu, bytes: Bytes::ZERO });
        }
        self.tell(Event::Arena(Bytes::from_gib(256)));
        self.bury_all();
        self.run_until(|life| life.world.ops.values().all(|op| op.overdue));
        let living: Vec<TenantId> = self.world.living().map(|(id, _)| id).collect();
        for tenant in living {
            self.make_orderly(tenant);
        }
        for job in self.world.jobs.keys().copied().collect::<Vec<JobId>>() {
            self.tell(Event::Resume(job));
            // A gang that never fits on a GPU could never run together, nor anybody beside too much that is reserved.
            let terms = self.world.jobs[&job].terms.clone();
            let gang = terms.gang && self.fits(job);
            if (terms.gang, terms.reserve) != (gang, false) {
                self.tell(Event::Job { job, terms: Terms { gang, reserve: false, ..terms } });
            }
        }
    }

    /// Is there room for all of a job at the same time?
    fn fits(&self, job: JobId) -> bool {
        self.world.gpus.iter().all(|(&gpu, there)| {
            let on_it = || self.world.living().filter(|(_, t)| t.gpu == gpu);
            // Those at the door may come in yet.
            let contexts: Bytes = on_it().map(|(_, t)| t.residue).sum();
            let members = on_it().filter(|(_, t)| t.job == job);
            let wanted: Bytes =
                members.map(|(_, t)| t.all().less(t.residue) + t.asks.values().copied().sum()).sum();
            wanted + contexts + there.spec.reserve <= there.spec.capacity
        })
    }

    /// What cannot move is freed, or others might never find room.
    fn make_orderly(&mut self, tenant: TenantId) {
        let t = &self.world.tenants[&tenant];
        let requests: Vec<RequestId> = t.grants.keys().copied().collect();
        let handles: Vec<(HandleId, Handle)> = t.handles.iter().map(|(&id, &handle)| (id, handle)).collect();
        for request in requests {
            self.tell(Event::Returned { tenant, request });
        }
        for (handle, held) in handles {
            let owned = Owned { tenant, handle };
            if held.adopted && !held.movable {
                self.tell(Event::Freed { tenant, handles: vec![handle] });
                continue;
            }
            if !held.adopted {
                self.tell(Event::Adopted { owned, movable: true });
            }
            if held.pinned {
                self.tell(Event::Pinned { owned, pinned: false });
            }
        }
        if self.world.tenants[&tenant].stage == Stage::Context {
            self.tell(Event::Answers(tenant));
        }
    }

    /// Everybody inside with a context wants a turn and gets it.
    fn everybody_runs(&mut self) {
        let inside = |life: &Self| -> Vec<TenantId> {
            life.world.living().filter(|(_, t)| t.admitted()).map(|(id, _)| id).collect()
        };
        for tenant in inside(self) {
            if self.world.tenants[&tenant].stage == Stage::Admitted {
                self.tell(Event::Context { tenant, present: true });
            }
            self.tell(Event::wants(tenant));
        }
        let had = |t: &super::Tenant| t.turns + t.thaws;
        let before: BTreeMap<TenantId, u64> =
            inside(self).into_iter().map(|id| (id, had(&self.world.tenants[&id]))).collect();
        let began = self.world.now;
        let mut served = BTreeSet::new();
        for _ in 0..STEPS_MAX {
            // Granted, used and known at once: nothing hinges on a slow program.
            self.use_grants();
            for (&tenant, &had_before) in &before {
                let t = self.world.tenants.get(&tenant).filter(|t| t.lives());
                // Some run without a turn: whoever is latency-critical, runs beside the owner of a turn, or is of its gang.
                let no_turn = self.world.critical(tenant) || !self.world.fellows(tenant).is_empty();
                let runs = |t: &super::Tenant| had(t) > had_before || t.may_run() && (t.in_turn || no_turn);
                if t.is_none_or(runs) {
                    served.insert(tenant);
                }
            }
            if served.len() == before.len() {
                return;
            }
            self.finish_work(&served);
            if !self.go_on() || self.world.now > began + WAIT_MAX {
                break;
            }
        }
        let starved: Vec<_> = before.keys().filter(|id| !served.contains(id)).copied().collect();
        let waited = self.world.now.since(began);
        let policy = self.world.settings.policy;
        let how = |&id: &TenantId| {
            let seen = self.world.core.describe(id, self.world.now);
            let gpu = self.world.tenants.get(&id).map(|t| t.gpu);
            format!("\n  {id} on GPU {gpu:?}: {seen:?}")
        };
        let how: String = starved.iter().map(how).collect();
        self.fail(
            Rule::Wait,
            format!("{} of {} got no turn in {waited} ({policy:?}):{how}", starved.len(), before.len()),
        );
    }

    /// One after the other, each to its end: so whoever had its turn has to come to an end. And so does a request to
    /// somebody latency-critical, who keeps its memory as long as it has work.
    fn finish_work(&mut self, served: &BTreeSet<TenantId>) {
        let serial = self.world.settings.policy == PolicyKind::Serial;
        for &tenant in served {
            let ends = serial || self.world.critical(tenant);
            if ends && self.world.tenants.get(&tenant).is_some_and(|t| t.wants) {
                self.tell(Event::Idle(tenant));
            }
        }
    }

    fn use_grants(&mut self) {
        let granted = |life: &Self| {
            life.world
                .living()
                .find_map(|(id, t)| t.grants.iter().next().map(|(&request, &bytes)| (id, request, bytes)))
        };
        while let Some((tenant, request, bytes)) = granted(self) {
            let t = self.world.tenants.get_mut(&tenant).expect("a living tenant");
            t.next += 1;
            let owned = Owned { tenant, handle: HandleId(t.next) };
            self.tell(Event::Claimed { owned, request, bytes });
            self.tell(Event::Adopted { owned, movable: true });
        }
        let ending: Vec<TenantId> = self.world.living().filter(|(_, t)| t.ending).map(|(id, _)| id).collect();
        for tenant in ending {
            self.tell(Event::Left(tenant));
        }
        self.bury_all();
    }

    /// One after the other. Whoever is alone at last gets an answer to all it asked for.
    fn everybody_leaves(&mut self) {
        let first = |life: &Self| life.world.living().next().map(|(id, _)| id);
        while let Some(tenant) = first(self) {
            let gpu = self.world.tenants[&tenant].gpu;
            if self.world.tenants.values().filter(|t| t.gpu == gpu).count() == 1 {
                self.run_until(|life| {
                    life.world
                        .tenants
                        .get(&tenant)
                        .is_none_or(|t| t.asks.is_empty() && t.stage != Stage::Door)
                });
                let t = &self.world.tenants[&tenant];
                if !t.asks.is_empty() || t.stage == Stage::Door {
                    let text = format!("tenant {tenant} is alone, and waits: {:?} {:?}", t.stage, t.asks);
                    self.fail(Rule::Wait, text);
                }
            }
            self.tell(Event::Left(tenant));
            for _ in 0..5 {
                self.go_on();
            }
            self.bury_all();
        }
        for job in self.world.jobs.keys().copied().collect::<Vec<JobId>>() {
            self.tell(Event::JobOver(job));
        }
    }

    fn bury_all(&mut self) {
        let gone: Vec<TenantId> =
            self.world.tenants.iter().filter(|(_, t)| !t.lives()).map(|(&id, _)| id).collect();
        for tenant in gone {
            if self.can_bury(tenant) {
                self.world.settle_overdue_of(tenant);
                self.tell(Event::Buried(tenant));
            }
        }
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..STEPS_MAX {
            if done(self) || !self.go_on() {
                return;
            }
        }
        self.fail(Rule::Wait, "there is no end to what is due".into());
    }

    fn nothing_is_left(&mut self) {
        self.bury_all();
        self.run_until(|_| false);
        self.bury_all();
        let (used, _) = self.world.core.arena();
        if used != Bytes::ZERO {
            self.fail(Rule::Books, format!("nobody is there, and {used:?} of the arena are in use"));
        }
        for gpu in self.world.gpus.keys().copied().collect::<Vec<GpuId>>() {
            let seen = self.world.core.gpu(gpu);
            if !seen
                .as_ref()
                .is_some_and(|gpu| gpu.used == Bytes::ZERO && gpu.running.is_none() && !gpu.critical)
            {
                self.fail(Rule::Books, format!("nobody is there, and GPU {gpu} is {seen:?}"));
            }
        }
        let open: Vec<_> = self.world.ops.iter().filter(|(_, op)| !op.overdue).collect();
        if !open.is_empty() {
            let text = format!("nobody is there, and these are open: {open:?}");
            self.fail(Rule::Completion, text);
        }
    }
}
