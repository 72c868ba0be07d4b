//! Copies that are kept: only what changed goes out again, and never less.

use super::world::{Content, Event, Twist};
use super::{A, B, SHORT, STEPS_MAX, Setup, key, plan};
use crate::device::Device;
use crate::exchange::{MoveError, Outcome, Plan, Step};
use crate::fake_device::Operation;
use crate::mover::Whereabouts;
use crate::{AuditError, BLOCK_BYTES, CleanCopies, HandleKey, Owner};
use blocks::Sums;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

const BOTH: [CleanCopies; 2] = [CleanCopies::On, CleanCopies::Audit];

fn setup(how: CleanCopies, capacity_blocks: u64, arena_blocks: u64) -> Setup {
    let mut setup = Setup::new(capacity_blocks, arena_blocks);
    setup.mover.keep_copies(how).expect("a device that hashes");
    setup
}

impl Setup {
    /// Moves all of one tenant out.
    fn out(&mut self, keys: &[HandleKey]) -> Outcome {
        let mut outcome = self.exchange(plan(keys, &[], 0));
        // What needs no copy is out before others.
        outcome.moved_out.sort();
        assert_eq!(outcome.moved_out, keys, "{outcome:?}");
        outcome
    }

    fn back(&mut self, keys: &[HandleKey]) {
        let blocks = keys.iter().map(|&key| self.mover.bytes_of(key)).sum::<u64>() / BLOCK_BYTES;
        let outcome = self.exchange(plan(&[], keys, blocks));
        assert_eq!(outcome.moved_in, keys, "{outcome:?}");
        self.check_places();
    }

    fn write(&mut self, key: HandleKey, block: u64, content: Content) {
        self.tenants.world().write(key, block, content);
    }

    /// Blocks that were copied in one way out and back.
    fn copied_blocks(&mut self, keys: &[HandleKey]) -> u64 {
        let outcome = self.out(keys);
        self.back(keys);
        assert_eq!(outcome.audit_errors, []);
        outcome.copied_bytes / BLOCK_BYTES
    }
}

#[test]
fn what_did_not_change_is_not_copied_again() {
    let mut setup = setup(CleanCopies::On, 8, 16);
    let keys = setup.allocate(A, &[3, 1, 4]);
    let copied: Vec<u64> = (0..20).map(|_| setup.copied_blocks(&keys)).collect();
    assert_eq!(copied, [&[8][..], &[0; 19]].concat());
    assert_eq!(setup.mover.arena().look_at_kept(), 8 * BLOCK_BYTES);
    setup.check_all();
}

#[test]
fn a_block_that_changed_is_copied_and_no_other() {
    let mut setup = setup(CleanCopies::On, 8, 16);
    let keys = setup.allocate(A, &[3, 5]);
    assert_eq!(setup.copied_blocks(&keys), 8);
    for (version, (handle, block)) in [(0, 0), (0, 2), (1, 4), (1, 1)].into_iter().enumerate() {
        setup.write(key(A, handle), block, Content::Version(version as u64 + 1));
        assert_eq!(setup.copied_blocks(&keys), 1, "block {block} of handle {handle}");
    }
    // Back to what it was.
    setup.write(key(A, 0), 0, Content::Version(0));
    setup.write(key(A, 1), 2, Content::Version(9));
    assert_eq!(setup.copied_blocks(&keys), 2);
    assert_eq!(setup.copied_blocks(&keys), 0);
    setup.check_all();
}

#[test]
fn zeros_are_copied_neither_way() {
    let mut setup = setup(CleanCopies::On, 8, 16);
    let keys = setup.allocate(A, &[6]);
    for block in [0, 2, 3] {
        setup.write(keys[0], block, Content::Zero);
    }
    assert_eq!(setup.copied_blocks(&keys), 3);
    setup.write(keys[0], 5, Content::Zero);
    assert_eq!(setup.copied_blocks(&keys), 0);
    setup.write(keys[0], 2, Content::Version(3));
    assert_eq!(setup.copied_blocks(&keys), 1);
    for block in 0..6 {
        setup.write(keys[0], block, Content::Zero);
    }
    setup.mover.device_mut().fail(Operation::CopyIn, 1);
    assert_eq!(setup.copied_blocks(&keys), 0);
    assert!(!setup.mover.device().all_happened(), "zeros were copied in");
    setup.check_places();
}

