//! Hints: when best-effort work goes for one, what became of it, and what they may take.

use super::critical::{best_effort, request, service};
use super::*;

#[test]
fn a_slice_that_cannot_be_set_keeps_nobody_from_being_frozen_for_a_hint() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    rig.fail = |action| matches!(action, Action::Slice { .. });
    let service = service(&mut rig);
    best_effort(&mut rig, 1);
    for _ in 0..10 {
        request(&mut rig, service, 0.01);
    }
    let begin = rig.now.0 as f64 / 1e9;
    let tried = rig.said(0.0, |action| matches!(action, Action::Slice { .. }).then_some(())).len();
    assert!((1..=4).contains(&tried), "tried again and again: {tried} times");
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    rig.until(begin + 0.0049);
    assert_eq!(rig.runs(), [service.0], "best-effort work is off");
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

/// How long before a hinted request best-effort work was told to go, in microseconds.
fn lead(rig: &mut Rig, service: TenantId) -> u64 {
    let (begin, from) = (rig.now, rig.diary.len());
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    rig.until((begin.0 + 5_000_000) as f64 / 1e9);
    let freezes = rig.diary[from..].iter().filter(|(_, action)| matches!(action, Action::Freeze { .. }));
    let [(at, _)] = freezes.collect::<Vec<_>>()[..] else {
        panic!("not frozen once: {:?}", &rig.diary[from..])
    };
    let lead = (begin + Span::from_millis(5)).since(*at).0 / 1000;
    request(rig, service, 0.01);
    lead
}

#[test]
fn best_effort_work_goes_as_late_as_it_may() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    rig.freeze = Span::from_micros(500);
    let service = service(&mut rig);
    best_effort(&mut rig, 1);
    for _ in 0..10 {
        request(&mut rig, service, 0.01);
    }
    assert_eq!(lead(&mut rig, service), 2_000, "nothing was seen yet");
    for _ in 0..5 {
        assert_eq!(lead(&mut rig, service), 700);
    }
    rig.freeze = Span::from_micros(900);
    let leads: Vec<_> = (0..5).map(|_| lead(&mut rig, service)).collect();
    assert_eq!(leads, [700, 900, 1_000, 1_050, 1_075], "they take longer, which may be chance at first");
    rig.freeze = Span::from_millis(3);
    let leads: Vec<_> = (0..4).map(|_| lead(&mut rig, service)).collect();
    assert_eq!(leads[2..], [2_000, 2_000], "never more than it may be");
    let missed = rig.said(0.0, |action| match action {
        Action::HintMissed { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(missed.len(), 5, "only those that took longer than was known: {missed:?}");
}

/// Whether somebody was frozen for a hint that is so many microseconds ahead.
fn is_heeded(rig: &mut Rig, service: TenantId, ahead: u64) -> bool {
    let (begin, from) = (rig.now, rig.diary.len());
    rig.tell(Event::Hint { tenant: service, within: Span::from_micros(ahead) });
    rig.until((begin + Span::from_micros(ahead)).0 as f64 / 1e9);
    let heeded = rig.diary[from..].iter().any(|(_, action)| matches!(action, Action::Freeze { .. }));
    request(rig, service, 0.01);
    heeded
}

#[test]
fn hints_are_too_near_by_what_freezes_for_hints_take_and_one_slow_freeze_does_not_end_them() {
    let mut rig = Rig::new(settings());
    rig.freeze = Span::from_micros(500);
    let service = service(&mut rig);
    best_effort(&mut rig, 1);
    for _ in 0..10 {
        request(&mut rig, service, 0.01);
    }
    let heeded = |rig: &mut Rig, ahead| (0..1000).filter(|_| is_heeded(rig, service, ahead)).count();
    for ahead in [600, 1_000, 1_700] {
        assert_eq!(heeded(&mut rig, ahead), 1000, "{ahead} us ahead");
        rig.freeze = Span::from_millis(26);
        heeded(&mut rig, ahead);
        rig.freeze = Span::from_micros(500);
        assert!(heeded(&mut rig, ahead) > 0, "{ahead} us ahead, they are short again");
        heeded(&mut rig, ahead);
        assert_eq!(heeded(&mut rig, ahead), 1000, "{ahead} us ahead, and that is known");
    }
    let near = heeded(&mut rig, 300);
    assert!((10..=20).contains(&near), "{near} of 1000 were tried");
}

/// The core hears that the service was warmed up so soon after the last freeze.
fn warmed(rig: &mut Rig, service: TenantId, after: Span) {
    let mut latest = rig.diary.iter().rev();
    let frozen = latest.find(|(_, action)| matches!(action, Action::Freeze { .. }));
    let at = frozen.expect("somebody was frozen").0 + rig.freeze + after;
    rig.tell(Event::Warmed { tenant: service, at });
}

#[test]
fn best_effort_work_goes_the_later_the_sooner_warm_ups_are_launched() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    rig.freeze = Span::from_micros(500);
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 1);
    for _ in 0..10 {
        request(&mut rig, service, 0.01);
    }
    lead(&mut rig, service);
    assert_eq!(lead(&mut rig, service), 700, "nothing was heard of any");
    warmed(&mut rig, others[0], Span::from_micros(5));
    assert_eq!(lead(&mut rig, service), 700, "nobody warms that one up");
    for _ in 0..5 {
        warmed(&mut rig, service, Span::from_micros(5));
        assert_eq!(lead(&mut rig, service), 595);
    }
    warmed(&mut rig, service, Span::from_micros(60));
    assert_eq!(lead(&mut rig, service), 622, "that one was later");
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
        rig.tell(Event::wants(service));
        rig.until(now + 0.009);
        rig.tell(Event::Idle(service));
        rig.until(now + 0.0092);
    }
    let share = (rig.ran(others[0]) - ran) / 10.0;
    assert!(share > 0.18, "{share}");
}

