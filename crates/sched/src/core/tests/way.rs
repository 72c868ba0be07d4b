//! Whose memory goes first.

use super::*;

/// Who would make room at an instant, the first first.
fn order_at(core: &Core, now: Time) -> Vec<u64> {
    let mut core = core.clone();
    core.now = now;
    core.charge(GpuId(0));
    core.settle_way(GpuId(0));
    core.gpu_of(GpuId(0)).way.first_to_last().map(|id| id.0).collect()
}

/// Who would make room now.
fn order(rig: &Rig) -> Vec<u64> {
    order_at(&rig.core, rig.now)
}

/// Whose memory went since an instant.
fn gone(rig: &Rig, since: f64) -> BTreeSet<u64> {
    let out = rig.said(since, |action| match action {
        Action::Move { out, .. } => Some(out.iter().map(|owned| owned.tenant.0).collect::<Vec<_>>()),
        _ => None,
    });
    out.into_iter().flatten().collect()
}

fn capped(percent: u32) -> Terms {
    Terms { compute_max: Some(Ratio::from_percent(percent)), ..Terms::default() }
}

fn seconds(time: Time) -> f64 {
    time.0 as f64 / 1e9
}

/// One that pauses for so many milliseconds after each 50, so often, and is idle then.
fn pauses(rig: &mut Rig, tenant: TenantId, millis: u64, count: u64) {
    for _ in 0..count {
        let now = seconds(rig.now);
        rig.tell(Event::Idle(tenant));
        rig.until(now + millis as f64 / 1e3);
        rig.tell(Event::wants(tenant));
        rig.until(now + (millis + 50) as f64 / 1e3);
    }
    rig.tell(Event::Idle(tenant));
}

#[test]
fn whoever_a_cap_keeps_out_makes_room_until_its_turn_is_as_near_as_those_of_others() {
    let mut rig = Rig::new(settings());
    rig.job(1, capped(2));
    for id in 1..=3 {
        rig.busy(id, id, 0, 4);
    }
    let out = |rig: &Rig| rig.core.tenants.get(TenantId(1)).unwrap().not_before;
    // It has had least of the GPU, so it would be the next one if it could.
    rig.until(20.0);
    rig.wait_for(|rig| out(rig) > rig.now + Span::from_secs(2));
    assert_eq!(order(&rig)[0], 1);
    // A turn is 0.1 s, and two were in line when its own ended.
    let back = out(&rig);
    rig.until(seconds(back) - 0.21);
    assert_eq!(order(&rig)[0], 1);
    rig.until(seconds(back) - 0.19);
    assert_eq!(order(&rig)[2], 1, "it comes before whoever just had a turn");
}

#[test]
fn of_those_whom_caps_keep_out_the_one_that_comes_last_makes_room_first() {
    let mut rig = Rig::new(settings());
    for (id, percent) in [(1, 2), (2, 1), (3, 3)] {
        rig.job(id, capped(percent));
        rig.busy(id, id, 0, 4);
    }
    rig.until(1.0);
    assert_eq!(order(&rig), [2, 1, 3]);
}

#[test]
fn a_cap_that_hardly_binds_changes_nothing() {
    let mut rig = Rig::new(settings());
    rig.job(1, capped(30));
    for id in 1..=6 {
        rig.busy(id, id, 0, 2);
    }
    rig.until(5.0);
    for millis in (5_000..6_000).step_by(50) {
        rig.until(millis as f64 / 1e3);
        let books = rig.core.gpu_of(GpuId(0));
        let way = |id: u64| rig.core.tenants.get(TenantId(id)).unwrap().in_way.unwrap().way;
        assert!((1..=6).all(|id| matches!(way(id), crate::way::Way::InLine(_))), "{books:?}");
    }
}

#[test]
fn whoever_pauses_shortly_keeps_its_memory_and_only_as_long_as_that_is_short() {
    // 5 GiB each; to move them out and back takes about a quarter of a second.
    let three = || {
        let mut rig = Rig::new(settings());
        let all = [1, 2, 3].map(|id| rig.busy(id, id, 0, 5));
        rig.until(1.0);
        (rig, all[0])
    };
    let (mut rig, a) = three();
    pauses(&mut rig, a, 20, 2);
    assert_eq!(order(&rig)[0], 1, "nobody knows it yet");
    let (mut rig, a) = three();
    pauses(&mut rig, a, 20, 3);
    assert_ne!(order(&rig)[0], 1);
    let now = seconds(rig.now);
    rig.until(now + 0.5);
    assert_ne!(order(&rig)[0], 1);
    rig.until(now + 2.0);
    assert_eq!(order(&rig)[0], 1, "this one is long");
    let (mut rig, a) = three();
    pauses(&mut rig, a, 3_000, 3);
    assert_eq!(order(&rig)[0], 1, "all of them were");
}

#[test]
fn whose_memory_goes_is_decided_by_what_is_known_at_that_time() {
    for (later, goes) in [(0.1, false), (3.0, true)] {
        let mut rig = Rig::new(settings());
        let all = [1, 2, 3].map(|id| rig.busy(id, id, 0, 5));
        rig.until(1.0);
        pauses(&mut rig, all[0], 20, 5);
        rig.until(seconds(rig.now) + later);
        let since = seconds(rig.now);
        rig.busy(4, 4, 0, 2);
        rig.wait_for(|rig| !rig.moves(since).is_empty());
        assert_eq!(gone(&rig, since).contains(&1), goes, "{later}: {:?}", gone(&rig, since));
    }
}

#[test]
fn a_moved_state_gives_away_the_same_memory() {
    let mut rig = Rig::new(settings());
    rig.job(2, capped(5));
    let all = [1, 2, 3].map(|id| rig.busy(id, id, 0, 5));
    rig.until(10.0);
    pauses(&mut rig, all[0], 20, 4);
    let begin = seconds(rig.now);
    let mut seen = BTreeSet::new();
    for step in 0..40 {
        rig.until(begin + f64::from(step) * 0.1);
        rig.tell(Event::Tick);
        let (moved, now, _) = rig.core.rebased(OpId(1));
        seen.insert(order(&rig));
        for ahead in [0, 10, 300, 1_000, 4_000].map(Span::from_millis) {
            let (there, here) = (order_at(&moved, now + ahead), order_at(&rig.core, rig.now + ahead));
            assert_eq!(there, here, "{step} {ahead}");
        }
    }
    assert!(seen.len() > 2, "{seen:?}");
}

#[test]
fn a_moved_state_keeps_the_same_places() {
    let mut rig = Rig::new(settings());
    let all = [1, 2, 3].map(|id| rig.busy(id, id, 0, 5));
    rig.until(1.0);
    pauses(&mut rig, all[0], 20, 3);
    rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).turn.is_some_and(|turn| turn.tenant != all[0]));
    rig.tell(Event::Tick);
    let present = rig.core.gpu_of(GpuId(0)).present;
    let other = *rig.core.gpu_of(GpuId(0)).line.first().map(|(_, id)| id).unwrap();
    for (id, behind) in [(all[0], 20), (other, 10)] {
        rig.core.update(id, |tenant| tenant.virtual_time = present - behind);
    }
    let (moved, now, _) = rig.core.rebased(OpId(1));
    assert_eq!(order(&rig)[1..], [other.0, 1]);
    assert_eq!(order_at(&moved, now), order(&rig));
}
