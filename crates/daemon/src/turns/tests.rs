//! The core against a model of the world around it: random tenants, a perfect or a failing executor, virtual time.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use wire::HandleId;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn rules() -> Rules {
    Rules {
        capacity_bytes: 16 * GIB,
        reserve_bytes: 600 * MIB,
        residue_bytes: 544 * MIB,
        arena_bytes: 64 * GIB,
        turn: Duration::from_secs(5),
        turn_jitter: 0.0,
        seed: 1,
    }
}

/// Stands for tenants and executor: does what it is told and reports it.
struct World {
    turns: Turns,
    now: Now,
    shifts: Vec<Shift>,
    sizes: BTreeMap<Owned, u64>,
    asked: BTreeMap<(TenantId, GrantId), u64>,
    denied: Vec<String>,
    away: BTreeSet<Owned>,
    thawed: BTreeSet<TenantId>,
    unburied: Vec<TenantId>,
    next: u64,
}

impl World {
    fn new(rules: Rules) -> Self {
        Self {
            turns: Turns::new(rules),
            now: Duration::ZERO,
            shifts: Vec::new(),
            sizes: BTreeMap::new(),
            asked: BTreeMap::new(),
            denied: Vec::new(),
            away: BTreeSet::new(),
            thawed: BTreeSet::new(),
            unburied: Vec::new(),
            next: 1,
        }
    }

    fn join(&mut self, number: u32) {
        let tenant = TenantId(number);
        self.tell(Event::Joined(tenant));
    }

    /// These join one after the other, each with so many handles of a GiB.
    fn join_with(&mut self, numbers: &[u32], handles: usize) {
        for &number in numbers {
            self.join(number);
            self.settle();
            for _ in 0..handles {
                self.grow(number, GIB);
                self.settle();
            }
            while !self.asked.is_empty() {
                assert!(self.pass(), "nothing is due, and a request waits");
                self.settle();
            }
        }
    }

    fn grow(&mut self, number: u32, bytes: u64) {
        let (tenant, grant) = (TenantId(number), GrantId(self.next));
        self.next += 1;
        self.asked.insert((tenant, grant), bytes);
        self.tell(Event::Grow { tenant, grant, bytes });
    }

    fn leave(&mut self, number: u32) {
        let tenant = TenantId(number);
        self.sizes.retain(|owned, _| owned.tenant != tenant);
        self.away.retain(|owned| owned.tenant != tenant);
        self.thawed.remove(&tenant);
        self.unburied.push(tenant);
        self.tell(Event::Left(tenant));
    }

    fn bury(&mut self) {
        while let Some(tenant) = self.unburied.pop() {
            self.tell(Event::Buried(tenant));
        }
    }

    fn tell(&mut self, event: Event) {
        let actions = self.turns.step(self.now, event);
        for action in actions {
            match action {
                Action::Grant { tenant, grant } => {
                    let bytes = self.asked.remove(&(tenant, grant)).expect("granted what was asked");
                    let handle = HandleId(self.next);
                    self.next += 1;
                    self.sizes.insert(Owned { tenant, handle }, bytes);
                    self.turns.claim(tenant, grant, SizedHandle { handle, bytes }).unwrap();
                    self.tell(Event::Adopted { tenant, handle, movable: true });
                }
                Action::Deny { tenant, grant, reason } => {
                    self.asked.remove(&(tenant, grant));
                    self.denied.push(reason);
                }
                Action::Welcome(tenant) => {
                    self.thawed.insert(tenant);
                    self.tell(Event::Context { tenant, present: true });
                }
                Action::Shift(shift) => self.shifts.push(shift),
            }
            self.check();
        }
    }

