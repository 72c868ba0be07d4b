//! Requests that are pressed for time: best-effort work is off the GPU for them, hinted or not, as far as its guarantee
//! allows.
//!
//! On the shortest slice it gets nothing done beside them, but each switch to it and back takes as long as a short request. That
//! does not matter to one that is served at once. It does where requests wait for each other. One that is later than its
//! precedence lasts is not pressed any more, but lost, or never idle.

use super::Core;
use super::precedence::SLACK_TIMES;
use crate::guarantee::HALF;
use crate::tenant::Tenant;
use crate::{Favour, GpuId, Span, Time};

/// Best-effort work is off for so long at a time; then the guarantee is asked again.
const STRETCH: Span = Span::from_millis(50);

impl Core {
    /// Is best-effort work off because a request is pressed for time?
    pub(super) fn is_pressed(&self, gpu: GpuId) -> bool {
        self.now < self.gpu_of(gpu).pressed_until
    }

    /// Looks whether a request is pressed for time, and the guarantee allows that best-effort work goes off for it.
    pub(super) fn mind_pressed(&mut self, gpu: GpuId) {
        let now = self.now;
        if !self.has_pressed(gpu) {
            self.gpu_mut(gpu).pressed_until = Time::ZERO;
            return;
        }
        if self.is_pressed(gpu) {
            return;
        }
        self.tell_held(gpu);
        let (guarantee, thaw) = (self.settings.be_guarantee, self.costs.thaw);
        let books = self.gpu_mut(gpu);
        let is_allowed = books.guarantee.allows(now, STRETCH + thaw, guarantee);
        books.pressed_until = if is_allowed { now + STRETCH } else { Time::ZERO };
    }

    /// When to look again: somebody is pressed from then on, or not any more, or the guarantee has to be asked.
    pub(super) fn next_pressed(&self, gpu: GpuId) -> Option<Time> {
        let changes = self.serving(gpu).filter_map(|(_, tenant)| self.pressed_at(tenant)).flatten();
        let asks = if self.is_pressed(gpu) {
            Some(self.gpu_of(gpu).pressed_until)
        } else {
            // What it refused now it may allow when an older half-second is forgotten.
            self.has_pressed(gpu).then(|| Time((self.now.0 / HALF.0 + 1).saturating_mul(HALF.0)))
        };
        changes.chain(asks).filter(|&at| at > self.now).min()
    }

    /// Is a request pressed for time that may take best-effort work off?
    fn has_pressed(&self, gpu: GpuId) -> bool {
        // Hints take it off by themselves, and where slices are all that it has it keeps them.
        let is_hinted = self.gpu_of(gpu).holds.iter().any(|hold| hold.from <= self.now + STRETCH);
        let may_be = self.settings.favour == Favour::Latency && !self.is_crowded(gpu) && !is_hinted;
        let is_pressed = |tenant: &Tenant| {
            self.pressed_at(tenant).is_some_and(|[from, until]| from <= self.now && self.now < until)
        };
        may_be && self.serving(gpu).any(|(_, tenant)| is_pressed(tenant))
    }

    /// From when to when a tenant that has requests is pressed: half of its time is gone. Not where a freeze takes that long.
    fn pressed_at(&self, tenant: &Tenant) -> Option<[Time; 2]> {
        let grip = self.costs.freeze + self.costs.thaw;
        let slo = tenant.slo.filter(|&slo| slo >= grip.times(SLACK_TIMES))?;
        Some([tenant.queued_at + Span(slo.0 / 2), self.precedence_until(tenant)?])
    }
}
