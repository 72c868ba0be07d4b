//! What always holds, checked after every step and at every action.

use super::World;
use super::truth::{Deed, Stage};
use sched::{Bytes, GpuId, Slice, TenantId};
use std::collections::BTreeSet;
use std::fmt;

/// What always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    /// Bytes on a GPU never exceed its capacity by rota's own doing.
    Capacity,
    /// Bytes in the arena never exceed its size by rota's own doing.
    Arena,
    /// Granted bytes never exceed a job's limit, nor what all may have together.
    Limit,
    /// A tenant that is not wholly resident is frozen.
    Whole,
    /// Nothing moves of a tenant that may be running, nor what is not where the move believes it.
    Unmap,
    /// One move on a GPU, one grip on a tenant at a time.
    OneAtATime,
    /// Every action ends once: its number is its own, and it is given up at most once, and only while open.
    Completion,
    /// Every action is given up by its deadline.
    Deadline,
    /// Every waiting tenant gets a turn in bounded time.
    Wait,
    /// A hint is honoured or reported as missed.
    Hint,
    /// Never two of the shortest slices on a GPU, nor one beside somebody whose slice nobody sets.
    Shortest,
    /// While somebody latency-critical is active, at most one best-effort tenant is thawed.
    Critical,
    /// Nothing of a gang goes out while a fellow may run.
    Gang,
    /// A request is answered once, somebody at the door is let in once, a question is answered once.
    Answer,
    /// Nobody is thawed who has left, is paused or has no context; turns begin and end in pairs.
    Turn,
    /// While somebody has its turn, memory comes in for itself or for one other, who could run, and not beside somebody
    /// latency-critical.
    Ahead,
    /// What is reserved does not go out, and nobody is promised it.
    Reserve,
    /// The core's books are the world's.
    Books,
}

impl Rule {
    pub(crate) const ALL: [Self; 18] = [
        Self::Capacity,
        Self::Arena,
        Self::Limit,
        Self::Whole,
        Self::Unmap,
        Self::OneAtATime,
        Self::Completion,
        Self::Deadline,
        Self::Wait,
        Self::Hint,
        Self::Shortest,
        Self::Critical,
        Self::Gang,
        Self::Answer,
        Self::Turn,
        Self::Ahead,
        Self::Reserve,
        Self::Books,
    ];
}

/// A mistake of the core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Broken {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.text)
    }
}

impl World {
    /// After a step.
    pub(crate) fn check(&mut self, tick: bool) {
        if let Err(text) = self.core.check() {
            self.broke(Rule::Books, format!("the core's own check: {text}"));
        }
        self.check_deadlines(tick);
        self.check_wholes();
        self.check_books();
        self.check_promises(tick);
    }

    /// No action is waited for beyond its deadline.
    fn check_deadlines(&mut self, tick: bool) {
        let open = self.ops.iter().filter(|(_, op)| !op.overdue).map(|(&id, op)| (id, op.due));
        for (id, due) in open.collect::<Vec<_>>() {
            let wake = self.core.wake_at();
            let late = tick && self.now >= due;
            self.require(Rule::Deadline, !late && wake.is_some_and(|at| at <= due), || {
                format!("action {id} is due at {due:?}, and the core wakes at {wake:?}")
            });
        }
    }

    /// Whoever may run has all its memory.
    fn check_wholes(&mut self) {
        let torn = |(id, t): &(TenantId, &super::Tenant)| t.may_run() && (!t.whole() || self.moving(*id));
        let torn: Vec<TenantId> = self.living().filter(torn).map(|(id, _)| id).collect();
        for id in torn {
            self.broke(Rule::Whole, format!("tenant {id} may run, and its memory is not all there"));
        }
    }