    /// Finishes the shift under way, as it should go.
    fn finish(&mut self) -> bool {
        let Some(shift) = self.shifts.pop() else { return false };
        assert!(self.shifts.is_empty(), "one shift at a time");
        let here = |tenants: &BTreeMap<Owned, u64>, owned: &Owned| tenants.contains_key(owned);
        let froze: Vec<_> = shift.freeze.iter().copied().filter(|t| self.thawed.remove(t)).collect();
        for owned in shift.out.iter().filter(|owned| here(&self.sizes, owned)) {
            assert!(!self.thawed.contains(&owned.tenant), "memory of a running tenant was moved");
            self.away.insert(*owned);
        }
        // As the mover does it: what comes in never takes more than the room there was and what has gone out.
        let size = |owned: &Owned| self.sizes.get(owned).copied().unwrap_or(0);
        let mut room = shift.room_bytes + shift.out.iter().map(size).sum::<u64>();
        let mut into = shift.into;
        into.retain(|owned| {
            let fits = size(owned) <= room;
            room -= if fits { size(owned) } else { 0 };
            fits && self.sizes.contains_key(owned)
        });
        for owned in &into {
            self.away.remove(owned);
        }
        let whole = |tenant: &TenantId| !self.away.iter().any(|owned| owned.tenant == *tenant);
        let thawed = shift.thaw.filter(|t| whole(t) && self.turns.describe(*t, self.now).is_some());
        self.thawed.extend(thawed);
        let away = self.away.clone();
        self.tell(Event::Shifted(Shifted { froze, thawed, away, ..Shifted::default() }));
        true
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            if !self.finish() {
                return;
            }
        }
        panic!("shifts without end");
    }

    /// Lets time pass to the next thing that is due.
    fn pass(&mut self) -> bool {
        let Some(at) = self.turns.wake_at() else { return false };
        self.now = self.now.max(at);
        self.tell(Event::Tick);
        true
    }

    fn running(&self) -> Option<u32> {
        self.turns.running.map(|running| running.tenant.0)
    }

    fn check(&self) {
        let resident: u64 =
            self.sizes.iter().filter(|(owned, _)| !self.away.contains(owned)).map(|(_, bytes)| bytes).sum();
        let rules = self.turns.rules;
        // A context is there once its tenant is let in, and not before.
        let contexts = self.turns.ledger.welcomed() * rules.residue_bytes;
        assert!(
            resident + contexts + rules.reserve_bytes <= rules.capacity_bytes,
            "{resident} bytes on the device and {contexts} of contexts, {} by the ledger, shift {:?}",
            self.turns.used_bytes(),
            self.turns.shift
        );
        for tenant in &self.thawed {
            let away = self.away.iter().any(|owned| owned.tenant == *tenant);
            assert!(!away, "{tenant} runs without its memory");
        }
    }
}

#[test]
fn one_alone_runs_on() {
    let mut world = World::new(rules());
    world.join(1);
    world.settle();
    assert_eq!(world.running(), Some(1));
    assert!(!world.pass(), "nothing is due for one alone");
}

#[test]
fn two_that_do_not_fit_take_turns_and_move_just_enough() {
    let mut world = World::new(rules());
    world.join_with(&[1, 2], 12);
    assert!(world.denied.is_empty());
    for _ in 0..6 {
        let before = world.running().unwrap();
        assert!(world.pass());
        let shift = world.shifts[0].clone();
        world.settle();
        let after = world.running().unwrap();
        assert_ne!(before, after);
        assert_eq!(shift.thaw, Some(TenantId(after)));
        assert!(shift.out.iter().all(|owned| owned.tenant.0 == before), "the one that just ran goes");
        // 16 GiB less reserve and two contexts hold 14 handles of a GiB: 10 have to go for 10 that come.
        assert_eq!((shift.out.len(), shift.into.len()), (10, 10));
    }
}

#[test]
fn what_fits_together_is_never_moved() {
    let mut world = World::new(rules());
    for tenant in [1, 2, 3] {
        world.join(tenant);
        world.settle();
        world.grow(tenant, 4 * GIB);
        world.settle();
    }
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        world.pass();
        assert!(world.shifts.iter().all(|shift| shift.out.is_empty() && shift.into.is_empty()));
        world.settle();
        seen.insert(world.running());
    }
    assert_eq!(seen.len(), 3, "everybody has turns");
}

#[test]
fn what_can_never_fit_is_denied_with_a_reason_and_changes_nothing() {
    let mut world = World::new(rules());
    world.join(1);
    world.settle();
    world.grow(1, 15 * GIB);
    assert!(world.denied[0].contains("would not fit on the GPU"), "{:?}", world.denied);
    world.grow(1, 3);
    assert!(world.denied[1].contains("multiple"), "{:?}", world.denied);
    world.grow(1, 14 * GIB);
    assert_eq!(world.denied.len(), 2);

    let mut small = World::new(Rules { arena_bytes: GIB, ..rules() });
    for tenant in [1, 2] {
        small.join(tenant);
        small.settle();
        small.grow(tenant, 8 * GIB);
        small.settle();
    }
    assert!(small.denied[0].contains("arena"), "{:?}", small.denied);
}

#[test]
fn a_newcomer_whose_context_would_push_somebody_out_is_not_admitted() {
    let mut world = World::new(rules());
    world.join(1);
    world.settle();
    world.grow(1, 14 * GIB + 512 * MIB);
    assert!(world.turns.admits().unwrap_err().contains("tenant 1"));
}