#[test]
fn zeros_take_no_space() {
    // Space for two of three, and not all of the third: that goes where the zeros of the others would be.
    let mut setup = setup(CleanCopies::On, 12, 11);
    let keys = setup.allocate(A, &[4, 4, 4]);
    for (handle, block) in [(0, 0), (0, 2), (0, 3), (1, 1)] {
        setup.write(key(A, handle), block, Content::Zero);
    }
    setup.out(&keys[..2]);
    assert_eq!(setup.mover.arena().free_bytes(), 7 * BLOCK_BYTES);
    setup.out(&keys[2..]);
    assert_eq!(setup.mover.arena().free_bytes(), 3 * BLOCK_BYTES);
    setup.back(&keys);
    // Of all three only what is not zero is kept. Where a zero was is something now, and the rest is where it was.
    assert_eq!(setup.mover.arena().look_at_kept(), 8 * BLOCK_BYTES);
    setup.write(key(A, 0), 2, Content::Version(5));
    assert_eq!(setup.out(&keys[..1]).copied_bytes, BLOCK_BYTES);
    setup.back(&keys[..1]);
    setup.check_all();
}

#[test]
fn what_is_all_zero_takes_one_block() {
    // Space for one, and the block of the other.
    let mut setup = setup(CleanCopies::On, 8, 5);
    let keys = setup.allocate(A, &[4, 4]);
    for block in 0..4 {
        setup.write(keys[0], block, Content::Zero);
        setup.write(keys[1], block, Content::Zero);
    }
    for round in 0..3 {
        for &key in &keys {
            setup.out(&[key]);
        }
        assert_eq!(setup.mover.arena().free_bytes(), 3 * BLOCK_BYTES, "round {round}");
        setup.back(&keys);
    }
    setup.check_all();
}

#[test]
fn with_the_setting_off_all_is_copied_and_nothing_kept() {
    let mut setup = setup(CleanCopies::Off, 8, 16);
    for operation in Operation::OF_HASHING {
        setup.mover.device_mut().fail(operation, 1);
    }
    let keys = setup.allocate(A, &[3, 5]);
    for _ in 0..3 {
        assert_eq!(setup.copied_blocks(&keys), 8);
        assert_eq!(setup.mover.arena().look_at_kept(), 0);
    }
    let failed = Operation::OF_HASHING.len();
    assert!(!setup.mover.device().all_happened(), "{failed} operations were never called");
}

#[test]
fn what_changes_wholly_is_hashed_seldom() {
    let mut setup = setup(CleanCopies::On, 4, 8);
    let keys = setup.allocate(A, &[2]);
    let hashed = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&hashed);
    setup.mover.device_mut().forge_sums(move |sums| {
        *counted.lock().expect("no panic") += 1;
        sums
    });
    for round in 1..=67 {
        for block in 0..2 {
            setup.write(keys[0], block, Content::Version(round));
        }
        assert_eq!(setup.copied_blocks(&keys), 2, "round {round}");
    }
    // Three at first, then two in sixteen.
    assert_eq!(*hashed.lock().expect("no panic"), 3 + 2 * 4);
    // It is found out should it stop to change.
    let copied: u64 = (0..32).map(|_| setup.copied_blocks(&keys)).sum();
    assert!(copied < 40, "{copied} blocks in 32 moves of 2");
}

