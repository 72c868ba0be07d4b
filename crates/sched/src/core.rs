//! The state, and what it does with each event.
//!
//! Every event changes the books, and then the GPUs it concerns are looked at anew: who is let in, what is granted, whose
//! turn it is (`choose`), and what is left to do so that exactly those run who should (`reconcile`). Nothing is
//! remembered as a plan: should an action fail, or someone die, the next look finds what is true then.

mod ahead;
mod books;
mod changes;
mod charge;
mod check;
mod choose;
mod critical;
mod deep;
mod describe;
mod done;
mod door;
mod expected;
mod filler;
mod gangs;
mod gaps;
mod handover;
mod homes;
mod host;
mod length;
mod memory;
mod no_room;
mod outlook;
mod precedence;
mod pressed;
mod rebase;
mod reconcile;
mod rehearse;
mod rejoin;
mod reserve;
mod roster;
mod standstill;
#[cfg(test)]
mod tests;
mod wake;
mod way;
mod widening;

use crate::gpu::Gpu;
use crate::job::Job;
use crate::pressure::Pressure;
use crate::tenant::{Spot, Tenant};
use crate::{
    Action, Bytes, Costs, Event, GpuId, HandleId, JobId, OpId, Owned, RequestId, Settings, Slice, TenantId,
    Time, UserId,
};
pub use deep::Hindrance;
pub use roster::NUMBER_MAX;
use roster::Roster;
use std::collections::{BTreeMap, BTreeSet};

/// How often GPUs are looked at anew within one step: each look may concern another GPU of a gang, never the same one for
/// ever.
const LOOKS_MAX: usize = 1_000;

/// What is due at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Due {
    /// Look at this GPU.
    Gpu(GpuId),
    /// This tenant may be in line again.
    Tenant(TenantId),
    /// This action should be over.
    Op(OpId),
}

/// An action that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Op {
    deadline: Time,
    kind: OpKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OpKind {
    Freeze(TenantId),
    Thaw(TenantId, Slice),
    Slice(TenantId, Slice),
    Move(GpuId),
    Prepare(TenantId),
    Rehome(TenantId, GpuId),
    Inspect(Vec<TenantId>),
}

/// The state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Core {
    settings: Settings,
    /// What things cost, as measured.
    costs: Costs,
    now: Time,
    gpus: Roster<GpuId, Gpu>,
    users: BTreeMap<UserId, u32>,
    jobs: Roster<JobId, Job>,
    tenants: Roster<TenantId, Tenant>,
    ops: BTreeMap<OpId, Op>,
    next_op: u64,
    due: BTreeSet<(Time, Due)>,
    /// GPUs to look at in this step.
    concerned: BTreeSet<GpuId>,
    /// The arena's size.
    arena: Bytes,
    /// What is in the arena and nowhere else, or may be.
    arena_needed: Bytes,
    /// Copies in the arena of what is on the device too.
    copies: BTreeMap<Owned, Bytes>,
    copies_sum: Bytes,
    /// The host's memory that tenants have, and of it what those had who left and are not buried.
    hosted_sum: Bytes,
    hosted_departed: BTreeMap<TenantId, Bytes>,
    pressure: Pressure,
    /// Jobs whose memory goes out when they are paused.
    deep: BTreeSet<JobId>,
    /// Sent to a GPU, and not there yet.
    expected: Vec<expected::Expected>,
    /// Nobody else ends before then.
    end_not_before: Time,
    actions: Vec<Action>,
}

impl Core {
    /// Nobody is there yet.
    pub fn new(settings: Settings) -> Self {
        let settings = settings.checked();
        Self {
            costs: settings.costs.clone(),
            settings,
            now: Time::ZERO,
            gpus: Roster::default(),
            users: BTreeMap::new(),
            jobs: Roster::default(),
            tenants: Roster::default(),
            ops: BTreeMap::new(),
            next_op: 1,
            due: BTreeSet::new(),
            concerned: BTreeSet::new(),
            arena: Bytes::ZERO,
            arena_needed: Bytes::ZERO,
            copies: BTreeMap::new(),
            copies_sum: Bytes::ZERO,
            hosted_sum: Bytes::ZERO,
            hosted_departed: BTreeMap::new(),
            pressure: Pressure::Calm,
            deep: BTreeSet::new(),
            expected: Vec::new(),
            end_not_before: Time::ZERO,
            actions: Vec::new(),
        }
    }

