//! Whose memory in the arena is needed last, as far as that can be told from who went and who came. Pure.
//!
//! Those who take turns come back in the order in which they went: whoever went last comes back last, so its memory is the
//! coldest. (The one that is away longest is the next to come: sending that to a disk would be the worst choice.) But who was
//! overtaken twice by somebody takes no turns now: it is idle, or paused, or waits for something. Such memory is colder
//! still, and the longer it is away the more so.

use crate::Owner;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Who went and who came, in the order in which that was.
#[derive(Debug, Default)]
pub(super) struct Turns {
    now: u64,
    left: BTreeMap<Owner, u64>,
    /// The last two times, the earlier one first.
    came: BTreeMap<Owner, [u64; 2]>,
}

impl Turns {
    /// What follows is later than what was before.
    pub(super) fn next(&mut self) {
        self.now += 1;
    }

    /// Memory of a tenant goes.
    pub(super) fn leaves(&mut self, owner: Owner) {
        self.left.insert(owner, self.now);
    }

    /// Memory of a tenant comes.
    pub(super) fn comes(&mut self, owner: Owner) {
        let came = self.came.entry(owner).or_default();
        if came[1] != self.now {
            *came = [came[1], self.now];
        }
    }

    /// A tenant is gone.
    pub(super) fn forget(&mut self, owner: Owner) {
        self.left.remove(&owner);
        self.came.remove(&owner);
    }

    /// The coldest first.
    pub(super) fn coldest_first(&self, owners: impl IntoIterator<Item = Owner>) -> Vec<Owner> {
        let mut owners: Vec<Owner> = owners.into_iter().collect();
        owners.sort_by_key(|owner| {
            let left = self.left.get(owner).copied().unwrap_or(0);
            let takes_turns = !self.came.values().any(|[earlier, _]| *earlier > left);
            // Of those who do, the last one first; of the others, the first one.
            (takes_turns, takes_turns.then_some(Reverse(left)), left, *owner)
        });
        owners
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner(1);
    const B: Owner = Owner(2);
    const C: Owner = Owner(3);
    const D: Owner = Owner(4);

    fn turns(switches: &[(Owner, Owner)]) -> Turns {
        let mut turns = Turns::default();
        for &(goes, comes) in switches {
            turns.next();
            turns.leaves(goes);
            turns.comes(comes);
        }
        turns
    }

    #[test]
    fn whoever_went_last_comes_back_last() {
        let round = turns(&[(A, B), (B, C), (C, D), (D, A), (A, B)]);
        assert_eq!(round.coldest_first([A, C, D]), [A, D, C]);
    }

    #[test]
    fn whoever_is_overtaken_twice_is_colder_than_all() {
        let mut idle = turns(&[(D, A), (A, B), (B, C), (C, A), (A, B), (B, C), (C, A), (A, B)]);
        assert_eq!(idle.coldest_first([A, C, D]), [D, A, C]);
        idle.forget(A);
        idle.forget(B);
        idle.forget(C);
        assert_eq!(idle.coldest_first([C, D]), [D, C], "nobody is left who has overtaken it");
    }

    #[test]
    fn coming_in_pieces_is_coming_once() {
        let mut turns = turns(&[(A, B)]);
        turns.next();
        turns.comes(C);
        turns.comes(C);
        turns.next();
        turns.leaves(B);
        assert_eq!(turns.coldest_first([A, B]), [B, A]);
    }
}
