//! What never comes is given up, and may come late. Time passes on a clock that these tests drive: how busy the machine is
//! makes no difference.

use super::world::{Event, Twist};
use super::{A, MoveError, SHORT, Step, Whereabouts, usual};
use crate::Owner;
use crate::device::Device;
use crate::exchange::Reply;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn a_silent_tenant_is_given_up_and_may_answer_late() {
    for step in 1..=6 {
        let (mut setup, mut plan) = usual();
        setup.drive_clock();
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
            Step::Unmap => setup.exchange(super::plan(&[key], &[], 0)).failed,
            _ => setup.exchange(super::plan(&[], &[key], 0)).failed,
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
    setup.drive_clock();
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
    setup.exchange(super::plan(&[], &[], 0));
    setup.check_all();
}

#[test]
fn a_tenant_that_is_gone_during_a_copy_that_hangs_is_dropped_afterwards() {
    let (mut setup, mut plan) = usual();
    setup.drive_clock();
    plan.deadline = SHORT;
    setup.mover.device_mut().polls_per_copy = u32::MAX;
    setup.exchange(plan);
    assert!(setup.mover.forget_owner(A).dying_bytes > 0);
    setup.tenants.world().happen(Event::Dies(A));
    setup.mover.device_mut().polls_per_copy = 1;
    setup.exchange(super::plan(&[], &[], 0));
    setup.mover.device_mut().drain().expect("it works again");
    setup.exchange(super::plan(&[], &[], 0));
    setup.check_all();
}

#[test]
fn with_nobody_to_answer_it_ends() {
    let (mut setup, mut plan) = usual();
    setup.drive_clock();
    plan.deadline = SHORT;
    let (sender, replies) = channel();
    drop(sender);
    let outcome = setup.mover.exchange(plan.clone(), &mut setup.tenants, &replies);
    setup.check_told(&plan, &outcome);
    assert_eq!(outcome.moved_in, []);
}

#[test]
fn a_machine_that_stands_still_for_hours_gives_nothing_up() {
    for nth in (1..).step_by(7) {
        let (mut setup, mut plan) = usual();
        plan.deadline = SHORT;
        setup.mover.device_mut().polls_per_copy = 3;
        let clock = setup.drive_clock();
        clock.jump(nth, Duration::from_secs(3 * 3600));
        let outcome = setup.exchange(plan.clone());
        assert_eq!((outcome.moved_out, outcome.moved_in), (plan.out, plan.into), "at reading {nth}");
        setup.check_all();
        if !clock.has_jumped() {
            assert!(nth > 20, "all moments were tried");
            break;
        }
    }
}

#[test]
fn what_others_say_keeps_no_move_waiting() {
    const WORDS: u32 = 1 << 18;
    let (mut setup, mut plan) = usual();
    setup.drive_clock();
    plan.deadline = SHORT;
    setup.tenants.world().twist = Some((6, Twist::Silent));
    let (tenants, said) = (setup.tenants.clone(), AtomicU32::new(0));
    let said_meanwhile = std::thread::scope(|scope| {
        scope.spawn(|| {
            while said.fetch_add(1, SeqCst) < WORDS {
                tenants.world().send(Reply::Freed { owner: Owner(77), handles: vec![1] });
            }
        });
        let outcome = setup.exchange(plan.clone());
        let is_late = |(_, error): &(_, MoveError)| matches!(error, MoveError::Deadline { .. });
        assert!(outcome.failed.iter().any(is_late), "{outcome:?}");
        said.swap(WORDS, SeqCst)
    });
    assert!(said_meanwhile < WORDS, "it was given up only when nobody said anything any more");
}
