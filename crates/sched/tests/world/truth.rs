//! What is there: plain data, and sums over it.

use super::World;
use super::execute::How;
use sched::{
    Bytes, Class, GpuId, GpuSpec, HandleId, JobId, Owned, RequestId, Scope, Slice, Span, Survivor,
    SurvivorPlace, TenantId, Terms, Time,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gpu {
    pub(crate) spec: GpuSpec,
    pub(crate) unmanaged: Bytes,
    /// Somebody outside of rota may compute on it.
    pub(crate) strangers: bool,
    /// How often time has passed while everybody there waited for everybody else's memory.
    pub(crate) still: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) terms: Terms,
    pub(crate) paused: bool,
    /// Jobs whose tenants share memory with this one's.
    pub(crate) shares: BTreeSet<JobId>,
}

/// How far somebody has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Door,
    Refused,
    Admitted,
    /// It has channels.
    Context,
}

/// Somebody who left and is not buried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gone {
    /// What the driver has not given back.
    pub(crate) device: Bytes,
    pub(crate) lingers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Device,
    Arena,
    /// Its tenant does not answer: counted in both places.
    Unsettled,
    /// In the arena. Its tenant has not answered to what it was asked to make for it.
    Returning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    pub(crate) bytes: Bytes,
    pub(crate) place: Place,
    pub(crate) adopted: bool,
    pub(crate) movable: bool,
    pub(crate) pinned: bool,
    /// The arena has a copy of what is on the device.
    pub(crate) clean: bool,
}

impl Handle {
    /// One that outlived a worker.
    pub(crate) fn survived(one: &Survivor) -> Self {
        let (place, movable) = match one.place {
            SurvivorPlace::Device { movable } => (Place::Device, movable),
            SurvivorPlace::Arena => (Place::Arena, true),
            SurvivorPlace::Unsettled => (Place::Unsettled, true),
        };
        Self { bytes: one.bytes, place, adopted: true, movable, pinned: false, clean: false }
    }
}

/// A hint that is neither honoured nor reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hinted {
    /// When the work is to come.
    pub(crate) at: Time,
    pub(crate) warmed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tenant {
    pub(crate) job: JobId,
    pub(crate) gpu: GpuId,
    pub(crate) residue: Bytes,
    pub(crate) stage: Stage,
    pub(crate) gone: Option<Gone>,
    /// Known to be off the GPU. If not, it may be running.
    pub(crate) frozen: Option<Scope>,
    /// What its slice may be.
    pub(crate) slices: BTreeSet<Slice>,
    pub(crate) handles: BTreeMap<HandleId, Handle>,
    pub(crate) asks: BTreeMap<RequestId, Bytes>,
    pub(crate) grants: BTreeMap<RequestId, Bytes>,
    pub(crate) wants: bool,
    pub(crate) in_turn: bool,
    /// The core wants it to end.
    pub(crate) ending: bool,
    pub(crate) hinted: Option<Hinted>,
    /// Turns of others since it wanted one.
    pub(crate) patience: u32,
    /// How often time has passed since.
    pub(crate) ticks: u32,
    pub(crate) turns: u64,
    pub(crate) thaws: u64,
    /// Counts up handles and requests.
    pub(crate) next: u64,
}

/// What kind of action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Deed {
    Freeze(TenantId, Scope),
    Thaw(TenantId, Slice),
    Slice(TenantId, Slice),
    Move { gpu: GpuId, out: Vec<(Owned, Bytes)>, into: Vec<(Owned, Bytes)>, room: Bytes },
    Inspect(Vec<TenantId>),
}

/// An action that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Op {
    pub(crate) deed: Deed,
    /// The core has to give it up by then.
    pub(crate) due: Time,
    /// It was given up.
    pub(crate) overdue: bool,
    /// Because the channels that it was about are gone.
    pub(crate) forgotten: bool,
    /// What it did is done, only its completion is missing.
    pub(crate) settled: bool,
    /// It will never be completed.
    pub(crate) lost: bool,
    /// What it does after it was given up.
    pub(crate) fate: How,
    /// For a grip: how its tenant was before.
    pub(crate) was: Option<Scope>,
}