#[test]
fn whoever_cannot_be_frozen_keeps_its_turn_and_others_are_tried_again_later() {
    let mut world = World::new(rules());
    world.join(1);
    world.settle();
    world.join(2);
    world.settle();
    world.pass();
    assert!(world.shifts.pop().is_some());
    world.tell(Event::Shifted(Shifted::default()));
    assert!(world.shifts.is_empty(), "not again at once");
    let before = world.now;
    assert!(world.pass());
    assert!(world.now >= before + RETRY_AFTER);
    world.settle();
    assert!(world.running().is_some());
}

#[test]
fn a_turn_that_fails_goes_to_the_next() {
    let mut world = World::new(rules());
    world.join_with(&[1, 2, 3], 0);
    assert_eq!(world.running(), Some(1));
    world.pass();
    let shift = world.shifts.pop().unwrap();
    assert_eq!(shift.thaw, Some(TenantId(2)));
    world.thawed.remove(&TenantId(1));
    world.tell(Event::Shifted(Shifted { froze: shift.freeze, ..Shifted::default() }));
    assert_eq!(world.running(), None);
    world.pass();
    world.settle();
    assert_eq!(world.running(), Some(3));
}

#[test]
fn what_the_dead_held_is_waited_for_and_not_counted_twice() {
    let mut world = World::new(rules());
    world.join_with(&[1, 2], 12);
    assert_eq!(world.running(), Some(2));
    world.leave(2);
    assert!(world.shifts.is_empty(), "its memory is not free yet");
    world.bury();
    let shift = world.shifts[0].clone();
    assert!(shift.out.is_empty() && shift.thaw == Some(TenantId(1)), "{shift:?}");
    world.settle();
    assert_eq!(world.running(), Some(1));
}

#[test]
fn one_that_hangs_up_and_lives_is_made_room_around() {
    let mut world = World::new(rules());
    for tenant in [1, 2, 3] {
        world.join(tenant);
        world.settle();
        world.grow(tenant, 4 * GIB);
        world.settle();
    }
    world.leave(3);
    world.grow(1, 6 * GIB);
    assert!(world.shifts.is_empty(), "the dead one's memory comes free in a moment");
    world.tell(Event::Lingers(TenantId(3)));
    assert!(
        world.shifts[0].out.iter().all(|owned| owned.tenant == TenantId(2))
            && !world.shifts[0].out.is_empty()
    );
}

#[test]
fn a_death_in_the_middle_of_a_shift_costs_no_pause() {
    let mut world = World::new(rules());
    world.join_with(&[1, 2], 0);
    world.pass();
    let shift = world.shifts.pop().unwrap();
    assert_eq!(shift.thaw, Some(TenantId(2)));
    world.leave(1);
    world.tell(Event::Shifted(Shifted::default()));
    world.bury();
    assert_eq!(world.shifts[0].thaw, Some(TenantId(2)), "tried again at once");
}

#[test]
fn a_turn_that_is_skipped_stops_nobody() {
    let mut world = World::new(rules());
    world.join_with(&[1, 2], 0);
    assert_eq!(world.running(), Some(1));
    world.pass();
    assert!(world.shifts.pop().is_some());
    world.tell(Event::Shifted(Shifted { skipped: true, ..Shifted::default() }));
    assert_eq!(world.running(), Some(1), "it goes on");
    let before = world.now;
    assert!(world.shifts.is_empty() && world.pass() && world.now >= before + RETRY_AFTER);
    world.settle();
    assert_eq!(world.running(), Some(2));
}

#[test]
fn a_runner_that_gives_up_its_context_gives_up_its_turn() {
    let mut world = World::new(rules());
    world.join_with(&[1, 2], 0);
    assert_eq!(world.running(), Some(1));
    world.tell(Event::Context { tenant: TenantId(1), present: false });
    world.settle();
    assert_eq!(world.running(), Some(2));
}

#[test]
fn room_that_cannot_be_made_is_not_asked_for_again_at_once() {
    let mut world = World::new(rules());
    for tenant in [1, 2] {
        world.join(tenant);
        world.settle();
        world.grow(tenant, 6 * GIB);
        world.settle();
    }
    assert_eq!(world.running(), Some(1));
    world.grow(1, 6 * GIB);
    let shift = world.shifts.pop().unwrap();
    assert!(shift.thaw.is_none() && !shift.out.is_empty());
    // The arena is full, say.
    world.tell(Event::Shifted(Shifted::default()));
    assert!(world.shifts.is_empty(), "it would spin");
    let before = world.now;
    assert!(world.pass() && world.now == before + RETRY_AFTER && !world.shifts.is_empty());
}