    /// What the core says of tenants and GPUs that nothing happens to is what is true.
    fn check_books(&mut self) {
        let mut wrong = Vec::new();
        for (id, t) in self.living().filter(|(_, t)| t.stage != Stage::Refused) {
            let Some(seen) = self.core.describe(id, self.now) else {
                wrong.push(format!("the core does not know tenant {id}"));
                continue;
            };
            if self.touched(id) {
                continue;
            }
            let (mapped, away) = (t.mapped(), t.away());
            if (seen.resident, seen.away) != (mapped, away) {
                wrong.push(format!(
                    "tenant {id} has {mapped:?} on the device and {away:?} in the arena, the core says {:?} and {:?}",
                    seen.resident, seen.away
                ));
            }
        }
        for (&gpu, there) in &self.gpus {
            let Some(seen) = self.core.gpu(gpu) else {
                wrong.push(format!("the core does not know GPU {gpu}"));
                continue;
            };
            if (seen.capacity, seen.unmanaged) != (there.spec.capacity, there.unmanaged) {
                wrong.push(format!("GPU {gpu} is {there:?}, the core says {seen:?}"));
            }
            if self.tenants.iter().any(|(id, t)| t.gpu == gpu && self.touched(*id)) {
                continue;
            }
            let held = self.committed(gpu).less(there.spec.reserve + there.unmanaged);
            // What somebody at the door or somebody dead takes, the core may know better, or fear.
            let sure = self.tenants.values().all(|t| t.gpu != gpu || t.lives() && t.admitted());
            if seen.used < held || sure && seen.used != held {
                wrong.push(format!("tenants hold {held:?} of GPU {gpu}, the core says {:?}", seen.used));
            }
        }
        for text in wrong {
            self.broke(Rule::Books, text);
        }
    }

    /// Does an open action concern where its memory is?
    pub(crate) fn touched(&self, tenant: TenantId) -> bool {
        self.ops.values().any(|op| match &op.deed {
            Deed::Inspect(tenants) => tenants.contains(&tenant) && !op.lost,
            _ => op.handles().any(|(owned, _)| owned.tenant == tenant),
        })
    }

    /// Device memory was promised: is there so much?
    pub(crate) fn check_growth(&mut self, gpu: GpuId, before: Bytes, what: &str) {
        let after = self.committed(gpu);
        let limit = self.gpus.get(&gpu).map_or(Bytes::ZERO, |g| g.spec.capacity.less(self.settings.headroom));
        self.require(Rule::Capacity, after <= limit || after <= before, || {
            format!("{what}: {after:?} of GPU {gpu} are taken or promised, {before:?} before, of {limit:?}")
        });
    }

    /// More memory was promised to a tenant, or a context: is it within what its job may have?
    pub(crate) fn check_limit(&mut self, tenant: TenantId, what: &str) {
        let Some(t) = self.tenants.get(&tenant) else { return };
        let (job, gpu) = (t.job, t.gpu);
        let has = self.of_job(job, gpu);
        let limit = self.terms(t).and_then(|terms| terms.memory_max).unwrap_or(Bytes(u64::MAX));
        self.require(Rule::Limit, has <= limit, || format!("{what}: job {job} has {has:?} of {limit:?}"));
    }

    /// More memory was promised to a tenant: is it within what all together may have?
    pub(crate) fn check_overcommit(&mut self, gpu: GpuId, what: &str) {
        let all: Bytes =
            self.living().filter(|(_, t)| t.gpu == gpu).map(|(_, t)| t.all().less(t.residue)).sum();
        let capacity = self.gpus.get(&gpu).map_or(Bytes::ZERO, |g| g.spec.capacity);
        let most = self.settings.overcommit_max.of_bytes(capacity);
        self.require(Rule::Limit, all <= most, || {
            format!("{what}: all on GPU {gpu} have {all:?} of {most:?}")
        });
    }

