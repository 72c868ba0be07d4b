//! Memory that goes from one tenant to the next.

use super::world::{Event, Twist};
use super::{A, B, LONG, MoveError, SHORT, Setup, Step, key, plan, usual};
use crate::exchange::Plan;
use crate::fake_device::Operation;
use crate::mover::Whereabouts;
use crate::{BLOCK_BYTES, CleanCopies, Domain, HandleKey, Owner};

impl Setup {
    /// From now on A and B may have each other's memory, whatever its size.
    pub(super) fn trust_each_other(&mut self) {
        self.mover.pass_from(BLOCK_BYTES);
        for owner in [A, B] {
            self.mover.set_domain(owner, Some(Domain([7; 5])));
        }
        for owner in [A, B] {
            (0..8).for_each(|handle| self.mover.may_pass(key(owner, handle)));
        }
    }

    /// The same two as in [`Setup::a_in_b_away`], who trust each other.
    pub(super) fn friends(a: &[u64], b: &[u64], capacity_blocks: u64, arena_blocks: u64) -> (Setup, Plan) {
        let mut setup = Setup::new(capacity_blocks, arena_blocks);
        setup.trust_each_other();
        let into = setup.allocate(B, b);
        assert_eq!(setup.exchange(plan(&into, &[], 0)).moved_out, into);
        let out = setup.allocate(A, a);
        setup.tenants.world().requests = 0;
        let room_blocks = capacity_blocks - a.iter().sum::<u64>();
        (setup, plan(&out, &into, room_blocks))
    }

    fn files(&self) -> Vec<u64> {
        let imports = self.mover.device().imports();
        let imports = imports.lock().expect("no panic");
        imports.keys().copied().collect()
    }
}

#[test]
fn what_one_unmaps_is_filled_for_the_other() {
    let (mut setup, there) = Setup::friends(&[2, 2], &[2, 2], 4, 10);
    setup.mover.device_mut().polls_per_copy = 3;
    let memory = setup.files();
    let outcome = setup.exchange(there.clone());
    assert_eq!((&outcome.moved_out, &outcome.moved_in), (&there.out, &there.into));
    assert_eq!((outcome.failed, outcome.passed_bytes), (vec![], 4 * BLOCK_BYTES));
    assert_eq!(setup.files(), memory, "it is the same");
    assert_eq!(setup.tenants.world().requests, 4, "two unmaps, two takes");
    setup.check_places();
    let back = plan(&there.into, &there.out, 0);
    assert_eq!(setup.exchange(back).passed_bytes, 4 * BLOCK_BYTES, "what was taken is passed as well");
    assert_eq!(setup.files(), memory);
    setup.check_all();
}

#[test]
fn only_memory_of_the_same_size_is_passed() {
    let (mut setup, plan) = Setup::friends(&[3, 2, 2], &[2, 1, 4], 7, 16);
    let outcome = setup.exchange(plan.clone());
    assert_eq!((outcome.passed_bytes, outcome.failed.len()), (2 * BLOCK_BYTES, 0));
    setup.check_told(&plan, &outcome);
    setup.check_all();
}

#[test]
fn nobody_gets_memory_of_somebody_it_does_not_trust() {
    for forbid in [
        |setup: &mut Setup| setup.mover.set_domain(B, Some(Domain([7, 7, 7, 7, 8]))),
        |setup: &mut Setup| setup.mover.set_domain(A, None),
        |setup: &mut Setup| (0..2).for_each(|handle| setup.mover.never_pass(key(A, handle))),
        |setup: &mut Setup| (0..2).for_each(|handle| setup.mover.never_pass(key(B, handle))),
        |setup: &mut Setup| setup.mover.pass_from(3 * BLOCK_BYTES),
    ] {
        let (mut setup, plan) = Setup::friends(&[2, 2], &[2, 2], 4, 10);
        forbid(&mut setup);
        let outcome = setup.exchange(plan);
        assert_eq!((outcome.passed_bytes, outcome.moved_in.len()), (0, 2));
        assert_eq!(setup.tenants.world().taken, 0);
        setup.check_all();
    }
    let (mut setup, plan) = usual();
    assert_eq!(setup.exchange(plan).passed_bytes, 0, "nobody said anything");
}