#[test]
fn a_newcomer_is_not_admitted_where_nobody_could_move_any_more() {
    let mut world = World::new(Rules { arena_bytes: 7 * GIB, ..rules() });
    world.join_with(&[1, 2], 9);
    let mut newcomers = 2;
    while world.turns.admits().is_ok() {
        newcomers += 1;
        world.join(newcomers);
        world.settle();
        assert!(newcomers < 10);
    }
    let turns = |world: &World| [1, 2].map(|t| world.turns.describe(TenantId(t), world.now).unwrap().turns);
    let before = turns(&world);
    for _ in 0..20 {
        world.pass();
        world.settle();
    }
    assert!(turns(&world).iter().zip(before).all(|(now, before)| *now > before), "somebody never runs");
}

#[test]
fn jitter_varies_turns_within_its_bounds_and_repeats_with_its_seed() {
    let lengths = |seed| {
        let mut turns = Turns::new(Rules { turn_jitter: 0.5, seed, ..rules() });
        (0..100).map(|_| turns.turn_length()).collect::<Vec<_>>()
    };
    assert_eq!(lengths(7), lengths(7));
    assert_ne!(lengths(7), lengths(8));
    assert!(lengths(7).iter().all(|l| (2.5..=7.5).contains(&l.as_secs_f64())));
    assert!(lengths(7).iter().collect::<BTreeSet<_>>().len() > 90);
}

#[derive(Clone, Debug)]
enum Deed {
    Join,
    Leave(usize),
    Grow(usize, u64),
    Free(usize),
    Pass,
    Finish,
    FailShift(u8),
    Bury,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        2 => Just(Deed::Join),
        1 => (0usize..8).prop_map(Deed::Leave),
        6 => (0usize..8, 1u64..4000).prop_map(|(who, blocks)| Deed::Grow(who, blocks * 2 * MIB)),
        2 => (0usize..64).prop_map(Deed::Free),
        6 => Just(Deed::Pass),
        8 => Just(Deed::Finish),
        1 => (0u8..4).prop_map(Deed::FailShift),
        2 => Just(Deed::Bury),
    ];
    prop::collection::vec(deed, 1..200)
}

proptest! {
    /// Whatever happens: the checks in `World` and in the core hold, and in the end everybody gets a turn.
    #[test]
    fn nothing_breaks_and_nobody_starves(deeds in deeds()) {
        let mut world = World::new(rules());
        let mut members: Vec<u32> = Vec::new();
        let mut number = 1;
        for deed in deeds {
            match deed {
                Deed::Join if members.len() < 6 && world.turns.admits().is_ok() => {
                    members.push(number);
                    world.join(number);
                    number += 1;
                }
                Deed::Leave(who) if !members.is_empty() => {
                    let who = members.remove(who % members.len());
                    world.leave(who);
                }
                Deed::Grow(who, bytes) if !members.is_empty() => world.grow(members[who % members.len()], bytes),
                Deed::Free(which) if !world.sizes.is_empty() => {
                    let owned = *world.sizes.keys().nth(which % world.sizes.len()).unwrap();
                    world.sizes.remove(&owned);
                    world.away.remove(&owned);
                    world.tell(Event::Freed(vec![owned]));
                }
                Deed::Pass => { world.pass(); }
                Deed::Finish => { world.finish(); }
                Deed::Bury => world.bury(),
                Deed::FailShift(stage) => {
                    if let Some(shift) = world.shifts.pop() {
                        let skipped = stage == 3 && shift.thaw.is_some();
                        let mut done = Shifted { skipped, ..Shifted::default() };
                        if stage > 0 && !done.skipped {
                            done.froze = shift.freeze.iter().copied().filter(|t| world.thawed.remove(t)).collect();
                        }
                        if stage == 2 {
                            let moved = shift.out.into_iter().find(|owned| world.sizes.contains_key(owned));
                            world.away.extend(moved);
                        }
                        done.away = world.away.clone();
                        world.tell(Event::Shifted(done));
                    }
                }
                _ => {}
            }
        }
        world.bury();
        let mut ran = BTreeSet::new();
        for _ in 0..members.len() * 3 + 3 {
            world.settle();
            ran.extend(world.running());
            world.pass();
        }
        prop_assert_eq!(ran, members.into_iter().collect::<BTreeSet<_>>());
    }
}
