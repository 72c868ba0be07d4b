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
fn whoever_could_not_come_is_tried_again_as_soon_as_somebody_is_gone() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(10.0);
    rig.fail = |action| matches!(action, Action::Move { .. });
    rig.until(100.0);
    let (runs, waits) = if rig.runs() == [a.0] { (a, b) } else { (b, a) };
    let left_at =
        rig.wait_for(|rig| rig.core.tenant(waits).unwrap().not_before > rig.now + Span::from_secs(10));
    rig.fail = |_| false;
    rig.tell(Event::Left(runs));
    rig.tell(Event::Buried(runs));
    rig.until(left_at + 2.0);
    assert_eq!(rig.runs(), [waits.0], "nobody else wants anything");
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

/// There may be no space for what they have in the cellar, until somebody else has come back and given up its own.
#[test]
fn those_who_cannot_come_keep_nobody_else_from_coming() {
    for ids in [1..=5, 1..=12] {
        let mut rig = Rig::new(settings());
        rig.tell(Event::Arena(Bytes::from_gib(200)));
        let tenants: Vec<TenantId> = ids.clone().map(|id| rig.busy(id, id, 0, 12)).collect();
        rig.until(100.0);
        rig.refuse = |tenant| tenant.0 % 4 != 0;
        let ran: Vec<f64> = tenants.iter().map(|&tenant| rig.ran(tenant)).collect();
        // Whoever runs now stays until somebody else can come.
        rig.until(300.0);
        let others = tenants.iter().zip(ran).filter(|(tenant, _)| tenant.0 % 4 == 0);
        let least = others.map(|(&tenant, before)| rig.ran(tenant) - before).fold(f64::MAX, f64::min);
        assert!(least > 30.0, "of {ids:?} one ran {least} of 200 s");
        // All can come again, and do.
        rig.refuse = |_| false;
        let ran: Vec<f64> = tenants.iter().map(|&tenant| rig.ran(tenant)).collect();
        rig.until(600.0);
        let least = tenants
            .iter()
            .zip(ran)
            .map(|(&tenant, before)| rig.ran(tenant) - before)
            .fold(f64::MAX, f64::min);
        assert!(least > 10.0, "of {ids:?} one ran {least} of 300 s");
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
    rig.wait_for(|rig| rig.moves(0.0).len() > before);
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

#[test]
fn whoever_cannot_be_thawed_costs_the_others_no_turns() {
    let mut rig = Rig::new(settings());
    let (a, _, c) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4), rig.busy(3, 3, 0, 4));
    rig.fail = |action| matches!(action, Action::Thaw { tenant, .. } if tenant.0 == 2);
    rig.until(1.0);
    let before = rig.ran(a) + rig.ran(c);
    rig.until(11.0);
    let ran = rig.ran(a) + rig.ran(c) - before;
    assert!(ran > 9.5, "{ran} of 10 s");
}

/// A move of which nothing is heard, with what was to go out.
fn lost_move(rig: &mut Rig) -> (OpId, Vec<Owned>) {
    rig.lose = |action| matches!(action, Action::Move { .. } | Action::Inspect { .. });
    let before = rig.moves(0.0).len();
    rig.wait_for(|rig| rig.moves(0.0).len() > before);
    let moves = rig.said(0.0, |action| match action {
        Action::Move { op, out, .. } => Some((*op, out.clone())),
        _ => None,
    });
    moves.last().unwrap().clone()
}

#[test]
fn what_is_still_unsettled_when_it_is_looked_into_stays_so() {
    let mut rig = Rig::new(settings());
    let _ = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(10.0);
    let (op, out) = lost_move(&mut rig);
    let stopped = out[0].tenant;
    let unsettled = |out: &[Owned]| Outcome::Moved {
        out: vec![],
        into: vec![],
        unsettled: out.to_vec(),
        took: Span::from_secs(3),
    };
    rig.tell(Event::Done { op, outcome: unsettled(&out) });
    rig.tell(Event::Answers(stopped));
    let op = rig.said(0.0, |action| match action {
        Action::Inspect { op, .. } => Some(*op),
        _ => None,
    });
    let found = Outcome::Found { away: vec![], unsettled: out.clone() };
    rig.tell(Event::Done { op: op[0], outcome: found });
    let before = rig.ran(stopped);
    let until = rig.now.0 as f64 / 1e9 + 30.0;
    rig.until(until);
    assert_eq!(rig.ran(stopped), before, "it may have lost what it runs on");
}

