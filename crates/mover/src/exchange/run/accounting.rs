//! Every handle of a plan comes to an end: it is moved, or not and for a reason, or its tenant has freed it or is gone. A mistake
//! in all that leads there could lose sight of one, and nobody else would look for it: its tenant would stand still for ever, and
//! nobody would know why. So it is looked for, told, and its way ended as far as it can be without its tenant.

use super::{Run, Way};
use crate::HandleKey;
use crate::device::Device;
use crate::exchange::MoveError;
use crate::mover::{Owed, Whereabouts};
use std::collections::BTreeMap;

impl<D: Device> Run<'_, D> {
    /// Ends the exchange, of which nothing is in any list of things to do.
    pub(super) fn account(&mut self) {
        let lost = self.unaccounted();
        for (&key, &way) in &lost {
            tracing::error!(%key, ?way, "lost sight of: this is a mistake of rota's");
            self.look_for(key, way);
        }
        self.outcome.lost_sight_of = lost.into_keys().collect();
    }

    /// What was planned and has no end.
    fn unaccounted(&mut self) -> BTreeMap<HandleKey, Way> {
        let mut left = std::mem::take(&mut self.planned);
        let told = &self.outcome;
        let failed = told.failed.iter().map(|(key, _)| key);
        for key in told.moved_out.iter().chain(&told.moved_in).chain(&told.freed).chain(failed) {
            left.remove(key);
        }
        left.retain(|key, _| !told.gone.contains(&key.owner));
        left
    }

    /// Ends a step that nobody else would end, and tells where it is then. What it takes the device for, or its tenant's answer, is
    /// ended by these, as with all that was given up. Perhaps its tenant was never asked, perhaps it has answered: what it is asked
    /// here means the same once and twice.
    fn look_for(&mut self, key: HandleKey, way: Way) {
        match self.mover.owed(key) {
            Some(Owed::RecordIn) => return self.record(&[], &[key]),
            Some(Owed::RecordOut) => self.mover.stay_unrecorded(key),
            Some(Owed::Unmap) => {
                self.to_unmap.push(key);
                self.ask_unmaps();
            }
            Some(Owed::Create) => self.request_creates(&[key]),
            Some(Owed::Take) => {
                self.mover.take_back(key);
                self.to_unmap.push(key);
                self.ask_unmaps();
            }
            None => {}
        }
        match (way, self.mover.handle(key).map(|view| view.whereabouts)) {
            (Way::Out, Some(Whereabouts::Arena)) => self.note_out(key),
            (Way::In, Some(Whereabouts::Device)) => self.note_in(key),
            _ => self.outcome.failed.push((key, MoveError::LostSight)),
        }
    }
}

#[cfg(test)]
impl<D: Device> crate::Mover<D> {
    /// An exchange that goes through these steps, and then loses sight of everything.
    pub(in crate::exchange) fn forget_all_after(
        &mut self,
        plan: crate::exchange::Plan,
        tenants: &mut dyn crate::exchange::Tenants,
        steps: impl FnOnce(&mut Self),
    ) -> crate::exchange::Outcome {
        let mut run = Run::new(self, plan, tenants);
        steps(run.mover);
        run.strike(|_| true);
        run.account();
        run.outcome
    }
}
