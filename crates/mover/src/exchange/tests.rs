//! Exchanges with a fake device and fake tenants: bytes survive, room is never exceeded, and whatever goes wrong at
//! whatever step, every handle is accounted for.

mod cellar;
mod clean;
mod gently;
mod killed;
mod must_end;
mod order;
mod reserving;
mod shared_arena;
mod world;

use super::{MoveError, Outcome, Plan, Reply, Step, Stuck, Tenants};
use crate::device::{Device, DeviceError, Registrar};
use crate::fake_device::{FakeDevice, Operation};
use crate::mover::Whereabouts;
use crate::test_keeper::{TestKeeper, process};
use crate::{BLOCK_BYTES, HandleKey, Mover, Owner};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use world::{Event, FakeTenants, Twist};

const A: Owner = Owner(1);
const B: Owner = Owner(2);
/// Small segments, so that most handles are scattered.
const SEGMENT: u64 = 2 * BLOCK_BYTES;
/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(20);
/// For what never comes. Other steps of the same exchange must come within it on a busy machine, too.
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
    disk: Option<cellar::TestDisk>,
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
        for owner in [A, B] {
            let living = world.living().iter().filter(|(key, _)| key.owner == owner).count();
            assert_eq!(self.mover.handles(owner).len(), living, "{owner} has handles that are not its own");
        }
        drop(world);
        let device_bytes = self.mover.resident_bytes(A) + self.mover.resident_bytes(B);
        let imported: u64 = self.mover.device().imports().lock().expect("no panic").values().sum();
        assert_eq!(imported, device_bytes + self.mover.lost_device_bytes());
        let away = self.mover.away_bytes(A) + self.mover.away_bytes(B);
        let lost = self.mover.lost_arena_bytes();
        let cellar = self.mover.arena().cellar_statistics().map_or(0, |cellar| cellar.plain_bytes);
        assert_eq!(self.mover.arena().free_bytes() + away + lost, self.mover.arena().ready_bytes() + cellar);
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

#[test]
fn all_goes_out_and_all_comes_in() {
    let (mut setup, plan) = usual();
    setup.mover.device_mut().polls_per_copy = 3;
    let outcome = setup.exchange(plan.clone());
    assert_eq!(outcome.moved_out, plan.out);
    assert_eq!(outcome.moved_in, plan.into);
    assert_eq!(outcome.failed, []);
    assert_eq!(outcome.stuck, None);
    assert_eq!((outcome.bytes_out, outcome.bytes_in), (4 * BLOCK_BYTES, 4 * BLOCK_BYTES));
    assert!(outcome.out.end > outcome.out.start && outcome.into.end > outcome.into.start);
    assert!(outcome.into.start < outcome.out.end, "both ways at once");
    assert_eq!(setup.mover.away_bytes(A), 4 * BLOCK_BYTES);
    assert_eq!(setup.mover.resident_bytes(B), 4 * BLOCK_BYTES);
    assert!(setup.tenants.world().most_used > 4 * BLOCK_BYTES, "the room is used");
    setup.check_told(&plan, &outcome);
    setup.check_all();
}

#[test]
fn a_scattered_arena_is_no_obstacle() {
    let (mut setup, plan) = usual();
    let other = Owner(9);
    let arena = setup.mover.arena();
    arena.introduce(other, process(other)).expect("a new tenant");
    for handle in 0..5 {
        assert!(arena.take(key(other, handle), BLOCK_BYTES).expect("the keeper answers").is_some());
    }
    for handle in [0, 2, 4] {
        arena.free(key(other, handle));
    }
    let outcome = setup.exchange(plan.clone());
    assert_eq!((outcome.moved_out.len(), outcome.moved_in.len()), (3, 3), "{outcome:?}");
    setup.mover.forget_owner(other);
    setup.check_all();
}

