//! Turns: somebody comes, others make way, and something goes wrong meanwhile or not.

use super::super::mortal::{Killed, Mortal};
use super::super::world::Event;
use super::History;
use crate::exchange::{MoveError, Outcome, Plan, Stuck};
use crate::mover::Whereabouts;
use crate::{HandleKey, Owner};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Longer than any copy here, on a clock that goes 10 ms at each look.
const PATIENCE: Duration = Duration::from_millis(640);

impl History {
    /// Somebody comes, and as many go as have to, or all.
    pub(super) fn turn(&mut self) {
        let mut owners: Vec<Owner> = self.tenants.keys().copied().collect();
        let away: Vec<Owner> = owners.iter().copied().filter(|&owner| self.is_away(owner)).collect();
        let is_back = !away.is_empty() && self.random.below(3) > 0;
        let Some(comes) = self.one_of(if is_back { &away } else { &owners }) else { return self.rest() };
        owners.retain(|owner| *owner != comes);
        let is_eager = self.random.below(3) == 0;
        let into = self.setup().at(comes, Whereabouts::Arena);
        let (mut room_bytes, need_bytes) = (self.room_bytes(), self.bytes_of(&into));
        let mut out = Vec::new();
        while (is_eager || room_bytes < need_bytes)
            && let Some(goes) = self.one_of(&owners)
        {
            owners.retain(|owner| *owner != goes);
            let keys = self.setup().at(goes, Whereabouts::Device);
            room_bytes += self.bytes_of(&keys);
            out.extend(keys);
        }
        if into.is_empty() && out.is_empty() {
            out = self.setup().at(comes, Whereabouts::Device);
        }
        // What leaves is waited for in most turns, also if there is other room.
        let least_bytes = need_bytes.saturating_sub(self.bytes_of(&out));
        let room_bytes = self.room_bytes();
        let room_bytes = if self.random.below(4) == 0 { room_bytes } else { room_bytes.min(least_bytes) };
        let plan = Plan { out, into, room_bytes, deadline: PATIENCE };
        let troubles = [0, 1, 1, 1, 1, 1, 2, 2][self.random.below(8) as usize];
        let troubles: Vec<String> = (0..troubles).map(|_| self.arm(&plan)).collect();
        self.setup().mover.device_mut().polls_per_copy = 1 + self.random.below(3) as u32;
        self.exchange(plan, &troubles);
    }

    fn is_away(&mut self, owner: Owner) -> bool {
        !self.setup().at(owner, Whereabouts::Arena).is_empty()
    }

    pub(super) fn bytes_of(&mut self, keys: &[HandleKey]) -> u64 {
        let setup = self.setup();
        keys.iter().map(|&key| setup.mover.bytes_of(key)).sum()
    }

    /// Does what is planned, with these troubles on their way.
    pub(super) fn exchange(&mut self, plan: Plan, troubles: &[String]) {
        self.counts.turns += 1;
        for key in plan.out.iter().chain(&plan.into) {
            self.tenants.get_mut(&key.owner).expect("it lives").committed = false;
        }
        let (fate, armed) = (Arc::clone(&self.fate), self.armed());
        let setup = self.setup();
        let mut tenants = Mortal(setup.tenants.clone(), fate);
        let moved = catch_unwind(AssertUnwindSafe(|| {
            setup.mover.exchange(plan.clone(), &mut tenants, &setup.replies)
        }));
        self.disarm(armed);
        let number = self.counts.events;
        match moved {
            Ok(outcome) => {
                self.told.push(format!("{number}, {troubles:?}: {}", words(&plan, &outcome)));
                self.see(&plan, &outcome, !troubles.is_empty());
            }
            Err(cause) if cause.is::<Killed>() => {
                self.told.push(format!("{number}, {troubles:?}: the worker died"));
                self.succeed();
            }
            Err(cause) => resume_unwind(cause),
        }
        if self.random.below(2) == 0 {
            self.setup().tenants.world().tear_down();
        }
    }

    /// What became of a plan.
    fn see(&mut self, plan: &Plan, outcome: &Outcome, is_troubled: bool) {
        self.setup().check_told(plan, outcome);
        assert_eq!(outcome.audit_errors, []);
        assert_eq!(outcome.lost_sight_of, []);
        for (key, error) in &outcome.failed {
            let is_full = *error == MoveError::NotStarted && outcome.stuck.is_some();
            assert!(is_full || is_troubled, "{key} for no reason: {error}");
        }
        self.counts.moved_bytes += outcome.bytes_out + outcome.bytes_in;
        self.counts.passed_bytes += outcome.passed_bytes;
        match &outcome.stuck {
            Some(Stuck::NoArenaSpace { .. }) => self.counts.arena_full += 1,
            Some(Stuck::NoCellar { .. }) => self.counts.cellar_full += 1,
            Some(Stuck::NoRoom { .. }) | None => {}
        }
        let mut world = self.setup().tenants.world();
        for &owner in &outcome.must_end {
            world.happen(Event::Dies(owner));
        }
        drop(world);
        self.counts.ended += outcome.must_end.len() as u64;
        self.settle();
        self.commit();
        self.check();
    }
}

/// What is the same each time. How long it took is not.
fn words(plan: &Plan, outcome: &Outcome) -> String {
    let Outcome { moved_out, moved_in, freed, gone, must_end, stuck, .. } = outcome;
    let failed: Vec<HandleKey> = outcome.failed.iter().map(|(key, _)| *key).collect();
    let keys = |keys: &[HandleKey]| {
        let names = keys.iter().map(|key| format!("{}.{}", key.owner.0, key.handle));
        names.collect::<Vec<_>>().join(" ")
    };
    let moved = [&plan.out, &plan.into, moved_out, moved_in, &failed, freed].map(|list| keys(list));
    let [out, into, moved_out, moved_in, failed, freed] = moved;
    format!(
        "out [{out}] in [{into}] went [{moved_out}] came [{moved_in}] failed [{failed}] freed [{freed}] gone {gone:?} \
         must end {must_end:?} stuck {}",
        stuck.is_some()
    )
}
