//! From one best-effort tenant to the next beside somebody latency-critical.

use super::critical::{best_effort, request, service};
use super::*;
use crate::tenant::Grip;

fn scopes(rig: &Rig, from: f64) -> Vec<Scope> {
    rig.said(from, |action| match action {
        Action::Freeze { scope, .. } => Some(*scope),
        _ => None,
    })
}

/// Requests every 10 ms, each hinted 5 ms ahead, for a second. How often somebody was frozen, and how many turns began.
fn hinted(rig: &mut Rig, service: TenantId) -> (usize, usize) {
    let begin = rig.now.0 as f64 / 1e9;
    for n in 0..100 {
        rig.until(begin + f64::from(n) * 0.01);
        rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
        rig.until(begin + f64::from(n) * 0.01 + 0.005);
        request(rig, service, 0.004);
    }
    (scopes(rig, begin).len(), rig.turns(begin).len())
}

#[test]
fn where_nobody_moves_only_what_computes_is_frozen_and_the_rest_when_that_is_over() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 3);
    rig.until(1.0);
    assert!(scopes(&rig, 0.5).iter().all(|&scope| scope == Scope::All), "nobody is served");
    for _ in 0..100 {
        request(&mut rig, service, 0.01);
    }
    let beside = scopes(&rig, 1.5);
    assert!(beside.len() >= 4, "{beside:?}");
    assert!(beside.iter().all(|&scope| scope == Scope::Compute), "{beside:?}");
    let end = rig.now.0 as f64 / 1e9;
    rig.until(end + 3.0);
    assert!(scopes(&rig, end + 2.0).iter().all(|&scope| scope == Scope::All));
    let off = |id: &&TenantId| rig.core.tenants.get(**id).unwrap().grip == Grip::Frozen(Scope::All);
    assert_eq!(others.iter().filter(off).count(), 2, "all of them is off but of whoever has the turn");
}

#[test]
fn where_somebody_has_to_move_all_of_it_is_frozen_at_once() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    for id in 1..=2 {
        rig.busy(id, id, 0, 9);
    }
    rig.until(1.0);
    for _ in 0..500 {
        request(&mut rig, service, 0.01);
    }
    let beside = scopes(&rig, 1.5);
    assert!(!beside.is_empty());
    assert!(beside.iter().all(|&scope| scope == Scope::All), "{beside:?}");
}

#[test]
fn whoever_is_paused_is_off_with_all_that_it_has() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 2);
    for _ in 0..100 {
        request(&mut rig, service, 0.01);
    }
    others.iter().for_each(|tenant| rig.tell(Event::Pause(JobId(tenant.0))));
    request(&mut rig, service, 0.01);
    for tenant in others {
        let grip = rig.core.tenants.get(tenant).unwrap().grip;
        assert_eq!(grip, Grip::Frozen(Scope::All), "{tenant}");
    }
}

#[test]
fn turns_change_while_their_owner_is_off_for_a_hint() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 4);
    hinted(&mut rig, service);
    let before: Vec<_> = others.iter().map(|&tenant| rig.ran(tenant)).collect();
    let (freezes, turns) = hinted(&mut rig, service);
    assert!(turns >= 8, "{turns} turns in a second");
    assert!(freezes <= 101, "{freezes} freezes for 100 hints and {turns} turns");
    for (tenant, before) in others.iter().zip(before) {
        close(rig.ran(*tenant) - before, (1.0 - 100.0 * 0.0021) / 4.0, 0.35);
    }
    hinted(&mut rig, service);
    let told = rig.core.describe(service, rig.now).unwrap().hints;
    assert_eq!((told.good, told.missed), (300, 0), "{told:?}");
}

#[test]
fn a_turn_that_has_just_begun_goes_on_after_a_hint() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    let service = service(&mut rig);
    best_effort(&mut rig, 2);
    let (_, turns) = hinted(&mut rig, service);
    assert!(turns <= 14, "{turns} turns of 100 ms, or a little less, in a second");
}

/// The service has requests for so long.
fn served(rig: &mut Rig, service: TenantId, requests: u32) {
    (0..requests).for_each(|_| request(rig, service, 0.01));
}

fn grip(rig: &Rig, tenant: TenantId) -> Grip {
    rig.core.tenants.get(tenant).unwrap().grip
}

/// A service and three others who take turns beside it, two of whom are frozen as to what they compute.
fn partly_frozen() -> (Rig, TenantId, Vec<TenantId>) {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 3);
    served(&mut rig, service, 100);
    let partly = others.iter().filter(|&&id| grip(&rig, id) == Grip::Frozen(Scope::Compute));
    assert_eq!(partly.count(), 2);
    (rig, service, others)
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
    for step in 0..40 {
        let (mut rig, service, others) = partly_frozen();
        let begin = rig.now.0 as f64 / 1e9;
        // Somewhere in a turn of 100 ms, and in the freeze and the thaw at its end.
        rig.until(begin + 0.08 + f64::from(step) * 0.001);
        let changes = |id: &&TenantId| {
            matches!(grip(&rig, **id), Grip::Freezing(..) | Grip::Thawing(..) | Grip::Widening(_))
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
fn whoever_goes_deep_is_off_with_all_that_it_has_before() {
    let (mut rig, service, others) = partly_frozen();
    let partly = others.iter().copied().find(|&id| grip(&rig, id) == Grip::Frozen(Scope::Compute));
    let partly = partly.unwrap();
    rig.tell(Event::Pause(JobId(partly.0)));
    assert!(!matches!(grip(&rig, partly), Grip::Frozen(Scope::Compute)), "it is made more");
    request(&mut rig, service, 0.01);
    assert_eq!(grip(&rig, partly), Grip::Frozen(Scope::All));
}