impl Op {
    /// Is a move under way?
    pub(crate) fn moves(&self) -> bool {
        matches!(self.deed, Deed::Move { .. }) && !self.settled
    }

    /// Whom it grips.
    pub(crate) fn grips(&self) -> Option<TenantId> {
        match self.deed {
            Deed::Freeze(tenant, _) | Deed::Thaw(tenant, _) | Deed::Slice(tenant, _) => Some(tenant),
            Deed::Move { .. } | Deed::Inspect(_) => None,
        }
    }

    /// Whom it is about.
    pub(crate) fn concerns(&self) -> BTreeSet<TenantId> {
        match &self.deed {
            Deed::Inspect(tenants) => tenants.iter().copied().collect(),
            Deed::Move { .. } => self.handles().map(|(owned, _)| owned.tenant).collect(),
            _ => self.grips().into_iter().collect(),
        }
    }

    /// The handles it moves, with their sizes.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (Owned, Bytes)> + '_ {
        let (out, into) = match &self.deed {
            Deed::Move { out, into, .. } => (&out[..], &into[..]),
            _ => (&[][..], &[][..]),
        };
        out.iter().chain(into).copied()
    }
}

impl Tenant {
    pub(crate) fn new(job: JobId, gpu: GpuId, residue: Bytes) -> Self {
        Self {
            job,
            gpu,
            residue,
            stage: Stage::Door,
            gone: None,
            frozen: None,
            slices: BTreeSet::new(),
            handles: BTreeMap::new(),
            asks: BTreeMap::new(),
            grants: BTreeMap::new(),
            wants: false,
            in_turn: false,
            ending: false,
            hinted: None,
            patience: 0,
            ticks: 0,
            turns: 0,
            thaws: 0,
            next: 1,
        }
    }

    pub(crate) fn lives(&self) -> bool {
        self.gone.is_none()
    }

    pub(crate) fn admitted(&self) -> bool {
        matches!(self.stage, Stage::Admitted | Stage::Context)
    }

    /// Nobody knows for sure that it is off the GPU.
    pub(crate) fn may_run(&self) -> bool {
        self.lives() && self.stage == Stage::Context && self.frozen.is_none()
    }

    pub(crate) fn whole(&self) -> bool {
        self.handles.values().all(|handle| handle.place == Place::Device)
    }

    pub(crate) fn in_place(&self, place: Place) -> Bytes {
        self.handles.values().filter(|handle| handle.place == place).map(|handle| handle.bytes).sum()
    }

    /// It has memory, and can do nothing before it gets more.
    pub(crate) fn starves(&self) -> bool {
        self.stage == Stage::Context && !self.wants && !self.asks.is_empty() && self.grants.is_empty()
    }

    /// It does not answer.
    pub(crate) fn torn(&self) -> bool {
        self.in_place(Place::Unsettled) + self.in_place(Place::Returning) > Bytes::ZERO
    }

    /// Handles in the arena only.
    pub(crate) fn away(&self) -> Bytes {
        self.in_place(Place::Arena) + self.in_place(Place::Returning)
    }

    /// Handles on the device, or perhaps.
    pub(crate) fn mapped(&self) -> Bytes {
        self.in_place(Place::Device) + self.in_place(Place::Unsettled)
    }

    /// All it takes of the device now.
    pub(crate) fn device(&self) -> Bytes {
        match self.gone {
            Some(gone) => gone.device,
            None if self.admitted() => self.residue + self.mapped() + self.grants.values().copied().sum(),
            None => Bytes::ZERO,
        }
    }

