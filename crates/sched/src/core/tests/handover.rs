//! From one best-effort tenant to the next beside somebody latency-critical.

use super::critical::{best_effort, request, service};
use super::*;
use crate::tenant::Grip;

pub(super) fn scopes(rig: &Rig, from: f64) -> Vec<Scope> {
    rig.said(from, |action| match action {
        Action::Freeze { scope, .. } => Some(*scope),
        _ => None,
    })
}

/// Requests every 10 ms, each hinted 5 ms ahead, for a second. How often somebody went off, and how many turns began.
fn hinted(rig: &mut Rig, service: TenantId) -> (usize, usize) {
    let begin = rig.now.0 as f64 / 1e9;
    for n in 0..100 {
        rig.until(begin + f64::from(n) * 0.01);
        rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
        rig.until(begin + f64::from(n) * 0.01 + 0.005);
        request(rig, service, 0.004);
    }
    let went = scopes(rig, begin).into_iter().filter(|&scope| scope == Scope::Compute);
    (went.count(), rig.turns(begin).len())
}

#[test]
fn where_nobody_moves_only_what_computes_is_frozen_and_the_rest_when_that_is_over() {
    let mut rig = Rig::new(Settings { lc_turn: Span::from_millis(100), ..settings() });
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 3);
    rig.until(1.0);
    assert!(scopes(&rig, 0.5).iter().all(|&scope| scope == Scope::All), "nobody is served");
    for _ in 0..100 {
        request(&mut rig, service, 0.01);
    }
    let beside = scopes(&rig, 1.5);
    let turns = rig.turns(1.5).len();
    assert!(turns >= 4, "{turns} turns");
    let quick = beside.iter().filter(|&&scope| scope == Scope::Compute).count();
    assert!(turns.abs_diff(quick) <= 1, "{turns} turns: {beside:?}");
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
    let (hint_lead, lc_turn) = (Span::from_millis(2), Span::from_millis(100));
    let mut rig = Rig::new(Settings { hint_lead, lc_turn, ..settings() });
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

#[test]
fn turns_change_when_a_request_is_over_where_nobody_hints() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    best_effort(&mut rig, 4);
    // At intervals that have nothing to do with the length of turns.
    let mut over = Vec::new();
    for _ in 0..200 {
        let now = rig.now.0 as f64 / 1e9;
        rig.tell(Event::wants(service));
        rig.until(now + 0.0017);
        rig.tell(Event::Idle(service));
        over.push(rig.now);
        rig.until(now + 0.0085);
    }
    let turns: Vec<Time> = rig
        .diary
        .iter()
        .filter(|(at, _)| *at >= over[20])
        .filter_map(|(at, action)| matches!(action, Action::TurnEnds { .. }).then_some(*at))
        .collect();
    assert!(turns.len() >= 10, "{} turns", turns.len());
    let apart: Vec<_> = turns.iter().filter(|at| !over.contains(at)).collect();
    assert!(apart.is_empty(), "{apart:?}");
}
