//! Best-effort work is off while a request is pressed for time.

use super::*;

/// A service with an SLO of 20 ms beside one with turns.
fn beside(settings: Settings) -> (Rig, TenantId) {
    let mut rig = Rig::new(settings);
    let slo = Some(Span::from_millis(20));
    rig.job(1, Terms { class: Class::LatencyCritical, slo, ..Terms::default() });
    let service = rig.tenant(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    rig.until(1.0);
    (rig, service)
}

#[test]
fn a_request_that_has_used_half_of_its_time_takes_best_effort_work_off() {
    let (mut rig, service) = beside(settings());
    rig.tell(Event::wants(service));
    rig.until(1.009);
    assert_eq!(rig.runs(), [1, 2], "there is time enough");
    rig.until(1.012);
    assert_eq!(rig.runs(), [1]);
    rig.tell(Event::Idle(service));
    rig.until(1.014);
    assert_eq!(rig.runs(), [1, 2], "nobody is pressed any more");
}

#[test]
fn best_effort_work_goes_off_for_nobody_who_has_no_slo_nor_where_it_is_favoured() {
    for favour in [Favour::Balanced, Favour::Throughput] {
        let (mut rig, service) = beside(Settings { favour, ..settings() });
        rig.tell(Event::wants(service));
        rig.until(1.015);
        assert_eq!(rig.runs(), [1, 2], "{favour:?}");
    }
    let (mut rig, service) = beside(settings());
    rig.job(1, Terms { class: Class::LatencyCritical, ..Terms::default() });
    rig.tell(Event::wants(service));
    rig.until(1.5);
    assert_eq!(rig.runs(), [1, 2]);
}

#[test]
fn requests_that_are_pressed_again_and_again_leave_best_effort_work_its_guarantee() {
    let on = |percent| {
        let (mut rig, service) =
            beside(Settings { be_guarantee: Ratio::from_percent(percent), ..settings() });
        let mut on = 0;
        for step in 0..6_000 {
            match step % 31 {
                0 => rig.tell(Event::wants(service)),
                30 => rig.tell(Event::Idle(service)),
                _ => {}
            }
            rig.until(1.001 + f64::from(step) / 1e3);
            on += u32::from(rig.runs().contains(&2));
        }
        f64::from(on) / 6e3
    };
    let [none, half, most] = [on(0), on(50), on(80)];
    assert!(
        none < 0.45 && (0.49..0.65).contains(&half) && (0.79..0.9).contains(&most),
        "{none} {half} {most}"
    );
}

#[test]
fn one_that_is_never_idle_is_not_pressed_for_ever() {
    let (mut rig, service) = beside(settings());
    rig.tell(Event::wants(service));
    rig.until(1.03);
    assert_eq!(rig.runs(), [1]);
    rig.until(1.042);
    assert_eq!(rig.runs(), [1, 2]);
}

#[test]
fn a_hint_of_something_far_ahead_does_not_keep_the_request_of_another_from_being_pressed() {
    let (mut rig, service) = beside(settings());
    rig.job(3, Terms { class: Class::LatencyCritical, ..Terms::default() });
    let other = rig.tenant(3, 3, 0, 1);
    rig.tell(Event::Hint { tenant: other, within: Span::from_secs(5) });
    rig.tell(Event::wants(service));
    rig.until(1.012);
    assert_eq!(rig.runs(), [1, 3]);
}

#[test]
fn one_slow_freeze_does_not_end_what_is_done_for_requests_that_are_pressed() {
    let (mut rig, service) = beside(settings());
    rig.freeze = Span::from_micros(500);
    let heeded = |rig: &mut Rig| {
        let (from, now) = (rig.diary.len(), rig.now.0 as f64 / 1e9);
        rig.tell(Event::wants(service));
        rig.until(now + 0.015);
        rig.tell(Event::Idle(service));
        rig.until(now + 0.1);
        rig.diary[from..].iter().any(|(_, action)| matches!(action, Action::Freeze { .. }))
    };
    assert!(heeded(&mut rig));
    rig.freeze = Span::from_millis(26);
    assert!(heeded(&mut rig));
    rig.freeze = Span::from_micros(500);
    assert!((0..10).all(|_| heeded(&mut rig)));
}
