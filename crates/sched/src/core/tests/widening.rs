//! Tenants that are frozen in part are frozen wholly, in nobody's way.

use super::critical::{best_effort, request, service};
use super::handover::scopes;
use super::*;
use crate::tenant::Grip;

/// The service has requests for so long.
fn served(rig: &mut Rig, service: TenantId, requests: u32) {
    (0..requests).for_each(|_| request(rig, service, 0.01));
}

fn grip(rig: &Rig, tenant: TenantId) -> Grip {
    rig.core.tenants.get(tenant).unwrap().grip
}

/// A service and three others who take turns beside it, two of whom are frozen as to what they compute.
fn partly_frozen() -> (Rig, TenantId, Vec<TenantId>) {
    partly_frozen_of(3)
}

fn partly_frozen_of(count: u64) -> (Rig, TenantId, Vec<TenantId>) {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    let service = service(&mut rig);
    let others = best_effort(&mut rig, count);
    served(&mut rig, service, 100);
    // As they are from the end of their turns until somebody has the time to take off the rest.
    for &id in &others {
        if grip(&rig, id) != Grip::Frozen(Scope::All) {
            continue;
        }
        rig.core.update(id, |tenant| tenant.grip = Grip::Frozen(Scope::Compute));
    }
    // Turns may be about to change.
    assert!(partly(&rig) + 2 >= count as usize, "{}", partly(&rig));
    (rig, service, others)
}

/// How many are frozen as to what they compute.
fn partly(rig: &Rig) -> usize {
    rig.core.gpu_of(GpuId(0)).partly.len()
}

/// When somebody was frozen wholly, since an instant in seconds, and who.
fn widened(rig: &Rig, since: f64) -> Vec<(Time, TenantId)> {
    let since = Time((since * 1e9) as u64);
    let wholly = |(at, action): &(Time, Action)| match action {
        Action::Freeze { tenant, scope: Scope::All, .. } if *at >= since => Some((*at, *tenant)),
        _ => None,
    };
    rig.diary.iter().filter_map(wholly).collect()
}

fn seconds(rig: &Rig) -> f64 {
    rig.now.0 as f64 / 1e9
}

#[test]
fn nothing_moves_of_whoever_is_frozen_in_part_before_all_of_it_is() {
    let (mut rig, service, others) = partly_frozen();
    let begin = rig.now.0 as f64 / 1e9;
    let owner = others.iter().copied().find(|&id| grip(&rig, id) == Grip::Thawed).unwrap();
    // The core sees to it after each event that whoever moves is off with all that it has.
    rig.ask(owner, 50, 13 * GIB);
    served(&mut rig, service, 50);
    let moved = rig.said(begin, |action| match action {
        Action::Move { out, .. } => Some(out.iter().map(|owned| owned.tenant).collect::<Vec<_>>()),
        _ => None,
    });
    assert!(moved.concat().iter().any(|tenant| others.contains(tenant)), "{moved:?}");
    let first = rig.said(begin, |action| match action {
        Action::Freeze { scope, tenant, .. } => Some((*tenant, *scope)),
        Action::Move { out, .. } => Some((out[0].tenant, Scope::Compute)),
        _ => None,
    });
    assert_eq!(first[0].1, Scope::All, "{first:?}");
}

#[test]
fn whoever_cannot_be_frozen_wholly_stays_where_it_is_and_is_not_in_the_way_for_ever() {
    let (mut rig, service, others) = partly_frozen();
    rig.fail = |action| matches!(action, Action::Freeze { scope: Scope::All, .. });
    let begin = rig.now.0 as f64 / 1e9;
    rig.busy(9, 9, 0, 14);
    served(&mut rig, service, 300);
    assert!(rig.moves(begin).iter().all(|&(out, _)| out == 0), "{:?}", rig.moves(begin));
    let tries = scopes(&rig, begin).iter().filter(|&&scope| scope == Scope::All).count();
    assert!((2..40).contains(&tries), "tried {tries} times in three seconds");
    rig.fail = |_| false;
    let before: Vec<_> = others.iter().map(|&id| rig.ran(id)).collect();
    served(&mut rig, service, 1_500);
    assert!(rig.ran(TenantId(9)) > 0.1, "it has its turn once they can be");
    assert!(others.iter().zip(before).all(|(&id, before)| rig.ran(id) > before));
}

