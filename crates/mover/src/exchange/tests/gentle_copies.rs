//! Copies beside somebody latency-critical: short ones, one at a time.

use super::{Operation, STEPS_MAX, Setup, usual};
use crate::BLOCK_BYTES;
use crate::pace::PIECE_BYTES;

#[test]
fn a_lane_has_one_short_piece_under_way() {
    for is_gentle in [true, false] {
        let (mut setup, plan) = usual();
        setup.mover.pace().be_gentle(is_gentle);
        setup.mover.device_mut().most_under_way = [0; 2];
        let outcome = setup.exchange(plan.clone());
        assert_eq!((outcome.moved_out, outcome.moved_in), (plan.out, plan.into));
        let most = setup.mover.device().most_under_way;
        assert_eq!(most.map(|bytes| bytes <= PIECE_BYTES), [is_gentle; 2], "{most:?}");
        setup.check_all();
    }
}

#[test]
fn who_comes_or_goes_in_the_middle_changes_the_pace_and_no_byte() {
    for begins_gently in [true, false] {
        for step in 1..STEPS_MAX {
            let (mut setup, plan) = usual();
            let pace = setup.mover.pace();
            pace.be_gentle(begins_gently);
            setup.mover.device_mut().polls_per_copy = 2;
            setup.mover.device_mut().at_poll(step, move || pace.be_gentle(!begins_gently));
            let outcome = setup.exchange(plan.clone());
            let is_over = !setup.mover.device().all_happened();
            assert_eq!((outcome.moved_out.len(), outcome.moved_in.len()), (3, 3), "{outcome:?}");
            setup.check_all();
            if is_over {
                assert!(step > 6, "all moments were tried");
                break;
            }
        }
    }
}

#[test]
fn every_call_of_the_device_fails_once() {
    let calls = [Operation::CopyOut, Operation::CopyIn, Operation::Mark, Operation::Passed];
    for operation in calls {
        for nth in 1..STEPS_MAX {
            let (mut setup, plan) = usual();
            setup.mover.pace().be_gentle(true);
            setup.mover.device_mut().fail(operation, nth);
            let outcome = setup.exchange(plan.clone());
            setup.check_told(&plan, &outcome);
            if !setup.mover.device().all_happened() {
                assert!(nth > 3, "all calls were tried");
                assert_eq!(outcome.failed, []);
                break;
            }
            setup.check_all();
        }
    }
}

#[test]
fn a_piece_that_fails_before_a_mark_within_a_copy_fails_all_of_it() {
    for operation in [Operation::CopyOut, Operation::CopyIn] {
        for nth in 1..STEPS_MAX {
            let (mut setup, plan) = Setup::a_in_b_away(&[5, 4], &[4, 5], 11, 20);
            setup.mover.waypoint_bytes = 2 * BLOCK_BYTES;
            setup.mover.pace().be_gentle(true);
            setup.mover.device_mut().fail(operation, nth);
            let outcome = setup.exchange(plan.clone());
            setup.check_told(&plan, &outcome);
            let is_over = !setup.mover.device().all_happened();
            assert_eq!(outcome.failed.is_empty(), is_over, "{nth}: {outcome:?}");
            if is_over {
                assert!(nth > 5, "all pieces were tried");
                break;
            }
            setup.check_all();
        }
    }
}