#[test]
fn what_could_not_go_is_left_alone_for_a_while_and_the_rest_goes_instead() {
    let mut rig = Rig::new(settings());
    let _ = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(10.0);
    let (op, mut out) = lost_move(&mut rig);
    rig.lose = |_| false;
    let kept = out.pop().unwrap();
    let took = Span::from_millis(200);
    let into = vec![];
    rig.away.extend(&out);
    rig.tell(Event::Done { op, outcome: Outcome::Moved { out, into, unsettled: vec![], took } });
    let from = rig.now.0 as f64 / 1e9;
    rig.until(from + 9.9);
    let moved = |rig: &Rig| {
        rig.said(from, |action| match action {
            Action::Move { out, .. } => Some(out.clone()),
            _ => None,
        })
    };
    assert!(!moved(&rig).is_empty() && moved(&rig).iter().flatten().all(|owned| *owned != kept));
    rig.until(from + 60.0);
    assert!(moved(&rig).iter().flatten().any(|owned| *owned == kept));
}

#[test]
fn only_the_death_of_somebody_concerned_excuses_a_move_that_failed() {
    for concerned in [true, false] {
        let mut rig = Rig::new(settings());
        let _ = (rig.busy(1, 1, 0, 10), rig.busy(2, 2, 0, 10));
        rig.until(1.0);
        let bystander = rig.tenant(3, 3, 0, 0);
        rig.until(10.0);
        let (op, out) = lost_move(&mut rig);
        rig.lose = |_| false;
        let dies = if concerned { out[0].tenant } else { bystander };
        rig.tell(Event::Left(dies));
        let (from, before) = (rig.now.0 as f64 / 1e9, rig.moves(0.0).len());
        rig.tell(Event::Done { op, outcome: Outcome::Failed });
        rig.until(from + 0.2);
        rig.tell(Event::Buried(dies));
        rig.until(from + 0.5);
        let tried = rig.moves(0.0).len() > before;
        assert_eq!(tried, concerned, "a move that failed is tried again after a second");
        rig.until(from + 5.0);
        assert!(rig.moves(0.0).len() > before);
    }
}

#[test]
fn only_a_whole_move_says_how_fast_the_bus_is() {
    for whole in [true, false] {
        let mut rig = Rig::new(settings());
        let _ = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
        rig.until(10.0);
        let (op, out) = lost_move(&mut rig);
        let into = rig.away.iter().copied().filter(|_| whole).collect();
        let known = rig.core.costs.clone();
        let outcome = Outcome::Moved { out, into, unsettled: vec![], took: Span::from_secs(2) };
        rig.core.step(rig.now, Event::Done { op, outcome });
        let learnt = rig.core.costs.in_per_second < known.in_per_second
            || rig.core.costs.out_per_second < known.out_per_second;
        assert_eq!(learnt, whole, "it took ten times as long as usual");
    }
}

#[test]
fn a_slice_of_which_nobody_knows_whether_it_was_changed_is_changed_again() {
    let mut rig = Rig::new(settings());
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    let service = rig.tenant(10, 100, 0, 1);
    let other = rig.busy(1, 1, 0, 1);
    rig.until(2.0);
    assert_eq!(rig.thawed[&other].1, Slice::Own);
    rig.lose = |action| matches!(action, Action::Slice { .. });
    rig.tell(Event::wants(service));
    rig.until(3.0);
    rig.lose = |_| false;
    assert_eq!(rig.thawed[&other].1, Slice::Own, "nothing came of it");
    rig.until(10.0);
    assert_eq!(rig.thawed[&other].1, Slice::Shortest);
}

#[test]
fn an_idle_one_that_could_not_be_frozen_is_frozen_later() {
    let mut rig = Rig::new(settings());
    let (idle, busy) = (rig.tenant(1, 1, 0, 1), rig.tenant(2, 2, 0, 1));
    rig.until(1.0);
    assert!(rig.thawed.contains_key(&idle), "it is in nobody's way");
    rig.fail = |action| matches!(action, Action::Freeze { .. });
    rig.tell(Event::wants(busy));
    rig.until(1.5);
    rig.fail = |_| false;
    assert!(rig.thawed.contains_key(&idle));
    // Nothing else happens that would make anybody look.
    rig.until(4.0);
    assert_eq!(rig.runs(), [busy.0]);
}
