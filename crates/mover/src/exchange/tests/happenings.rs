//! Whatever goes wrong at whatever step: tenants die, free or fail, and the device does.

use super::world::{Event, Twist};
use super::{A, B, HandleKey, MoveError, Operation, STEPS_MAX, Setup, Whereabouts, key, plan, usual};
use crate::BLOCK_BYTES;

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
