//! What comes of actions: completions, and deadlines that pass without one.

use super::{Core, OpKind};
use crate::gpu::{For, Moving, PutOff};
use crate::tenant::{Grip, Spot, Tenant};
use crate::{Action, Bytes, GpuId, OpId, Outcome, Owned, Scope, Span, TenantId};
use std::collections::BTreeSet;

/// So often the time doubles after which one is tried again for whom nothing moved. Should nobody be able to come for a while, the
/// GPU stands still for no longer than that afterwards.
const VAIN_MAX: u8 = 4;

impl Core {
    /// An action is over. One that was given up, or whose tenant is gone, changes nothing.
    pub(super) fn done(&mut self, op: OpId, outcome: Outcome) {
        let Some(kind) = self.strike(op) else { return };
        match kind {
            OpKind::Freeze(tenant) => self.froze(tenant, op, took(&outcome)),
            OpKind::Thaw(tenant, slice) => self.thawed(tenant, op, slice, took(&outcome)),
            OpKind::Slice(tenant, slice) => {
                let (good, later) = (took(&outcome).is_some(), self.later());
                self.update(tenant, |tenant| {
                    if tenant.slicing == Some(op) {
                        tenant.slicing = None;
                        if good {
                            tenant.slice = slice;
                        } else {
                            tenant.slice_retry = later;
                        }
                    }
                });
            }
            OpKind::Move(gpu) => self.moved(gpu, op, outcome),
            OpKind::Prepare(tenant) => self.prepared(tenant, took(&outcome).is_some()),
            OpKind::Rehome(tenant, _) => self.rehomed(tenant, op, outcome),
            OpKind::Inspect(tenants) => self.found(op, tenants, outcome),
        }
    }

    /// An action is not over by its deadline. What it may have done is not known.
    pub(super) fn overdue(&mut self, op: OpId) {
        let Some(kind) = self.strike(op) else { return };
        self.actions.push(Action::Overdue { op });
        let later = self.later();
        match kind {
            // It may be running: before anything else it is frozen, once more.
            OpKind::Freeze(id) | OpKind::Thaw(id, _) => {
                let gripped = self.tenants.get(id).is_some_and(|tenant| {
                    matches!(tenant.grip, Grip::Freezing(open, _) | Grip::Widening(open, _) | Grip::Thawing(open, _) if open == op)
                });
                if gripped {
                    let thawing = matches!(kind, OpKind::Thaw(..));
                    self.update(id, |tenant| {
                        if !thawing {
                            tenant.not_frozen_before(later);
                        }
                        // Whoever was off already stays off.
                        tenant.grip = tenant.grip.given_up();
                        tenant.unsure |= tenant.grip == Grip::Thawed;
                    });
                    if thawing {
                        self.turn_failed(id);
                    }
                }
            }
            OpKind::Slice(id, _) => {
                self.update(id, |tenant| {
                    if tenant.slicing == Some(op) {
                        tenant.slicing = None;
                        tenant.slice_retry = later;
                    }
                });
            }
            OpKind::Move(gpu) => self.move_lost(gpu, op),
            OpKind::Prepare(tenant) => self.prepared(tenant, false),
            OpKind::Rehome(tenant, _) => self.rehoming_lost(tenant, op),
            OpKind::Inspect(tenants) => self.inspect_again(op, tenants),
        }
    }