#[test]
fn copies_give_way_to_what_has_to_go_the_oldest_first() {
    let mut setup = setup(CleanCopies::On, 12, 6);
    let keys = setup.allocate(A, &[2, 2]);
    // The second came back first.
    setup.out(&keys);
    setup.back(&keys[1..]);
    setup.back(&keys[..1]);
    assert_eq!(setup.mover.arena().look_at_kept(), 4 * BLOCK_BYTES);
    let others = setup.allocate(B, &[3]);
    setup.out(&others);
    assert_eq!(setup.mover.arena().look_at_kept(), 2 * BLOCK_BYTES);
    let outcome = setup.out(&keys[..1]);
    assert_eq!(outcome.copied_bytes, 0, "the younger copy is there");
    setup.back(&keys[..1]);
    setup.back(&others);
    assert_eq!(setup.copied_blocks(&keys), 2, "the older copy is gone, and what is left of it was not used");
    setup.check_all();
}

#[test]
fn nothing_away_gives_way_and_what_does_not_fit_is_said() {
    let mut setup = setup(CleanCopies::On, 12, 6);
    let keys = setup.allocate(A, &[4]);
    setup.copied_blocks(&keys);
    let away = setup.allocate(B, &[2, 3]);
    setup.out(&away[..1]);
    let outcome = setup.exchange(plan(&keys, &[], 0));
    assert_eq!((outcome.moved_out.len(), outcome.copied_bytes), (1, 0), "its own copy is its place");
    let outcome = setup.exchange(plan(&away[1..], &[], 0));
    assert!(outcome.stuck.is_some(), "{outcome:?}");
    setup.check_all();
}

#[test]
fn hashes_that_fail_cost_a_copy_and_nothing_else() {
    for how in BOTH {
        for operation in [Operation::Hash, Operation::Sums] {
            let mut setup = setup(how, 8, 16);
            let keys = setup.allocate(A, &[3]);
            setup.copied_blocks(&keys);
            setup.write(keys[0], 1, Content::Version(1));
            setup.mover.device_mut().fail(operation, 1);
            assert_eq!(setup.copied_blocks(&keys), 3, "{operation:?}");
            assert!(setup.mover.device().all_happened());
            assert_eq!(setup.mover.arena().look_at_kept(), 0, "without hashes no copy is of use");
            setup.check_all();
        }
    }
}

#[test]
fn a_device_that_cannot_hash_moves_all_the_same() {
    let mut setup = Setup::new(8, 16);
    setup.mover.device_mut().fail(Operation::PrepareHashing, 1);
    assert!(setup.mover.keep_copies(CleanCopies::On).is_err());
    let keys = setup.allocate(A, &[3]);
    assert_eq!((setup.copied_blocks(&keys), setup.copied_blocks(&keys)), (3, 3));
}

#[test]
fn sums_of_too_few_blocks_are_no_hashes() {
    let mut setup = setup(CleanCopies::On, 8, 16);
    let keys = setup.allocate(A, &[3]);
    setup.copied_blocks(&keys);
    setup.mover.device_mut().forge_sums(|sums| sums[..2].to_vec());
    assert_eq!(setup.copied_blocks(&keys), 3);
}

#[test]
fn a_block_that_no_kernel_reached_is_copied_with_all_the_others() {
    let mut setup = setup(CleanCopies::On, 8, 16);
    let keys = setup.allocate(A, &[3]);
    setup.copied_blocks(&keys);
    setup.mover.device_mut().forge_sums(|mut sums| {
        sums[1] = Sums::default();
        sums
    });
    assert_eq!(setup.copied_blocks(&keys), 3);
}

/// The device says of a handle what it said the first time.
fn say_what_was_said_first(setup: &mut Setup) {
    let mut first: Option<Vec<Sums>> = None;
    setup.mover.device_mut().forge_sums(move |sums| first.get_or_insert(sums).clone());
}