    /// Takes in what happened and says what to do, in this order. Time that runs backwards stands still.
    pub fn step(&mut self, now: Time, event: Event) -> Vec<Action> {
        let actions = self.take_step(now, event);
        debug_assert!(self.concerned.is_empty(), "looks go round in circles");
        debug_assert_eq!(self.check(), Ok(()));
        actions
    }

    fn take_step(&mut self, now: Time, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        // A completion that is there counts, however late: what it is about is not given up any more.
        if let Event::Done { op, outcome } = event {
            self.done(op, outcome);
            self.take_what_is_due();
        } else {
            self.take_what_is_due();
            self.take(event);
        }
        for _ in 0..LOOKS_MAX {
            let Some(gpu) = self.concerned.pop_first() else { break };
            self.look_at(gpu);
        }
        std::mem::take(&mut self.actions)
    }

    /// When [`Event::Tick`] is due, if nothing else happens before.
    pub fn wake_at(&self) -> Option<Time> {
        self.due.first().map(|&(at, _)| at)
    }

    /// The bytes of a grant that a tenant has and has not used.
    pub fn has_grant(&self, tenant: TenantId, request: RequestId) -> Option<Bytes> {
        self.tenants.get(tenant)?.granted.get(&request).copied()
    }

    /// Is this handle known?
    pub fn has_handle(&self, owned: Owned) -> bool {
        self.tenants.get(owned.tenant).is_some_and(|tenant| tenant.handles.contains_key(&owned.handle))
    }

    /// How large a handle is; None if it is not known.
    pub fn handle_bytes(&self, owned: Owned) -> Option<Bytes> {
        self.handle(owned).map(|held| held.bytes)
    }