#[test]
fn hints_are_judged_by_when_requests_come_and_not_by_how_soon_that_is_heard() {
    // Requests come just when they are hinted, and are heard of up to 400 us later.
    let departs = |is_told: bool| {
        let mut rig = Rig::new(settings());
        let service = service(&mut rig);
        best_effort(&mut rig, 1);
        for round in 0..40_u32 {
            let hinted = 1.0 + f64::from(round) * 0.1;
            rig.until(hinted);
            rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
            let late = Span::from_micros(u64::from(round * 37 % 5 * 100));
            rig.until(hinted + 0.005 + late.0 as f64 / 1e9);
            rig.tell(Event::Wants { tenant: service, ago: if is_told { late } else { Span::ZERO } });
            rig.until(hinted + 0.006);
            rig.tell(Event::Idle(service));
        }
        rig.until(6.0);
        rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
        let (_, from) = rig.core.next_departure().expect("somebody runs");
        Time(6_005_000_000).since(from)
    };
    // A freeze, and then a launch that nobody has seen yet.
    let lead = Span::from_micros(1_000 + 200);
    assert_eq!(departs(true), lead, "there is nothing to allow for");
    assert!(departs(false) > lead, "{:?}", departs(false));
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

fn missed(rig: &Rig, since: f64) -> Vec<Missed> {
    rig.said(since, |action| match action {
        Action::HintMissed { why, .. } => Some(*why),
        _ => None,
    })
}

#[test]
fn a_hinted_request_keeps_the_gpu_for_as_long_as_the_guarantee_allows() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 1);
    rig.until(1.0);
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    rig.until(1.005);
    rig.tell(Event::wants(service));
    for tenth in 1..=4 {
        rig.until(1.005 + f64::from(tenth) * 0.1);
        assert!(!rig.thawed.contains_key(&others[0]), "after {tenth} tenths of a second");
    }
    rig.until(1.6);
    assert!(rig.thawed.contains_key(&others[0]), "half a second is the most");
}

#[test]
fn hints_are_counted_by_how_they_ended() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    let service = service(&mut rig);
    best_effort(&mut rig, 1);
    rig.until(1.0);
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    rig.until(1.005);
    request(&mut rig, service, 0.1);
    let counts = |rig: &Rig| rig.core.describe(service, rig.now).unwrap().hints;
    assert_eq!(counts(&rig), HintCounts { good: 1, ..HintCounts::default() });
    // Nothing follows: best-effort work was off in time, so the hint is false, but not missed.
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    rig.until(1.5);
    assert_eq!(counts(&rig), HintCounts { good: 1, false_: 1, ..HintCounts::default() });
    assert_eq!(missed(&rig, 0.0), []);
    // Nobody can be taken off.
    rig.fail = |action| matches!(action, Action::Freeze { .. });
    rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
    rig.until(1.505);
    request(&mut rig, service, 0.1);
    assert_eq!(counts(&rig), HintCounts { good: 1, false_: 1, missed: 1, ..HintCounts::default() });
    assert_eq!(missed(&rig, 0.0), [Missed::Unfrozen]);
}

#[test]
fn a_hint_that_nothing_follows_ends_although_nobody_else_is_there() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    rig.until(5.0);
    rig.tell(Event::Hint { tenant: service, within: Span::from_micros(900) });
    rig.until(6.0);
    assert_eq!(rig.core.describe(service, rig.now).unwrap().hints.false_, 1);
    assert!(rig.core.gpu_of(GpuId(0)).holds.is_empty());
}

