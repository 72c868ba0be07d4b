//! Beside somebody latency-critical: the mode, its slices and turns, and whose memory goes.

use super::*;

pub(super) fn service(rig: &mut Rig) -> TenantId {
    rig.job(
        100,
        Terms { class: Class::LatencyCritical, slo: Some(Span::from_millis(10)), ..Terms::default() },
    );
    rig.tenant(10, 100, 0, 1)
}

/// A request that takes 100 us, and all the time up to the next one.
pub(super) fn request(rig: &mut Rig, tenant: TenantId, period: f64) {
    let now = rig.now.0 as f64 / 1e9;
    rig.tell(Event::wants(tenant));
    rig.until(now + 0.0001);
    rig.tell(Event::Idle(tenant));
    rig.until(now + period);
}

pub(super) fn best_effort(rig: &mut Rig, count: u64) -> Vec<TenantId> {
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
    rig.tell(Event::wants(service));
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
    rig.tell(Event::wants(service));
    rig.tell(Event::Measured { tenant: service, busy: Ratio::from_percent(99) });
    rig.until(2.0);
    assert_eq!(rig.thawed[&TenantId(1)].1, Slice::Shortest, "it may be a burst");
    rig.until(6.0);
    assert_eq!(rig.thawed[&TenantId(1)].1, Slice::Guaranteed);
    for _ in 0..10 {
        rig.tell(Event::Measured { tenant: service, busy: Ratio::from_percent(50) });
    }
    rig.until(7.0);
    assert_eq!(rig.thawed[&TenantId(1)].1, Slice::Shortest);
}

#[test]
fn a_service_that_leaves_best_effort_just_its_share_has_it_on_the_shortest_slice() {
    let mut rig = Rig::new(Settings { be_guarantee: Ratio::from_percent(10), ..settings() });
    let service = service(&mut rig);
    best_effort(&mut rig, 1);
    rig.tell(Event::wants(service));
    rig.tell(Event::Measured { tenant: service, busy: Ratio::from_percent(90) });
    rig.until(6.0);
    assert_eq!(rig.thawed[&TenantId(1)].1, Slice::Shortest);
}

#[test]
fn beside_a_service_best_effort_tenants_take_turns_of_their_own_length() {
    let mut rig = Rig::new(Settings { lc_turn: Span::from_millis(30), ..settings() });
    let service = service(&mut rig);
    best_effort(&mut rig, 2);
    rig.until(1.0);
    let calm = rig.turns(0.0).len();
    assert!(calm <= 11, "{calm} turns of 100 ms");
    for _ in 0..100 {
        request(&mut rig, service, 0.01);
    }
    let beside = rig.turns(1.0).len();
    assert!((25..=34).contains(&beside), "{beside} turns of 30 ms and what it takes to change");
}

#[test]
fn a_service_whose_thaw_nobody_heard_of_is_thawed_once_more() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    rig.tell(Event::wants(service));
    rig.tell(Event::Pause(JobId(100)));
    rig.until(1.0);
    assert_eq!(rig.runs(), [0; 0]);
    rig.lose = |action| matches!(action, Action::Thaw { .. });
    rig.tell(Event::Resume(JobId(100)));
    rig.until(2.0);
    rig.lose = |_| false;
    rig.until(20.0);
    assert_eq!(rig.runs(), [service.0]);
}

#[test]
fn a_service_over_several_gpus_gets_the_memory_that_one_of_it_asks_for() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(
        100,
        Terms { class: Class::LatencyCritical, gang: true, when_full: WhenFull::Wait, ..Terms::default() },
    );
    let members = [rig.busy(10, 100, 0, 1), rig.busy(11, 100, 1, 1)];
    rig.busy(1, 1, 0, 14);
    rig.busy(2, 2, 1, 14);
    rig.until(1.0);
    let before = rig.diary.len();
    rig.ask(members[0], 100, 4 * GIB);
    rig.until(5.0);
    assert_eq!(rig.core.tenants.get(members[0]).unwrap().whole_bytes(), Bytes::from_gib(5));
    let turns = rig.diary[before..].iter().filter(|(_, action)| matches!(action, Action::TurnBegins { .. }));
    assert!(turns.count() < 200, "{} actions", rig.diary.len() - before);
}

/// It is off by its cap, and not for the service.
#[test]
fn whoever_its_own_cap_keeps_off_is_not_held_back() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    rig.job(1, Terms { compute_max: Some(Ratio::from_percent(10)), ..Terms::default() });
    let other = rig.busy(1, 1, 0, 1);
    for _ in 0..1_000 {
        request(&mut rig, service, 0.01);
        assert!(rig.core.is_critical(GpuId(0)));
        let is_off = !rig.thawed.contains_key(&other);
        let by_cap = rig.core.tenant(other).unwrap().not_before > rig.now;
        assert!(!(is_off && by_cap && rig.core.holds_all_back(GpuId(0))), "at {:?}", rig.now);
    }
}
