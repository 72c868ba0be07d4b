//! Best-effort work that comes back while a hinted request is still served.

use super::critical::{best_effort, service};
use super::*;

/// A service beside one best-effort tenant that is put back in 500 us.
fn beside(thaw_ahead: bool) -> (Rig, TenantId) {
    let mut rig = Rig::new(Settings { thaw_ahead, ..settings() });
    let service = service(&mut rig);
    best_effort(&mut rig, 1);
    rig.until(1.0);
    (rig, service)
}

/// A request that is hinted, comes in time and takes so many microseconds, and a pause. When the best-effort tenant was told to come
/// back, in microseconds since it began.
fn hinted(rig: &mut Rig, service: TenantId, takes_us: u64) -> u64 {
    let begin = rig.now + Span::from_millis(5);
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    rig.until(begin.0 as f64 / 1e9);
    assert!(!rig.runs().contains(&1), "best-effort work is off");
    let from = rig.diary.len();
    rig.tell(Event::wants(service));
    let end = begin + Span::from_micros(takes_us);
    rig.until(end.0 as f64 / 1e9);
    rig.tell(Event::Idle(service));
    rig.until(end.0 as f64 / 1e9 + 0.005);
    let thaws: Vec<_> =
        rig.diary[from..].iter().filter(|(_, action)| matches!(action, Action::Thaw { .. })).collect();
    let [(at, _)] = thaws[..] else { panic!("not thawed once: {:?}", &rig.diary[from..]) };
    (at.since(begin).0 + 500) / 1000
}

#[test]
fn it_comes_back_as_much_sooner_as_that_takes_once_both_are_known() {
    let (mut rig, service) = beside(true);
    // A thaw of 500 us has its effect after 300.
    let released = [1_000, 1_000, 1_000, 400, 400].map(|takes| hinted(&mut rig, service, takes));
    assert_eq!(released, [1_000, 700, 700, 400, 400], "one that is over sooner lets go then");
    for _ in 0..100 {
        hinted(&mut rig, service, 100);
    }
    assert_eq!(hinted(&mut rig, service, 100), 0, "one that takes less than that, when it begins");
    let (mut rig, service) = beside(false);
    assert_eq!(
        [400, 400, 400].map(|takes| hinted(&mut rig, service, takes)),
        [400; 3],
        "where nobody wants that"
    );
}

#[test]
fn a_request_that_takes_longer_than_usual_is_served_and_the_next_one_finds_the_gpu_free() {
    let (mut rig, service) = beside(true);
    (0..10).for_each(|_| assert!(hinted(&mut rig, service, 400) <= 400));
    let lead_of = |rig: &Rig| rig.core.gpu_of(GpuId(0)).lead.within(Span::MAX);
    let lead = lead_of(&rig);
    assert_eq!(hinted(&mut rig, service, 20_000), 100);
    assert_eq!(lead_of(&rig), lead, "what a freeze takes has not changed");
    // While it is still served its sender hints the next one.
    let begin = rig.now.0 as f64 / 1e9;
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    rig.until(begin + 0.005);
    rig.tell(Event::wants(service));
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(10) });
    rig.until(begin + 0.0149);
    assert_eq!(rig.runs(), [service.0], "best-effort work, which was back, is off again");
    assert_eq!(lead_of(&rig), lead);
    rig.tell(Event::Idle(service));
    rig.until(begin + 0.1);
    assert_eq!(rig.runs(), [1, service.0]);
    let missed = rig.said(1.0, |action| matches!(action, Action::HintMissed { .. }).then_some(()));
    assert!(missed.is_empty(), "{}", missed.len());
}

#[test]
fn another_service_whose_request_is_about_to_come_is_held_for() {
    let (mut rig, service) = beside(true);
    let other = {
        rig.job(101, Terms { class: Class::LatencyCritical, ..Terms::default() });
        rig.tenant(11, 101, 0, 1)
    };
    (0..10).for_each(|_| assert!(hinted(&mut rig, service, 400) <= 400));
    let begin = rig.now.0 as f64 / 1e9;
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    rig.tell(Event::Hint { tenant: other, within: Span::from_micros(6_200) });
    rig.until(begin + 0.005);
    let from = rig.diary.len();
    rig.tell(Event::wants(service));
    rig.until(begin + 0.0062);
    let thawed = rig.diary[from..].iter().any(|(_, action)| matches!(action, Action::Thaw { .. }));
    assert!(!thawed, "it would have to go again before it had come back");
}
