//! When to look at a GPU again, so that nothing is missed.

use super::Core;
use super::reconcile::MAKES_WITHIN;
use crate::guarantee::HALF;
use crate::tenant::Tenant;
use crate::{GpuId, TenantId, Time};

impl Core {
    /// When to look again, so that nothing is missed.
    pub(super) fn remind(&mut self, gpu: GpuId) {
        let wake = self.next_look(gpu).filter(|&at| at > self.now);
        let books = self.gpu_mut(gpu);
        let before = std::mem::replace(&mut books.wake, wake);
        if before == wake {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, super::Due::Gpu(gpu)));
        }
        if let Some(wake) = wake {
            self.due.insert((wake, super::Due::Gpu(gpu)));
        }
    }

    pub(super) fn next_look(&self, gpu: GpuId) -> Option<Time> {
        let books = self.gpu_of(gpu);
        let mut next = None;
        let mut at = |time: Time| {
            if time > self.now && time < Time::MAX {
                next = Some(next.map_or(time, |next: Time| next.min(time)));
            }
        };
        if let Some(turn) = books.turn {
            let owner = self.tenants.get(turn.tenant);
            let first = self.who_waits(gpu);
            if first.is_some()
                || !books.gangs_waiting.is_empty()
                || owner.is_some_and(|owner| self.cap(owner).is_some())
            {
                at(turn.until);
            }
            if let (Some(owner), Some(next)) = (owner, first) {
                if !self.gang_is_active(owner) {
                    at(self.gives_way_at(owner, next));
                }
                if let Some(cut) = self.cut_at(&turn, owner, next) {
                    at(cut);
                }
            }
        }
        if let (Some(incoming), Some(next)) =
            (books.incoming.and_then(|id| self.tenants.get(id)), self.who_waits(gpu))
            && !self.gang_is_active(incoming)
        {
            at(self.gives_way_at(incoming, next));
        }
        // Whoever is idle is in somebody's way only then.
        let dozing_matter = !self.is_vacant(gpu) || self.somebody_leaves();
        let mut retries = |id: TenantId| {
            let tenant = self.tenants.get(id);
            let times = |tenant: &Tenant| [tenant.grip_retry, tenant.rest_retry, tenant.slice_retry];
            tenant.into_iter().flat_map(times).for_each(&mut at);
        };
        for &id in books.awake.iter().chain(books.dozing.iter().take_while(|_| dozing_matter)) {
            retries(id);
        }
        for id in books.incoming.iter().chain(&books.critical).chain(&books.partly) {
            retries(*id);
        }
        if let Some(begins) = self.ahead_at(gpu) {
            at(begins);
        }
        at(books.move_retry);
        at(books.stuck_until);
        if let Some(since) = books.starved_since {
            at(since + self.settings.deadlines.movement);
        }
        if let Some(since) = books.burials_since {
            at(since + self.settings.deadlines.retry);
        }
        if let Some(since) = books.making_since {
            at(since + MAKES_WITHIN);
        }
        if books.critical_mode {
            at(books.critical_until);
        }
        if let Some(room) = self.room_at(gpu) {
            at(room);
        }
        if self.arena_needed > self.arena {
            at(self.end_not_before);
        }
        if let Some(hold) = self.next_hold(gpu) {
            at(hold);
        }
        if books.load_since.is_some() {
            at(self.now + HALF);
        }
        if let Some(until) = self.next_precedence(gpu) {
            at(until);
        }
        if let Some(pressed) = self.next_pressed(gpu) {
            at(pressed);
        }
        if let Some(lapses) = books.homing.and_then(|id| self.tenants.get(id)?.homes.lapses()) {
            at(lapses);
        }
        next
    }
}
