//! Tenants that must be ended, since they have memory mapped that could neither be filled nor unmapped.

use super::world::{Event, Twist};
use super::{A, B, MoveError, Operation, Reply, SHORT, Setup, Step, Whereabouts, key, usual};

#[test]
fn memory_that_can_neither_be_filled_nor_unmapped_is_said() {
    let (mut setup, mut plan) = usual();
    plan.out.clear();
    plan.into.truncate(1);
    setup.mover.device_mut().fail(Operation::Import, 1);
    setup.tenants.world().twist = Some((2, Twist::Fails));
    let outcome = setup.exchange(plan.clone());
    setup.check_told(&plan, &outcome);
    assert!(matches!(&outcome.failed[..], [(_, MoveError::NotBackedOut { why, .. })]
        if matches!(**why, MoveError::Import(_))));
    assert_eq!(outcome.must_end, [B]);
    let view = setup.mover.handle(plan.into[0]).expect("its bytes are in the arena");
    assert_eq!(view.whereabouts, Whereabouts::Returning);
    setup.tenants.world().happen(Event::Dies(B));
    setup.mover.forget_owner(B);
    setup.check_all();
}

/// An exchange that was given up while B was to unmap memory that could not be filled; and how B fails at that, late.
fn given_up_while_backing_out() -> (Setup, Reply) {
    let (mut setup, mut plan) = usual();
    plan.out.clear();
    plan.into.truncate(1);
    plan.deadline = SHORT;
    setup.drive_clock();
    setup.mover.device_mut().fail(Operation::Import, 1);
    setup.tenants.world().twist = Some((2, Twist::Silent));
    let outcome = setup.exchange(plan);
    assert!(matches!(outcome.failed[..], [(_, MoveError::Deadline { step: Step::BackOut, .. })]));
    assert_eq!(outcome.must_end, [], "it may still unmap");
    (setup, Reply::Failed { owner: B, handles: vec![0], code: 1, call: "cuMemUnmap".to_owned() })
}

#[test]
fn a_tenant_that_must_be_ended_is_said_late_too() {
    let (mut setup, failed) = given_up_while_backing_out();
    assert_eq!(setup.mover.late(failed, &mut setup.tenants), Some(B));

    let (mut setup, failed) = given_up_while_backing_out();
    setup.tenants.world().send(failed);
    let out = setup.mover.handles(A).iter().map(|view| view.key).collect::<Vec<_>>();
    let outcome = setup.exchange(super::plan(&out, &[], 0));
    assert_eq!((outcome.moved_out, outcome.must_end), (out, vec![B]));

    let (mut setup, failed) = given_up_while_backing_out();
    setup.tenants.world().send(failed);
    setup.tenants.world().happen(Event::Dies(B));
    let outcome = setup.exchange(super::plan(&[key(A, 0)], &[], 0));
    assert_eq!((outcome.gone, outcome.must_end), (vec![B], vec![]), "nobody is left to be ended");
    setup.check_all();
}

#[test]
fn a_tenant_that_only_failed_need_not_be_ended() {
    let (mut setup, _) = given_up_while_backing_out();
    let late = std::mem::take(&mut setup.tenants.world().held_back);
    for reply in late {
        assert_eq!(setup.mover.late(reply, &mut setup.tenants), None, "it has unmapped");
    }
    let failed = Reply::Failed { owner: B, handles: vec![0], code: 1, call: "cuMemUnmap".to_owned() };
    assert_eq!(setup.mover.late(failed, &mut setup.tenants), None, "nothing was asked of it");
    setup.check_all();
}