    /// All it has, wherever it is, its context included.
    pub(crate) fn all(&self) -> Bytes {
        if !self.lives() || !self.admitted() {
            return Bytes::ZERO;
        }
        let handles: Bytes = self.handles.values().map(|handle| handle.bytes).sum();
        self.residue + handles + self.grants.values().copied().sum()
    }
}

impl World {
    pub(crate) fn handle(&self, owned: &Owned) -> Option<&Handle> {
        self.tenants.get(&owned.tenant).filter(|t| t.lives())?.handles.get(&owned.handle)
    }

    pub(crate) fn handle_mut(&mut self, owned: &Owned) -> Option<&mut Handle> {
        self.tenants.get_mut(&owned.tenant).filter(|t| t.lives())?.handles.get_mut(&owned.handle)
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.tenants.iter().filter(|(_, tenant)| tenant.lives()).map(|(&id, tenant)| (id, tenant))
    }

    /// By how much contexts may grow, so that whoever has most still finds room.
    pub(crate) fn spare(&self, gpu: GpuId) -> Bytes {
        let Some(there) = self.gpus.get(&gpu) else { return Bytes::ZERO };
        let on_it = || self.tenants.values().filter(|t| t.gpu == gpu);
        let taken = |t: &Tenant| match t.gone {
            Some(gone) if gone.lingers => gone.device,
            Some(_) => Bytes::ZERO,
            // Also for whom room is only being made: it is counted already.
            None => t.residue,
        };
        let taken: Bytes = on_it().map(taken).sum();
        let kept = there.spec.reserve + there.unmanaged + self.settings.headroom;
        let largest = on_it().map(|t| t.all().less(t.residue)).max().unwrap_or_default();
        // What is pinned is in everybody's way; that of the largest counts twice here, so this is rather too little.
        let handles = on_it().filter(|t| t.lives()).flat_map(|t| t.handles.values());
        let pinned: Bytes = handles.filter(|handle| handle.pinned).map(|handle| handle.bytes).sum();
        let reserved = self.living().filter(|(_, t)| t.gpu == gpu && self.reserved(t));
        let reserved: Bytes = reserved.map(|(_, t)| t.all().less(t.residue)).sum();
        there.spec.capacity.less(taken + kept).less(largest + pinned + reserved)
    }

    /// Device bytes that are taken or promised: never more than there are, by rota's own doing.
    pub(crate) fn committed(&self, gpu: GpuId) -> Bytes {
        let Some(there) = self.gpus.get(&gpu) else { return Bytes::ZERO };
        let tenants: Bytes = self.tenants.values().filter(|t| t.gpu == gpu).map(Tenant::device).sum();
        there.spec.reserve + there.unmanaged + tenants + self.coming(gpu)
    }

    /// What moves under way may take before they give.
    pub(crate) fn coming(&self, gpu: GpuId) -> Bytes {
        let coming = |op: &Op| match &op.deed {
            Deed::Move { gpu: at, into, room, .. } if *at == gpu && op.moves() => {
                // What is freed meanwhile does not come; what belongs to somebody who died may be there already.
                let comes = |owned: &Owned| match self.tenants.get(&owned.tenant) {
                    Some(tenant) => !tenant.lives() || tenant.handles.contains_key(&owned.handle),
                    None => false,
                };
                let into: Bytes =
                    into.iter().filter(|(owned, _)| comes(owned)).map(|(_, bytes)| *bytes).sum();
                into.min(*room)
            }
            _ => Bytes::ZERO,
        };
        self.ops.values().map(coming).sum()
    }

