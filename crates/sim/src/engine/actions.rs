//! Carrying out what the core wants.

use sched::{Action, OpId, Outcome, Scope, Slice, Span, TenantId};

use super::Engine;
use super::queue::{Effect, Grip, Happening};
use super::tenant::Life;
use crate::faults::Mishap;
use crate::gpu::grip_effect;

/// To change a slice.
const SLICING: Span = Span::from_micros(100);

impl Engine<'_> {
    pub(super) fn execute(&mut self, action: Action) {
        match action {
            Action::Freeze { op, tenant, scope } => self.freezes(op, tenant, scope),
            Action::Thaw { op, tenant, slice } => self.thaws(op, tenant, slice),
            Action::Slice { op, tenant, slice } => self.slices(op, tenant, slice),
            Action::Move { op, gpu, out, into, room } => {
                self.begin_move(op, usize::from(gpu.0), out, into, room);
            }
            Action::Inspect { op, tenants } => self.inspects(op, tenants),
            Action::WarmUp { tenant } => self.warms_up(tenant),
            Action::Drop(copies) => self.drops(&copies),
            Action::End { tenant, .. } => {
                let tenant = self.index(tenant);
                self.ended_by_core(tenant);
            }
            Action::Admit { tenant } => {
                let tenant = self.index(tenant);
                self.admitted(tenant);
            }
            Action::Refuse { tenant, .. } => {
                let tenant = self.index(tenant);
                self.refused(tenant);
            }
            Action::Grant { tenant, request } => {
                let tenant = self.index(tenant);
                self.granted(tenant, request);
            }
            Action::Deny { tenant, request, .. } => {
                let tenant = self.index(tenant);
                self.denied(tenant, request);
            }
            Action::Place { ticket, gpus, .. } => self.placed(ticket, &gpus),
            // Grants are used at once here: there is nothing to give back. And no job may have memory of the host's.
            Action::Reclaim { .. }
            | Action::GrantHost { .. }
            | Action::Prepare { .. }
            | Action::Rehome { .. } => {}
            Action::TurnBegins { .. }
            | Action::TurnEnds { .. }
            | Action::Queue { .. }
            | Action::HintMissed { .. }
            | Action::Overdue { .. } => {}
        }
    }

    /// The tenant that is to be gripped, unless it left meanwhile: then nothing can be done any more.
    fn gripped_one(&mut self, op: OpId, id: TenantId) -> Option<usize> {
        let tenant = self.index(id);
        if !self.tenants[tenant].is_alive() {
            self.reply(op, Outcome::Failed, Mishap::None);
            return None;
        }
        let it = &self.tenants[tenant];
        self.require(it.group.is_some(), || format!("tenant {tenant} has no channels: {:?}", it.life));
        Some(tenant)
    }

    fn freezes(&mut self, op: OpId, id: TenantId, scope: Scope) {
        let Some(tenant) = self.gripped_one(op, id) else { return };
        let physics = &self.gpus[self.tenants[tenant].gpu].gpu.physics;
        let nominal = match scope {
            Scope::Compute => physics.freeze_compute,
            Scope::All => physics.freeze_all,
        };
        let took = self.random.spread(nominal, physics.jitter);
        let effect = self.now + grip_effect(took, physics.grip_effect);
        let mishap = self.luck.draw();
        self.require(!self.tenants[tenant].thawing, || {
            format!("tenant {tenant} is frozen while being thawed")
        });
        self.tenants[tenant].freezing = true;
        if self.tenants[tenant].frozen.is_none()
            && let Some(group) = self.tenants[tenant].group
        {
            let gpu = self.tenants[tenant].gpu;
            self.gpus[gpu].device.freezing(self.now, group);
        }
        if mishap == Mishap::Failed {
            self.queue.push(effect, Happening::Grip(Effect { tenant: id, what: Grip::Spare }));
            self.after(took, op, Outcome::Failed, mishap);
            return;
        }
        self.queue.push(effect, Happening::Grip(Effect { tenant: id, what: Grip::Freeze(scope) }));
        let late = match mishap {
            Mishap::Lost => return,
            Mishap::Late(by) => by,
            _ => Span::ZERO,
        };
        self.queue.push(self.now + took + late, Happening::Gripped(tenant, op, took));
    }

    /// Word of a freeze. What was found about copies comes first: the core may use it at once.
    pub(super) fn gripped(&mut self, tenant: usize, op: OpId, took: Span) {
        let it = &self.tenants[tenant];
        if it.frozen == Some(Scope::All) && it.is_alive() && it.moving.is_none() {
            self.compares(tenant);
        }
        self.tell(sched::Event::Done { op, outcome: Outcome::Done { took } });
    }

    fn thaws(&mut self, op: OpId, id: TenantId, slice: Slice) {
        let Some(tenant) = self.gripped_one(op, id) else { return };
        self.must_be_whole(tenant);
        let physics = &self.gpus[self.tenants[tenant].gpu].gpu.physics;
        let took = self.random.spread(physics.thaw, physics.jitter);
        let effect = self.now + grip_effect(took, physics.grip_effect);
        let mishap = self.luck.draw();
        if mishap == Mishap::Failed {
            self.after(took, op, Outcome::Failed, mishap);
            return;
        }
        self.tenants[tenant].thawing = true;
        self.queue.push(effect, Happening::Grip(Effect { tenant: id, what: Grip::Thaw(slice) }));
        self.after(took, op, Outcome::Done { took }, mishap);
    }

    fn slices(&mut self, op: OpId, id: TenantId, slice: Slice) {
        let Some(_) = self.gripped_one(op, id) else { return };
        let mishap = self.luck.draw();
        if mishap == Mishap::Failed {
            self.after(SLICING, op, Outcome::Failed, mishap);
            return;
        }
        self.queue.push(self.now + SLICING, Happening::Grip(Effect { tenant: id, what: Grip::Slice(slice) }));
        self.after(SLICING, op, Outcome::Done { took: SLICING }, mishap);
    }

    /// A freeze, thaw or change of slice is real from now on.
    pub(super) fn grip_takes_effect(&mut self, effect: &Effect) {
        let tenant = self.index(effect.tenant);
        let (gpu, now) = (self.tenants[tenant].gpu, self.now);
        if !self.tenants[tenant].is_alive() {
            return;
        }
        let Some(group) = self.tenants[tenant].group else { return };
        match effect.what {
            Grip::Spare => {
                self.tenants[tenant].freezing = false;
                self.gpus[gpu].device.spared(now, group);
            }
            Grip::Freeze(scope) => {
                self.tenants[tenant].freezing = false;
                let before = self.tenants[tenant].frozen;
                self.tenants[tenant].frozen = before.max(Some(scope));
                self.gpus[gpu].device.freeze(now, group);
                if before.is_none() {
                    self.turn_ended(tenant);
                }
            }
            Grip::Thaw(slice) => {
                self.must_be_whole(tenant);
                let length = self.slice_length(gpu, slice);
                self.gpus[gpu].device.thaw(now, group, length);
                let it = &mut self.tenants[tenant];
                let was_frozen = it.frozen.take().is_some();
                (it.thawing, it.slice) = (false, slice);
                self.writes(tenant);
                self.one_shortest(gpu);
                self.note_step(gpu, None);
                if was_frozen {
                    self.turn_began(tenant);
                }
            }
            Grip::Slice(slice) => {
                let length = self.slice_length(gpu, slice);
                self.gpus[gpu].device.set_slice(now, group, length);
                self.tenants[tenant].slice = slice;
                self.one_shortest(gpu);
            }
        }
        self.note(tenant);
    }

    fn must_be_whole(&self, tenant: usize) {
        let it = &self.tenants[tenant];
        self.require(it.is_whole(), || {
            let away = it.handles.iter().filter(|(_, held)| held.spot != super::tenant::Spot::Device);
            format!(
                "tenant {tenant} is thawed while moving ({:?}) or with {} handles away",
                it.moving,
                away.count()
            )
        });
    }

    /// Two of the shortest slices beside each other get nowhere.
    fn one_shortest(&self, gpu: usize) {
        let shortest = |it: &&super::Tenant| {
            it.gpu == gpu && it.is_alive() && it.is_thawed() && it.slice == Slice::Shortest
        };
        let count = self.tenants.iter().filter(shortest).count();
        self.require(count <= 1, || format!("{count} tenants of GPU {gpu} run on the shortest slice"));
    }

    fn slice_length(&self, gpu: usize, slice: Slice) -> Span {
        let physics = &self.gpus[gpu].gpu.physics;
        match slice {
            Slice::Own => physics.slice_own,
            Slice::Long => physics.slice_long,
            Slice::Shortest => physics.slice_shortest,
            Slice::Critical => physics.slice_critical,
            Slice::Guaranteed => physics.slice_guaranteed,
        }
    }

    fn warms_up(&mut self, id: TenantId) {
        let tenant = self.index(id);
        let it = &self.tenants[tenant];
        if it.life != Life::Working || it.serving.is_some() || !it.is_thawed() {
            return;
        }
        let (gpu, group) = (it.gpu, it.group);
        if let Some(group) = group.filter(|&group| !self.gpus[gpu].device.has_work(group)) {
            let truth = &mut self.gpus[gpu];
            truth.device.submit(self.now, group, truth.gpu.physics.warm_up);
        }
    }
}
