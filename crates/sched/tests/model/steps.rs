//! What may happen next, and what becomes of it.

use super::configuration::{BEAT, Budget, Config};
use super::world::World;
use super::world::execute::How;
use super::world::truth::{Deed, Op, Stage, Tenant};
use sched::{Bytes, Event, GpuId, HandleId, JobId, OpId, Owned, RequestId, Span, TenantId};
use std::fmt::Write;

/// A state: the world, and what may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    pub(crate) world: World,
    /// How many of the tenants have come.
    pub(crate) came: usize,
    pub(crate) left: Budget,
}

impl Moment {
    /// Who stands where, in a line for each tenant.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        for (&id, t) in &self.world.tenants {
            let state = self.world.core.describe(id, self.world.now).map(|seen| seen.state);
            let _ = write!(
                text,
                "\n  {id}: {state:?}, {} of {} away, turn {}, wants {}, saw {} turns and {} ticks",
                t.away(),
                t.all(),
                t.in_turn,
                t.wants,
                t.patience,
                t.ticks
            );
        }
        let deeds: Vec<&Deed> = self.world.ops.values().map(|op| &op.deed).collect();
        let _ = write!(text, "\n  open: {deeds:?}, to come: {:?}", self.left);
        text
    }
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    Finish(OpId, How),
    /// A completion that nobody waits for will not come either.
    Forget(OpId),
    Arrive(usize),
    Context(TenantId),
    Ask(TenantId),
    Claim(TenantId, RequestId),
    Wants(TenantId),
    Idle(TenantId),
    Free(TenantId, HandleId),
    /// A grant is not used, or a request not waited for any longer.
    Return(TenantId, RequestId),
    Hint(TenantId),
    /// Somebody who did not answer does so again.
    Answers(TenantId),
    Leave(TenantId),
    Bury(TenantId),
    Pause(JobId),
    Resume(JobId),
    Intrude(GpuId, bool),
    /// A context takes half as much again.
    Swell(TenantId),
}

/// What a context takes, at first and grown.
pub(crate) const CONTEXT: Bytes = Bytes::from_gib(1);
const SWOLLEN: Bytes = Bytes::from_mib(1536);

impl Config {
    fn steps_of(&self, moment: &Moment, id: TenantId, steps: &mut Vec<Step>) {
        let (world, left) = (&moment.world, &moment.left);
        let t = &world.tenants[&id];
        if !t.lives() {
            let moves = world
                .ops
                .values()
                .any(|op| op.moves() && !op.overdue && op.handles().any(|(owned, _)| owned.tenant == id));
            if !moves {
                steps.push(Step::Bury(id));
            }
            return;
        }
        let inspects = |op: &Op| matches!(&op.deed, Deed::Inspect(whom) if whom.contains(&id));
        if t.torn() && !world.ops.values().any(inspects) {
            steps.push(Step::Answers(id));
        }
        if t.stage == Stage::Admitted {
            steps.push(Step::Context(id));
        }
        if t.stage == Stage::Context
            && self.ask(id, t.next - 1).is_some()
            && t.asks.is_empty()
            && t.grants.is_empty()
        {
            steps.push(Step::Ask(id));
        }
        steps.extend(t.grants.keys().map(|&request| Step::Claim(id, request)));
        if t.stage == Stage::Context && !t.wants {
            steps.push(Step::Wants(id));
        }
        if t.wants && left.idles > 0 && self.part(id).idles {
            steps.push(Step::Idle(id));
        }
        if left.frees > 0 {
            steps.extend(t.handles.keys().map(|&handle| Step::Free(id, handle)));
            let requests = t.grants.keys().chain(t.asks.keys());
            steps.extend(requests.map(|&request| Step::Return(id, request)));
        }
        if t.stage == Stage::Context && left.hints > 0 && world.critical(id) && !t.wants {
            steps.push(Step::Hint(id));
        }
        if t.stage == Stage::Context
            && left.swells > 0
            && t.residue < SWOLLEN
            && world.spare(t.gpu) >= SWOLLEN - CONTEXT
        {
            steps.push(Step::Swell(id));
        }
        if left.deaths > 0 && self.part(id).dies || t.ending {
            steps.push(Step::Leave(id));
        }
    }

