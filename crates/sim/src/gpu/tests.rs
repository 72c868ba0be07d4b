use super::*;

fn physics() -> Physics {
    Physics::default()
}

/// Runs a device until an instant, and says what was done when.
fn until(device: &mut Device, end: Time) -> Vec<(Time, GroupId)> {
    let mut seen = Vec::new();
    while let Some(next) = device.next().filter(|next| *next <= end) {
        seen.extend(device.advance(next).into_iter().map(|group| (next, group)));
    }
    seen
}

#[test]
fn alone_a_group_has_all_of_the_gpu() {
    let mut device = Device::new(&physics());
    let group = device.add(Span::from_micros(1));
    device.submit(Time::ZERO, group, Span::from_secs(100));
    let seen = until(&mut device, Time::MAX);
    let load = physics().switch_load.of(physics().switch);
    assert_eq!(seen, [(Time::ZERO + Span::from_secs(100) + load, group)]);
}

#[test]
fn two_groups_share_and_lose_a_switch_for_each_slice() {
    let physics = physics();
    let mut device = Device::new(&physics);
    let slice = Span::from_millis(2);
    let groups = [device.add(slice), device.add(slice)];
    for group in groups {
        device.submit(Time::ZERO, group, Span::from_secs(1_000));
    }
    let end = Time::ZERO + Span::from_secs(10);
    until(&mut device, end);
    let done = groups.map(|group| device.done(end, group).as_secs_f64());
    let expected = 10.0 * 2.0 / 2.23 / 2.0;
    for done in done {
        assert!((done - expected).abs() < 0.01 * expected, "{done} {expected}");
    }
}

#[test]
fn slices_too_short_for_two_are_a_livelock_until_one_goes() {
    let mut device = Device::new(&physics());
    let groups = [device.add(Span::from_micros(1)), device.add(Span::from_micros(1))];
    for group in groups {
        device.submit(Time::ZERO, group, Span::from_secs(1));
    }
    until(&mut device, Time::ZERO + Span::from_secs(60));
    assert!(device.livelock());
    assert_eq!(device.next(), None);
    let at = Time::ZERO + Span::from_secs(60);
    device.freeze(at, groups[0]);
    let seen = until(&mut device, Time::MAX);
    assert_eq!(seen.iter().map(|(_, group)| *group).collect::<Vec<_>>(), [groups[1]]);
}

#[test]
fn a_frozen_group_goes_on_where_it_was() {
    let mut device = Device::new(&physics());
    let group = device.add(Span::from_millis(2));
    device.submit(Time::ZERO, group, Span::from_millis(10));
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    until(&mut device, at(5));
    device.freeze(at(5), group);
    let done = device.done(at(5), group);
    assert_eq!(device.next(), None);
    assert_eq!(device.done(at(500), group), done);
    device.thaw(at(500), group, Span::from_millis(2));
    let restored = Span(physics().switch.0 - physics().switch_save.of(physics().switch).0);
    assert_eq!(until(&mut device, Time::MAX), [((at(510) + restored).before(done), group)]);
}

#[test]
fn nobody_is_left_for_another_while_being_frozen() {
    let mut device = Device::new(&physics());
    let (first, second) = (device.add(Span::from_micros(1)), device.add(Span::from_millis(5)));
    device.submit(Time::ZERO, first, Span::from_secs(1));
    let at = |micros| Time::ZERO + Span::from_micros(micros);
    until(&mut device, at(1_000));
    device.freezing(at(1_000), first);
    device.submit(at(1_100), second, Span::from_micros(50));
    until(&mut device, at(1_400));
    device.freeze(at(1_400), first);
    let load = physics().switch_load.of(physics().switch);
    assert_eq!(until(&mut device, Time::MAX), [(at(1_450) + load, second)]);
}

#[test]
fn a_group_that_leaves_takes_its_work_along() {
    let mut device = Device::new(&physics());
    let groups = [device.add(Span::from_millis(2)), device.add(Span::from_millis(2))];
    for group in groups {
        device.submit(Time::ZERO, group, Span::from_millis(50));
    }
    let at = Time::ZERO + Span::from_millis(3);
    until(&mut device, at);
    device.remove(at, groups[0]);
    let seen = until(&mut device, Time::MAX);
    assert_eq!(seen.iter().map(|(_, group)| *group).collect::<Vec<_>>(), [groups[1]]);
    assert!(!device.has_work(groups[0]));
}
