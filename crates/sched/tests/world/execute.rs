//! The core's actions begin and end.

use super::World;
use super::rules::Rule;
use super::truth::{Deed, Op, Place, Stage};
use sched::{Action, Bytes, Event, GpuId, OpId, Outcome, Owned, RequestId, Scope, Slice, Span, TenantId};
use std::collections::BTreeSet;

/// How an action ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum How {
    /// As asked.
    Well,
    /// Not at all.
    Fail,
    /// A move: so many of each four that go out and come in. An inspection: those who do not answer still do not.
    Part(u8),
    /// The same, and the next one is neither here nor there.
    Torn(u8),
}

/// Handles that went out, came in, are neither here nor there.
type Lists = (Vec<Owned>, Vec<Owned>, Vec<Owned>);

impl World {
    /// An action of the core begins.
    pub(crate) fn take(&mut self, action: &Action) {
        match action {
            Action::Freeze { op, tenant, scope } => self.grip(*op, *tenant, Deed::Freeze(*tenant, *scope)),
            Action::Thaw { op, tenant, slice } => self.thaw(*op, *tenant, *slice),
            Action::Slice { op, tenant, slice } => {
                self.check_slice(*tenant, *slice);
                self.grip(*op, *tenant, Deed::Slice(*tenant, *slice));
                self.tenants.entry(*tenant).and_modify(|t| {
                    t.slices.insert(*slice);
                });
            }
            Action::Move { op, gpu, out, into, room } => self.start_move(*op, *gpu, out, into, *room),
            Action::Inspect { op, tenants } => self.open(*op, Deed::Inspect(tenants.clone()), None),
            Action::Drop(copies) => {
                for owned in copies {
                    let dropped = self.handle_mut(owned).is_some_and(|handle| {
                        handle.place == Place::Device && std::mem::take(&mut handle.clean)
                    });
                    self.require(Rule::Books, dropped, || format!("no copy of {owned:?} to drop"));
                }
            }
            Action::End { tenant, .. } => {
                // One that is still there some time later is told once more.
                let known = self.tenants.get_mut(tenant).filter(|t| t.lives());
                let ends = known.map(|t| t.ending = true).is_some();
                self.require(Rule::Answer, ends, || format!("tenant {tenant} is to end, and has already"));
            }
            Action::Admit { tenant } => self.admit(*tenant),
            Action::Queue { tenant, place, .. } => {
                let at_door = self.tenants.get(tenant).is_some_and(|t| t.lives() && t.stage == Stage::Door);
                self.require(Rule::Answer, at_door && *place > 0, || {
                    format!("tenant {tenant} is not at the door")
                });
            }
            Action::Refuse { tenant, .. } => {
                let twice = self.to_refuse.take_if(|refused| *refused == *tenant).is_some();
                let known = self.tenants.get_mut(tenant).filter(|t| t.lives() && t.stage == Stage::Door);
                let refused = twice || known.map(|t| t.stage = Stage::Refused).is_some();
                self.require(Rule::Answer, refused, || {
                    format!("tenant {tenant} is refused away from the door")
                });
            }
            Action::Grant { tenant, request } => self.grant(*tenant, *request),
            Action::Prepare { tenant, .. } | Action::Rehome { tenant, .. } => {
                self.require(Rule::Answer, false, || {
                    format!("memory of tenant {tenant} changes its home, which has only one")
                });
            }
            Action::GrantHost { tenant, request, .. } => self.require(Rule::Answer, false, || {
                format!("{request} of tenant {tenant} is granted in memory that its job may not have")
            }),
            Action::Deny { tenant, request, .. } => {
                let expected = self.to_deny.take_if(|denied| *denied == (*tenant, *request)).is_some();
                let asked = self.tenants.get_mut(tenant).filter(|t| t.lives());
                let denied = expected || asked.is_some_and(|t| t.asks.remove(request).is_some());
                self.require(Rule::Answer, denied, || {
                    format!("{request} of tenant {tenant} is denied, and not open")
                });
            }
            Action::Reclaim { tenant } => {
                let known = self.tenants.get(tenant).is_some_and(|t| t.lives() && !t.grants.is_empty());
                self.require(Rule::Answer, known, || format!("tenant {tenant} has no grant to give back"));
            }
            Action::Place { .. } => {}
            Action::TurnBegins { tenant, until } => self.turn_begins(*tenant, *until),
            Action::TurnEnds { tenant, .. } => self.turn_ends(*tenant),
            Action::WarmUp { tenant } => self.warm_up(*tenant),
            Action::HintMissed { tenant, .. } => {
                if let Some(t) = self.tenants.get_mut(tenant) {
                    t.hinted = None;
                }
            }
            Action::Overdue { op } => self.give_up(*op),
        }
    }

