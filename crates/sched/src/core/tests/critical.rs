//! Latency-critical tenants and hints.

use super::*;

fn service(rig: &mut Rig) -> TenantId {
    rig.job(
        100,
        Terms { class: Class::LatencyCritical, slo: Some(Span::from_millis(10)), ..Terms::default() },
    );
    rig.tenant(10, 100, 0, 1)
}

/// A request that takes 100 us, and all the time up to the next one.
fn request(rig: &mut Rig, tenant: TenantId, period: f64) {
    let now = rig.now.0 as f64 / 1e9;
    rig.tell(Event::Wants(tenant));
    rig.until(now + 0.0001);
    rig.tell(Event::Idle(tenant));
    rig.until(now + period);
}

fn best_effort(rig: &mut Rig, count: u64) -> Vec<TenantId> {
    (1..=count).map(|id| rig.busy(id, id, 0, 1)).collect()
}

#[test]
fn beside_a_service_exactly_one_best_effort_tenant_runs_on_the_shortest_slice() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 4);
    for _ in 0..100 {
        request(&mut rig, service, 0.01);
    }
    let from = rig.diary.len();
    let began = others.iter().map(|&tenant| rig.ran(tenant)).collect::<Vec<_>>();
    for _ in 0..400 {
        request(&mut rig, service, 0.01);
        assert!(rig.runs().len() <= 2, "{:?}", rig.runs());
        assert!(rig.thawed.contains_key(&service));
        for (tenant, (_, slice)) in &rig.thawed {
            let right = if *tenant == service { Slice::Critical } else { Slice::Shortest };
            assert_eq!(*slice, right, "{tenant}");
        }
    }
    assert!(rig.diary.len() > from);
    let turns = rig.turns(1.0);
    assert!(turns.windows(5).all(|five| five[0] == five[4]), "always in the same order: {turns:?}");
    for (tenant, began) in others.iter().zip(began) {
        close(rig.ran(*tenant) - began, 1.0, 0.12);
    }
}

#[test]
fn the_mode_ends_some_time_after_the_last_request() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    best_effort(&mut rig, 1);
    request(&mut rig, service, 0.5);
    assert!(rig.core.gpu(GpuId(0)).unwrap().critical);
    assert_eq!(rig.thawed[&TenantId(1)].1, Slice::Shortest);
    rig.until(1.2);
    assert!(!rig.core.gpu(GpuId(0)).unwrap().critical);
    assert_eq!(rig.thawed[&TenantId(1)].1, Slice::Own);
}

#[test]
fn a_hint_takes_best_effort_off_ahead_and_the_end_of_the_request_brings_it_back() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 1);
    for _ in 0..10 {
        request(&mut rig, service, 0.01);
    }
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    let begin = rig.now.0 as f64 / 1e9;
    rig.until(begin + 0.0029);
    assert!(rig.thawed.contains_key(&others[0]), "not yet");
    rig.until(begin + 0.005);
    assert!(!rig.thawed.contains_key(&others[0]), "it is off when the request comes");
    let scopes = rig.said(begin, |action| match action {
        Action::Freeze { scope, .. } => Some(*scope),
        _ => None,
    });
    assert_eq!(scopes, [Scope::Compute]);
    let warmed = rig.said(begin, |action| match action {
        Action::WarmUp { tenant } => Some(*tenant),
        _ => None,
    });
    assert_eq!(warmed, [service]);
    request(&mut rig, service, 0.003);
    assert!(rig.thawed.contains_key(&others[0]), "and back");
    assert!(rig.said(begin, |action| matches!(action, Action::HintMissed { .. }).then_some(())).is_empty());
}

#[test]
fn a_false_hint_costs_little_and_many_are_not_believed() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 1);
    request(&mut rig, service, 0.01);
    let (began, ran) = (rig.now.0 as f64 / 1e9, rig.ran(others[0]));
    let mut hint_at = began;
    while hint_at < began + 10.0 {
        rig.tell(Event::Hint { tenant: service, within: Span::from_millis(2) });
        hint_at += 0.005;
        rig.until(hint_at);
    }
    let missed = rig.said(began, |action| match action {
        Action::HintMissed { why, .. } => Some(*why),
        _ => None,
    });
    assert!(missed.iter().filter(|why| **why == Missed::Distrusted).count() > 1000, "{}", missed.len());
    assert!(rig.ran(others[0]) - ran > 8.5, "{}", rig.ran(others[0]) - ran);
}

