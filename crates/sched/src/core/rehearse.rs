//! How long somebody will wait: a copy of the core is asked what it would do if everything went as usual.
//!
//! Actions take as long as they did of late, tenants work and pause as they usually do, and nobody comes or goes. So a
//! forecast follows every rule there is, without knowing any. Only what the copy needs is copied: the GPU of whoever
//! asks, and those that gangs tie to it.

use super::roster::Roster;
use super::{Core, OpKind};
use crate::release::THAW_EFFECT;
use crate::tenant::{Grip, Spot, Tenant};
use crate::{Action, Event, GpuId, HandleId, OpId, Outcome, Owned, Span, TenantId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// So many steps are looked ahead: what is further away than that nobody knows.
pub(super) const STEPS_MAX: usize = 20_000;

/// Or so far.
const AHEAD_MAX: Span = Span::from_secs(3_600);

/// From a death until its memory is free.
const BURIAL: Span = Span::from_millis(100);

/// What is expected to happen.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// An action is over that took so long.
    Done(OpId, Span),
    Wants(TenantId),
    Idle(TenantId),
    Buried(TenantId),
}

pub(super) struct Rehearsal {
    core: Core,
    now: Time,
    /// What is expected when, in the order in which it was thought of.
    agenda: BTreeMap<(Time, u64), Expected>,
    thoughts: u64,
}

impl Core {
    /// All that can matter to a GPU within the time of a forecast.
    pub(super) fn around(&self, gpu: GpuId) -> Self {
        let gpus = self.tied_gpus(gpu);
        let mut tenants = Roster::default();
        let mut jobs = Roster::default();
        for (id, tenant) in self.tenants.iter().filter(|(_, tenant)| gpus.contains(&tenant.gpu)) {
            tenants.insert(id, Tenant { habits: tenant.habits.settled(), ..tenant.clone() });
            if let Some(job) = self.jobs.get(tenant.job) {
                jobs.insert(tenant.job, job.clone());
            }
        }
        let is_here = |id: TenantId| self.tenants.get(id).is_some_and(|tenant| gpus.contains(&tenant.gpu));
        let matters = |kind: &OpKind| match kind {
            OpKind::Freeze(id) | OpKind::Thaw(id, _) | OpKind::Slice(id, _) | OpKind::Prepare(id) => {
                is_here(*id)
            }
            OpKind::Move(gpu) | OpKind::Rehome(_, gpu) => gpus.contains(gpu),
            OpKind::Inspect(ids) => ids.iter().copied().any(is_here),
        };
        let ops: BTreeMap<_, _> =
            self.ops.iter().filter(|(_, op)| matters(&op.kind)).map(|(&id, op)| (id, op.clone())).collect();
        let is_due = |due: &super::Due| match due {
            super::Due::Gpu(gpu) => gpus.contains(gpu),
            super::Due::Tenant(id) => is_here(*id),
            super::Due::Op(op) => ops.contains_key(op),
        };
        Self {
            settings: self.settings.clone(),
            costs: self.costs.clone(),
            now: self.now,
            gpus: gpus.iter().filter_map(|gpu| Some((*gpu, self.gpus.get(*gpu)?.clone()))).collect(),
            users: self.users.clone(),
            jobs,
            tenants,
            next_op: self.next_op,
            due: self.due.iter().filter(|(_, due)| is_due(due)).copied().collect(),
            ops,
            concerned: BTreeSet::new(),
            arena: self.arena,
            arena_needed: self.arena_needed,
            copies: self
                .copies
                .iter()
                .filter(|(owned, _)| is_here(owned.tenant))
                .map(|(&o, &b)| (o, b))
                .collect(),
            copies_sum: self.copies_sum,
            hosted_sum: self.hosted_sum,
            hosted_departed: self.hosted_departed.clone(),
            pressure: self.pressure,
            deep: self.deep.clone(),
            expected: Vec::new(),
            end_not_before: self.end_not_before,
            actions: Vec::new(),
        }
    }

    /// A GPU, and all that gangs tie to it.
    fn tied_gpus(&self, gpu: GpuId) -> BTreeSet<GpuId> {
        let gangs: Vec<BTreeSet<GpuId>> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.terms.gang && job.here.len() > 1)
            .map(|(_, job)| job.here.keys().copied().collect())
            .collect();
        let mut tied = BTreeSet::from([gpu]);
        while let Some(more) = gangs.iter().find(|gang| !gang.is_disjoint(&tied) && !gang.is_subset(&tied)) {
            tied.extend(more);
        }
        tied
    }
}