    fn open(&mut self, id: OpId, deed: Deed, was: Option<Scope>) {
        self.require(Rule::Completion, id > self.op_last && !self.ops.contains_key(&id), || {
            format!("action {id} has the number of an earlier one")
        });
        self.op_last = self.op_last.max(id);
        let due = self.due(&deed);
        self.ops.insert(
            id,
            Op {
                deed,
                due,
                was,
                overdue: false,
                forgotten: false,
                settled: false,
                lost: false,
                fate: How::Well,
            },
        );
    }

    fn grip(&mut self, id: OpId, tenant: TenantId, deed: Deed) {
        let known = self.tenants.get(&tenant).filter(|t| t.lives() && t.stage == Stage::Context);
        let was = known.and_then(|t| t.frozen);
        let known = known.is_some();
        self.require(Rule::Turn, known, || format!("{deed:?}: the tenant has no channels"));
        // Whoever is frozen has no slice: nobody waits for a change of it any more.
        if matches!(deed, Deed::Freeze(..)) {
            self.forget(|op| matches!(op.deed, Deed::Slice(whose, _) if whose == tenant));
        }
        // Slices may be changed by the way; what is done to the channels of one tenant is done in order.
        let slices = |deed: &Deed| matches!(deed, Deed::Slice(..));
        let holds = |op: &Op| !op.overdue && op.grips() == Some(tenant) && slices(&op.deed) == slices(&deed);
        let other = self.ops.iter().find(|(_, op)| holds(op)).map(|(&id, _)| id);
        self.require(Rule::OneAtATime, other.is_none(), || {
            format!("{deed:?} while action {other:?} is open")
        });
        self.open(id, deed, was);
    }

    fn thaw(&mut self, id: OpId, tenant: TenantId, slice: Slice) {
        self.check_slice(tenant, slice);
        self.check_thaw(tenant);
        self.grip(id, tenant, Deed::Thaw(tenant, slice));
        if let Some(t) = self.tenants.get_mut(&tenant) {
            if t.frozen.take().is_some() {
                t.slices.clear();
            }
            t.slices.insert(slice);
        }
    }

    fn check_thaw(&mut self, tenant: TenantId) {
        let Some(t) = self.tenants.get(&tenant) else { return };
        let (gpu, whole, paused) = (t.gpu, t.whole() && !self.moving(tenant), self.paused(t));
        self.require(Rule::Whole, whole, || {
            format!("tenant {tenant} is thawed, and its memory is not all there")
        });
        self.require(Rule::Turn, !paused, || format!("tenant {tenant} is thawed, and its job is paused"));
        let torn = self.fellows(tenant).into_iter().find(|&fellow| self.moving(fellow));
        self.require(Rule::Gang, torn.is_none(), || {
            format!("tenant {tenant} is thawed while its fellow {torn:?} is moved")
        });
        if !self.critical(tenant) {
            let mut others = self.ordinary_running(gpu);
            // A gang counts as one.
            let fellows = self.fellows(tenant);
            others.retain(|other| *other != tenant && !fellows.contains(other));
            let active = self.critical_active(gpu);
            self.require(Rule::Critical, !active || others.is_empty(), || {
                format!(
                    "tenant {tenant} is thawed beside {others:?} while somebody latency-critical has work"
                )
            });
            self.check_hints_kept(gpu, tenant);
        }
    }