#[test]
fn best_effort_keeps_its_guaranteed_share_whatever_is_hinted() {
    let mut rig = Rig::new(Settings { be_guarantee: Ratio::from_percent(20), ..settings() });
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 1);
    request(&mut rig, service, 0.01);
    let (began, ran) = (rig.now.0 as f64 / 1e9, rig.ran(others[0]));
    // Requests follow each other at once, all of them hinted, and take all the time there is.
    while rig.now.0 as f64 / 1e9 < began + 10.0 {
        rig.tell(Event::Hint { tenant: service, within: Span::from_millis(1) });
        let now = rig.now.0 as f64 / 1e9;
        rig.until(now + 0.001);
        rig.tell(Event::Wants(service));
        rig.until(now + 0.009);
        rig.tell(Event::Idle(service));
        rig.until(now + 0.0092);
    }
    let share = (rig.ran(others[0]) - ran) / 10.0;
    assert!(share > 0.18, "{share}");
}

#[test]
fn whoever_is_not_latency_critical_cannot_hint() {
    let mut rig = Rig::new(settings());
    let others = best_effort(&mut rig, 1);
    rig.tell(Event::Hint { tenant: others[0], within: Span::from_millis(2) });
    let missed = rig.said(0.0, |action| match action {
        Action::HintMissed { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(missed, [Missed::Unable]);
}

#[test]
fn those_who_share_memory_with_a_service_are_of_its_class() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    let helper = rig.busy(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    rig.tell(Event::Shares(helper, service));
    rig.until(1.0);
    assert!(rig.core.tenants.get(helper).unwrap().critical);
    assert!(rig.thawed.contains_key(&helper));
    // The service becomes best-effort: so does the other.
    rig.job(100, Terms::default());
    assert!(!rig.core.tenants.get(helper).unwrap().critical);
}

#[test]
fn a_service_is_the_last_to_make_room_and_comes_back_at_once() {
    let mut rig = Rig::new(settings());
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    let service = rig.tenant(10, 100, 0, 6);
    rig.busy(1, 1, 0, 10);
    rig.busy(2, 2, 0, 10);
    rig.until(60.0);
    assert!(rig.away.iter().all(|owned| owned.tenant != service), "the others make room for each other");
    // Only without it there is enough for this one.
    rig.busy(3, 3, 0, 12);
    rig.until(120.0);
    assert!(rig.turns(60.0).contains(&3), "{:?}", rig.turns(60.0));
    let from = rig.now.0 as f64 / 1e9;
    rig.tell(Event::Wants(service));
    rig.until(from + 0.5);
    assert!(rig.thawed.contains_key(&service));
}

#[test]
fn services_that_do_not_fit_together_take_turns() {
    let mut rig = Rig::new(settings());
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    rig.job(101, Terms { class: Class::LatencyCritical, ..Terms::default() });
    let a = rig.busy(10, 100, 0, 10);
    rig.until(0.1);
    let b = rig.busy(11, 101, 0, 10);
    rig.until(60.0);
    assert!(rig.ran(a) > 15.0 && rig.ran(b) > 15.0, "{} {}", rig.ran(a), rig.ran(b));
}

#[test]
fn a_service_that_fills_the_gpu_leaves_best_effort_a_longer_slice() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    best_effort(&mut rig, 1);
    rig.tell(Event::Wants(service));
    rig.tell(Event::Measured { tenant: service, busy: Ratio::from_percent(99) });
    rig.until(1.0);
    assert_eq!(rig.thawed[&TenantId(1)].1, Slice::Guaranteed);
    for _ in 0..10 {
        rig.tell(Event::Measured { tenant: service, busy: Ratio::from_percent(50) });
    }
    rig.until(2.0);
    assert_eq!(rig.thawed[&TenantId(1)].1, Slice::Shortest);
}
