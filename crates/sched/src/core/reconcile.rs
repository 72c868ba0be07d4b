//! What is left to do on a GPU so that exactly those run who should.
//!
//! Whoever runs and should not is frozen; whoever should and is not whole gets its memory, and those whose next turn is
//! furthest away make just enough room; whoever should run, is whole and is frozen is thawed. Each look issues what can
//! be done at once; the rest follows when completions come in.

use super::{Core, OpKind};
use crate::gpu::{For, Moving};
use crate::tenant::{Grip, Hurry, Spot, Tenant};
use crate::{Action, Bytes, GpuId, Owned, Scope, Slice, Span, TenantId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// So long a turn waits for the mover to know what others were just given.
pub(super) const MAKES_WITHIN: Span = Span::from_millis(200);

/// Who has to give what, so that there is enough room.
struct Room {
    out: Vec<(Owned, Bytes)>,
    /// Those among them who may still be running.
    unfrozen: BTreeSet<TenantId>,
    freed: Bytes,
}

impl Core {
    pub(super) fn reconcile(&mut self, gpu: GpuId) {
        let leaving = self.gpu_of(gpu).leaving.clone();
        self.mind_memory(gpu);
        let changed: Vec<_> = leaving.symmetric_difference(&self.gpu_of(gpu).leaving).copied().collect();
        changed.into_iter().for_each(|id| self.concern_fellows(id));
        let target = self.target(gpu);
        if self.gpu_of(gpu).critical_mode {
            self.freeze_the_others(gpu, &target);
            self.thaw_those(gpu, &target);
        } else {
            // Whoever is next is there when the last one goes: between the two the GPU would stand still.
            self.thaw_those(gpu, &target);
            self.freeze_the_others(gpu, &target);
        }
        self.warm_up(gpu);
        self.widen(gpu, &target);
    }

    /// Who should be running now, and on which slice.
    pub(super) fn target(&self, gpu: GpuId) -> Vec<(TenantId, Slice)> {
        let books = self.gpu_of(gpu);
        let mut target = Vec::new();
        let can = |id: TenantId| {
            let tenant = self.tenants.get(id);
            tenant.is_some_and(|tenant| tenant.context && !tenant.paused && !self.makes_way(id, tenant))
        };
        for &id in &books.critical {
            let runs = |tenant: &Tenant| tenant.is_whole() && !self.makes_way_for_tighter(gpu, tenant);
            if can(id) && self.tenants.get(id).is_some_and(runs) {
                target.push((id, self.slice_of_critical(gpu, id)));
            }
        }
        let held_back = self.holds_back(gpu);
        if let Some(main) = books.incoming.or(books.turn.map(|turn| turn.tenant)).filter(|&main| can(main)) {
            let critical = self.tenants.get(main).is_some_and(|tenant| tenant.critical);
            let fellows = self.fellows(gpu, main);
            let slice = match () {
                () if critical => self.slice_of_critical(gpu, main),
                // A gang counts as one, but two of the shortest would only switch.
                () if books.critical_mode && !fellows.is_empty() => Slice::Guaranteed,
                () if books.critical_mode => self.slice_beside_critical(gpu),
                () if books.filler.is_some() || !fellows.is_empty() => Slice::Long,
                () => Slice::Own,
            };
            if critical || !held_back {
                for id in std::iter::once(main).chain(fellows).filter(|&id| can(id)) {
                    if target.iter().all(|&(other, _)| other != id) {
                        target.push((id, slice));
                    }
                }
            }
        }
        if let Some((filler, _)) = books.filler.filter(|&(filler, _)| can(filler) && !books.critical_mode) {
            target.push((filler, Slice::Long));
        }
        target
    }

    fn freeze_the_others(&mut self, gpu: GpuId, target: &[(TenantId, Slice)]) {
        let books = self.gpu_of(gpu);
        let mut freeze = Vec::new();
        // While nobody has or gets the turn, whoever is idle is in nobody's way, unless its memory is.
        let vacant = self.is_vacant(gpu);
        let others = books.dozing.iter().take_while(|_| !vacant);
        let in_the_way = books.dozing.iter().take_while(|_| vacant && self.somebody_leaves());
        let in_the_way =
            in_the_way.filter(|&&id| self.tenants.get(id).is_some_and(|tenant| self.makes_way(id, tenant)));
        for &id in books.awake.iter().chain(others).chain(in_the_way) {
            let Some(tenant) = self.tenants.get(id) else { continue };
            if tenant.grip_retry <= self.now && target.iter().all(|&(target, _)| target != id) {
                freeze.push((id, self.scope_of(gpu, id, tenant)));
            }
        }
        for (tenant, scope) in freeze {
            self.take_off(tenant, scope, None);
        }
    }

    /// Freezes a tenant; or more of one that is frozen in part, in a hurry or not.
    pub(super) fn take_off(&mut self, tenant: TenantId, scope: Scope, hurry: Option<Hurry>) {
        let deadline = self.now + self.settings.deadlines.grip;
        // A change of its slice does not matter any more: the thaw will say which.
        if let Some(slicing) = self.tenants.get_mut(tenant).and_then(|tenant| tenant.slicing.take()) {
            self.strike(slicing);
        }
        let op = self.begin(OpKind::Freeze(tenant), deadline);
        self.update(tenant, |tenant| {
            tenant.grip = match hurry {
                Some(hurry) => Grip::Widening(op, hurry),
                None => Grip::Freezing(op, scope),
            };
        });
        self.actions.push(Action::Freeze { op, tenant, scope });
    }

    /// Has nobody the turn, nor is about to have it?
    pub(super) fn is_vacant(&self, gpu: GpuId) -> bool {
        let books = self.gpu_of(gpu);
        books.turn.is_none() && books.incoming.is_none() && !books.critical_mode
    }

    /// Does anybody have to go because its memory is needed, here or on another GPU of a gang?
    pub(super) fn somebody_leaves(&self) -> bool {
        self.gpus.values().any(|books| !books.leaving.is_empty())
    }

    fn thaw_those(&mut self, gpu: GpuId, target: &[(TenantId, Slice)]) {
        for &(id, slice) in target {
            let books = self.gpu_of(gpu);
            let Some(tenant) = self.tenants.get(id) else { continue };
            if !tenant.is_whole() || tenant.grip_retry > self.now || !self.fellows_are_ready(tenant) {
                continue;
            }
            // Beside somebody latency-critical only one best-effort tenant runs at a time: two short slices would only
            // switch. Otherwise the next one may begin while the last one is taken off.
            let others_run =
                books.running.iter().any(|other| target.iter().all(|(target, _)| target != other));
            let two_short = slice == Slice::Shortest && self.another_is_short(gpu, id);
            if two_short || (others_run && books.critical_mode && !tenant.critical) {
                continue;
            }
            let deadline = self.now + self.settings.deadlines.grip;
            // One of whom nobody knows is thawed once more.
            let grip = if tenant.unsure && tenant.grip == Grip::Thawed {
                Grip::Frozen(Scope::All)
            } else {
                tenant.grip
            };
            match grip {
                Grip::Frozen(scope) => {
                    let op = self.begin(OpKind::Thaw(id, slice), deadline);
                    self.update(id, |tenant| {
                        tenant.grip = Grip::Thawing(op, scope);
                        // One that may be running has the slice that it had until it is thawed.
                        if !(tenant.unsure && tenant.slice == Slice::Shortest) {
                            tenant.slice = slice;
                        }
                    });
                    self.actions.push(Action::Thaw { op, tenant: id, slice });
                }
                Grip::Thawed => {
                    if self.gpu_of(gpu).incoming == Some(id) {
                        self.begin_turn(gpu, id);
                    }
                    let tenant = self.tenants.get(id).expect("it was there above");
                    let matters =
                        tenant.slice != slice && !(slice == Slice::Own && tenant.slice == Slice::Long);
                    if matters && tenant.slicing.is_none() && tenant.slice_retry <= self.now {
                        let op = self.begin(OpKind::Slice(id, slice), deadline);
                        self.update(id, |tenant| tenant.slicing = Some(op));
                        self.actions.push(Action::Slice { op, tenant: id, slice });
                    }
                }
                Grip::Freezing(..) | Grip::Widening(..) | Grip::Thawing(..) => {}
            }
        }
    }

    /// Does somebody else run on the shortest slice, or may?
    fn another_is_short(&self, gpu: GpuId, id: TenantId) -> bool {
        let others = self.gpu_of(gpu).running.iter().filter(|&&other| other != id);
        others.filter_map(|&other| self.tenants.get(other)).any(|other| other.slice == Slice::Shortest)
    }

    /// Makes room for whoever is to run, and brings in what it has away.
    fn mind_memory(&mut self, gpu: GpuId) {
        self.gpu_mut(gpu).leaving.clear();
        self.settle_way(gpu);
        let books = self.gpu_of(gpu);
        if books.moving.is_some() || books.looking.is_some() || books.move_retry > self.now {
            return;
        }
        let headroom = self.settings.headroom;
        let over = books.short_of(Bytes::ZERO, headroom);
        let main = books.incoming.or(books.turn.map(|turn| turn.tenant));
        // A gang runs only when all of it is here.
        let company = self.company(gpu, main);
        let members = || company.iter().filter_map(|&id| self.tenants.get(id));
        if let Some(id) = main
            && members().any(|tenant| tenant.is_unsettled())
        {
            self.give_up_on(gpu, id);
            return;
        }
        let needs: Bytes = members().map(|tenant| tenant.away).sum();
        let grows: Bytes = company.iter().map(|&id| self.grantable(id)).sum();
        if over == Bytes::ZERO && needs == Bytes::ZERO && grows == Bytes::ZERO {
            let books = self.gpu_mut(gpu);
            (books.starved_since, books.making_since) = (None, None);
            // Others may have turns meanwhile that need no room: it is still the same wait.
            books.burials_since = books.burials_since.filter(|_| books.burials_pending());
            if !self.empty_the_deep(gpu) && !self.change_homes(gpu) {
                self.fetch_ahead(gpu);
            }
            return;
        }
        if books.short_of(needs + grows, headroom) > Bytes::ZERO && books.burials_pending() {
            // What the dead held is free in a moment: better than moving more than would be needed then. Not for ever,
            // since others may die all the time.
            let now = self.now;
            let since = *self.gpu_mut(gpu).burials_since.get_or_insert(now);
            if now < since + self.settings.deadlines.retry {
                return;
            }
        }
        let books = self.gpu_of(gpu);
        let short = |wanted: Bytes| books.short_of(wanted, headroom);
        let mut room = self.make_room(gpu, main, short(needs + grows));
        if room.freed < short(needs + grows) && grows > Bytes::ZERO {
            // Not enough to grow: then at least enough to run.
            room = self.make_room(gpu, main, short(needs));
        }
        let short = short(needs);
        if room.freed < short {
            if let Some(id) = main.filter(|_| needs > Bytes::ZERO) {
                if !self.waits_for_new_memory(gpu, id, short.less(room.freed)) {
                    self.put_off_for_room(gpu, id);
                }
                return;
            }
            // Others took so much of the device that whoever runs must go too.
            room = self.make_room(gpu, None, over);
        }
        if room.out.is_empty() && (needs == Bytes::ZERO || short > Bytes::ZERO) {
            return;
        }
        self.move_or_wait(gpu, &company, room);
    }

    /// Not enough of the others can go, but so much more could in a moment: somebody was just given it, and the mover does not know
    /// it yet. To put the turn off for that would be to put it off for much longer. Not waited for without end, since a program
    /// may be stopped before it makes what it was given.
    fn waits_for_new_memory(&mut self, gpu: GpuId, main: TenantId, missing: Bytes) -> bool {
        let kept = self.fellows(gpu, main);
        let all = self.gpu_of(gpu).sizes.iter().map(|&(_, id)| id);
        let others = all.filter(|id| *id != main && !kept.contains(id));
        let new: Bytes = others.filter_map(|id| self.tenants.get(id)).map(Tenant::just_given).sum();
        let now = self.now;
        // Whoever is tried next after it was in vain waits for the same memory.
        new >= missing && now < *self.gpu_mut(gpu).making_since.get_or_insert(now) + MAKES_WITHIN
    }

    /// Moves, if all concerned are off the GPU; otherwise sees to it that they go.
    fn move_or_wait(&mut self, gpu: GpuId, company: &[TenantId], room: Room) {
        let main = company.first().copied();
        if !room.unfrozen.is_empty() {
            // Also those who are off already: they must not come back meanwhile.
            self.gpu_mut(gpu).leaving = room.out.iter().map(|(owned, _)| owned.tenant).collect();
            return;
        }
        let into: Vec<_> = company.iter().flat_map(|&id| self.away_of(id)).collect();
        if !self.begin_move(gpu, room.out, into, For::Turn(main)) {
            self.starve(gpu, main);
            return;
        }
        let books = self.gpu_mut(gpu);
        (books.starved_since, books.burials_since, books.making_since) = (None, None, None);
    }

    /// Begins a move. False if the arena has no place for what goes.
    pub(super) fn begin_move(
        &mut self,
        gpu: GpuId,
        out: Vec<(Owned, Bytes)>,
        into: Vec<(Owned, Bytes)>,
        purpose: For,
    ) -> bool {
        let dirty = out.iter().filter(|(owned, _)| self.handle(*owned).is_some_and(|held| !held.clean));
        let to_arena: Bytes = dirty.map(|&(_, bytes)| bytes).sum();
        let from_arena: Bytes = into.iter().map(|&(_, bytes)| bytes).sum();
        // What comes in gives up its place in the arena as it comes.
        let more = to_arena.less(from_arena);
        if more > Bytes::ZERO && !self.clear_arena(more, &out) {
            return false;
        }
        let free = self.gpu_of(gpu).room(self.settings.headroom);
        let out_sum: Bytes = out.iter().map(|&(_, bytes)| bytes).sum();
        let took = self.copying(out_sum, from_arena);
        let deadline = self.now + self.settings.deadlines.movement + took.times(4);
        // Copies of what goes have their place already, and are not to be dropped any more.
        let copied = out.iter().filter_map(|(owned, _)| self.copies.get(owned)).copied().sum::<Bytes>();
        let to_arena = more + copied;
        for &(owned, _) in &out {
            self.forget_copy(owned);
        }
        let op = self.begin(OpKind::Move(gpu), deadline);
        let concerned: BTreeSet<_> = out.iter().chain(&into).map(|(owned, _)| owned.tenant).collect();
        for (owned, _) in &out {
            debug_assert_eq!(self.check_goes(owned.tenant), Ok(()));
        }
        for &id in &concerned {
            self.update(id, |tenant| tenant.moving = true);
        }
        let names = |all: &[(Owned, Bytes)]| all.iter().map(|&(owned, _)| owned).collect();
        self.actions.push(Action::Move { op, gpu, out: names(&out), into: names(&into), room: free });
        self.gpu_mut(gpu).moving =
            Some(Moving { op, out, into, landing: from_arena, to_arena, purpose, bereft: false });
        true
    }

    pub(super) fn away_of(&self, id: TenantId) -> Vec<(Owned, Bytes)> {
        let Some(tenant) = self.tenants.get(id) else { return Vec::new() };
        let away = tenant.handles.iter().filter(|(_, held)| held.spot == Spot::Arena);
        away.map(|(&handle, held)| (super::owned(id, handle), held.bytes)).collect()
    }

    /// Handles to move out so that `bytes` become free: of those whose next turn is furthest away, just enough, and of each
    /// those first that need no copying.
    fn make_room(&self, gpu: GpuId, main: Option<TenantId>, bytes: Bytes) -> Room {
        let books = self.gpu_of(gpu);
        let mut room = Room { out: Vec::new(), unfrozen: BTreeSet::new(), freed: Bytes::ZERO };
        let kept = main.map(|main| self.fellows(gpu, main)).unwrap_or_default();
        let for_critical =
            main.is_none_or(|main| self.tenants.get(main).is_some_and(|tenant| tenant.critical));
        for id in books.way.first_to_last() {
            if room.freed >= bytes {
                break;
            }
            let Some(tenant) = self.tenants.get(id) else { continue };
            let needed = !for_critical && self.has_requests(tenant);
            let stays = tenant.is_unsettled() || !tenant.context || needed;
            if Some(id) == main || kept.contains(&id) || stays {
                continue;
            }
            let before = room.out.len();
            for (owned, size) in self.going_of(id) {
                if room.freed >= bytes {
                    break;
                }
                room.freed += size;
                room.out.push((owned, size));
            }
            let off = tenant.is_off() && !self.a_fellow_may_run(tenant);
            if room.out.len() > before && !off {
                room.unfrozen.insert(id);
            }
        }
        room
    }

    /// What of a tenant can go out now, those first that need no copying.
    pub(super) fn going_of(&self, id: TenantId) -> Vec<(Owned, Bytes)> {
        let Some(tenant) = self.tenants.get(id).filter(|tenant| !tenant.reserved) else { return Vec::new() };
        let movable = tenant.handles.iter().filter(|(_, held)| held.can_go(self.now));
        let mut movable: Vec<_> = movable.map(|(&handle, held)| (!held.clean, handle, held.bytes)).collect();
        movable.sort_unstable();
        movable.into_iter().map(|(_, handle, bytes)| (super::owned(id, handle), bytes)).collect()
    }

    /// There is no way to give `id` its turn now: it is tried again later, and others have theirs. Returns who is kept out of
    /// line for that, and until when each was anyway.
    pub(super) fn give_up_on(&mut self, gpu: GpuId, id: TenantId) -> BTreeMap<TenantId, Time> {
        let until = self.now + self.settings.deadlines.retry;
        let gang =
            self.tenants.get(id).filter(|tenant| self.gang_of(tenant).is_some()).map(|tenant| tenant.job);
        let mut whom = BTreeSet::from([id]);
        if let Some(job) = gang {
            self.part(job);
            whom.extend(self.jobs.get(job).and_then(|job| self.lead(job)));
        }
        if self.gpu_of(gpu).turn.is_some_and(|turn| turn.tenant == id) {
            self.end_turn(gpu, false);
        }
        let books = self.gpu_mut(gpu);
        if books.incoming == Some(id) {
            books.incoming = None;
        }
        let known = |id: TenantId| Some((id, self.tenants.get(id)?.not_before));
        let before: BTreeMap<_, _> = whom.into_iter().filter_map(known).collect();
        for (&id, &capped_until) in &before {
            self.postpone(id, until.max(capped_until));
        }
        self.concerned.insert(gpu);
        before
    }

    /// The arena has no place for what would have to go. If that lasts, somebody has to end.
    fn starve(&mut self, gpu: GpuId, main: Option<TenantId>) {
        let now = self.now;
        let since = *self.gpu_mut(gpu).starved_since.get_or_insert(now);
        if now >= since + self.settings.deadlines.movement {
            self.end_someone(Some(gpu));
            self.gpu_mut(gpu).starved_since = Some(now);
        }
        if let Some(id) = main
            && self.tenants.get(id).is_some_and(|tenant| tenant.away > Bytes::ZERO)
        {
            self.give_up_on(gpu, id);
        }
    }

    /// Notes what the switch under way costs. What is moved for one that runs and grows is not part of any.
    pub(super) fn add_cost(&mut self, gpu: GpuId, took: Span) {
        let books = self.gpu_mut(gpu);
        if books.incoming.is_some() {
            books.switch_cost = Some(books.switch_cost.unwrap_or(Span::ZERO) + took);
        }
    }

    /// When something that went wrong now is tried again.
    pub(super) fn later(&self) -> Time {
        self.now + self.settings.deadlines.retry
    }
}