    pub(crate) fn steps(&self, moment: &Moment, steps: &mut Vec<Step>) {
        let (world, left) = (&moment.world, &moment.left);
        if !world.broken.is_empty() {
            return;
        }
        if world.core.wake_at().is_some() && world.tenants.iter().all(|(id, t)| prompt(world, *id, t)) {
            steps.push(Step::Tick);
        }
        for (&id, op) in &world.ops {
            steps.push(Step::Finish(id, How::Well));
            if op.overdue {
                // The core knows no such freeze or thaw any more: whether it hears of its end is all the same.
                if op.moves() {
                    steps.push(Step::Forget(id));
                }
            } else if left.faults > 0 {
                steps.push(Step::Finish(id, How::Fail));
                if op.moves() {
                    steps.push(Step::Finish(id, How::Torn(2)));
                }
                if op.handles().count() > 2 {
                    steps.push(Step::Finish(id, How::Part(2)));
                }
            }
        }
        if moment.came < self.parts.len() {
            steps.push(Step::Arrive(moment.came));
        }
        for &id in world.tenants.keys() {
            self.steps_of(moment, id, steps);
        }
        for (&id, job) in &world.jobs {
            if job.paused {
                steps.push(Step::Resume(id));
            } else if left.pauses > 0 {
                steps.push(Step::Pause(id));
            }
        }
        for (&id, gpu) in &world.gpus {
            match gpu.unmanaged {
                Bytes::ZERO if left.intruders > 0 => steps.push(Step::Intrude(id, true)),
                Bytes::ZERO => {}
                _ => steps.push(Step::Intrude(id, false)),
            }
        }
    }

    /// What becomes of it.
    pub(crate) fn after(&self, last: &Moment, step: Step) -> Option<Moment> {
        let mut moment = last.clone();
        let (world, left) = (&mut moment.world, &mut moment.left);
        match step {
            Step::Tick => {
                let at = world.core.wake_at()?;
                let overdue = |world: &World| world.ops.values().filter(|op| op.overdue).count();
                let before = overdue(world);
                world.pass(at);
                world.tell(Event::Tick);
                // What is late is a mistake too.
                left.faults = left.faults.checked_sub((overdue(world) - before) as u8)?;
            }
            Step::Finish(op, how) => {
                if how != How::Well {
                    left.faults -= 1;
                }
                world.finish(op, how, Span::ZERO);
            }
            Step::Forget(op) => {
                world.lose(op, How::Well);
                world.ops.retain(|_, op| !op.lost || op.moves());
            }
            Step::Arrive(index) => {
                let part = &self.parts[index];
                moment.came += 1;
                world.tell(Event::Arrived {
                    tenant: tenant(index),
                    job: JobId(part.job),
                    gpu: GpuId(part.gpu),
                    residue: CONTEXT,
                });
            }
            Step::Context(tenant) => {
                world.tell(Event::Context { tenant, present: true });
            }
            Step::Ask(id) => {
                let t = world.tenants.get_mut(&id)?;
                let (request, bytes) = (RequestId(t.next), self.ask(id, t.next - 1)?);
                t.next += 1;
                world.tell(Event::Ask { tenant: id, request, bytes });
            }
            Step::Claim(tenant, request) => {
                let owned = Owned { tenant, handle: HandleId(request.0) };
                let bytes = *world.tenants.get(&tenant)?.grants.get(&request)?;
                world.tell(Event::Claimed { owned, request, bytes });
                world.tell(Event::Adopted { owned, movable: true });
            }
            Step::Wants(tenant) => {
                world.tell(Event::wants(tenant));
            }
            Step::Idle(tenant) => {
                left.idles -= 1;
                world.tell(Event::Idle(tenant));
            }
            Step::Free(tenant, handle) => {
                left.frees -= 1;
                world.tell(Event::Freed { tenant, handles: vec![handle] });
            }
            Step::Return(tenant, request) => {
                left.frees -= 1;
                world.tell(Event::Returned { tenant, request });
            }
            Step::Hint(tenant) => {
                left.hints -= 1;
                world.tell(Event::Hint { tenant, within: BEAT.times(2) });
            }
            Step::Answers(tenant) => {
                world.tell(Event::Answers(tenant));
            }
            Step::Leave(tenant) => {
                let ends = world.tenants.get(&tenant).is_some_and(|t| t.ending);
                left.deaths -= u8::from(!ends);
                world.tell(Event::Left(tenant));
            }
            Step::Bury(tenant) => {
                world.settle_overdue_of(tenant);
                world.tell(Event::Buried(tenant));
            }
            Step::Pause(job) => {
                left.pauses -= 1;
                world.tell(Event::Pause(job));
            }
            Step::Resume(job) => {
                world.tell(Event::Resume(job));
            }
            Step::Intrude(gpu, comes) => {
                left.intruders -= u8::from(comes);
                world.tell(Event::Unmanaged { gpu, bytes: Bytes::from_gib(u64::from(comes)) });
            }
            Step::Swell(tenant) => {
                left.swells -= 1;
                world.tell(Event::Residue { tenant, bytes: SWOLLEN });
            }
        }
        moment.world = moment.world.normal();
        Some(moment)
    }
}

/// Is nobody waiting for this one? Programs use what they are granted, answer again, and end when they are told to, and
/// the driver buries, before time passes.
fn prompt(world: &World, id: TenantId, t: &Tenant) -> bool {
    let looked_at = || world.ops.values().any(|op| !op.overdue && op.concerns().contains(&id));
    t.lives() && t.grants.is_empty() && !t.ending && (!t.torn() || looked_at())
}

fn tenant(index: usize) -> TenantId {
    TenantId(index as u64 + 1)
}