    /// Arena bytes that are taken or promised.
    pub(crate) fn arena_used(&self) -> Bytes {
        let here = |handle: &&Handle| handle.place != Place::Device || handle.clean;
        let held: Bytes = self
            .living()
            .flat_map(|(_, tenant)| tenant.handles.values())
            .filter(here)
            .map(|handle| handle.bytes)
            .sum();
        let going = self.ops.values().filter(|op| op.moves()).flat_map(|op| match &op.deed {
            Deed::Move { out, .. } => &out[..],
            _ => &[],
        });
        let fresh = |owned: &Owned| {
            self.handle(owned).is_some_and(|handle| handle.place == Place::Device && !handle.clean)
        };
        // What comes in gives up its place in the arena as it comes.
        let coming = self.ops.values().filter(|op| op.moves()).flat_map(|op| match &op.deed {
            Deed::Move { into, .. } => &into[..],
            _ => &[],
        });
        let going: Bytes = going.filter(|(owned, _)| fresh(owned)).map(|(_, bytes)| *bytes).sum();
        let coming = coming.filter(|(owned, _)| self.handle(owned).is_some()).map(|(_, bytes)| *bytes).sum();
        held + going.less(coming)
    }

    /// What a job has on a GPU, wherever it is at the moment.
    pub(crate) fn of_job(&self, job: JobId, gpu: GpuId) -> Bytes {
        self.living().filter(|(_, t)| t.job == job && t.gpu == gpu).map(|(_, t)| t.all()).sum()
    }

    pub(crate) fn terms(&self, tenant: &Tenant) -> Option<&Terms> {
        self.jobs.get(&tenant.job).map(|job| &job.terms)
    }

    pub(crate) fn reserved(&self, tenant: &Tenant) -> bool {
        self.terms(tenant).is_some_and(|terms| terms.reserve)
    }

    pub(crate) fn paused(&self, tenant: &Tenant) -> bool {
        self.jobs.get(&tenant.job).is_some_and(|job| job.paused)
    }

    /// The class of a tenant's job: the highest among those it shares memory with, and those that share with them.
    pub(crate) fn critical(&self, tenant: TenantId) -> bool {
        let Some(job) = self.tenants.get(&tenant).map(|t| t.job) else { return false };
        let mut seen = BTreeSet::from([job]);
        let mut open = vec![job];
        while let Some(job) = open.pop().and_then(|id| self.jobs.get(&id)) {
            if job.terms.class == Class::LatencyCritical {
                return true;
            }
            open.extend(job.shares.iter().copied().filter(|&other| seen.insert(other)));
        }
        false
    }

    /// The others of its gang.
    pub(crate) fn fellows(&self, tenant: TenantId) -> Vec<TenantId> {
        let Some(t) = self.tenants.get(&tenant) else { return Vec::new() };
        if !self.terms(t).is_some_and(|terms| terms.gang) {
            return Vec::new();
        }
        // Whoever was refused is of no gang.
        let known = self.living().filter(|(_, other)| other.stage != Stage::Refused);
        known.filter(|(id, other)| *id != tenant && other.job == t.job).map(|(id, _)| id).collect()
    }

    /// Is anything that it has part of a move?
    pub(crate) fn moving(&self, tenant: TenantId) -> bool {
        let moves = self.ops.values().filter(|op| op.moves()).flat_map(Op::handles);
        moves.into_iter().any(|(owned, _)| owned.tenant == tenant && self.handle(&owned).is_some())
    }

    /// By when an action has to be over.
    pub(crate) fn due(&self, deed: &Deed) -> Time {
        let deadlines = &self.settings.deadlines;
        match deed {
            Deed::Move { out, into, .. } => {
                let bytes = |list: &[(Owned, Bytes)]| list.iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
                let slow = Span(bytes(out).at(RATE_MIN).0 + bytes(into).at(RATE_MIN).0 + PER_MOVE_MAX.0);
                self.now + deadlines.movement + slow.times(4)
            }
            Deed::Inspect(_) => self.now + deadlines.movement,
            _ => self.now + deadlines.grip,
        }
    }
}

/// Moves in this world are never slower than this.
pub(crate) const RATE_MIN: u64 = 5_000_000_000;
/// Nor do they take longer besides.
pub(crate) const PER_MOVE_MAX: Span = Span::from_millis(50);