#[test]
fn what_nobody_waits_for_is_released_when_nothing_comes_in_any_more() {
    let (mut setup, plan) = Setup::friends(&[2, 2, 2], &[2], 6, 16);
    let outcome = setup.exchange(plan.clone());
    assert_eq!((outcome.moved_out.len(), outcome.moved_in.len(), outcome.failed.len()), (3, 1, 0));
    assert_eq!(outcome.passed_bytes, 2 * BLOCK_BYTES);
    setup.check_told(&plan, &outcome);
    assert_eq!(setup.files().len(), 1);
    setup.check_all();
}

#[test]
fn one_that_cannot_take_creates_instead_and_is_not_asked_again() {
    let (mut setup, there) = Setup::friends(&[2, 2], &[2, 2], 4, 10);
    // The first request to B.
    setup.tenants.world().twist = Some((3, Twist::Fails));
    let outcome = setup.exchange(there.clone());
    assert_eq!((outcome.moved_in.len(), outcome.failed), (2, vec![]));
    assert_eq!((outcome.passed_bytes, setup.tenants.world().taken), (2 * BLOCK_BYTES, 1));
    setup.check_places();
    setup.exchange(plan(&there.into, &there.out, 0));
    let again = setup.exchange(there);
    assert_eq!(again.passed_bytes, 2 * BLOCK_BYTES);
    setup.check_all();
}

#[test]
fn copies_that_fail_leave_it_in_the_arena() {
    for operation in [Operation::CopyIn, Operation::Mark, Operation::Passed, Operation::Release] {
        for nth in 1..12 {
            let (mut setup, plan) = Setup::friends(&[2, 1], &[2, 1], 3, 10);
            setup.mover.device_mut().fail(operation, nth);
            let outcome = setup.exchange(plan.clone());
            setup.check_told(&plan, &outcome);
            setup.check_places();
            setup.mover.device_mut().heal();
            if operation != Operation::Release {
                setup.check_all();
            }
        }
    }
}

#[test]
fn tenants_die_and_free_at_every_request() {
    let happenings = [Event::Dies(A), Event::Dies(B)];
    let frees = (0..2).flat_map(|handle| [A, B].map(|owner| Event::Frees(key(owner, handle))));
    for event in happenings.into_iter().chain(frees) {
        for (at, is_before) in (1..=4).flat_map(|at| [(at, true), (at, false)]) {
            let (mut setup, plan) = Setup::friends(&[2, 2], &[2, 2], 4, 10);
            let twist = if is_before { Twist::Before(event) } else { Twist::After(event) };
            setup.tenants.world().twist = Some((at, twist));
            let outcome = setup.exchange(plan.clone());
            setup.check_told(&plan, &outcome);
            setup.take_late();
            setup.check_all();
        }
    }
}

/// B does not answer when it is to take its second handle.
fn silent() -> (Setup, HandleKey) {
    let (mut setup, mut plan) = Setup::friends(&[2, 2], &[2, 2], 4, 10);
    setup.drive_clock();
    plan.deadline = SHORT;
    setup.tenants.world().twist = Some((4, Twist::Silent));
    let outcome = setup.exchange(plan.clone());
    setup.check_told(&plan, &outcome);
    let [(key, MoveError::Deadline { step: Step::Take, .. })] = outcome.failed[..] else {
        panic!("{:?}", outcome.failed);
    };
    assert_eq!(setup.mover.handle(key).map(|view| view.whereabouts), Some(Whereabouts::Returning));
    (setup, key)
}