    fn froze(&mut self, id: TenantId, op: OpId, took: Option<Span>) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let (open, scope, widened) = match tenant.grip {
            Grip::Freezing(open, scope) => (open, scope, false),
            Grip::Widening(open, _) => (open, Scope::All, true),
            _ => return,
        };
        if open != op {
            return;
        }
        let (gpu, later) = (tenant.gpu, self.later());
        let Some(took) = took else {
            // Whoever cannot be frozen keeps the GPU that long.
            self.update(id, |tenant| {
                tenant.not_frozen_before(later);
                tenant.grip = tenant.grip.given_up();
            });
            return;
        };
        let stayed = self.stayed(tenant, self.now.before(took));
        if tenant.stays_since.is_some() {
            self.begin_in_earnest(gpu);
        }
        self.update(id, |tenant| {
            tenant.grip = Grip::Frozen(scope);
            tenant.unsure = false;
            tenant.stays_since = None;
            tenant.owes += stayed;
        });
        self.concern_fellows(id);
        if scope == Scope::Compute {
            self.learn_lead(gpu, took);
        }
        // Of one that was off in part, little was left to freeze.
        if !widened {
            learn_grip(&mut self.costs.freeze, took);
        }
        self.add_cost(gpu, took);
    }

    fn thawed(&mut self, id: TenantId, op: OpId, slice: crate::Slice, took: Option<Span>) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let Grip::Thawing(open, scope) = tenant.grip else { return };
        if open != op {
            return;
        }
        let (gpu, later) = (tenant.gpu, self.later());
        let Some(took) = took else {
            self.update(id, |tenant| {
                tenant.grip = if tenant.unsure { Grip::Thawed } else { Grip::Frozen(scope) };
                tenant.grip_retry = later;
            });
            self.turn_failed(id);
            return;
        };
        self.update(id, |tenant| {
            tenant.grip = Grip::Thawed;
            tenant.unsure = false;
            tenant.slice = slice;
        });
        learn_grip(&mut self.costs.thaw, took);
        if scope == Scope::Compute {
            self.gpu_mut(gpu).thaws.learn(took);
        }
        self.add_cost(gpu, took);
        if self.gpu_of(gpu).incoming == Some(id)
            && self.tenants.get(id).is_some_and(|tenant| tenant.is_whole())
        {
            self.begin_turn(gpu, id);
        }
    }

    /// A tenant could not be put on.
    fn turn_failed(&mut self, id: TenantId) {
        let Some(gpu) = self.tenants.get(id).map(|tenant| tenant.gpu) else { return };
        let books = self.gpu_of(gpu);
        let is_main = books.incoming == Some(id) || books.turn.is_some_and(|turn| turn.tenant == id);
        if books.filler.is_some_and(|(filler, _)| filler == id) {
            self.stop_filler(gpu);
        }
        if is_main || self.tenants.get(id).is_some_and(|tenant| self.is_in_gang_together(tenant)) {
            self.give_up_on(gpu, id);
        }
    }

    fn moved(&mut self, gpu: GpuId, op: OpId, outcome: Outcome) {
        let Some(moving) = self.end_move(gpu, op) else { return };
        let (out, into, unsettled, took) = match outcome {
            Outcome::Moved { out, into, unsettled, took } => (out, into, unsettled, Some(took)),
            _ => (Vec::new(), Vec::new(), Vec::new(), None),
        };
        let (out, into): (BTreeSet<_>, BTreeSet<_>) = (out.into_iter().collect(), into.into_iter().collect());
        let unsettled: BTreeSet<_> = unsettled.into_iter().collect();
        let stuck_until = self.now + self.settings.deadlines.retry.times(10);
        let (mut went, mut bytes_out, mut bytes_in) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        let mut stuck = false;
        for &(owned, bytes) in &moving.out {
            if out.contains(&owned) {
                let copied = self.handle(owned).is_some_and(|held| !held.clean);
                self.put(owned, Spot::Arena);
                went += bytes;
                bytes_out += if copied { bytes } else { Bytes::ZERO };
            } else if unsettled.contains(&owned) {
                self.put(owned, Spot::Unsettled);
            } else if !moving.bereft {
                stuck = true;
                self.change_handle(owned, |held| held.stuck_until = stuck_until);
            }
        }
        for &(owned, bytes) in &moving.into {
            if into.contains(&owned) {
                self.put(owned, Spot::Device);
                bytes_in += bytes;
            } else if unsettled.contains(&owned) {
                self.put(owned, Spot::Returning);
            }
        }
        self.relist_fellows(&moving);
        if stuck {
            let books = self.gpu_mut(gpu);
            books.stuck_until = stuck_until;
        }
        let ahead = matches!(moving.purpose, For::Later(_));
        if ahead {
            self.gpu_mut(gpu).ahead_cost += took.unwrap_or_default();
            if !stuck && into.len() == moving.into.len() {
                self.learn_per_move(bytes_out, bytes_in, took.unwrap_or_default());
            }
        } else if let Some(took) = took {
            self.add_cost(gpu, took);
            // What goes only in part takes its time for other reasons.
            if !stuck && into.len() == moving.into.len() {
                self.learn_bandwidth(bytes_out, bytes_in, took);
            }
            let whom = moving.purpose.whom();
            let is_owners = whom.is_some() && whom == self.gpu_of(gpu).turn.map(|turn| turn.tenant);
            if is_owners && !self.grew_into_what_was_fetched(gpu) {
                self.grew(gpu, took);
            }
        }
        // A death explains it, and what is left to do is found at the next look.
        if went + bytes_in == Bytes::ZERO && !moving.bereft {
            match moving.purpose.whom() {
                // What is only fetched ahead must not keep anybody from its turn.
                _ if ahead => self.fetch_no_more_for_a_while(gpu),
                Some(id) => self.could_not_come(gpu, id),
                None => {
                    let later = self.later();
                    self.gpu_mut(gpu).move_retry = later;
                }
            }
        }
        self.concerned.insert(gpu);
    }

    /// Nothing moved for `id`. It is tried again later, and later each time, so that those who are behind it in line are tried in
    /// between, however many cannot come, and however long it takes to find that out: what they lack may be what somebody else
    /// gives up who comes.
    fn could_not_come(&mut self, gpu: GpuId, id: TenantId) {
        let vain = self.tenants.get(id).map_or(0, |tenant| tenant.vain);
        self.update(id, |tenant| tenant.vain = (vain + 1).min(VAIN_MAX));
        let until = self.now + self.settings.deadlines.retry.times(1 << vain);
        for (id, capped_until) in self.give_up_on(gpu, id) {
            let put_off = PutOff { until: until.max(capped_until), capped_until };
            self.postpone(id, put_off.until);
            self.update(id, |tenant| tenant.put_off_in_vain = Some(put_off));
        }
    }

    /// Somebody is gone, and what kept others from coming with it, perhaps: they are tried again.
    pub(super) fn try_those_in_vain(&mut self) {
        let now = self.now;
        // Others may have been put off since for something else, or be back.
        let is_out =
            |tenant: &Tenant, put_off: &PutOff| tenant.not_before == put_off.until && put_off.until > now;
        let put_off = |(id, tenant): (TenantId, &Tenant)| {
            tenant.put_off_in_vain.filter(|put_off| is_out(tenant, put_off)).map(|put_off| (id, put_off))
        };
        let those: Vec<_> = self.tenants.iter().filter_map(put_off).collect();
        for (id, PutOff { capped_until, .. }) in those {
            self.update(id, |tenant| (tenant.vain, tenant.put_off_in_vain) = (0, None));
            self.postpone(id, capped_until);
            if capped_until <= now {
                self.start_at_present(id);
            }
        }
    }

    /// Nobody knows what became of a move: what it was about may be here or there until somebody has looked.
    fn move_lost(&mut self, gpu: GpuId, op: OpId) {
        let Some(moving) = self.end_move(gpu, op) else { return };
        if matches!(moving.purpose, For::Later(_)) {
            self.fetch_no_more_for_a_while(gpu);
        }
        let mut tenants = BTreeSet::new();
        for &(owned, _) in moving.out.iter().chain(&moving.into) {
            self.put(owned, Spot::Unsettled);
            tenants.insert(owned.tenant);
        }
        self.relist_fellows(&moving);
        let alive = tenants.into_iter().filter(|&id| self.tenants.get(id).is_some()).collect();
        // Also if all have left meanwhile: a move that nobody waits for may still be under way.
        let looking = self.inspect(alive);
        self.gpu_mut(gpu).looking = Some(looking);
    }

    /// Where the memory of one of a gang is decides whether another one stands in line for all.
    fn relist_fellows(&mut self, moving: &Moving) {
        let owners: BTreeSet<_> =
            moving.out.iter().chain(&moving.into).map(|(owned, _)| owned.tenant).collect();
        for id in owners {
            if let Some(job) = self.tenants.get(id).filter(|tenant| tenant.gang).map(|tenant| tenant.job) {
                self.relist_lead(job);
            }
        }
    }

    fn end_move(&mut self, gpu: GpuId, op: OpId) -> Option<Moving> {
        let books = self.gpus.get_mut(gpu)?;
        let moving = books.moving.take_if(|moving| moving.op == op)?;
        for id in
            moving.out.iter().chain(&moving.into).map(|(owned, _)| owned.tenant).collect::<BTreeSet<_>>()
        {
            self.update(id, |tenant| tenant.moving = false);
            self.concern_fellows(id);
        }
        for &(owned, bytes) in &moving.out {
            // It may have been copied meanwhile, and be counted already.
            self.forget_copy(owned);
            if self.handle(owned).is_some_and(|held| held.clean && held.spot == Spot::Device) {
                self.copies.insert(owned, bytes);
                self.copies_sum += bytes;
            }
        }
        Some(moving)
    }

    /// A handle is here or there from now on.
    pub(super) fn put(&mut self, owned: Owned, spot: Spot) {
        self.forget_copy(owned);
        self.update(owned.tenant, |tenant| {
            tenant.change(owned.handle, |held| {
                held.spot = spot;
                held.clean = false;
            })
        });
        // Whether all of it is there matters to its fellows.
        self.concern_fellows(owned.tenant);
    }

    /// Asks where the handles of these tenants are.
    pub(super) fn inspect(&mut self, tenants: Vec<TenantId>) -> OpId {
        let deadline = self.now + self.settings.deadlines.movement;
        let op = self.begin(OpKind::Inspect(tenants.clone()), deadline);
        self.actions.push(Action::Inspect { op, tenants });
        op
    }

    /// An inspection was in vain.
    fn inspect_again(&mut self, op: OpId, mut tenants: Vec<TenantId>) {
        tenants.retain(|&id| self.tenants.contains(id));
        let looks = self.gpus.iter().find(|(_, books)| books.looking == Some(op)).map(|(gpu, _)| gpu);
        if tenants.is_empty() && looks.is_none() {
            return;
        }
        let again = self.inspect(tenants);
        if let Some(gpu) = looks {
            self.gpu_mut(gpu).looking = Some(again);
        }
    }

    fn found(&mut self, op: OpId, tenants: Vec<TenantId>, outcome: Outcome) {
        let Outcome::Found { away, unsettled } = outcome else {
            self.inspect_again(op, tenants);
            return;
        };
        for (gpu, books) in self.gpus.iter_mut() {
            if books.looking.take_if(|looking| *looking == op).is_some() {
                self.concerned.insert(gpu);
            }
        }
        let (away, unsettled): (BTreeSet<_>, BTreeSet<_>) =
            (away.into_iter().collect(), unsettled.into_iter().collect());
        for id in tenants {
            // While it moves, the move itself will say.
            let Some(tenant) = self.tenants.get(id).filter(|tenant| !tenant.moving) else { continue };
            let handles: Vec<_> = tenant.handles.iter().map(|(&handle, held)| (handle, held.spot)).collect();
            for (handle, before) in handles {
                let owned = super::owned(id, handle);
                let spot = match () {
                    () if unsettled.contains(&owned) && matches!(before, Spot::Arena | Spot::Returning) => {
                        Spot::Returning
                    }
                    () if unsettled.contains(&owned) => Spot::Unsettled,
                    () if away.contains(&owned) => Spot::Arena,
                    () => Spot::Device,
                };
                if spot != before {
                    self.put(owned, spot);
                }
            }
            if let Some(job) = self.tenants.get(id).filter(|tenant| tenant.gang).map(|tenant| tenant.job) {
                self.relist_lead(job);
            }
        }
    }

    /// How fast the bus is, from a move. Small ones say nothing.
    fn learn_bandwidth(&mut self, out: Bytes, into: Bytes, took: Span) {
        let took = took.less(self.costs.per_move);
        if took == Span::ZERO {
            return;
        }
        let rate = |bytes: Bytes| crate::units::scale(bytes.0, 1_000_000_000, took.0);
        // The slower way decides how long both take, so only that one is known.
        let decides = out.at(self.costs.out_per_second) >= into.at(self.costs.in_per_second);
        let (bytes, known) = match decides {
            true => (out, &mut self.costs.out_per_second),
            false => (into, &mut self.costs.in_per_second),
        };
        if bytes >= LEARNT_FROM {
            *known = (*known / 4 * 3 + rate(bytes) / 4).max(1);
        }
    }

    /// What a move costs beside its bytes, from a small one. Where nothing takes time nothing is learnt.
    fn learn_per_move(&mut self, out: Bytes, into: Bytes, took: Span) {
        if took > Span::ZERO {
            let most = self.settings.costs.per_move.times(PER_MOVE_TIMES_MAX);
            let beside = took.less(self.copying(out, into)).min(most);
            learn(&mut self.costs.per_move, beside);
        }
    }
}

/// One move that had to wait for something says nothing about the next: it counts as so many usual ones at most.
const PER_MOVE_TIMES_MAX: u64 = 8;

/// The same of a freeze or a thaw. Who was held up says nothing about the next one, which there may never be if it is believed: for
/// what a freeze takes too long for, nobody is frozen.
const GRIP_TIMES_MAX: u64 = 2;

fn learn_grip(known: &mut Span, seen: Span) {
    let most = known.times(GRIP_TIMES_MAX).max(Span(1));
    learn(known, seen.min(most));
}

/// Moves of less say more about handles than about the bus.
const LEARNT_FROM: Bytes = Bytes::from_mib(64);

fn took(outcome: &Outcome) -> Option<Span> {
    match outcome {
        Outcome::Done { took } => Some(*took),
        _ => None,
    }
}

/// Three quarters of what was known and one quarter of what was seen.
fn learn(known: &mut Span, seen: Span) {
    known.0 = known.0 / 4 * 3 + seen.0 / 4;
}