#[test]
fn an_audit_finds_hashes_that_do_not_say_the_truth() {
    let mut setup = setup(CleanCopies::Audit, 8, 16);
    let keys = setup.allocate(A, &[4]);
    say_what_was_said_first(&mut setup);
    assert_eq!(setup.copied_blocks(&keys), 4);
    assert_eq!(setup.copied_blocks(&keys), 4, "an audit copies all");
    for block in [1, 3] {
        setup.write(keys[0], block, Content::Version(1));
    }
    let outcome = setup.out(&keys);
    assert_eq!(outcome.audit_errors, [AuditError { key: keys[0], blocks: 2, first: 1 }]);
    assert_eq!(outcome.compared_bytes, 4 * BLOCK_BYTES, "all that was called the same");
    // The bytes win.
    setup.back(&keys);
    assert_eq!(setup.copied_blocks(&keys), 4);
    setup.check_all();
}

#[test]
fn an_audit_finds_zeros_that_are_none() {
    let mut setup = setup(CleanCopies::Audit, 8, 16);
    let keys = setup.allocate(A, &[2]);
    setup.mover.device_mut().forge_sums(|mut sums| {
        sums[1].any = 0;
        sums
    });
    let outcome = setup.out(&keys);
    assert_eq!(outcome.audit_errors, [AuditError { key: keys[0], blocks: 1, first: 1 }]);
    setup.back(&keys);
}

/// What would be lost without an audit, so that the tests above show something.
#[test]
fn without_an_audit_the_hashes_are_believed() {
    let mut setup = setup(CleanCopies::On, 8, 16);
    let keys = setup.allocate(A, &[4]);
    say_what_was_said_first(&mut setup);
    setup.copied_blocks(&keys);
    setup.write(keys[0], 1, Content::Version(1));
    setup.out(&keys);
    setup.exchange(plan(&[], &keys, 8));
    assert_ne!(setup.tenants.world().wrong_words(keys[0]), Some(0));
}

#[test]
fn an_audit_needs_no_space_of_its_own() {
    let mut setup = setup(CleanCopies::Audit, 8, 3);
    let keys = setup.allocate(A, &[3]);
    for round in 1..4 {
        setup.write(keys[0], 1, Content::Version(round));
        let outcome = setup.out(&keys);
        assert_eq!(outcome.copied_bytes, 3 * BLOCK_BYTES);
        // The first time there is nothing to compare with.
        assert_eq!(outcome.compared_bytes, if round == 1 { 0 } else { 2 * BLOCK_BYTES });
        setup.back(&keys);
    }
    say_what_was_said_first(&mut setup);
    setup.copied_blocks(&keys);
    setup.write(keys[0], 2, Content::Version(9));
    assert_eq!(setup.out(&keys).audit_errors, [AuditError { key: keys[0], blocks: 1, first: 2 }]);
    setup.back(&keys);
    setup.check_all();
}

/// Two tenants of 4 blocks each, on a device of 5: B is away, A is there with copies, and some of it has changed.
fn usual(how: CleanCopies) -> (Setup, Plan) {
    let mut setup = setup(how, 5, 13);
    let into = setup.allocate(B, &[1, 2, 1]);
    setup.write(into[1], 1, Content::Zero);
    setup.out(&into);
    let out = setup.allocate(A, &[2, 1, 1]);
    setup.copied_blocks(&out);
    setup.write(out[0], 1, Content::Version(1));
    setup.write(out[2], 0, Content::Zero);
    setup.tenants.world().requests = 0;
    (setup, plan(&out, &into, 1))
}

#[test]
fn either_side_dies_or_frees_at_every_moment() {
    let events = [Event::Dies(A), Event::Dies(B), Event::Frees(key(A, 0)), Event::Frees(key(B, 1))];
    for how in BOTH {
        for &event in if how == CleanCopies::On { &events[..] } else { &events[..1] } {
            for step in 1..STEPS_MAX {
                let (mut setup, plan) = usual(how);
                let tenants = setup.tenants.clone();
                setup.mover.device_mut().polls_per_copy = 2;
                setup.mover.device_mut().at_poll(step, move || tenants.world().happen(event));
                let outcome = setup.exchange(plan.clone());
                let is_over = !setup.mover.device().all_happened();
                setup.check_told(&plan, &outcome);
                assert_eq!(outcome.audit_errors, []);
                if is_over {
                    assert!(step > 10, "all moments were tried");
                    break;
                }
                setup.take_late();
                setup.check_all();
            }
        }
    }
}