    /// Does a pinned handle stay on the device from here on? Not yet if it is away, or if a move that began before takes it
    /// away. None if it is not known, or not pinned.
    pub fn stays(&self, owned: Owned) -> Option<bool> {
        let held = self.handle(owned).filter(|held| held.pinned)?;
        let moving = self.gpu_of(self.tenant(owned.tenant)?.gpu).moving.as_ref();
        let goes = moving.is_some_and(|moving| moving.out.iter().any(|(going, _)| *going == owned));
        Some(held.spot == Spot::Device && !goes)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Gpu { gpu, spec } => self.set_gpu(gpu, spec),
            Event::Settings(settings) => self.set_settings(*settings),
            Event::Unmanaged { gpu, bytes } => self.set_unmanaged(gpu, bytes),
            Event::Strangers { gpu, present } => self.set_strangers(gpu, present),
            Event::Arena(bytes) => self.set_arena(bytes),
            Event::User { user, weight } => {
                self.users.insert(user, weight.max(1));
            }
            Event::Job { job, terms } => self.set_terms(job, terms),
            Event::JobOver(job) => {
                self.expect_none_of(job);
                self.end_job(job);
            }
            Event::Pause(job) => self.set_paused(job, true),
            Event::Resume(job) => self.set_paused(job, false),
            Event::Deep { job, deep } => self.set_deep(job, deep),
            Event::Place { ticket, job, count, among, bytes, residue } => {
                self.place(ticket, job, (count, &among), bytes, residue);
            }
            Event::Arrived { tenant, job, gpu, residue } => {
                self.came(job, gpu);
                self.arrive(tenant, job, gpu, residue);
            }
            Event::Rejoined { tenant, job, gpu, residue, handles } => {
                self.rejoin(tenant, job, gpu, residue, &handles);
            }
            Event::Context { tenant, present } => self.set_context(tenant, present),
            Event::Shares(one, other) => self.tie(one, other),
            Event::Ask { tenant, request, bytes } => self.ask(tenant, request, bytes),
            Event::AskHost { tenant, request, bytes } => self.ask_host(tenant, request, bytes),
            Event::ClaimedHost { owned, request, bytes } => self.claim_host(owned, request, bytes),
            Event::Looked { tenant, seen } => self.take_looks(tenant, &seen),
            Event::HomeIs { owned, on_host } => self.home_is(owned, on_host),
            Event::HostedBefore { tenant, handles } => self.find_on_host(tenant, &handles),
            Event::Claimed { owned, request, bytes } => self.claim(owned, request, bytes),
            Event::Adopted { owned, movable } => self.change_handle(owned, |held| held.adopted = movable),
            Event::Pinned { owned, pinned } => self.change_handle(owned, |held| held.pinned = pinned),
            Event::Copied { owned, clean } => self.set_clean(owned, clean),
            Event::Returned { tenant, request } => self.take_back(tenant, request),
            Event::Freed { tenant, handles } => self.free(tenant, &handles),
            Event::Wants { tenant, ago } => self.set_wants(tenant, Some(self.now.before(ago))),
            Event::Idle(tenant) => self.set_wants(tenant, None),
            Event::Measured { tenant, busy } => self.measured(tenant, busy),
            Event::Hint { tenant, within } => self.hint(tenant, within),
            Event::Warmed { tenant, at } => self.learn_launch(tenant, at),
            Event::GivesWay { tenant, gives_way } => {
                self.update(tenant, |tenant| tenant.gives_way = gives_way);
            }
            Event::Answers(tenant) => self.answers(tenant),
            Event::Left(tenant) => self.leave(tenant),
            Event::Lingers(tenant) => self.linger(tenant),
            Event::Buried(tenant) => self.bury(tenant),
            Event::Done { op, outcome } => self.done(op, outcome),
            Event::Tick => {}
            Event::Residue { tenant, bytes } => self.set_residue(tenant, bytes),
        }
    }

    /// Takes in that time passed.
    fn take_what_is_due(&mut self) {
        while let Some(&(at, due)) = self.due.first() {
            if at > self.now {
                break;
            }
            self.due.pop_first();
            match due {
                Due::Gpu(gpu) => {
                    if let Some(gpu) = self.gpus.get_mut(gpu) {
                        gpu.wake = None;
                    }
                    self.concerned.insert(gpu);
                }
                // It was kept out until now, and is back in line: every update sees to that.
                Due::Tenant(tenant) => self.start_at_present(tenant),
                Due::Op(op) => self.overdue(op),
            }
        }
    }

    /// Looks at a GPU anew.
    fn look_at(&mut self, gpu: GpuId) {
        if !self.gpus.contains(gpu) {
            return;
        }
        self.set_critical_mode(gpu);
        self.try_for_room(gpu);
        self.open_door(gpu);
        self.grant(gpu);
        self.end_standstill(gpu);
        self.choose(gpu);
        self.reconcile(gpu);
        self.remind(gpu);
    }

    /// Begins an action that ends in a completion.
    fn begin(&mut self, kind: OpKind, deadline: Time) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.due.insert((deadline, Due::Op(op)));
        self.ops.insert(op, Op { deadline, kind });
        op
    }

    /// Strikes an action off: it is over, or nobody cares any more.
    fn strike(&mut self, op: OpId) -> Option<OpKind> {
        let Op { deadline, kind } = self.ops.remove(&op)?;
        self.due.remove(&(deadline, Due::Op(op)));
        Some(kind)
    }

    fn handle(&self, owned: Owned) -> Option<&crate::tenant::Held> {
        self.tenants.get(owned.tenant)?.handles.get(&owned.handle)
    }

    fn tenant(&self, tenant: TenantId) -> Option<&Tenant> {
        self.tenants.get(tenant)
    }

    /// The sole way to a GPU that a tenant is on: there is no tenant on a GPU that is not there.
    fn gpu_of(&self, gpu: GpuId) -> &Gpu {
        self.gpus.get(gpu).expect("a GPU that somebody is on is there")
    }

    fn gpu_mut(&mut self, gpu: GpuId) -> &mut Gpu {
        self.gpus.get_mut(gpu).expect("a GPU that somebody is on is there")
    }
}

/// A handle of a tenant, in short.
fn owned(tenant: TenantId, handle: HandleId) -> Owned {
    Owned { tenant, handle }
}