/// All hints of a GPU share one list. Whoever fills it with what may come in an hour keeps nobody else from being heard.
#[test]
fn hints_that_are_far_ahead_take_nobody_elses_place() {
    let mut rig = Rig::new(settings());
    rig.job(
        100,
        Terms { class: Class::LatencyCritical, slo: Some(Span::from_millis(10)), ..Terms::default() },
    );
    let services: Vec<_> = (10..16).map(|id| rig.tenant(id, 100, 0, 1)).collect();
    let other = best_effort(&mut rig, 1)[0];
    rig.until(0.1);
    let (honest, far) = services.split_last().unwrap();
    for round in 0..1_000 {
        let within = Span::from_secs(3_600) + Span::from_millis(round);
        far.iter().for_each(|&tenant| rig.tell(Event::Hint { tenant, within }));
    }
    assert!(rig.core.gpu_of(GpuId(0)).holds.is_empty());
    assert!(rig.thawed.contains_key(&other), "nobody is held back for them");
    let begin = rig.now.0 as f64 / 1e9;
    rig.tell(Event::Hint { tenant: *honest, within: Span::from_millis(5) });
    rig.until(begin + 0.005);
    assert!(!rig.thawed.contains_key(&other), "it is off when the request comes");
}

#[test]
fn the_hint_of_a_later_request_outlives_the_one_before() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    let service = service(&mut rig);
    let others = best_effort(&mut rig, 1);
    rig.until(1.0);
    for within in [5, 50].map(Span::from_millis) {
        rig.tell(Event::Hint { tenant: service, within });
    }
    rig.until(1.005);
    request(&mut rig, service, 0.02);
    assert!(rig.thawed.contains_key(&others[0]), "back after the first");
    rig.until(1.05);
    assert!(!rig.thawed.contains_key(&others[0]), "off when the second comes");
    request(&mut rig, service, 0.02);
    let counts = rig.core.describe(service, rig.now).unwrap().hints;
    assert_eq!(counts, HintCounts { good: 2, ..HintCounts::default() });
    assert_eq!(missed(&rig, 0.0), []);
}

/// Nobody saw when it came, only that there is no work left after both.
#[test]
fn the_hint_of_a_request_that_came_while_another_was_served_is_not_false() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    let service = service(&mut rig);
    rig.until(1.0);
    for within in [5, 8].map(Span::from_millis) {
        rig.tell(Event::Hint { tenant: service, within });
    }
    rig.until(1.005);
    rig.tell(Event::wants(service));
    rig.until(1.0085);
    rig.tell(Event::Idle(service));
    rig.until(1.1);
    let counts = rig.core.describe(service, rig.now).unwrap().hints;
    assert_eq!(counts, HintCounts { good: 2, ..HintCounts::default() });
}

#[test]
fn the_mode_begins_as_soon_before_a_hinted_request_as_it_would_last_after_one() {
    let mut rig = Rig::new(settings());
    let service = service(&mut rig);
    best_effort(&mut rig, 2);
    rig.until(5.0);
    assert!(!rig.core.is_critical(GpuId(0)));
    let (within, linger) = (Span::from_secs(8), settings().lc_linger);
    rig.tell(Event::Hint { tenant: service, within });
    // Whatever else happens here is no sooner than the mode.
    let begins = 5.0 + within.as_secs_f64() - linger.as_secs_f64();
    rig.until(begins - 0.01);
    assert!(!rig.core.is_critical(GpuId(0)));
    rig.until(begins + 0.01);
    assert!(rig.core.is_critical(GpuId(0)));
}

/// Each was allowed alone, when nobody had been held back yet.
#[test]
fn hints_that_are_far_ahead_leave_best_effort_work_its_share_too() {
    let share = |percent| {
        let mut rig = Rig::new(Settings { be_guarantee: Ratio::from_percent(percent), ..settings() });
        let services: Vec<_> = (10..14)
            .map(|id| {
                rig.job(id, Terms { class: Class::LatencyCritical, ..Terms::default() });
                rig.tenant(id, id, 0, 1)
            })
            .collect();
        let other = best_effort(&mut rig, 1)[0];
        rig.until(1.0);
        for n in 0..60 {
            let within = Span::from_millis(1_000 + 20 * n);
            rig.tell(Event::Hint { tenant: services[n as usize % 4], within });
        }
        assert_eq!(missed(&rig, 0.0), []);
        rig.until(2.0);
        let before = rig.ran(other);
        for n in 0..60u64 {
            let (service, at) = (services[n as usize % 4], 2.0 + n as f64 * 0.02);
            rig.until(at);
            rig.tell(Event::wants(service));
            rig.until(at + 0.017);
            rig.tell(Event::Idle(service));
        }
        ((rig.ran(other) - before) / 1.2, missed(&rig, 2.0))
    };
    let (free, _) = share(0);
    assert!(free < 0.2, "{free}: they would take the rest");
    let (kept, why) = share(50);
    // Half of each second is over when half of it was held back.
    assert!(kept > 0.4, "{kept}");
    assert!(why.contains(&Missed::Guarantee), "{why:?}");
}

