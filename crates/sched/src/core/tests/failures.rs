//! What fails, comes late or never comes.

use super::*;

#[test]
fn a_lost_move_is_looked_into_and_everybody_goes_on() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(3.0);
    rig.lose = |action| matches!(action, Action::Move { .. });
    rig.until(20.0);
    rig.lose = |_| false;
    rig.until(120.0);
    let overdue = rig.said(0.0, |action| matches!(action, Action::Overdue { .. }).then_some(()));
    assert!(!overdue.is_empty());
    let (ran_a, ran_b) = (rig.ran(a), rig.ran(b));
    rig.until(220.0);
    assert!(rig.ran(a) - ran_a > 30.0 && rig.ran(b) - ran_b > 30.0);
}

#[test]
fn a_lost_freeze_and_a_lost_thaw_are_made_up_for() {
    for lost in [
        (|action| matches!(action, Action::Freeze { .. })) as fn(&Action) -> bool,
        |action| matches!(action, Action::Thaw { .. }),
        |action| matches!(action, Action::Inspect { .. }),
        |action| matches!(action, Action::Slice { .. }),
        |action| matches!(action, Action::Freeze { .. } | Action::Thaw { .. }),
    ] {
        let mut rig = Rig::new(settings());
        let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
        rig.until(10.0);
        rig.lose = lost;
        rig.until(20.0);
        rig.lose = |_| false;
        rig.until(60.0);
        let (ran_a, ran_b) = (rig.ran(a), rig.ran(b));
        rig.until(160.0);
        assert!(rig.ran(a) - ran_a > 30.0 && rig.ran(b) - ran_b > 30.0);
    }
}

#[test]
fn what_fails_is_tried_again_later_and_not_in_a_loop() {
    for failing in [
        (|action| matches!(action, Action::Freeze { .. })) as fn(&Action) -> bool,
        |action| matches!(action, Action::Thaw { .. }),
        |action| matches!(action, Action::Move { .. }),
    ] {
        let mut rig = Rig::new(settings());
        let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
        rig.until(10.0);
        rig.fail = failing;
        let before = rig.diary.len();
        rig.until(20.0);
        assert!(rig.diary.len() - before < 200, "{} actions", rig.diary.len() - before);
        rig.fail = |_| false;
        rig.until(40.0);
        let (ran_a, ran_b) = (rig.ran(a), rig.ran(b));
        rig.until(140.0);
        assert!(rig.ran(a) - ran_a > 30.0 && rig.ran(b) - ran_b > 30.0);
    }
}

#[test]
fn a_tenant_that_does_not_answer_keeps_its_memory_and_others_that_fit_go_on() {
    let mut rig = Rig::new(settings());
    let stopped = rig.busy(1, 1, 0, 8);
    let (b, c) = (rig.busy(2, 2, 0, 4), rig.busy(3, 3, 0, 4));
    rig.until(5.0);
    // Something larger comes; the first one should make room, and does not answer.
    rig.fail =
        |action| matches!(action, Action::Move { out, .. } if out.iter().any(|owned| owned.tenant.0 == 1));
    let large = rig.busy(4, 4, 0, 8);
    let (ran_b, ran_c) = (rig.ran(b), rig.ran(c));
    rig.until(65.0);
    assert!(
        rig.ran(b) - ran_b > 5.0 && rig.ran(c) - ran_c > 5.0,
        "{} {}",
        rig.ran(b) - ran_b,
        rig.ran(c) - ran_c
    );
    rig.fail = |_| false;
    rig.tell(Event::Answers(stopped));
    let before = rig.ran(large);
    rig.until(125.0);
    assert!(rig.ran(large) - before > 5.0);
}

#[test]
fn unsettled_memory_keeps_its_tenant_off_until_it_answers() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(10.0);
    rig.lose = |action| matches!(action, Action::Move { .. });
    let before = rig.moves(0.0).len();
    while rig.moves(0.0).len() == before {
        let next = rig.now.0 as f64 / 1e9 + 0.01;
        rig.until(next);
    }
    let (op, out) = rig
        .said(0.0, |action| match action {
            Action::Move { op, out, .. } => Some((*op, out.clone())),
            _ => None,
        })
        .pop()
        .unwrap();
    let stopped = out[0].tenant;
    rig.tell(Event::Done {
        op,
        outcome: Outcome::Moved {
            out: vec![],
            into: vec![],
            unsettled: out.clone(),
            took: Span::from_secs(3),
        },
    });
    rig.lose = |_| false;
    let from = rig.now.0 as f64 / 1e9;
    let before = rig.ran(stopped);
    rig.until(from + 30.0);
    assert_eq!(rig.ran(stopped), before, "it may have lost what it runs on");
    // It answers: all of it went.
    rig.away.extend(out);
    rig.tell(Event::Answers(stopped));
    rig.until(from + 130.0);
    for tenant in [a, b] {
        assert!(rig.ran(tenant) > 30.0, "{tenant} ran {}", rig.ran(tenant));
    }
}

#[test]
fn a_death_at_any_moment_leaves_the_others_running_and_the_books_right() {
    for tenth in 0..60 {
        let mut rig = Rig::new(settings());
        let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
        let c = rig.busy(3, 3, 0, 6);
        let at = 4.0 + f64::from(tenth) * 0.07;
        rig.until(at);
        rig.tell(Event::Left(a));
        rig.until(at + 0.1);
        rig.tell(Event::Buried(a));
        rig.until(at + 100.0);
        assert!(rig.ran(b) > 20.0 && rig.ran(c) > 20.0, "at {at}: {} {}", rig.ran(b), rig.ran(c));
        for tenant in [b, c] {
            rig.tell(Event::Left(tenant));
            rig.tell(Event::Buried(tenant));
        }
        rig.until(at + 200.0);
        let view = rig.core.gpu(GpuId(0)).unwrap();
        assert_eq!((view.used, view.running), (Bytes::ZERO, None));
        assert_eq!(rig.core.arena().0, Bytes::ZERO);
        assert!(rig.core.wake_at().is_none());
    }
}

#[test]
fn what_the_dying_hold_is_not_given_out_before_it_is_free() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 16);
    rig.until(1.0);
    rig.tell(Event::Left(a));
    let b = rig.busy(2, 2, 0, 4);
    rig.until(2.0);
    assert_eq!(rig.core.tenants.get(b).unwrap().whole_bytes(), Bytes::ZERO);
    rig.tell(Event::Buried(a));
    assert_eq!(rig.core.tenants.get(b).unwrap().whole_bytes(), Bytes::from_gib(4));
}

#[test]
fn one_that_hung_up_and_lives_counts_until_it_is_gone() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 10);
    rig.until(1.0);
    rig.tell(Event::Left(a));
    rig.tell(Event::Lingers(a));
    let b = rig.busy(2, 2, 0, 4);
    rig.until(2.0);
    assert_eq!(rig.core.tenants.get(b).unwrap().whole_bytes(), Bytes::from_gib(4));
    rig.ask(b, 100, 4 * GIB);
    let denied = rig.said(1.0, |action| matches!(action, Action::Deny { .. }).then_some(()));
    assert_eq!(denied.len(), 1, "there is no telling when the rest is free");
}
