//! Handles that an exchange loses sight of, at each step of their way: that is told, and none stays where nobody looks for it.

use super::world::{Event, FakeTenants};
use super::{A, B, MoveError, Outcome, Reply, Setup, Tenants, plan, usual};
use crate::fake_device::FakeDevice;
use crate::mover::planted::Bug;
use crate::mover::{CopyState, Whereabouts};
use crate::{HandleKey, Mover};
use std::sync::mpsc::Receiver;

/// Of one block each.
const OUT: HandleKey = HandleKey { owner: A, handle: 1 };
const IN: HandleKey = HandleKey { owner: B, handle: 0 };

/// The first steps of the way of one handle, by hand.
type Steps = fn(&mut Mover<FakeDevice>, &mut FakeTenants, &Receiver<Reply>);

fn copy_out(mover: &mut Mover<FakeDevice>) {
    mover.start_out(OUT).expect("it can go");
    while !matches!(mover.look_out(OUT), CopyState::Done) {}
}

fn unmap(tenants: &mut FakeTenants, replies: &Receiver<Reply>) {
    tenants.unmap(OUT.owner, &[OUT.handle]).expect("it lives");
    replies.recv().expect("it answers");
}

fn create(mover: &mut Mover<FakeDevice>, tenants: &mut FakeTenants, replies: &Receiver<Reply>) {
    mover.creating(IN).expect("it can come");
    tenants.create(IN.owner, &[IN.handle]).expect("it lives");
    let Ok(Reply::Created { mut files, .. }) = replies.recv() else { panic!("it creates") };
    mover.created(IN, files.pop()).expect("it can be filled");
}

fn copy_in(mover: &mut Mover<FakeDevice>, tenants: &mut FakeTenants, replies: &Receiver<Reply>) {
    create(mover, tenants, replies);
    while !matches!(mover.look_in(IN), CopyState::Done) {}
}

/// One handle is forgotten behind these steps. It is told of, and wherever it is in the end, it is there with all its bytes.
fn forget(key: HandleKey, steps: Steps) -> (Outcome, Whereabouts) {
    let (mut setup, _) = usual();
    let alone = if key == OUT { plan(&[key], &[], 0) } else { plan(&[], &[key], 1) };
    let mut tenants = setup.tenants.clone();
    let outcome = setup.mover.forget_all_after(alone.clone(), &mut setup.tenants, |mover| {
        steps(mover, &mut tenants, &setup.replies);
    });
    assert_eq!(outcome.lost_sight_of, [key]);
    setup.check_told(&alone, &outcome);
    for _ in 0..3 {
        assert_eq!(setup.take_late(), []);
        setup.mover.catch_up(&mut setup.tenants);
    }
    let whereabouts = setup.mover.handle(key).expect("it is there").whereabouts;
    setup.check_all();
    (outcome, whereabouts)
}

#[test]
fn what_was_on_its_way_out_is_found_at_each_step() {
    use Whereabouts::{Arena, Device};
    let steps: [(Steps, bool, Whereabouts); 6] = [
        (|_, _, _| {}, false, Device),
        (|mover, _, _| drop(mover.start_out(OUT)), false, Device),
        (|mover, _, _| copy_out(mover), false, Device),
        // That it is away is recorded: its tenant is asked to unmap it, perhaps once more.
        (
            |mover, _, _| {
                copy_out(mover);
                mover.record_out(&[OUT]);
            },
            false,
            Arena,
        ),
        (
            |mover, tenants, replies| {
                copy_out(mover);
                mover.record_out(&[OUT]);
                unmap(tenants, replies);
            },
            false,
            Arena,
        ),
        (
            |mover, tenants, replies| {
                copy_out(mover);
                mover.record_out(&[OUT]);
                unmap(tenants, replies);
                mover.unmapped(OUT);
            },
            true,
            Arena,
        ),
    ];
    for (number, (steps, is_told_as_moved, ends)) in steps.into_iter().enumerate() {
        let (outcome, whereabouts) = forget(OUT, steps);
        assert_eq!((outcome.moved_out == [OUT], whereabouts), (is_told_as_moved, ends), "step {number}");
        let failed = if is_told_as_moved { vec![] } else { vec![(OUT, MoveError::LostSight)] };
        assert_eq!(outcome.failed, failed, "step {number}");
    }
}