/// A service, and one with time enough to be off while the first has a request: its own take long.
fn tight_and_patient(rig: &mut Rig) -> (TenantId, TenantId) {
    rig.job(11, patience());
    let (tight, patient) = (service(rig), rig.tenant(11, 11, 0, 1));
    for _ in 0..20 {
        let now = rig.now.0 as f64 / 1e9;
        rig.tell(Event::wants(patient));
        rig.until(now + 0.02);
        rig.tell(Event::Idle(patient));
        rig.until(now + 0.1);
    }
    (tight, patient)
}

fn patience() -> Terms {
    Terms { class: Class::LatencyCritical, slo: Some(Span::from_secs(1)), ..Terms::default() }
}

#[test]
fn hints_of_a_service_that_is_off_for_another_hold_all_the_same() {
    let mut rig = Rig::new(settings());
    let other = best_effort(&mut rig, 1)[0];
    let (tight, patient) = tight_and_patient(&mut rig);
    let now = rig.now.0 as f64 / 1e9;
    rig.tell(Event::wants(patient));
    rig.tell(Event::Hint { tenant: patient, within: Span::from_millis(30) });
    rig.until(now + 0.002);
    rig.tell(Event::wants(tight));
    rig.until(now + 0.004);
    assert!(!rig.thawed.contains_key(&patient), "it is off for the other");
    assert_eq!(missed(&rig, now), [], "its hint is kept");
    rig.tell(Event::Hint { tenant: patient, within: Span::from_millis(60) });
    rig.tell(Event::Idle(tight));
    rig.until(now + 0.02);
    rig.tell(Event::Idle(patient));
    rig.until(now + 0.03);
    assert!(!rig.thawed.contains_key(&other), "best-effort work is off when the request comes");
    assert_eq!(missed(&rig, now), []);
}

#[test]
fn each_hint_that_has_not_ended_has_its_hold_and_no_other_has_one() {
    for seed in 1..60u64 {
        let mut rig =
            Rig::new(Settings { be_guarantee: Ratio::from_percent(seed as u32 % 4 * 25), ..settings() });
        let mut random = seed;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let of = |class, slo| Terms { class, slo: Some(Span::from_millis(slo)), ..Terms::default() };
        let services: Vec<_> = (10..13)
            .map(|id| {
                rig.job(id, of(Class::LatencyCritical, if id == 10 { 10 } else { 1_000 }));
                rig.tenant(id, id, 0, 1)
            })
            .collect();
        best_effort(&mut rig, 2);
        for _ in 0..400 {
            let service = services[next(3) as usize];
            let event = match next(100) {
                0..45 => Event::Hint { tenant: service, within: Span::from_micros(next(60_000)) },
                45..65 => Event::Wants { tenant: service, ago: Span::from_micros(next(3_000)) },
                65..95 => Event::Idle(service),
                95 => Event::Pause(JobId(service.0)),
                96 => Event::Resume(JobId(service.0)),
                97 => Event::Context { tenant: service, present: next(2) == 0 },
                98 => Event::Job { job: JobId(service.0), terms: of(Class::BestEffort, 10) },
                _ => Event::Job { job: JobId(service.0), terms: of(Class::LatencyCritical, 10) },
            };
            rig.tell(event);
            let after = rig.now.0 as f64 / 1e9 + next(8_000) as f64 / 1e6;
            rig.until(after);
        }
        // All of them end.
        let after = rig.now.0 as f64 / 1e9 + 1.0;
        services.iter().for_each(|&service| rig.tell(Event::Idle(service)));
        rig.until(after);
        assert_eq!(rig.core.gpu_of(GpuId(0)).holds, [], "seed {seed}");
    }
}

#[test]
fn whoever_is_off_for_another_keeps_nobody_from_having_its_context_loaded() {
    let mut rig = Rig::new(settings());
    best_effort(&mut rig, 1);
    let (tight, patient) = tight_and_patient(&mut rig);
    rig.job(12, patience());
    let third = rig.tenant(12, 12, 0, 1);
    let now = rig.now.0 as f64 / 1e9;
    rig.tell(Event::wants(patient));
    rig.until(now + 0.001);
    rig.tell(Event::wants(tight));
    rig.until(now + 0.003);
    assert!(!rig.thawed.contains_key(&patient), "it is off for the other");
    rig.tell(Event::Hint { tenant: patient, within: Span::from_millis(4) });
    rig.tell(Event::Hint { tenant: third, within: Span::from_millis(5) });
    rig.until(now + 0.007);
    assert!(!rig.thawed.contains_key(&patient), "it still is");
    let loaded = rig.said(now, |action| match action {
        Action::WarmUp { tenant } => Some(*tenant),
        _ => None,
    });
    assert_eq!(loaded, [third]);
}