#[test]
fn a_small_arena_makes_the_ways_alternate() {
    // 11 blocks of arena, 10 of them taken by B: A leaves piece by piece, as B's pieces come in.
    let (mut setup, plan) = Setup::a_in_b_away(&[1; 10], &[1; 10], 11, 11);
    let outcome = setup.exchange(plan.clone());
    assert_eq!((outcome.moved_out, outcome.moved_in), (plan.out, plan.into));
    setup.check_places();
}

#[test]
fn a_full_arena_without_room_is_said() {
    let (mut setup, plan) = Setup::a_in_b_away(&[3, 2], &[3, 2], 5, 6);
    let outcome = setup.exchange(plan.clone());
    assert_eq!(
        outcome.stuck,
        Some(Stuck::NoArenaSpace {
            need_bytes: 3 * BLOCK_BYTES,
            free_bytes: BLOCK_BYTES,
            ready_bytes: 6 * BLOCK_BYTES
        })
    );
    assert!(outcome.failed.iter().all(|(_, error)| *error == MoveError::NotStarted));
    setup.check_told(&plan, &outcome);
    setup.check_places();
}

#[test]
fn no_room_is_said() {
    let (mut setup, mut plan) = Setup::a_in_b_away(&[2], &[1, 5], 6, 16);
    plan.room_bytes = 2 * BLOCK_BYTES;
    let outcome = setup.exchange(plan.clone());
    assert_eq!(outcome.moved_in, [key(B, 0)]);
    assert_eq!(
        outcome.stuck,
        Some(Stuck::NoRoom { need_bytes: 5 * BLOCK_BYTES, room_bytes: 3 * BLOCK_BYTES })
    );
    setup.check_told(&plan, &outcome);
    setup.check_places();
}

#[test]
fn out_of_order_is_better_than_stuck() {
    // The first of A fits only after the second has left and the first of B has come.
    let (mut setup, plan) = Setup::a_in_b_away(&[3, 1], &[2, 2], 5, 6);
    let outcome = setup.exchange(plan.clone());
    assert_eq!(outcome.stuck, None);
    assert_eq!((outcome.moved_out.len(), outcome.moved_in.len()), (2, 2));
    setup.check_places();
}

#[test]
fn a_plan_that_cannot_be_is_refused_by_handle() {
    let (mut setup, _) = usual();
    let unknown = key(A, 99);
    let outcome = setup.exchange(plan(&[key(B, 0), unknown], &[key(A, 0), unknown], 2));
    assert_eq!(
        outcome.failed,
        [(key(B, 0), MoveError::NotResident), (unknown, MoveError::Unknown), (key(A, 0), MoveError::NotAway)]
    );
    setup.check_all();
}

#[test]
fn more_handles_than_one_request_holds() {
    let (mut setup, plan) = Setup::a_in_b_away(&[1; 70], &[1; 70], 140, 150);
    let outcome = setup.exchange(plan.clone());
    assert_eq!((outcome.moved_out, outcome.moved_in), (plan.out, plan.into));
    setup.check_places();
}

#[test]
fn either_side_dies_or_frees_at_every_request() {
    let events = [
        Event::Dies(A),
        Event::Dies(B),
        Event::Frees(key(A, 2)),
        Event::Frees(key(B, 1)),
        Event::Frees(key(B, 2)),
    ];
    for event in events {
        for twist in [Twist::Before(event), Twist::After(event)] {
            for step in 1..STEPS_MAX {
                let (mut setup, plan) = usual();
                setup.tenants.world().twist = Some((step, twist));
                let outcome = setup.exchange(plan.clone());
                let is_over = setup.tenants.world().twist.take().is_some();
                // What was said after the end is for the time between exchanges.
                setup.take_late();
                setup.check_told(&plan, &outcome);
                setup.check_all();
                if is_over {
                    assert!(step > 6, "all requests were tried");
                    break;
                }
            }
        }
    }
}