#[test]
fn what_is_taken_late_is_back() {
    let (mut setup, key) = silent();
    let mut world = setup.tenants.world();
    let late = world.held_back.pop().expect("one did not answer");
    world.send(late);
    drop(world);
    assert_eq!(setup.take_late(), []);
    assert_eq!(setup.mover.handle(key).map(|view| view.whereabouts), Some(Whereabouts::Device));
    setup.check_all();
}

#[test]
fn what_is_not_taken_after_all_stays_in_the_arena() {
    let (mut setup, key) = silent();
    let mut world = setup.tenants.world();
    world.held_back.clear();
    world.unmap_silently(key);
    let (owner, handles) = (key.owner, vec![key.handle]);
    world.send(crate::Reply::Failed { owner, handles, code: 2, call: "cuMemMap".to_owned() });
    drop(world);
    assert_eq!(setup.take_late(), []);
    assert_eq!(setup.mover.handle(key).map(|view| view.whereabouts), Some(Whereabouts::Arena));
    setup.check_all();
}

#[test]
fn one_that_dies_silent_or_frees_it_leaves_nothing() {
    for event in [Event::Dies(B), Event::Frees(key(B, 0)), Event::Frees(key(B, 1))] {
        let (mut setup, _) = silent();
        let mut world = setup.tenants.world();
        let late = world.held_back.pop().expect("one did not answer");
        world.happen(event);
        world.send(late);
        drop(world);
        setup.take_late();
        setup.check_all();
    }
}

#[test]
fn a_copy_that_ends_after_all_was_given_up_is_of_no_use() {
    let (mut setup, mut plan) = Setup::friends(&[2], &[2], 2, 10);
    setup.drive_clock();
    plan.deadline = SHORT;
    // The copy out is seen at the first look; then nobody does anything any more.
    setup.mover.device_mut().polls_per_copy = 1;
    let stalls = setup.mover.device().stall_lane_in();
    let outcome = setup.exchange(plan.clone());
    assert_eq!(outcome.moved_out, plan.out);
    assert!(
        matches!(outcome.failed[..], [(_, MoveError::Deadline { step: Step::CopyIn, .. })]),
        "{:?}",
        outcome.failed
    );
    stalls.store(false, std::sync::atomic::Ordering::SeqCst);
    for _ in 0..4 {
        setup.mover.catch_up(&mut setup.tenants);
    }
    assert_eq!(setup.at(B, Whereabouts::Arena), plan.into);
    setup.check_all();
}

#[test]
fn the_next_worker_has_it_unmapped_what_was_taken_and_not_recorded() {
    for (is_taken, adopted) in [(true, (vec![], vec![0])), (false, (vec![0], vec![]))] {
        let (mut setup, mut plan) = Setup::friends(&[2], &[2], 2, 10);
        setup.drive_clock();
        plan.deadline = SHORT;
        let twist = if is_taken { Twist::Silent } else { Twist::Before(Event::Frees(key(Owner(9), 0))) };
        setup.tenants.world().twist = Some((2, twist));
        if is_taken {
            assert_eq!(setup.exchange(plan).failed.len(), 1);
        } else {
            setup.mover.device().stall_lane_in();
            assert_eq!(setup.exchange(plan).failed.len(), 1);
        }
        let (corpse, mut setup) = setup.succeed(CleanCopies::Off);
        corpse.rest().expect("its device works");
        setup.trust_each_other();
        setup.adopt(A).expect("it is the one");
        let adoption = setup.adopt(B).expect("it is the one");
        assert_eq!((adoption.away, adoption.unsettled), adopted);
        assert_eq!((adoption.lost, adoption.failed), (vec![], vec![]));
        setup.tenants.world().held_back.clear();
        setup.take_late();
        assert_eq!(setup.at(B, Whereabouts::Arena), [key(B, 0)]);
        let room_blocks = 2;
        let outcome = setup.exchange(Plan { deadline: LONG, ..super::plan(&[], &[key(B, 0)], room_blocks) });
        assert_eq!(outcome.moved_in, [key(B, 0)]);
        setup.check_all();
    }
}