#[test]
fn a_service_that_leaves_in_the_middle_of_a_turn_change_leaves_nobody_frozen_for_good() {
    let mut middles = 0;
    for step in 0..120 {
        let (mut rig, service, others) = partly_frozen();
        let begin = rig.now.0 as f64 / 1e9;
        // Somewhere in a turn of 100 ms, and in the freeze and the thaw at its end.
        rig.until(begin + f64::from(step) * 0.001);
        let changes = |id: &&TenantId| {
            matches!(grip(&rig, **id), Grip::Freezing(..) | Grip::Thawing(..) | Grip::Widening(..))
        };
        middles += usize::from(others.iter().any(|id| changes(&id)));
        rig.tell(Event::Left(service));
        rig.tell(Event::Buried(service));
        let before: Vec<_> = others.iter().map(|&id| rig.ran(id)).collect();
        rig.until(begin + 3.0);
        for (&id, before) in others.iter().zip(before) {
            close(rig.ran(id) - before, 2.9 / 3.0, 0.2);
        }
    }
    assert!(middles > 0, "in no case was anybody on its way");
}

#[test]
fn whoever_goes_deep_is_off_with_all_that_it_has_before_anything_of_it_moves() {
    let (mut rig, service, others) = partly_frozen();
    let begin = seconds(&rig);
    let deep = others.iter().copied().find(|&id| grip(&rig, id) == Grip::Frozen(Scope::Compute)).unwrap();
    rig.tell(Event::Deep { job: JobId(deep.0), deep: true });
    rig.tell(Event::Pause(JobId(deep.0)));
    served(&mut rig, service, 20);
    let steps = rig.said(begin, |action| match action {
        Action::Freeze { tenant, scope: Scope::All, .. } if *tenant == deep => Some("frozen"),
        Action::Move { out, .. } if out.iter().any(|owned| owned.tenant == deep) => Some("moved"),
        _ => None,
    });
    assert_eq!(steps, ["frozen", "moved"]);
    assert_eq!(rig.core.hinders_deep(deep), None);
}

#[test]
fn whoever_had_the_turn_stops_copying_once_the_next_one_has_it() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    best_effort(&mut rig, 4);
    served(&mut rig, service, 100);
    let begin = seconds(&rig);
    served(&mut rig, service, 100);
    let steps = rig.said(begin, |action| match action {
        Action::TurnBegins { tenant, .. } => Some((tenant.0, "begins")),
        Action::Freeze { tenant, scope: Scope::Compute, .. } => Some((tenant.0, "goes")),
        Action::Freeze { tenant, scope: Scope::All, .. } => Some((tenant.0, "stops")),
        _ => None,
    });
    let changes = steps.windows(3).filter(|steps| steps[0].1 == "goes").collect::<Vec<_>>();
    assert!(changes.len() >= 4, "{steps:?}");
    for change in changes {
        let [(last, _), (next, begins), (stopped, stops)] = change else { unreachable!() };
        assert_eq!((*begins, *stops), ("begins", "stops"), "{steps:?}");
        assert!(last == stopped && last != next, "{steps:?}");
    }
    assert_eq!(partly(&rig), 0, "nobody copies beside the service but whoever has the turn");
}

#[test]
fn those_who_are_frozen_in_part_are_frozen_wholly_one_after_the_other() {
    for asks in [false, true] {
        let (mut rig, service, others) = partly_frozen_of(12);
        let begin = seconds(&rig);
        if asks {
            rig.ask(others[0], 77, 6 * GIB);
            served(&mut rig, service, 40);
        } else {
            rig.tell(Event::Left(service));
            rig.until(begin + 0.2);
        }
        let widened = widened(&rig, begin);
        assert!(widened.len() >= 10, "{widened:?}");
        let apart = |two: &[(Time, TenantId)]| two[1].0.since(two[0].0) >= Span::from_millis(1);
        assert!(widened.windows(2).take(9).all(apart), "each takes 1 ms: {widened:?}");
    }
}

#[test]
fn whoever_makes_way_or_is_paused_is_frozen_wholly_before_those_who_only_wait() {
    let (mut rig, service, others) = partly_frozen_of(8);
    let begin = seconds(&rig);
    let last = others.iter().copied().rfind(|&id| grip(&rig, id) == Grip::Frozen(Scope::Compute)).unwrap();
    rig.tell(Event::Pause(JobId(last.0)));
    served(&mut rig, service, 10);
    assert_eq!(widened(&rig, begin)[0].1, last);
}