#[test]
fn either_side_dies_or_frees_at_every_moment() {
    let mut events = vec![Event::Dies(A), Event::Dies(B)];
    events.extend((0..3).flat_map(|handle| [Event::Frees(key(A, handle)), Event::Frees(key(B, handle))]));
    for event in events {
        for step in 1..STEPS_MAX {
            let (mut setup, plan) = usual();
            let tenants = setup.tenants.clone();
            setup.mover.device_mut().polls_per_copy = 2;
            setup.mover.device_mut().at_poll(step, move || tenants.world().happen(event));
            let outcome = setup.exchange(plan.clone());
            let is_over = !setup.mover.device().all_happened();
            setup.check_told(&plan, &outcome);
            if is_over {
                assert!(step > 6, "all moments were tried");
                break;
            }
            setup.take_late();
            setup.check_all();
        }
    }
}

#[test]
fn a_dead_tenant_does_not_keep_the_other_from_moving() {
    let (mut setup, plan) = usual();
    setup.tenants.world().twist = Some((1, Twist::Before(Event::Dies(B))));
    let outcome = setup.exchange(plan.clone());
    assert_eq!(outcome.gone, [B]);
    assert_eq!(outcome.moved_out, plan.out);
    setup.check_all();
}

#[test]
fn tenants_fail_at_every_request() {
    for step in 1..STEPS_MAX {
        let (mut setup, plan) = usual();
        setup.tenants.world().twist = Some((step, Twist::Fails));
        let outcome = setup.exchange(plan.clone());
        setup.check_told(&plan, &outcome);
        if setup.tenants.world().twist.is_some() {
            assert_eq!(step, 7, "3 unmaps and 3 creates were tried");
            break;
        }
        let tenant_failed =
            |(_, error): &&(HandleKey, MoveError)| matches!(error, MoveError::TenantFailed { .. });
        assert_eq!(outcome.failed.iter().filter(tenant_failed).count(), 1, "{outcome:?}");
        setup.check_all();
    }
}

#[test]
fn every_call_of_the_device_fails_once() {
    for operation in Operation::ALL.into_iter().filter(|operation| *operation != Operation::Register) {
        for nth in 1..STEPS_MAX {
            let (mut setup, plan) = usual();
            setup.mover.device_mut().fail(operation, nth);
            let outcome = setup.exchange(plan.clone());
            setup.check_told(&plan, &outcome);
            if !setup.mover.device().all_happened() {
                assert!(nth > 3, "all calls were tried");
                assert_eq!(outcome.failed, []);
                break;
            }
            if operation == Operation::Release {
                assert!(setup.mover.lost_device_bytes() > 0);
                setup.check_places();
            } else {
                setup.check_all();
            }
        }
    }
}

/// Room for one handle of B at a time: the second comes in only if the first gives its room back.
fn one_by_one() -> (Setup, Plan) {
    let (mut setup, mut plan) = Setup::a_in_b_away(&[1], &[3, 3], 7, 8);
    plan.out.clear();
    plan.room_bytes = 3 * BLOCK_BYTES;
    setup.mover.device_mut().polls_per_copy = 2;
    (setup, plan)
}

#[test]
fn room_of_a_handle_that_was_not_created_is_used_by_the_next() {
    let (mut setup, plan) = one_by_one();
    setup.tenants.world().twist = Some((1, Twist::Fails));
    assert_eq!(setup.exchange(plan).moved_in, [key(B, 1)]);
    setup.check_places();
}

#[test]
fn room_of_a_handle_that_was_not_filled_is_used_by_the_next() {
    for operation in [Operation::Import, Operation::CopyIn, Operation::Mark, Operation::Passed] {
        let (mut setup, plan) = one_by_one();
        setup.mover.device_mut().fail(operation, 1);
        assert_eq!(setup.exchange(plan).moved_in, [key(B, 1)], "{operation:?}");
        setup.check_places();
    }
}

