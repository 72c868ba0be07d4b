//! Arena space for several copies out by one request: each takes some 15 us there and back, in which the mover does nothing
//! else. It is taken for handles whose copies start next, and what an exchange has not used at its end goes back.

use super::{Held, Mover, Place};
use crate::arena::Taken;
use crate::device::Device;
use crate::{HandleKey, Owner};
use std::collections::BTreeMap;

/// The most handles whose space is taken ahead.
pub(crate) const AHEAD_MAX: usize = 64;

/// What was taken, and is to be used next.
pub(super) type Reserved = BTreeMap<HandleKey, Taken>;

impl<D: Device> Mover<D> {
    /// Takes space for the first of these, in order, as far as there is some that nothing has to give way for. False: there was
    /// not enough, and it is of no use to ask for more than one at a time.
    pub(crate) fn reserve_ahead(&mut self, keys: impl Iterator<Item = HandleKey>) -> bool {
        let wanted: Vec<(HandleKey, u64)> = keys
            .take(AHEAD_MAX)
            .take_while(|&key| self.check_out(key).is_ok() && !self.reserved.contains_key(&key))
            .map(|key| (key, self.bytes_of(key)))
            .collect();
        if wanted.len() < 2 {
            return true;
        }
        // Should it fail, the first copy that asks by itself hears why.
        let taken = self.arena.take_in_order(&wanted).unwrap_or_default();
        let is_enough = taken.len() == wanted.len();
        self.reserved.extend(wanted.iter().map(|&(key, _)| key).zip(taken));
        is_enough
    }

    /// Is there space for it already?
    pub(crate) fn has_reserved(&self, key: HandleKey) -> bool {
        self.reserved.contains_key(&key)
    }

    /// Gives back what was not used.
    pub(crate) fn give_back_reserved(&mut self) {
        let unused = std::mem::take(&mut self.reserved);
        if unused.is_empty() {
            return;
        }
        let keys: Vec<HandleKey> = unused.keys().copied().collect();
        self.arena.cancel_all(&keys);
        for key in unused.into_iter().filter(|(_, taken)| taken.reused).map(|(key, _)| key) {
            // It was its clean copy's place, which counts for nothing any more.
            if let Some(Held { place: Place::Device { copy, .. }, .. }) = self.handles.get_mut(&key) {
                *copy = None;
            }
        }
    }

    /// Nothing of a tenant is to be used: the keeper gives its space back.
    pub(super) fn forget_reserved_of(&mut self, owner: Owner) {
        self.reserved.retain(|key, _| key.owner != owner);
    }
}