#[test]
fn what_was_on_its_way_in_is_found_at_each_step() {
    use Whereabouts::{Arena, Device};
    let steps: [(Steps, bool, Whereabouts); 7] = [
        (|_, _, _| {}, false, Arena),
        // Its tenant is asked to create memory, which nobody fills any more, and to unmap it again.
        (|mover, _, _| drop(mover.creating(IN)), false, Arena),
        (
            |mover, tenants, replies| {
                mover.creating(IN).expect("it can come");
                tenants.create(IN.owner, &[IN.handle]).expect("it lives");
                replies.recv().expect("it answers");
            },
            false,
            Arena,
        ),
        (create, false, Device),
        (copy_in, true, Device),
        (
            |mover, tenants, replies| {
                copy_in(mover, tenants, replies);
                mover.record_in(&[IN]);
            },
            true,
            Device,
        ),
        (
            |mover, tenants, replies| {
                mover.creating(IN).expect("it can come");
                tenants.create(IN.owner, &[IN.handle]).expect("it lives");
                replies.recv().expect("it answers");
                assert_eq!(mover.created(IN, None), Err(MoveError::NoFile));
            },
            false,
            Arena,
        ),
    ];
    for (number, (steps, is_told_as_moved, ends)) in steps.into_iter().enumerate() {
        let (outcome, whereabouts) = forget(IN, steps);
        assert_eq!((outcome.moved_in == [IN], whereabouts), (is_told_as_moved, ends), "step {number}");
        let failed = if is_told_as_moved { vec![] } else { vec![(IN, MoveError::LostSight)] };
        assert_eq!(outcome.failed, failed, "step {number}");
    }
}

#[test]
fn completions_that_are_lost_leave_nothing_unsettled() {
    let (mut setup, plan) = usual();
    setup.mover.planted.bug = Some(Bug::LostCompletion);
    let outcome = setup.exchange(plan.clone());
    assert_eq!(outcome.lost_sight_of, plan.into);
    assert_eq!((&outcome.moved_out, &outcome.moved_in), (&plan.out, &plan.into), "they were recorded");
    setup.mover.planted.bug = None;
    setup.check_all();
}

/// Memory that the other had, forgotten before its new owner was told of it, or when it had taken it: either way it is not used.
#[test]
fn what_is_filled_and_forgotten_is_not_taken_or_is_given_back() {
    for has_taken in [false, true] {
        let (mut setup, there) = Setup::friends(&[2, 2], &[2, 2], 4, 10);
        let (from, to) = (there.out[0], there.into[0]);
        let mut tenants = setup.tenants.clone();
        let outcome = setup.mover.forget_all_after(plan(&[from], &[to], 0), &mut setup.tenants, |mover| {
            mover.start_out(from).expect("it can go");
            while !matches!(mover.look_out(from), CopyState::Done) {}
            mover.record_out(&[from]);
            tenants.unmap(from.owner, &[from.handle]).expect("it lives");
            setup.replies.recv().expect("it answers");
            assert!(mover.can_pass(from, to));
            mover.pass(from, to).expect("it was unmapped");
            while !matches!(mover.look_in(to), CopyState::Filled) {}
            if has_taken {
                let file = mover.frame_file(to).expect("it is filled");
                tenants.take(to.owner, &[(to.handle, file)]).expect("it lives");
                assert!(matches!(setup.replies.recv(), Ok(Reply::Taken { .. })));
            }
        });
        assert_eq!(outcome.failed, [(to, MoveError::LostSight)]);
        for _ in 0..3 {
            assert_eq!(setup.take_late(), []);
            setup.mover.catch_up(&mut setup.tenants);
        }
        assert_eq!(setup.mover.handle(to).expect("it is there").whereabouts, Whereabouts::Arena);
        setup.check_all();
    }
}

/// Its tenant dies before it is looked for.
#[test]
fn what_is_looked_for_may_be_a_dead_ones() {
    for key in [OUT, IN] {
        let (mut setup, _) = usual();
        let alone = if key == OUT { plan(&[key], &[], 0) } else { plan(&[], &[key], 1) };
        let tenants = setup.tenants.clone();
        let outcome = setup.mover.forget_all_after(alone.clone(), &mut setup.tenants, |mover| {
            if key == OUT {
                copy_out(mover);
                mover.record_out(&[key]);
            } else {
                mover.creating(key).expect("it can come");
            }
            tenants.world().happen(Event::Dies(key.owner));
        });
        setup.check_told(&alone, &outcome);
        assert_eq!(setup.take_late(), []);
        assert_eq!(setup.mover.handles(key.owner), []);
        setup.check_all();
    }
}
