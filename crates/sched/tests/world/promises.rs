//! What the core owes: answers, turns, and hints kept or reported.

use super::World;
use super::rules::Rule;
use super::truth::{Stage, Tenant};
use sched::{Action, Bytes, Event, GpuId, Span, TenantId, TicketId, Time};
use std::collections::BTreeSet;

/// What has to be answered in the very step that asks.
pub(crate) enum Due {
    Nothing,
    Door(TenantId),
    Place(TicketId, usize, Vec<GpuId>),
}

impl World {
    /// What this event has to be answered with.
    pub(crate) fn answers_due(&self, event: &Event) -> Due {
        match event {
            Event::Arrived { tenant, .. } => match self.tenants.get(tenant) {
                Some(t)
                    if t.lives()
                        && t.stage == Stage::Door
                        && self.core.describe(*tenant, self.now).is_none() =>
                {
                    Due::Door(*tenant)
                }
                _ => Due::Nothing,
            },
            Event::Place { ticket, count, among, .. } => {
                Due::Place(*ticket, usize::from(*count), among.clone())
            }
            _ => Due::Nothing,
        }
    }

    /// Was it?
    pub(crate) fn check_answers(&mut self, due: Due, actions: &[Action]) {
        let count = |test: &dyn Fn(&Action) -> bool| actions.iter().filter(|action| test(action)).count();
        match due {
            Due::Nothing => {}
            Due::Door(who) => {
                let admits = count(&|a| matches!(a, Action::Admit { tenant } if *tenant == who));
                let queues = count(&|a| matches!(a, Action::Queue { tenant, .. } if *tenant == who));
                let refuses = count(&|a| matches!(a, Action::Refuse { tenant, .. } if *tenant == who));
                self.require(Rule::Answer, admits + queues + refuses == 1, || {
                    format!("tenant {who} came: {admits} times let in, {queues} queued, {refuses} refused")
                });
            }
            Due::Place(asked, wanted, among) => {
                let answers: Vec<_> = actions
                    .iter()
                    .filter_map(|a| match a {
                        Action::Place { ticket, gpus, why, .. } if *ticket == asked => Some((gpus, why)),
                        _ => None,
                    })
                    .collect();
                let good = |gpus: &Vec<GpuId>| {
                    let distinct: BTreeSet<_> = gpus.iter().collect();
                    let known = gpus.iter().all(|g| self.gpus.contains_key(g));
                    let allowed = among.is_empty() || gpus.iter().all(|g| among.contains(g));
                    gpus.is_empty() || distinct.len() == wanted && gpus.len() == wanted && known && allowed
                };
                let holds =
                    answers.len() == 1 && answers.iter().all(|(gpus, why)| good(gpus) && !why.is_empty());
                self.require(Rule::Answer, holds, || format!("question {asked} got {answers:?}"));
            }
        }
        let places = count(&|a| matches!(a, Action::Place { .. }));
        self.require(Rule::Answer, places <= 1, || format!("{places} answers where to go"));
    }

    /// After a step: nothing is owed any more that was due.
    pub(crate) fn check_promises(&mut self, tick: bool) {
        if let Some((tenant, request)) = self.to_deny.take() {
            self.broke(Rule::Answer, format!("{request} of tenant {tenant} cannot be, and was not denied"));
        }
        if let Some(tenant) = self.to_refuse.take() {
            self.broke(Rule::Answer, format!("tenant {tenant} came twice, and was not refused"));
        }
        // A freeze that takes as long as it may is noticed at its deadline.
        let slack = self.settings.deadlines.grip + Span::from_millis(1);
        self.notice_kept_hints();
        let mut wrong = Vec::new();
        for (&id, t) in &self.tenants {
            if !t.lives() && t.in_turn {
                wrong.push((Rule::Turn, format!("tenant {id} has left, and its turn is not over")));
            }
            if tick && t.hinted.is_some_and(|hint| !hint.warmed && self.now > hint.at + slack) {
                wrong
                    .push((Rule::Hint, format!("the hint of tenant {id} was neither honoured nor reported")));
            }
            if t.patience > self.patience_max {
                wrong.push((Rule::Wait, format!("tenant {id} waited for {} turns of others", t.patience)));
            }
            if t.ticks > self.ticks_max {
                wrong.push((Rule::Wait, format!("tenant {id} waited while time passed {} times", t.ticks)));
            }
        }
        let calm = self.calm();
        for (&gpu, there) in &self.gpus {
            if there.still > self.ticks_max {
                wrong.push((Rule::Wait, format!("on GPU {gpu} everybody waits for everybody's memory")));
            }
            let on_it = |id: &TenantId| self.tenants.get(id).is_some_and(|t| t.gpu == gpu);
            let gripping = self.ops.values().filter_map(|op| op.grips()).any(|id| on_it(&id));
            // A gang counts as one.
            let mut beside = self.ordinary_running(gpu);
            let all = beside.clone();
            beside.retain(|id| !self.fellows(*id).iter().any(|fellow| fellow < id && all.contains(fellow)));
            if calm && !gripping && beside.len() > 1 && self.critical_active(gpu) {
                wrong.push((
                    Rule::Critical,
                    format!("{beside:?} run while somebody latency-critical has work"),
                ));
            }
            let busy = beside.iter().filter(|id| self.tenants[id].wants).count();
            if calm && !gripping && busy > 2 {
                wrong.push((Rule::Turn, format!("{beside:?} all run on GPU {gpu}")));
            }
        }
        for (rule, text) in wrong {
            self.broke(rule, text);
        }
    }