impl Rehearsal {
    pub(super) fn new(core: Core, now: Time) -> Self {
        let mut this = Self { core, now, agenda: BTreeMap::new(), thoughts: 0 };
        let open: Vec<_> = this.core.ops.keys().copied().collect();
        for op in open {
            let begun = this.core.begun(op);
            let took = this.core.usual_cost(op);
            // What should be over by now may be over at any moment.
            this.expect((begun + took).max(now), Expected::Done(op, took));
        }
        let everybody: Vec<_> = this.core.tenants.iter().map(|(id, _)| id).collect();
        for id in everybody {
            this.expect_of(id);
        }
        let holds: Vec<_> = this.core.gpus.values().flat_map(|books| &books.holds).copied().collect();
        for hold in holds.into_iter().filter(|hold| hold.came.is_none()) {
            this.expect(hold.expect.max(now), Expected::Wants(hold.tenant));
        }
        let dying: Vec<_> = this.core.gpus.values().flat_map(|books| books.dying_ones()).collect();
        for id in dying {
            this.expect(now + BURIAL, Expected::Buried(id));
        }
        this
    }

    fn expect(&mut self, at: Time, what: Expected) {
        self.thoughts += 1;
        self.agenda.insert((at, self.thoughts), what);
    }

    /// When a tenant will have nothing more to do, or something again.
    fn expect_of(&mut self, id: TenantId) {
        let Some(tenant) = self.core.tenants.get(id) else { return };
        let hinted =
            || self.core.gpu_of(tenant.gpu).holds.iter().any(|hold| hold.tenant == id && hold.came.is_none());
        let expected = match tenant.wants {
            true if is_awake(tenant) => tenant.habits.idle_at(self.now).map(|at| (at, Expected::Idle(id))),
            true => None,
            false if hinted() => None,
            false => tenant.habits.wants_at(self.now).map(|at| (at, Expected::Wants(id))),
        };
        if let Some((at, what)) = expected {
            self.expect(at, what);
        }
    }

    /// How long until each of these runs for the first time: those who do within so many steps.
    pub(super) fn until_they_run(mut self, ids: &[TenantId], steps_max: usize) -> BTreeMap<TenantId, Span> {
        let begin = self.now;
        let mut run = BTreeMap::new();
        let mut left: Vec<_> = ids.to_vec();
        self.step(Event::Tick);
        for _ in 0..steps_max {
            let thawing = self.core.costs.thaw.less(THAW_EFFECT.of(self.core.costs.thaw));
            let after = self.now.since(begin).less(thawing);
            left.retain(|&id| {
                let grip = self.core.tenants.get(id).map(|tenant| tenant.grip);
                if grip == Some(Grip::Thawed) {
                    run.insert(id, after);
                }
                grip.is_some_and(|grip| grip != Grip::Thawed)
            });
            if left.is_empty() || !self.goes_on(begin) {
                break;
            }
        }
        run
    }

    /// Lets happen what is next. False if nothing is, or it is too far away.
    fn goes_on(&mut self, begin: Time) -> bool {
        let expected = self.agenda.first_key_value().map(|(&(at, _), _)| at);
        let wake = self.core.wake_at().map(|at| at.max(self.now));
        let Some(next) = [expected, wake].into_iter().flatten().min() else { return false };
        self.now = next;
        if self.now.since(begin) > AHEAD_MAX {
            return false;
        }
        match self.agenda.first_entry().filter(|_| expected == Some(next)) {
            Some(first) => {
                let expected = first.remove();
                self.happen(expected);
            }
            None => self.step(Event::Tick),
        }
        true
    }

    fn happen(&mut self, expected: Expected) {
        match expected {
            Expected::Done(op, took) => {
                let Some(outcome) = self.core.usual_outcome(op, took) else { return };
                let whom = self.core.ops.get(&op).and_then(|op| match op.kind {
                    OpKind::Thaw(id, _) => Some(id),
                    _ => None,
                });
                self.step(Event::Done { op, outcome });
                whom.into_iter().for_each(|id| self.expect_of(id));
            }
            Expected::Wants(id) => {
                if self.core.tenants.get(id).is_some_and(|tenant| !tenant.wants) {
                    self.step(Event::wants(id));
                    self.expect_of(id);
                }
            }
            Expected::Idle(id) => {
                let Some(tenant) = self.core.tenants.get(id) else { return };
                if tenant.wants && is_awake(tenant) {
                    self.step(Event::Idle(id));
                    self.expect_of(id);
                }
            }
            Expected::Buried(id) => self.step(Event::Buried(id)),
        }
    }