#[test]
fn room_of_a_handle_that_was_freed_is_used_by_the_next() {
    let (mut setup, plan) = one_by_one();
    let tenants = setup.tenants.clone();
    setup.mover.device_mut().at_poll(1, move || tenants.world().happen(Event::Frees(key(B, 0))));
    let outcome = setup.exchange(plan);
    assert_eq!((outcome.freed, outcome.moved_in), (vec![key(B, 0)], vec![key(B, 1)]));
    setup.check_places();
}

#[test]
fn room_of_a_handle_that_was_freed_on_its_way_out_is_used() {
    let (mut setup, plan) = Setup::a_in_b_away(&[3], &[3], 3, 8);
    setup.mover.device_mut().polls_per_copy = 2;
    let tenants = setup.tenants.clone();
    setup.mover.device_mut().at_poll(1, move || tenants.world().happen(Event::Frees(key(A, 0))));
    let outcome = setup.exchange(plan);
    assert_eq!((outcome.freed, outcome.moved_in), (vec![key(A, 0)], vec![key(B, 0)]));
    setup.check_places();
}

#[test]
fn room_of_a_handle_that_was_freed_after_the_plan_was_made_is_used_once() {
    let (mut setup, plan) = Setup::a_in_b_away(&[1, 2], &[3], 3, 8);
    setup.tenants.world().happen(Event::Frees(key(A, 1)));
    setup.mover.forget(key(A, 1)).expect("it is on the device");
    let again = Plan { out: vec![key(A, 1)], into: Vec::new(), room_bytes: 0, deadline: SHORT };
    let outcome = setup.exchange(plan);
    assert_eq!((outcome.freed, outcome.moved_in), (vec![key(A, 1)], vec![key(B, 0)]));
    assert_eq!((outcome.moved_out, outcome.failed), (vec![key(A, 0)], Vec::new()));
    assert_eq!(setup.exchange(again).failed, [(key(A, 1), MoveError::Unknown)]);
    setup.check_places();
}

#[test]
fn room_of_a_handle_that_was_freed_between_two_exchanges_is_used() {
    for heard_in_exchange in [false, true] {
        let (mut setup, plan) = Setup::a_in_b_away(&[1, 2], &[3], 3, 8);
        setup.tenants.world().happen(Event::Frees(key(A, 1)));
        if heard_in_exchange {
            setup.exchange(Plan { deadline: SHORT, ..Plan::default() });
        } else {
            let reply = setup.replies.try_recv().expect("it was told");
            setup.mover.late(reply, &mut setup.tenants);
        }
        assert_eq!(setup.exchange(plan).moved_in, [key(B, 0)], "{heard_in_exchange}");
        setup.check_places();
    }
}

#[test]
fn what_was_started_of_a_failed_copy_has_ended() {
    let mut setup = Setup::new(4, 4);
    let keys = setup.allocate(A, &[3]);
    setup.mover.device_mut().fail(Operation::CopyOut, 2);
    let outcome = setup.exchange(plan(&keys, &[], 0));
    assert!(matches!(outcome.failed[..], [(_, MoveError::CopyOut(_))]));
    setup.check_places();
    setup.mover.forget(keys[0]).expect("it is on the device");
    setup.check_rules();
}

/// Takes its time.
struct SlowRegistrar(Box<dyn Registrar>);

impl Registrar for SlowRegistrar {
    unsafe fn register(&mut self, start: *mut u8, bytes: u64) -> Result<(), DeviceError> {
        std::thread::sleep(Duration::from_millis(5));
        // SAFETY: the caller answers for it.
        unsafe { self.0.register(start, bytes) }
    }

    unsafe fn unregister(&mut self, start: *mut u8) -> Result<(), DeviceError> {
        // SAFETY: the caller answers for it.
        unsafe { self.0.unregister(start) }
    }
}

