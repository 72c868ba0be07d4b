//! Room that a handle does not take, or gives back, is there for the next one.

use super::world::{Event, Twist};
use super::{A, B, MoveError, Operation, Plan, SHORT, Setup, key};
use crate::BLOCK_BYTES;

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
