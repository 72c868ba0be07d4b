//! Exchanges with a fake device and fake tenants: bytes survive, room is never exceeded, and whatever goes wrong at
//! whatever step, every handle is accounted for.

mod accounting;
mod cellar;
mod clean;
mod deadlines;
mod disk;
mod gentle_copies;
mod gently;
mod giving_way;
mod happenings;
mod history;
mod homes;
mod killed;
mod mortal;
mod must_end;
mod order;
mod passing;
mod plain;
mod random_plans;
mod reserving;
mod room;
mod shared_arena;
mod timed;
mod world;

use super::patience::driven::Driven;
use super::{MoveError, Outcome, Plan, Reply, Step, Stuck, Tenants};
use crate::device::{Device, Registrar};
use crate::fake_device::{FakeDevice, Operation};
use crate::mover::Whereabouts;
use crate::test_keeper::{TestKeeper, process};
use crate::{BLOCK_BYTES, HandleKey, Mover, Owner};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use world::FakeTenants;

const A: Owner = Owner(1);
const B: Owner = Owner(2);
/// In a few tests only.
const C: Owner = Owner(3);
/// Small segments, so that most handles are scattered.
const SEGMENT: u64 = 2 * BLOCK_BYTES;
/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(20);
/// For what never comes, on a clock that the test drives.
const SHORT: Duration = Duration::from_millis(250);
/// More steps than any of these exchanges has.
const STEPS_MAX: u64 = 500;

fn key(owner: Owner, handle: u64) -> HandleKey {
    HandleKey { owner, handle }
}

/// A mover, tenants, and what connects them.
struct Setup {
    mover: Mover<FakeDevice>,
    tenants: FakeTenants,
    replies: Receiver<Reply>,
    // Dropped last.
    keeper: Arc<TestKeeper>,
    /// Where its cellar is, if it has one.
    disk: Option<disk::TestDisk>,
}

impl Setup {
    fn new(capacity_blocks: u64, arena_blocks: u64) -> Setup {
        let setup = Setup::with_registrar(capacity_blocks, arena_blocks, |registrar| registrar);
        setup.mover.arena().wait_until_prepared();
        setup
    }

    fn with_registrar(
        capacity_blocks: u64,
        arena_blocks: u64,
        registrar: impl FnOnce(Box<dyn Registrar>) -> Box<dyn Registrar>,
    ) -> Setup {
        let capacity = capacity_blocks * BLOCK_BYTES;
        let device = FakeDevice::new(capacity);
        let (sender, replies) = channel();
        let tenants = FakeTenants::new(sender, device.imports(), capacity);
        let keeper = TestKeeper::start(arena_blocks, SEGMENT);
        let arena = keeper.arena(registrar(device.registrar()));
        let mut mover = Mover::new(device, arena);
        for owner in [A, B] {
            mover.introduce(owner, process(owner)).expect("a new tenant");
        }
        Setup { mover, tenants, replies, keeper, disk: None }
    }

    /// Two tenants of which B is away and A has all the device, in handles of these sizes.
    fn a_in_b_away(a: &[u64], b: &[u64], capacity_blocks: u64, arena_blocks: u64) -> (Setup, Plan) {
        let mut setup = Setup::new(capacity_blocks, arena_blocks);
        let into = setup.allocate(B, b);
        let outcome = setup.exchange(plan(&into, &[], 0));
        assert_eq!(outcome.moved_out, into);
        let out = setup.allocate(A, a);
        let used: u64 = a.iter().sum();
        setup.tenants.world().requests = 0;
        let plan = plan(&out, &into, capacity_blocks - used);
        (setup, plan)
    }

    fn allocate(&mut self, owner: Owner, blocks: &[u64]) -> Vec<HandleKey> {
        let mut keys = Vec::new();
        for (index, blocks) in blocks.iter().enumerate() {
            let key = key(owner, index as u64);
            let file = self.tenants.world().allocate(key, blocks * BLOCK_BYTES);
            self.mover.adopt(key, blocks * BLOCK_BYTES, file).expect("a new handle");
            keys.push(key);
        }
        keys
    }

    /// From now on time passes only where an exchange waits.
    fn drive_clock(&mut self) -> Driven {
        let clock = Driven::default();
        self.mover.clock = clock.clock();
        clock
    }

    fn exchange(&mut self, plan: Plan) -> Outcome {
        self.mover.exchange(plan, &mut self.tenants, &self.replies)
    }

    /// Every living handle of the plan is told of exactly once.
    fn check_told(&self, plan: &Plan, outcome: &Outcome) {
        for &key in plan.out.iter().chain(&plan.into) {
            let told = outcome.moved_out.iter().chain(&outcome.moved_in);
            let told =
                told.chain(outcome.failed.iter().map(|(key, _)| key)).filter(|told| **told == key).count();
            let is_over = outcome.freed.contains(&key) || outcome.gone.contains(&key.owner);
            assert!(told == 1 || (is_over && told < 2), "{key} is told of {told} times: {outcome:?}");
        }
        for (key, error) in &outcome.failed {
            let must_end =
                matches!(error, MoveError::NotBackedOut { .. }) && !outcome.gone.contains(&key.owner);
            assert!(!must_end || outcome.must_end.contains(&key.owner), "{key}: {outcome:?}");
        }
    }