#[test]
fn an_arena_that_still_grows_is_waited_for() {
    let mut setup = Setup::with_registrar(8, 8, |registrar| Box::new(SlowRegistrar(registrar)));
    let out = setup.allocate(A, &[4, 4]);
    let outcome = setup.exchange(plan(&out, &[], 0));
    assert_eq!((outcome.moved_out, outcome.stuck), (out, None));
    setup.check_places();
}

#[test]
fn a_broken_device_loses_no_handle() {
    let (mut setup, plan) = usual();
    setup.mover.device_mut().break_down();
    let outcome = setup.exchange(plan.clone());
    setup.check_told(&plan, &outcome);
    assert_eq!((outcome.moved_out, outcome.moved_in), (vec![], vec![]));
    // What was away is in the arena, what was there has its bytes.
    assert_eq!(setup.mover.away_bytes(B), 4 * BLOCK_BYTES);
    assert_eq!(setup.mover.handles(A).len(), 3);
    assert!(setup.mover.handles(A).iter().all(|view| view.whereabouts == Whereabouts::Device));
    assert_eq!(setup.tenants.world().wrong_words(key(A, 0)), Some(0));
}

#[test]
fn a_silent_tenant_is_given_up_and_may_answer_late() {
    for step in 1..=6 {
        let (mut setup, mut plan) = usual();
        plan.deadline = SHORT;
        setup.tenants.world().twist = Some((step, Twist::Silent));
        let outcome = setup.exchange(plan.clone());
        setup.check_told(&plan, &outcome);
        let late: Vec<_> = outcome
            .failed
            .iter()
            .filter_map(|(key, error)| match error {
                MoveError::Deadline { step, .. } => Some((*key, *step)),
                _ => None,
            })
            .collect();
        let [(key, waited_for)] = late[..] else { panic!("one handle was waited for: {outcome:?}") };
        assert!(matches!(waited_for, Step::Unmap | Step::Create));
        let view = setup.mover.handle(key).expect("it is there");
        assert!(matches!(view.whereabouts, Whereabouts::Leaving | Whereabouts::Returning));
        let error = match waited_for {
            Step::Unmap => setup.exchange(self::plan(&[key], &[], 0)).failed,
            _ => setup.exchange(self::plan(&[], &[key], 0)).failed,
        };
        assert_eq!(error, [(key, MoveError::Unsettled)]);

        let replies = std::mem::take(&mut setup.tenants.world().held_back);
        for reply in replies {
            setup.mover.late(reply, &mut setup.tenants);
        }
        setup.take_late();
        assert_eq!(setup.mover.handle(key).map(|view| view.whereabouts), Some(Whereabouts::Arena));
        setup.check_all();
    }
}

#[test]
fn a_copy_that_hangs_is_given_up_and_may_end_late() {
    let (mut setup, mut plan) = usual();
    plan.deadline = SHORT;
    setup.mover.device_mut().polls_per_copy = u32::MAX;
    let outcome = setup.exchange(plan.clone());
    setup.check_told(&plan, &outcome);
    assert!(
        outcome
            .failed
            .iter()
            .any(|(_, error)| matches!(error, MoveError::Deadline { step: Step::CopyOut, .. }))
    );
    setup.mover.device_mut().polls_per_copy = 1;
    setup.mover.device_mut().drain().expect("it works again");
    setup.exchange(self::plan(&[], &[], 0));
    setup.check_all();
}

#[test]
fn a_tenant_that_is_gone_during_a_copy_that_hangs_is_dropped_afterwards() {
    let (mut setup, mut plan) = usual();
    plan.deadline = SHORT;
    setup.mover.device_mut().polls_per_copy = u32::MAX;
    setup.exchange(plan);
    assert!(setup.mover.forget_owner(A).dying_bytes > 0);
    setup.tenants.world().happen(Event::Dies(A));
    setup.mover.device_mut().polls_per_copy = 1;
    setup.exchange(self::plan(&[], &[], 0));
    setup.mover.device_mut().drain().expect("it works again");
    setup.exchange(self::plan(&[], &[], 0));
    setup.check_all();
}