    fn step(&mut self, event: Event) {
        for action in self.core.take_step(self.now, event) {
            match action {
                Action::Freeze { op, .. }
                | Action::Thaw { op, .. }
                | Action::Slice { op, .. }
                | Action::Move { op, .. }
                | Action::Prepare { op, .. }
                | Action::Rehome { op, .. }
                | Action::Inspect { op, .. } => {
                    let took = self.core.usual_cost(op);
                    self.expect(self.now + took, Expected::Done(op, took));
                }
                Action::Grant { tenant, request } | Action::GrantHost { tenant, request, .. } => {
                    // It makes one handle of it at once.
                    let owned = Owned { tenant, handle: HandleId(u64::MAX - self.thoughts) };
                    self.thoughts += 1;
                    if let Some(bytes) = self.core.has_grant(tenant, request) {
                        self.step(Event::Claimed { owned, request, bytes });
                        self.step(Event::Adopted { owned, movable: true });
                    }
                }
                Action::End { tenant, .. } => self.step(Event::Left(tenant)),
                _ => {}
            }
        }
    }
}

impl Core {
    /// When an action that is under way began.
    fn begun(&self, op: OpId) -> Time {
        let Some(open) = self.ops.get(&op) else { return self.now };
        let allowed = match open.kind {
            OpKind::Freeze(_) | OpKind::Thaw(..) | OpKind::Slice(..) => self.settings.deadlines.grip,
            OpKind::Inspect(_) | OpKind::Prepare(_) | OpKind::Rehome(..) => self.settings.deadlines.movement,
            OpKind::Move(_) => {
                self.settings.deadlines.movement + self.usual_cost(op).less(self.costs.per_move).times(4)
            }
        };
        open.deadline.before(allowed)
    }

    /// How long an action takes, going by those before it.
    fn usual_cost(&self, op: OpId) -> Span {
        match self.ops.get(&op).map(|open| &open.kind) {
            Some(OpKind::Freeze(_)) => self.costs.freeze,
            Some(OpKind::Thaw(..) | OpKind::Slice(..)) => self.costs.thaw,
            Some(OpKind::Move(gpu)) => {
                let Some(moving) = &self.gpu_of(*gpu).moving else { return self.costs.per_move };
                let sum =
                    |all: &[(Owned, crate::Bytes)]| all.iter().map(|&(_, bytes)| bytes).sum::<crate::Bytes>();
                self.costs.per_move + self.copying(sum(&moving.out), sum(&moving.into))
            }
            Some(OpKind::Inspect(_) | OpKind::Prepare(_) | OpKind::Rehome(..)) | None => self.costs.per_move,
        }
    }

    /// What comes of an action that goes well.
    fn usual_outcome(&self, op: OpId, took: Span) -> Option<Outcome> {
        let names = |all: &[(Owned, crate::Bytes)]| all.iter().map(|&(owned, _)| owned).collect();
        Some(match &self.ops.get(&op)?.kind {
            OpKind::Freeze(_) | OpKind::Thaw(..) | OpKind::Slice(..) | OpKind::Prepare(_) => {
                Outcome::Done { took }
            }
            // Which homes handles have makes no difference to anybody's turns.
            OpKind::Rehome(..) => Outcome::Failed,
            OpKind::Move(gpu) => {
                let moving = self.gpu_of(*gpu).moving.as_ref()?;
                let (out, into) = (names(&moving.out), names(&moving.into));
                Outcome::Moved { out, into, unsettled: Vec::new(), took }
            }
            OpKind::Inspect(ids) => {
                let known = ids.iter().filter_map(|&id| Some((id, self.tenants.get(id)?)));
                let away = known.flat_map(|(id, tenant)| {
                    let away = tenant.handles.iter().filter(|(_, held)| held.spot != Spot::Device);
                    away.map(move |(&handle, _)| super::owned(id, handle))
                });
                Outcome::Found { away: away.collect(), unsettled: Vec::new() }
            }
        })
    }
}

/// Is a tenant on the GPU?
fn is_awake(tenant: &Tenant) -> bool {
    tenant.context && tenant.grip == Grip::Thawed
}