    fn start_move(&mut self, id: OpId, gpu: GpuId, out: &[Owned], into: &[Owned], room: Bytes) {
        let under_way = self
            .ops
            .iter()
            .find(|(_, op)| op.moves() && matches!(op.deed, Deed::Move { gpu: at, .. } if at == gpu));
        let under_way = under_way.map(|(&id, _)| id);
        self.require(Rule::OneAtATime, under_way.is_none(), || {
            format!("move {id} while move {under_way:?} is under way on GPU {gpu}")
        });
        let all: BTreeSet<&Owned> = out.iter().chain(into).collect();
        self.require(Rule::Unmap, !all.is_empty() && all.len() == out.len() + into.len(), || {
            format!("move {id} names nothing, or something twice")
        });
        for (owned, place) in
            out.iter().map(|o| (o, Place::Device)).chain(into.iter().map(|o| (o, Place::Arena)))
        {
            let handle = self.handle(owned).copied();
            let ready = handle.is_some_and(|h| {
                h.place == place && (place == Place::Arena || h.adopted && h.movable && !h.pinned)
            });
            self.require(Rule::Unmap, ready, || {
                format!("move {id} of {owned:?} from {place:?}: it is {handle:?}")
            });
        }
        for tenant in all.iter().map(|owned| owned.tenant).collect::<BTreeSet<_>>() {
            let t = self.tenants.get(&tenant);
            let still = t.is_some_and(|t| {
                t.gpu == gpu && (t.frozen == Some(Scope::All) || t.lives() && t.stage != Stage::Context)
            });
            self.require(Rule::Unmap, still, || {
                format!("move {id} of tenant {tenant}, which may be running")
            });
        }
        for tenant in out.iter().map(|owned| owned.tenant).collect::<BTreeSet<_>>() {
            let reserved = self.tenants.get(&tenant).is_some_and(|t| self.reserved(t));
            self.require(Rule::Reserve, !reserved, || {
                format!("move {id} out of tenant {tenant}, which is reserved")
            });
        }
        self.check_ahead(gpu, &into.iter().map(|owned| owned.tenant).collect());
        // A fellow may read what goes, not what comes.
        for tenant in out.iter().map(|owned| owned.tenant).collect::<BTreeSet<_>>() {
            let fellow = self.fellows(tenant).into_iter().find(|fellow| self.tenants[fellow].may_run());
            self.require(Rule::Gang, fellow.is_none(), || {
                format!("move {id} out of tenant {tenant} while its fellow {fellow:?} may run")
            });
        }
        let before = self.committed(gpu);
        let arena_before = self.arena_used();
        let sized = |list: &[Owned]| -> Vec<(Owned, Bytes)> {
            list.iter().map(|owned| (*owned, self.handle(owned).map_or(Bytes::ZERO, |h| h.bytes))).collect()
        };
        let deed = Deed::Move { gpu, out: sized(out), into: sized(into), room };
        self.open(id, deed, None);
        self.check_growth(gpu, before, "a move");
        let (used, size) = (self.arena_used(), self.arena);
        self.require(Rule::Arena, used <= size || used <= arena_before, || {
            format!("move {id}: {used:?} of the arena are taken or promised, of {size:?}")
        });
    }

    fn admit(&mut self, tenant: TenantId) {
        let Some(gpu) = self.tenants.get(&tenant).map(|t| t.gpu) else {
            return self.broke(Rule::Answer, format!("tenant {tenant} is admitted, and unknown"));
        };
        let before = self.committed(gpu);
        let known = self.tenants.get_mut(&tenant).filter(|t| t.lives() && t.stage == Stage::Door);
        let admitted = known.map(|t| t.stage = Stage::Admitted).is_some();
        self.require(Rule::Answer, admitted, || format!("tenant {tenant} is admitted away from the door"));
        self.check_growth(gpu, before, "a context");
        self.check_limit(tenant, "a context");
        let there = self.living().filter(|(_, t)| t.gpu == gpu && t.admitted()).count();
        let most = self.settings.tenants_max;
        self.require(Rule::Limit, there <= most as usize, || {
            format!("{there} tenants on GPU {gpu}, at most {most}")
        });
    }