#[test]
fn nobody_is_frozen_wholly_just_before_a_hint_takes_its_like_off_nor_while_it_is_off_for_a_moment() {
    let (mut rig, service, _) = partly_frozen_of(8);
    let (begin, within) = (seconds(&rig), Span::from_millis(4));
    // From now on until the request is over: freezes take 1 ms.
    rig.tell(Event::Hint { tenant: service, within });
    let [from, expect] =
        rig.core.gpu_of(GpuId(0)).holds[0..1].iter().map(|h| [h.from, h.expect]).next().unwrap();
    rig.until(expect.0 as f64 / 1e9);
    request(&mut rig, service, 0.02);
    let went = rig
        .diary
        .iter()
        .find(|(at, action)| *at >= from && matches!(action, Action::Freeze { scope: Scope::Compute, .. }));
    assert_eq!(went.expect("it goes for the hint").0, from);
    let in_the_way = |(at, _): &&(Time, TenantId)| {
        *at + Span::from_millis(2) > from && *at < expect + Span::from_micros(100)
    };
    let widened = widened(&rig, begin);
    assert!(widened.len() >= 6, "{widened:?}");
    assert_eq!(widened.iter().filter(in_the_way).count(), 0, "{from:?} {expect:?} {widened:?}");
    let told = rig.core.describe(service, rig.now).unwrap().hints;
    assert_eq!((told.good, told.missed), (1, 0), "{told:?}");
}

#[test]
fn whoever_makes_way_goes_while_best_effort_work_is_off_for_a_hint() {
    let (mut rig, service, others) = partly_frozen_of(8);
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(4) });
    rig.until(seconds(&rig) + 0.004);
    rig.tell(Event::wants(service));
    let begin = seconds(&rig);
    let waiting = others.iter().copied().rfind(|&id| grip(&rig, id) == Grip::Frozen(Scope::Compute)).unwrap();
    rig.tell(Event::Pause(JobId(waiting.0)));
    rig.until(begin + 0.01);
    assert_eq!(widened(&rig, begin).iter().map(|&(_, id)| id).collect::<Vec<_>>(), [waiting]);
}

#[test]
fn whose_copies_cannot_go_at_once_still_has_its_turns() {
    let lengths = |fails: bool| {
        let mut rig = Rig::new(settings());
        if fails {
            rig.fail = |action| matches!(action, Action::Freeze { scope: Scope::All, .. });
        }
        let service = service(&mut rig);
        let others = best_effort(&mut rig, 3);
        served(&mut rig, service, 100);
        let before: Vec<_> = others.iter().map(|&id| rig.ran(id)).collect();
        served(&mut rig, service, 300);
        others.iter().zip(before).map(|(&id, before)| rig.ran(id) - before).collect::<Vec<_>>()
    };
    let (usual, failing) = (lengths(false), lengths(true));
    for (usual, failing) in usual.iter().zip(&failing) {
        close(*failing, *usual, 0.1);
    }
}

#[test]
fn whose_copies_could_not_go_at_once_makes_way_at_once_when_it_has_to() {
    let (mut rig, service, others) = partly_frozen();
    rig.fail = |action| matches!(action, Action::Freeze { scope: Scope::All, .. });
    let begin = seconds(&rig);
    while widened(&rig, begin).is_empty() {
        served(&mut rig, service, 1);
    }
    rig.fail = |_| false;
    let (tried_at, tried) = widened(&rig, begin)[0];
    assert!(others.contains(&tried) && grip(&rig, tried) == Grip::Frozen(Scope::Compute));
    rig.tell(Event::Pause(JobId(tried.0)));
    served(&mut rig, service, 5);
    assert_eq!(grip(&rig, tried), Grip::Frozen(Scope::All), "it was not tried again since {tried_at:?}");
}

#[test]
fn only_whoever_has_to_make_way_is_waited_for() {
    let (mut rig, _, others) = partly_frozen_of(8);
    let last = others.iter().copied().rfind(|&id| grip(&rig, id) == Grip::Frozen(Scope::Compute)).unwrap();
    rig.tell(Event::Pause(JobId(last.0)));
    let mut ways = BTreeSet::new();
    while ways.len() < 2 {
        for &id in others.iter().filter(|&&id| matches!(grip(&rig, id), Grip::Widening(..))) {
            assert_eq!(rig.core.is_widened_if_ready(id), id != last);
            ways.insert(id != last);
        }
        assert!(seconds(&rig) < 60.0, "{ways:?}");
        let next = seconds(&rig) + 0.0005;
        rig.until(next);
    }
}