#[test]
fn tenants_fail_at_every_request() {
    for how in BOTH {
        for step in 1..=6 {
            let (mut setup, plan) = usual(how);
            setup.tenants.world().twist = Some((step, Twist::Fails));
            let outcome = setup.exchange(plan.clone());
            setup.check_told(&plan, &outcome);
            let tenant_failed =
                |(_, error): &&(_, MoveError)| matches!(error, MoveError::TenantFailed { .. });
            assert_eq!(outcome.failed.iter().filter(tenant_failed).count(), 1, "{outcome:?}");
            setup.check_all();
        }
    }
}

#[test]
fn what_could_not_be_unmapped_keeps_its_new_copy() {
    let mut setup = setup(CleanCopies::On, 8, 16);
    let keys = setup.allocate(A, &[2]);
    setup.copied_blocks(&keys);
    setup.write(keys[0], 1, Content::Version(1));
    let next = setup.tenants.world().requests + 1;
    setup.tenants.world().twist = Some((next, Twist::Fails));
    assert_eq!(setup.exchange(plan(&keys, &[], 0)).failed.len(), 1);
    setup.check_places();
    assert_eq!(setup.out(&keys).copied_bytes, 0);
    setup.back(&keys);
}

#[test]
fn every_call_of_the_device_fails_once() {
    let operations = [Operation::CopyOut, Operation::CopyIn, Operation::Mark, Operation::Passed];
    for how in BOTH {
        for operation in operations.into_iter().chain(Operation::OF_HASHING) {
            for nth in 1..STEPS_MAX {
                let (mut setup, plan) = usual(how);
                setup.mover.device_mut().fail(operation, nth);
                let outcome = setup.exchange(plan.clone());
                setup.check_told(&plan, &outcome);
                if !setup.mover.device().all_happened() {
                    assert!(nth > 1, "{operation:?} was tried");
                    assert_eq!(outcome.failed, []);
                    break;
                }
                setup.check_all();
            }
        }
    }
}

#[test]
fn hashing_that_hangs_is_given_up_and_may_end_late() {
    for how in BOTH {
        let (mut setup, mut plan) = usual(how);
        plan.deadline = SHORT;
        setup.drive_clock();
        setup.mover.device_mut().polls_per_copy = u32::MAX;
        let outcome = setup.exchange(plan.clone());
        setup.check_told(&plan, &outcome);
        let hangs =
            |(_, error): &(_, MoveError)| matches!(error, MoveError::Deadline { step: Step::Hash, .. });
        assert!(outcome.failed.iter().any(hangs), "{outcome:?}");
        assert_eq!(setup.mover.handle(key(A, 0)).map(|view| view.whereabouts), Some(Whereabouts::Leaving));
        setup.mover.device_mut().polls_per_copy = 1;
        setup.mover.device_mut().drain().expect("it works again");
        setup.exchange(self::plan(&[], &[], 0));
        assert_eq!(setup.mover.handle(key(A, 0)).map(|view| view.whereabouts), Some(Whereabouts::Device));
        // Those copies are gone with their space; one block is zero.
        let copied = setup.out(&plan.out).copied_bytes / BLOCK_BYTES;
        assert_eq!(copied, if how == CleanCopies::On { 3 } else { 4 });
        setup.check_all();
    }
}

#[test]
fn a_tenant_that_is_gone_during_hashing_that_hangs_is_dropped_afterwards() {
    let (mut setup, mut plan) = usual(CleanCopies::On);
    plan.deadline = SHORT;
    setup.drive_clock();
    setup.mover.device_mut().polls_per_copy = u32::MAX;
    setup.exchange(plan);
    assert!(setup.mover.forget_owner(A).dying_bytes > 0);
    setup.tenants.world().happen(Event::Dies(A));
    setup.mover.device_mut().polls_per_copy = 1;
    setup.mover.device_mut().drain().expect("it works again");
    setup.exchange(self::plan(&[], &[], 0));
    setup.check_all();
}