    fn grant(&mut self, tenant: TenantId, request: RequestId) {
        let Some(gpu) = self.tenants.get(&tenant).map(|t| t.gpu) else {
            return self.broke(Rule::Answer, format!("a grant for tenant {tenant}, which is unknown"));
        };
        let before = self.committed(gpu);
        let known = self.tenants.get_mut(&tenant).filter(|t| t.lives());
        let granted = known.and_then(|t| {
            let bytes = t.asks.remove(&request)?;
            t.grants.insert(request, bytes)
        });
        let asked = self.tenants.get(&tenant).is_some_and(|t| t.grants.contains_key(&request));
        self.require(Rule::Answer, asked && granted.is_none(), || {
            format!("{request} of tenant {tenant} is granted, and not open")
        });
        self.check_growth(gpu, before, "a grant");
        self.check_limit(tenant, "a grant");
        self.check_overcommit(gpu, "a grant");
        self.check_reserve(tenant, "a grant");
    }

    fn give_up(&mut self, id: OpId) {
        self.upset();
        let now = self.now;
        // If it was due anyway, it may be said so before the core hears that the channels are gone.
        let open = self.ops.get_mut(&id).filter(|op| !op.overdue || op.forgotten && now >= op.due);
        let Some(op) = open else {
            return self.broke(Rule::Completion, format!("action {id} is overdue, and not open"));
        };
        op.overdue = true;
        let (due, over) = (op.due, op.lost && !op.moves());
        let early = now < due && matches!(op.deed, Deed::Freeze(..) | Deed::Thaw(..) | Deed::Slice(..));
        self.require(Rule::Deadline, !early, || {
            format!("action {id} is given up at {now:?}, and due at {due:?}")
        });
        if over {
            self.ops.remove(&id);
        }
    }

    /// An action will never be completed; what it does to memory, it has done by the time anybody looks.
    pub(crate) fn lose(&mut self, id: OpId, how: How) {
        if let Some(op) = self.ops.get_mut(&id) {
            (op.lost, op.fate) = (true, how);
        }
    }

    /// An action ends, the core hears of it.
    pub(crate) fn finish(&mut self, id: OpId, how: How, took: Span) -> Vec<Action> {
        let Some(op) = self.ops.get(&id).cloned() else { return Vec::new() };
        let outcome = match &op.deed {
            Deed::Move { .. } => {
                let (out, into, unsettled) = self.settle(id, how);
                match how {
                    How::Fail => Outcome::Failed,
                    _ => Outcome::Moved { out, into, unsettled, took },
                }
            }
            Deed::Inspect(_) if how == How::Fail => Outcome::Failed,
            Deed::Inspect(tenants) => self.inspect(id, tenants, how != How::Well),
            _ if how == How::Fail => Outcome::Failed,
            _ => Outcome::Done { took },
        };
        if how != How::Well {
            self.upset();
        }
        if let Some(tenant) = op.grips().filter(|_| !op.overdue) {
            self.gripped(tenant, &op, how != How::Fail);
        }
        self.ops.remove(&id);
        self.tell(Event::Done { op: id, outcome })
    }

    fn gripped(&mut self, tenant: TenantId, op: &Op, done: bool) {
        let known = self.tenants.get_mut(&tenant).filter(|t| t.lives() && t.stage == Stage::Context);
        let Some(t) = known else { return };
        match (op.deed.clone(), done) {
            (Deed::Freeze(_, scope), true) => t.frozen = Some(op.was.map_or(scope, |was| was.max(scope))),
            (Deed::Thaw(_, slice), true) => (t.thaws, t.slices) = (t.thaws + 1, BTreeSet::from([slice])),
            (Deed::Thaw(..), false) => t.frozen = op.was,
            (Deed::Slice(_, slice), true) => t.slices = BTreeSet::from([slice]),
            (Deed::Slice(_, slice), false) if t.slices.len() > 1 => {
                t.slices.remove(&slice);
            }
            _ => {}
        }
    }