    /// Memory was promised to a tenant: could it be there beside all that others have reserved, and whoever else has most
    /// beside what this one has, if that is reserved?
    pub(crate) fn check_reserve(&mut self, tenant: TenantId, what: &str) {
        let Some(gpu) = self.tenants.get(&tenant).map(|t| t.gpu) else { return };
        let there = || self.living().filter(|(_, t)| t.gpu == gpu && t.admitted());
        let has = |t: &super::Tenant| t.all().less(t.residue);
        let stays = |(id, t): &(TenantId, &super::Tenant)| *id == tenant || self.reserved(t);
        let together: Bytes = there().filter(stays).map(|(_, t)| has(t)).sum();
        let largest = there().filter(|one| !stays(one)).map(|(_, t)| has(t)).max().unwrap_or_default();
        let beside = if self.reserved(&self.tenants[&tenant]) { largest } else { Bytes::ZERO };
        let contexts: Bytes = there().map(|(_, t)| t.residue).sum();
        let Some(books) = self.gpus.get(&gpu) else { return };
        let kept = books.spec.reserve + books.unmanaged + self.settings.headroom + contexts;
        let usable = books.spec.capacity.less(kept);
        self.require(Rule::Reserve, together + beside <= usable, || {
            format!("{what}: {together:?} have to be on GPU {gpu} beside {beside:?}, of {usable:?}")
        });
    }

    /// A slice is asked for: does nobody else have what only one may have?
    pub(crate) fn check_slice(&mut self, tenant: TenantId, slice: Slice) {
        let Some(gpu) = self.tenants.get(&tenant).map(|t| t.gpu) else { return };
        let other = |(id, t): &(TenantId, &super::Tenant)| {
            *id != tenant && t.gpu == gpu && t.may_run() && t.slices.contains(&Slice::Shortest)
        };
        let other = self.living().find(other).map(|(id, _)| id);
        let strangers = self.gpus.get(&gpu).is_some_and(|gpu| gpu.strangers);
        self.require(Rule::Shortest, slice != Slice::Shortest || other.is_none() && !strangers, || {
            format!(
                "tenant {tenant} gets the shortest slice, and tenant {other:?} may have it too; strangers: {strangers}"
            )
        });
    }

    /// Does a move bring in memory for others than whoever has the turn?
    pub(crate) fn is_ahead(&self, gpu: GpuId, into: &BTreeSet<TenantId>) -> bool {
        let owner = self.living().find(|(_, t)| t.gpu == gpu && t.in_turn).map(|(id, _)| id);
        let is_owners =
            |id: &TenantId| owner.is_none_or(|owner| *id == owner || self.fellows(owner).contains(id));
        !into.iter().any(is_owners) && !into.is_empty()
    }

    /// Memory comes in: if for one who has no turn yet, is it one who could?
    pub(crate) fn check_ahead(&mut self, gpu: GpuId, into: &BTreeSet<TenantId>) {
        if !self.is_ahead(gpu, into) {
            return;
        }
        let could_run = |id: &TenantId| {
            let t = &self.tenants[id];
            t.lives() && !self.paused(t) && (t.wants || !t.asks.is_empty()) && self.fellows(*id).is_empty()
        };
        let fit = self.settings.prefetch && into.len() == 1 && into.iter().all(could_run);
        self.require(Rule::Ahead, fit, || format!("memory of {into:?} comes in while another has its turn"));
        let disturbs = self.critical_active(gpu);
        self.require(Rule::Ahead, !disturbs, || {
            format!("memory of {into:?} comes in ahead of its turn, beside somebody latency-critical")
        });
    }

    /// Everybody on a GPU who may run and is best-effort.
    pub(crate) fn ordinary_running(&self, gpu: GpuId) -> Vec<TenantId> {
        let runs = |(id, t): &(TenantId, &super::Tenant)| t.gpu == gpu && t.may_run() && !self.critical(*id);
        self.living().filter(runs).map(|(id, _)| id).collect()
    }

    /// Has somebody latency-critical on this GPU work at this moment, and all it needs to do it?
    pub(crate) fn critical_active(&self, gpu: GpuId) -> bool {
        self.living().any(|(id, t)| {
            t.gpu == gpu
                && t.stage == Stage::Context
                && t.wants
                && t.whole()
                && !self.paused(t)
                && self.critical(id)
        })
    }
}