/// What happens in a random history, to one of the tenants and one of its handles.
#[derive(Clone, Debug)]
enum Happening {
    Write(u64, u64, Option<u64>),
    Switch,
    Fails(Operation, u64),
    TenantFails(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let mut operations = vec![Operation::CopyOut, Operation::CopyIn, Operation::Mark, Operation::Passed];
    operations.extend(Operation::OF_HASHING);
    prop_oneof![
        4 => (0u64..4, 0u64..4, prop::option::weighted(0.7, 0u64..3))
            .prop_map(|(handle, block, version)| Happening::Write(handle, block, version)),
        4 => Just(Happening::Switch),
        1 => (prop::sample::select(operations), 1u64..8)
            .prop_map(|(operation, nth)| Happening::Fails(operation, nth)),
        1 => (1u64..6).prop_map(Happening::TenantFails),
    ]
}

fn there(setup: &Setup, owner: Owner, whereabouts: Whereabouts) -> Vec<HandleKey> {
    let handles = setup.mover.handles(owner).into_iter();
    handles.filter(|view| view.whereabouts == whereabouts).map(|view| view.key).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_lose_nothing(
        a in prop::collection::vec(1u64..4, 1..4),
        b in prop::collection::vec(1u64..4, 1..4),
        spare_capacity in 0u64..3,
        spare_arena in 0u64..8,
        audit in any::<bool>(),
        polls_per_copy in 1u32..3,
        history in prop::collection::vec(happening(), 1..24),
    ) {
        let (a_blocks, b_blocks) = (a.iter().sum::<u64>(), b.iter().sum::<u64>());
        let capacity = a_blocks.max(b_blocks) + spare_capacity;
        let how = if audit { CleanCopies::Audit } else { CleanCopies::On };
        let mut setup = setup(how, capacity, a_blocks.max(b_blocks) + 3 + spare_arena);
        let away = setup.allocate(B, &b);
        setup.out(&away);
        setup.allocate(A, &a);
        setup.mover.device_mut().polls_per_copy = polls_per_copy;
        let (mut runs, mut waits) = (A, B);
        for happening in history {
            match happening {
                Happening::Write(handle, block, version) => {
                    let keys = there(&setup, runs, Whereabouts::Device);
                    let Some(&key) = keys.get(handle as usize % keys.len().max(1)) else { continue };
                    let blocks = setup.mover.bytes_of(key) / BLOCK_BYTES;
                    setup.write(key, block % blocks, version.map_or(Content::Zero, Content::Version));
                }
                Happening::Fails(operation, nth) => setup.mover.device_mut().fail(operation, nth),
                Happening::TenantFails(nth) => {
                    let mut world = setup.tenants.world();
                    let at = world.requests + nth;
                    world.twist = Some((at, Twist::Fails));
                }
                Happening::Switch => {
                    let out = there(&setup, runs, Whereabouts::Device);
                    let into = there(&setup, waits, Whereabouts::Arena);
                    let free = setup.mover.device_mut().capacity().expect("it works").free_bytes;
                    let wanted = plan(&out, &into, free / BLOCK_BYTES);
                    let outcome = setup.exchange(wanted.clone());
                    setup.take_late();
                    setup.check_told(&wanted, &outcome);
                    prop_assert!(outcome.copied_bytes <= outcome.bytes_out);
                    prop_assert_eq!(&outcome.audit_errors, &[]);
                    if outcome.failed.iter().any(|(_, error)| matches!(error, MoveError::NotBackedOut { .. })) {
                        return Ok(());
                    }
                    setup.check_places();
                    (runs, waits) = (waits, runs);
                }
            }
        }
        setup.check_rules();
    }
}