    /// A move has had its effect.
    fn settle(&mut self, id: OpId, how: How) -> Lists {
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.moves()) else { return Lists::default() };
        // From here on nothing of it is under way, so sums no longer count it.
        op.settled = true;
        let given_up = op.overdue;
        let Deed::Move { out, into, room, .. } = op.deed.clone() else { return Lists::default() };
        let share = |all: usize| match how {
            How::Well => all,
            How::Fail => 0,
            How::Part(quarters) | How::Torn(quarters) => all * usize::from(quarters.min(4)) / 4,
        };
        // As the mover does it: out while the arena has room, in while the device has, whichever can.
        let torn = usize::from(matches!(how, How::Torn(_)));
        let (outs, intos) = (share(out.len()), share(into.len()));
        let (mut went, mut came) =
            (out.iter().take(outs + torn).enumerate(), into.iter().take(intos + torn).enumerate());
        let (mut next_out, mut next_in) = (went.next(), came.next());
        let mut lists = Lists::default();
        let mut budget = room;
        loop {
            let space = self.arena.less(self.arena_used());
            let copied = |owned: &Owned| self.handle(owned).is_none_or(|handle| handle.clean);
            if let Some((at, (owned, bytes))) =
                next_out.filter(|(_, (owned, bytes))| *bytes <= space || copied(owned))
            {
                if self.arrive(owned, Place::Arena, *bytes, at == outs, given_up) {
                    if at == outs { &mut lists.2 } else { &mut lists.0 }.push(*owned);
                    budget += if at == outs { Bytes::ZERO } else { *bytes };
                }
                next_out = went.next();
            } else if let Some((at, (owned, bytes))) = next_in.filter(|(_, (_, bytes))| *bytes <= budget) {
                budget -= *bytes;
                if self.arrive(owned, Place::Device, *bytes, at == intos, given_up) {
                    if at == intos { &mut lists.2 } else { &mut lists.1 }.push(*owned);
                }
                next_in = came.next();
            } else {
                return lists;
            }
        }
    }

    /// A handle gets to a place; not if it is gone, or has been pinned where it was.
    fn arrive(&mut self, owned: &Owned, place: Place, bytes: Bytes, torn: bool, given_up: bool) -> bool {
        if let Some(gone) = self.tenants.get_mut(&owned.tenant).and_then(|t| t.gone.as_mut()) {
            // What came for somebody who died meanwhile lies there until the burial, and nothing of it leaves before.
            if place == Place::Device {
                gone.device += bytes;
            }
            return place == Place::Device;
        }
        let Some(handle) = self.handle_mut(owned).filter(|h| place == Place::Device || !h.pinned) else {
            return false;
        };
        handle.place = match place {
            // Of a move that was given up nobody heard that it only asked for memory.
            Place::Device if torn && !given_up => Place::Returning,
            _ if torn => Place::Unsettled,
            place => place,
        };
        handle.clean = false;
        true
    }

    /// What an inspection finds. Moves from before it that nobody waits for any more are over by then.
    fn inspect(&mut self, id: OpId, tenants: &[TenantId], still: bool) -> Outcome {
        self.settle_overdue(|other, _| other < id);
        let (mut away, mut unsettled) = (Vec::new(), Vec::new());
        for tenant in tenants {
            let Some(t) = self.tenants.get_mut(tenant).filter(|t| t.lives()) else { continue };
            for (&handle, held) in &mut t.handles {
                let owned = Owned { tenant: *tenant, handle };
                held.place = match held.place {
                    Place::Unsettled if !still && handle.0 % 2 == 0 => Place::Device,
                    Place::Unsettled | Place::Returning if !still => Place::Arena,
                    place => place,
                };
                match held.place {
                    Place::Device => {}
                    Place::Arena => away.push(owned),
                    Place::Unsettled | Place::Returning => unsettled.push(owned),
                }
            }
        }
        Outcome::Found { away, unsettled }
    }

    /// Moves that were given up have had their effect: those of which this is true.
    pub(crate) fn settle_overdue(&mut self, test: impl Fn(OpId, &Op) -> bool) {
        let over = self.ops.iter().filter(|(id, op)| op.overdue && op.moves() && test(**id, op));
        let over: Vec<(OpId, How, bool)> = over.map(|(&id, op)| (id, op.fate, op.lost)).collect();
        for (id, fate, lost) in over {
            self.settle(id, fate);
            if lost {
                self.ops.remove(&id);
            }
        }
    }

    /// Moves that were given up have had their effect on somebody.
    pub(crate) fn settle_overdue_of(&mut self, tenant: TenantId) {
        self.settle_overdue(|_, op| op.handles().any(|(owned, _)| owned.tenant == tenant));
    }
}