    pub(crate) fn turn_begins(&mut self, tenant: TenantId, until: Time) {
        let known = self.tenants.get(&tenant);
        let begins = known.is_some_and(|t| t.may_run() && !t.in_turn) && until >= self.now;
        self.require(Rule::Turn, begins, || {
            format!("a turn of tenant {tenant} begins until {until:?}, which is frozen, in its turn, or gone")
        });
        let Some(t) = self.tenants.get_mut(&tenant) else { return };
        t.in_turn = true;
        t.turns += 1;
        (t.patience, t.ticks) = (0, 0);
        let gpu = t.gpu;
        for id in self.waiting() {
            self.tenants.entry(id).and_modify(|t| t.patience += u32::from(t.gpu == gpu));
        }
    }

    /// Everybody who wants a turn and has none, nor runs without one, and could have one.
    pub(crate) fn waiting(&self) -> Vec<TenantId> {
        let waits = |t: &Tenant| t.wants && t.stage == Stage::Context && !t.may_run() && !self.paused(t);
        self.living().filter(|(id, t)| waits(t) && self.could_run(*id, t)).map(|(id, _)| id).collect()
    }

    /// Is there room for one, with its fellows, beside what nobody can move: others outside of rota, contexts, and what
    /// latency-critical tenants with work have?
    fn could_run(&self, id: TenantId, t: &Tenant) -> bool {
        let Some(gpu) = self.gpus.get(&t.gpu) else { return false };
        let fellows = self.fellows(id);
        let company = |other: TenantId| other == id || fellows.contains(&other);
        let on_it = || self.tenants.iter().filter(|(_, other)| other.gpu == t.gpu);
        let needed = |(&other, there): (&TenantId, &Tenant)| match there.lives() && there.admitted() {
            true if company(other) || there.wants && self.critical(other) => there.all(),
            true => there.residue,
            false => there.device(),
        };
        on_it().map(needed).sum::<Bytes>() + gpu.spec.reserve + gpu.unmanaged + self.settings.headroom
            <= gpu.spec.capacity
    }

    /// Time has passed for those who wait, and not for the others.
    pub(crate) fn count_ticks(&mut self) {
        let waiting = self.waiting();
        for (id, t) in &mut self.tenants {
            let waits = waiting.contains(id);
            t.ticks = if waits { t.ticks + 1 } else { 0 };
            t.patience = if waits { t.patience } else { 0 };
        }
        for gpu in self.gpus.keys().copied().collect::<Vec<_>>() {
            let still = self.stands_still(gpu);
            self.gpus.entry(gpu).and_modify(|gpu| gpu.still = if still { gpu.still + 1 } else { 0 });
        }
    }

    /// Does everybody who has memory on a GPU wait for more, and nothing is under way that could free any?
    fn stands_still(&self, gpu: GpuId) -> bool {
        let on_it = || self.tenants.values().filter(|t| t.gpu == gpu);
        let waits = |t: &Tenant| t.lives() && (t.all() <= t.residue || t.starves() && !self.paused(t));
        let busy = self
            .ops
            .values()
            .flat_map(|op| op.concerns())
            .any(|id| self.tenants.get(&id).is_some_and(|t| t.gpu == gpu));
        !busy
            && self.gpus[&gpu].unmanaged == Bytes::ZERO
            && on_it().all(waits)
            && on_it().any(|t| t.starves() && t.all() > t.residue)
    }

    pub(crate) fn turn_ends(&mut self, tenant: TenantId) {
        let ends = self.tenants.get_mut(&tenant).is_some_and(|t| std::mem::take(&mut t.in_turn));
        self.require(Rule::Turn, ends, || format!("a turn of tenant {tenant} ends that had not begun"));
    }

    /// A hint is honoured: nobody best-effort runs any more.
    pub(crate) fn warm_up(&mut self, tenant: TenantId) {
        let Some(t) = self.tenants.get_mut(&tenant) else {
            return self.broke(Rule::Hint, format!("a warm-up for tenant {tenant}, which is unknown"));
        };
        let (gpu, runs) = (t.gpu, t.may_run());
        if let Some(hint) = &mut t.hinted {
            hint.warmed = true;
        }
        let others = self.ordinary_running(gpu);
        self.require(Rule::Hint, runs && others.is_empty(), || {
            format!("a warm-up of tenant {tenant} while {others:?} run")
        });
    }

    /// Somebody best-effort is thawed: is nobody's work expected in a moment who was promised the GPU?
    pub(crate) fn check_hints_kept(&mut self, gpu: GpuId, tenant: TenantId) {
        let promised = |(_, t): &(TenantId, &Tenant)| {
            t.gpu == gpu && t.hinted.is_some_and(|hint| hint.warmed && self.now < hint.at)
        };
        let promised = self.living().find(promised).map(|(id, _)| id);
        self.require(Rule::Hint, promised.is_none(), || {
            format!("tenant {tenant} is thawed, and {promised:?} was promised the GPU")
        });
    }

    /// A hint is kept, too, if nobody best-effort runs when the work is to come.
    pub(crate) fn notice_kept_hints(&mut self) {
        let kept = |(id, t): (&TenantId, &Tenant)| {
            let due = t.hinted.is_some_and(|hint| self.now >= hint.at);
            (due && self.ordinary_running(t.gpu).is_empty()).then_some(*id)
        };
        for id in self.tenants.iter().filter_map(kept).collect::<Vec<_>>() {
            self.tenants.entry(id).and_modify(|t| t.hinted = None);
        }
    }

    /// Has nothing gone wrong or changed for so long that all must be as it should be?
    pub(crate) fn calm(&self) -> bool {
        let deadlines = &self.settings.deadlines;
        self.now.since(self.upset_at) > deadlines.retry.times(2) + deadlines.grip
    }
}