    /// Hands in what tenants have said since the last exchange. Says who must be ended.
    fn take_late(&mut self) -> Vec<Owner> {
        let mut must_end = Vec::new();
        while let Ok(reply) = self.replies.try_recv() {
            must_end.extend(self.mover.late(reply, &mut self.tenants));
        }
        must_end
    }

    /// Every living handle is where the mover says, with its contents; nothing else is held.
    fn check_places(&mut self) {
        let world = self.tenants.world();
        for (key, bytes) in world.living() {
            let view = self.mover.handle(key).unwrap_or_else(|| panic!("{key} is lost"));
            assert_eq!(view.bytes, bytes);
            match view.whereabouts {
                Whereabouts::Device => assert_eq!(world.wrong_words(key), Some(0), "{key}"),
                Whereabouts::Arena => assert_eq!(world.wrong_words(key), None, "{key}"),
                Whereabouts::Leaving | Whereabouts::Returning => panic!("{key} is unsettled"),
            }
        }
        for owner in [A, B, C] {
            let living = world.living().iter().filter(|(key, _)| key.owner == owner).count();
            assert_eq!(self.mover.handles(owner).len(), living, "{owner} has handles that are not its own");
        }
        drop(world);
        let device_bytes: u64 = [A, B, C].map(|owner| self.mover.resident_bytes(owner)).iter().sum();
        let imported: u64 = self.mover.device().imports().lock().expect("no panic").values().sum();
        assert_eq!(imported, device_bytes + self.mover.lost_device_bytes());
        let away: u64 = [A, B, C].map(|owner| self.mover.away_bytes(owner)).iter().sum();
        let lost = self.mover.lost_arena_bytes();
        let arena = self.mover.arena();
        let cellar = arena.cellar_statistics().map_or(0, |cellar| cellar.plain_bytes);
        // What is away takes space, but for what is in the cellar, and for zeros.
        let placed = away - cellar - arena.books().0.zero_bytes;
        assert_eq!(arena.free_bytes() + placed + lost, arena.ready_bytes());
        self.check_rules();
    }

    /// Nothing was done that must never be done.
    fn check_rules(&self) {
        assert_eq!(*self.mover.device().violations().lock().expect("no panic"), [""; 0]);
    }

    /// Checks places, brings back everything that is away, one tenant at a time, and checks contents.
    fn check_all(&mut self) {
        self.check_places();
        self.tenants.world().tear_down();
        for (owner, other) in [(A, B), (B, A)] {
            let keys = |owner, whereabouts| {
                let handles = self.mover.handles(owner).into_iter();
                handles
                    .filter(|view| view.whereabouts == whereabouts)
                    .map(|view| view.key)
                    .collect::<Vec<_>>()
            };
            let (out, into) = (keys(other, Whereabouts::Device), keys(owner, Whereabouts::Arena));
            let room_bytes = self.mover.device_mut().capacity().expect("it works").free_bytes;
            let mut outcome = self.exchange(plan(&out, &into, room_bytes / BLOCK_BYTES));
            // What needs no copy is out before others, and with little room the small come in before the large.
            outcome.moved_out.sort();
            outcome.moved_in.sort();
            assert_eq!((outcome.moved_out, outcome.moved_in, outcome.failed), (out, into, vec![]));
            self.check_places();
        }
        let (lost_device, lost_arena) = (self.mover.lost_device_bytes(), self.mover.lost_arena_bytes());
        self.mover.forget_owner(A);
        self.mover.forget_owner(B);
        let imported: u64 = self.mover.device().imports().lock().expect("no panic").values().sum();
        assert_eq!(imported, lost_device);
        assert_eq!(self.mover.arena().free_bytes() + lost_arena, self.mover.arena().ready_bytes());
        let cellar = self.mover.arena().cellar_statistics().unwrap_or_default();
        assert_eq!((cellar.blocks, cellar.disk_bytes), (0, 0), "what was discarded is gone");
    }
}

fn plan(out: &[HandleKey], into: &[HandleKey], room_blocks: u64) -> Plan {
    let (out, into) = (out.to_vec(), into.to_vec());
    Plan { out, into, room_bytes: room_blocks * BLOCK_BYTES, deadline: LONG }
}

/// Two tenants of 4 blocks each, on a device of 5, with an arena of 9.
fn usual() -> (Setup, Plan) {
    Setup::a_in_b_away(&[2, 1, 1], &[1, 2, 1], 5, 9)
}
