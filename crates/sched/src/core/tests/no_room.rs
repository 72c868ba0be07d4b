//! Best-effort tenants that do not fit beside a service, and when they come on after its last request.

use super::critical::request;
use super::*;

/// A service of 10 GiB on a GPU of 16, which has them.
fn large_service(rig: &mut Rig) -> TenantId {
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    let service = rig.tenant(10, 100, 0, 10);
    rig.until(now(rig) + 2.0);
    service
}

fn now(rig: &Rig) -> f64 {
    rig.now.0 as f64 / 1e9
}

/// How long it takes until somebody has its turn.
fn waits(rig: &mut Rig, tenant: TenantId) -> f64 {
    let began = now(rig);
    let turns = |rig: &Rig| {
        rig.said(began, |action| {
            matches!(action, Action::TurnBegins { tenant: of, .. } if *of == tenant).then_some(())
        })
        .len()
    };
    rig.wait_for(|rig| turns(rig) > 0) - began
}

#[test]
fn after_the_last_request_whoever_had_no_room_comes_on_when_the_service_has_lingered() {
    for linger in [0.0, 0.03, 0.4, 1.0, 2.5] {
        for step in 0u32..8 {
            let mut rig = Rig::new(Settings { lc_linger: Span((linger * 1e9) as u64), ..settings() });
            let other = rig.busy(1, 1, 0, 10);
            let service = large_service(&mut rig);
            rig.tell(Event::wants(service));
            rig.until(6.0 + f64::from(step) * 0.137);
            assert_eq!(rig.runs(), [service.0]);
            rig.tell(Event::Idle(service));
            let waited = waits(&mut rig, other);
            // And 10 GiB each way at 40 GiB/s.
            assert!(
                (linger..linger + 0.6).contains(&waited),
                "{waited} s, lingers for {linger} s, step {step}"
            );
        }
    }
}

#[test]
fn while_requests_come_nobody_is_tried_again_for_each() {
    let mut rig = Rig::new(settings());
    let (small, large) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 10));
    let service = large_service(&mut rig);
    request(&mut rig, service, 0.5);
    let (small_before, large_before) = (rig.ran(small), rig.ran(large));
    for _ in 0..2_000 {
        request(&mut rig, service, 0.01);
    }
    assert_eq!(rig.ran(large), large_before, "there is no room");
    let ran = rig.ran(small) - small_before;
    assert!(ran > 19.0, "{ran} s of 20 s");
}

#[test]
fn of_several_services_the_first_that_makes_room_is_enough() {
    let mut rig = Rig::new(settings());
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    rig.job(101, Terms { class: Class::LatencyCritical, ..Terms::default() });
    let other = rig.busy(1, 1, 0, 8);
    let (one, two) = (rig.tenant(10, 100, 0, 6), rig.tenant(11, 101, 0, 6));
    rig.until(2.0);
    rig.tell(Event::wants(one));
    rig.tell(Event::wants(two));
    rig.until(6.3);
    assert_eq!(rig.runs(), [one.0, two.0]);
    rig.tell(Event::Idle(one));
    let waited = waits(&mut rig, other);
    assert!((1.0..1.5).contains(&waited), "{waited} s");
    assert!(rig.runs().contains(&two.0), "{:?}", rig.runs());
}

#[test]
fn a_service_that_is_paused_or_no_service_any_more_makes_room_at_once() {
    let pause: fn(&mut Rig) = |rig| rig.tell(Event::Pause(JobId(100)));
    let change: fn(&mut Rig) = |rig| rig.job(100, Terms::default());
    for (name, end) in [("paused", pause), ("changed", change)] {
        let mut rig = Rig::new(settings());
        let other = rig.busy(1, 1, 0, 10);
        let service = large_service(&mut rig);
        rig.tell(Event::wants(service));
        rig.until(6.1);
        rig.tell(Event::Idle(service));
        rig.until(6.2);
        end(&mut rig);
        let waited = waits(&mut rig, other);
        assert!(waited < 0.6, "{name}: {waited} s");
    }
}

#[test]
fn whoever_has_used_up_its_cap_waits_for_that_all_the_same() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { compute_max: Some(Ratio::from_percent(20)), ..Terms::default() });
    let other = rig.busy(1, 1, 0, 10);
    let service = large_service(&mut rig);
    rig.until(10.0);
    let ran = rig.ran(other);
    for _ in 0..10 {
        request(&mut rig, service, 0.1);
    }
    rig.until(61.0);
    let share = (rig.ran(other) - ran) / 51.0;
    assert!((0.12..0.22).contains(&share), "{share}");
}

#[test]
fn whoever_asks_for_memory_gets_it_when_a_service_that_only_asked_too_has_lingered() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { when_full: WhenFull::Wait, ..Terms::default() });
    let other = rig.tenant(1, 1, 0, 4);
    let service = large_service(&mut rig);
    rig.ask(service, 100, GIB);
    rig.until(now(&rig) + 0.1);
    for request in 200..204 {
        rig.ask(other, request, GIB);
    }
    let lingers = now(&rig) + 0.9;
    rig.until(lingers + 0.3);
    assert_eq!(rig.sizes.keys().filter(|owned| owned.tenant == other).count(), 8);
}

#[test]
fn to_have_been_put_off_twice_is_no_cap() {
    let mut rig = Rig::new(Settings { lc_linger: Span::ZERO, ..settings() });
    rig.gpu(1, 16);
    rig.gpu(2, 16);
    rig.job(1, Terms { gang: true, ..Terms::default() });
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    let large = rig.busy(3, 1, 2, 10);
    let service = rig.tenant(10, 100, 2, 10);
    rig.until(2.0);
    let leads = [rig.busy(1, 1, 0, 1), rig.busy(2, 1, 1, 1)];
    rig.tell(Event::wants(service));
    let put_off = |rig: &Rig| rig.core.gpu_of(GpuId(2)).no_room.put_off.get(&large).map(|it| it.until);
    rig.wait_for(|rig| put_off(rig).is_some());
    let first = put_off(&rig);
    // Another stands in line for all, and tries again before that is over.
    rig.until(now(&rig) + 0.1);
    leave(&mut rig, leads[0]);
    rig.wait_for(|rig| put_off(rig) > first);
    leave(&mut rig, leads[1]);
    rig.tell(Event::Idle(service));
    let waited = waits(&mut rig, large);
    assert!(waited < 0.6, "{waited} s");
}

fn leave(rig: &mut Rig, tenant: TenantId) {
    rig.tell(Event::Left(tenant));
    rig.tell(Event::Buried(tenant));
}