/// Tenants that answer from another thread, later.
struct Remote(Sender<(Owner, Vec<u64>, bool)>);

impl Tenants for Remote {
    fn unmap(&mut self, owner: Owner, handles: &[u64]) -> Result<(), super::Gone> {
        self.0.send((owner, handles.to_vec(), false)).map_err(|_| super::Gone)
    }

    fn create(&mut self, owner: Owner, handles: &[u64]) -> Result<(), super::Gone> {
        self.0.send((owner, handles.to_vec(), true)).map_err(|_| super::Gone)
    }
}

#[test]
fn answers_come_from_another_thread() {
    let (mut setup, plan) = Setup::a_in_b_away(&[1; 20], &[2; 10], 24, 30);
    let (sender, requests) = channel::<(Owner, Vec<u64>, bool)>();
    let mut agents = setup.tenants.clone();
    let thread = std::thread::spawn(move || {
        for (owner, handles, is_create) in requests {
            std::thread::sleep(Duration::from_micros(300));
            let result =
                if is_create { agents.create(owner, &handles) } else { agents.unmap(owner, &handles) };
            result.expect("nobody dies here");
        }
    });
    let mut remote = Remote(sender);
    let outcome = setup.mover.exchange(plan.clone(), &mut remote, &setup.replies);
    drop(remote);
    thread.join().expect("no tenant failed");
    assert_eq!((outcome.moved_out, outcome.moved_in), (plan.out, plan.into));
    setup.check_places();
}

#[test]
fn with_nobody_to_answer_it_ends() {
    let (mut setup, mut plan) = usual();
    plan.deadline = SHORT;
    let (sender, replies) = channel();
    drop(sender);
    let outcome = setup.mover.exchange(plan.clone(), &mut setup.tenants, &replies);
    setup.check_told(&plan, &outcome);
    assert_eq!(outcome.moved_in, []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_plans_lose_nothing(
        a in prop::collection::vec(1u64..5, 1..6),
        b in prop::collection::vec(1u64..5, 1..6),
        spare_capacity in 0u64..4,
        spare_arena in 0u64..8,
        polls_per_copy in 1u32..4,
        fault in prop::option::of((prop::sample::select(Operation::ALL[..6].to_vec()), 1u64..12)),
        twist in prop::option::of((1u64..12, 0u8..4, 0u64..6, any::<bool>())),
    ) {
        let (a_blocks, b_blocks) = (a.iter().sum::<u64>(), b.iter().sum::<u64>());
        let capacity = a_blocks.max(b_blocks) + spare_capacity;
        let (mut setup, plan) = Setup::a_in_b_away(&a, &b, capacity, b_blocks + spare_arena);
        setup.mover.device_mut().polls_per_copy = polls_per_copy;
        if let Some((operation, nth)) = fault {
            setup.mover.device_mut().fail(operation, nth);
        }
        if let Some((step, kind, handle, of_a)) = twist {
            let owner = if of_a { A } else { B };
            let twist = match kind {
                0 => Twist::Before(Event::Dies(owner)),
                1 => Twist::After(Event::Frees(key(owner, handle))),
                2 => Twist::Fails,
                _ => Twist::Before(Event::Frees(key(owner, handle))),
            };
            setup.tenants.world().twist = Some((step, twist));
        }
        let outcome = setup.exchange(plan.clone());
        setup.take_late();
        setup.check_told(&plan, &outcome);
        let backed_out = !outcome.failed.iter().any(|(_, error)| matches!(error, MoveError::NotBackedOut { .. }));
        if backed_out {
            setup.check_places();
        }
        if fault.is_none() && twist.is_none() && outcome.stuck.is_none() {
            prop_assert_eq!(outcome.moved_out.len() + outcome.moved_in.len(), a.len() + b.len());
        }
    }
}
