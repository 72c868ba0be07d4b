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
    rig.tell(Event::Wants(service));
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
        rig.tell(Event::Wants(service));
        rig.until(1.015);
        assert_eq!(rig.runs(), [1, 2], "{favour:?}");
    }
    let (mut rig, service) = beside(settings());
    rig.job(1, Terms { class: Class::LatencyCritical, ..Terms::default() });
    rig.tell(Event::Wants(service));
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
                0 => rig.tell(Event::Wants(service)),
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
    rig.tell(Event::Wants(service));
    rig.until(1.03);
    assert_eq!(rig.runs(), [1]);
    rig.until(1.042);
    assert_eq!(rig.runs(), [1, 2]);
}

/// Requests that are there for so much of each 1.25 ms, for eight seconds: what best-effort work had of the last two, and the
/// longest that it was on or off at a time, in milliseconds.
fn dense(rig: &mut Rig, service: TenantId, busy: f64) -> (f64, [f64; 2]) {
    let begin = rig.now.0 as f64 / 1e9;
    rig.tell(Event::Measured { tenant: service, busy: Ratio::ONE });
    let mut before = 0.0;
    let mut longest = [0.0_f64; 2];
    let mut since = (rig.runs().contains(&2), begin);
    for number in 0..6_400 {
        let at = begin + f64::from(number) * 0.001_25;
        rig.until(at);
        rig.tell(Event::Wants(service));
        rig.until(at + busy * 0.001_25);
        rig.tell(Event::Idle(service));
        if number == 4_800 {
            before = rig.ran(TenantId(2));
        }
        let on = rig.runs().contains(&2);
        if number >= 4_800 && since.0 != on {
            let was = &mut longest[usize::from(since.0)];
            *was = was.max(1e3 * (at - since.1));
        }
        if since.0 != on {
            since = (on, at);
        }
    }
    ((rig.ran(TenantId(2)) - before) / 2.0, longest)
}

#[test]
fn dense_requests_and_best_effort_work_take_turns_by_its_guarantee() {
    let with = |percent| {
        let (mut rig, service) =
            beside(Settings { be_guarantee: Ratio::from_percent(percent), ..settings() });
        // Their services have no SLO: nobody is pressed for time otherwise.
        rig.job(1, Terms { class: Class::LatencyCritical, ..Terms::default() });
        dense(&mut rig, service, 0.88)
    };
    let (share, [off, on]) = with(10);
    assert!((0.1..0.2).contains(&share), "{share}");
    assert!((45.0..60.0).contains(&off) && (5.0..15.0).contains(&on), "{off} ms off, {on} ms on");
    let (share, [off, on]) = with(25);
    assert!((0.25..0.4).contains(&share), "{share}");
    assert!((45.0..60.0).contains(&off) && (15.0..30.0).contains(&on), "{off} ms off, {on} ms on");
    assert!(with(0).0 > 0.99, "it is on the shortest slice all the time, and gets nothing of it");
}

#[test]
fn where_it_is_on_between_two_stretches_it_has_a_long_slice_and_afterwards_the_shortest() {
    let (mut rig, service) = beside(settings());
    dense(&mut rig, service, 0.88);
    let slices = rig.said(7.0, |action| match action {
        Action::Thaw { tenant: TenantId(2), slice, .. } => Some(*slice),
        _ => None,
    });
    assert!(slices.len() > 10 && slices.iter().all(|&slice| slice == Slice::Long), "{slices:?}");
    // What is there for less than half of the time is not that dense, also by what the switches would take.
    dense(&mut rig, service, 0.3);
    let end = rig.now.0 as f64 / 1e9;
    rig.until(end + 0.5);
    assert_eq!(rig.runs(), [1, 2]);
    assert_eq!(rig.thawed[&TenantId(2)].1, Slice::Shortest);
}
