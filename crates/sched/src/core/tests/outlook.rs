//! Places of those who wait, beside who is next then.

use super::*;

const STEPS: usize = 1_000;

/// Who waits on the first GPU, in the order of their places, and how long each will.
fn places(rig: &Rig) -> Vec<(u64, f64)> {
    let all = rig.core.outlook(GpuId(0), rig.now, STEPS);
    let mut all: Vec<_> = all
        .into_iter()
        .map(|(id, outlook)| (outlook.place.expect("a place"), id.0, outlook.forecast.expect("a forecast")))
        .collect();
    all.sort_unstable();
    assert!(all.iter().map(|(place, ..)| *place).eq(1..=all.len() as u32), "{all:?}");
    all.into_iter().map(|(_, id, forecast)| (id, forecast.as_secs_f64())).collect()
}

#[test]
fn those_who_wait_are_next_in_the_order_of_their_places() {
    let mut rig = Rig::new(Settings { gap_max: Span::from_secs(22), ..settings() });
    for id in 1..=4 {
        rig.busy(id, id, 0, 12);
    }
    for look in 1..=10 {
        let at = 50.0 + f64::from(look) * 33.7;
        rig.until(at);
        let said = places(&rig);
        assert!(said.len() >= 3, "{said:?}");
        let from = rig.diary.len();
        rig.until(at + 30.0);
        let mut begun: Vec<(u64, f64)> = Vec::new();
        for (when, action) in &rig.diary[from..] {
            if let Action::TurnBegins { tenant, .. } = action
                && said.iter().any(|(id, _)| *id == tenant.0)
                && begun.iter().all(|(id, _)| *id != tenant.0)
            {
                begun.push((tenant.0, when.0 as f64 / 1e9 - at));
            }
        }
        for ((who, forecast), (id, took)) in said.iter().zip(&begun) {
            assert_eq!(who, id, "at {at} s: {said:?}, and it was {begun:?}");
            assert!((forecast - took).abs() < 0.3 + 0.05 * took, "at {at} s: {said:?}, and it was {begun:?}");
        }
    }
}

#[test]
fn only_those_who_wait_have_a_place() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.tenant(3, 3, 0, 1);
    rig.until(1.03);
    let runs = rig.runs()[0];
    assert_eq!(places(&rig).len(), 1);
    assert_eq!(places(&rig)[0].0, a.0 + b.0 - runs);
    assert!(rig.core.outlook(GpuId(7), rig.now, STEPS).is_empty(), "no such GPU");
}

#[test]
fn without_turns_there_is_a_place_and_no_time() {
    let mut rig = Rig::new(Settings { policy: PolicyKind::Serial, ..settings() });
    for id in 1..=3 {
        rig.busy(id, id, 0, 1);
    }
    rig.until(1.0);
    let all = rig.core.outlook(GpuId(0), rig.now, STEPS);
    let expected = |place| Outlook { place: Some(place), of: 2, forecast: None };
    assert_eq!(all, BTreeMap::from([(TenantId(2), expected(1)), (TenantId(3), expected(2))]));
}

#[test]
fn what_is_beyond_the_look_ahead_has_its_place_in_line() {
    let mut rig = Rig::new(settings());
    for id in 1..=4 {
        rig.busy(id, id, 0, 1);
    }
    rig.until(1.02);
    let known = places(&rig);
    let all = rig.core.outlook(GpuId(0), rig.now, 5);
    let first = all.values().filter(|outlook| outlook.forecast.is_some()).count();
    assert!(first < 3, "{all:?}");
    for (place, (id, _)) in (1..).zip(known) {
        assert_eq!(all[&TenantId(id)].place, Some(place), "{all:?}");
    }
}

#[test]
fn whoever_is_kept_out_for_longer_than_can_be_seen_has_no_place() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { compute_max: Some(Ratio::from_percent(1)), ..Terms::default() });
    let (capped, _) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.wait_for(|rig| rig.runs() == [2]);
    let outlook = rig.core.outlook(GpuId(0), rig.now, 1)[&capped];
    assert_eq!((outlook.place, outlook.forecast), (None, None));
}

#[test]
fn those_at_the_door_are_in_the_order_in_which_they_came() {
    let mut rig = Rig::new(Settings { tenants_max: 1, ..settings() });
    let first = rig.tenant(1, 1, 0, 1);
    rig.until(8.0);
    rig.tell(Event::Left(first));
    rig.tell(Event::Buried(first));
    rig.tenant(2, 2, 0, 1);
    rig.job(3, Terms::default());
    for id in [3, 4].map(TenantId) {
        rig.tell(Event::Arrived { tenant: id, job: JobId(3), gpu: GpuId(0), residue: Bytes::ZERO });
    }
    // Somebody stayed for 8 s, so somebody leaves every 8 s.
    let expected =
        |place| Outlook { place: Some(place), of: 2, forecast: Some(Span::from_secs(8 * u64::from(place))) };
    let all = rig.core.outlook(GpuId(0), rig.now, STEPS);
    assert_eq!(all, BTreeMap::from([(TenantId(3), expected(1)), (TenantId(4), expected(2))]));
}
