//! How long somebody will wait, beside how long it was.

use super::*;

/// What is said now of everybody in these, in seconds.
fn said(rig: &Rig, ids: std::ops::RangeInclusive<u64>) -> Vec<(TenantId, f64)> {
    let forecast = |id| Some((TenantId(id), rig.core.forecast(TenantId(id), rig.now)?.as_secs_f64()));
    ids.filter_map(forecast).collect()
}

/// How long it takes from now on until a tenant runs, in seconds.
fn wait(rig: &mut Rig, id: TenantId) -> f64 {
    let begin = rig.now.0 as f64 / 1e9;
    rig.wait_for(|rig| rig.thawed.get(&id).is_some_and(|&(since, _)| since <= rig.now)) - begin
}

#[test]
fn whoever_is_of_a_gang_waits_for_all_its_gpus() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    for (job, gib) in [(1, 10), (2, 8)] {
        rig.job(job, Terms { gang: true, ..Terms::default() });
        rig.busy(job * 2 - 1, job, 0, gib);
        rig.busy(job * 2, job, 1, gib);
    }
    rig.busy(5, 5, 0, 6);
    rig.busy(6, 6, 1, 6);
    rig.until(100.0);
    let waiting = said(&rig, 1..=6);
    assert_eq!(waiting.len(), 4, "{waiting:?}");
    let mut waiting: Vec<_> = waiting.into_iter().map(|(id, said)| (said, id)).collect();
    waiting.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (said, id) in waiting {
        let before = rig.now.0 as f64 / 1e9 - 100.0;
        close(said, before + wait(&mut rig, id), 0.02);
    }
}

#[test]
fn those_who_work_and_pause_are_expected_to_go_on_so() {
    let mut rig = Rig::new(settings());
    let steady = rig.busy(1, 1, 0, 2);
    let other = rig.tenant(2, 2, 0, 2);
    // 20 ms of work and 20 ms of nothing, again and again.
    let mut said = None;
    let mut began = None;
    for _ in 0..60 {
        rig.tell(Event::wants(other));
        let on = rig.now.0 as f64 / 1e9 + wait(&mut rig, other);
        rig.until(on + 0.01);
        if rig.now > Time(1_500_000_000) && began.is_none() && !rig.thawed.contains_key(&steady) {
            said = rig.core.forecast(steady, rig.now);
            began = Some(rig.now);
        }
        rig.until(on + 0.02);
        rig.tell(Event::Idle(other));
        rig.until(on + 0.04);
        if let (Some(said), Some(began)) = (said, began)
            && let Some(&(since, _)) = rig.thawed.get(&steady)
        {
            // Ten milliseconds to its end, as long again to be sure that it is no pause between two kernels, and a thaw.
            close(said.as_secs_f64(), since.since(began).as_secs_f64(), 0.1);
            assert!(said < Span::from_millis(20), "{said}");
            return;
        }
    }
    panic!("it never waited");
}

/// One that paused once, early and for a second, and has worked without a break ever since: its turn ends when turns do.
#[test]
fn a_pause_that_does_not_come_again_is_not_waited_for() {
    let mut rig = Rig::new(settings());
    let steady = rig.busy(1, 1, 0, 12);
    rig.until(0.5);
    rig.tell(Event::Idle(steady));
    rig.until(1.5);
    rig.tell(Event::wants(steady));
    let other = rig.busy(2, 2, 0, 12);
    rig.until(60.0);
    rig.wait_for(|rig| rig.runs() == [2]);
    rig.wait_for(|rig| rig.runs() == [1]);
    let begin = rig.now;
    let mut said = Vec::new();
    while rig.runs() == [1] {
        let forecast = rig.core.forecast(other, rig.now).expect("it waits");
        said.push((rig.now, forecast));
        rig.until(rig.now.0 as f64 / 1e9 + 0.2);
    }
    assert!(rig.now.since(begin) > Span::from_secs(2), "{said:?}");
    wait(&mut rig, other);
    let runs = rig.thawed[&other].0;
    for (at, forecast) in said {
        close(forecast.as_secs_f64(), runs.since(at).as_secs_f64(), 0.05);
    }
}

#[test]
fn one_who_is_held_back_for_a_request_is_on_again_when_that_is_served() {
    let mut rig = Rig::new(settings());
    let terms = Terms { class: Class::LatencyCritical, ..Terms::default() };
    rig.job(100, terms);
    let service = rig.tenant(10, 100, 0, 1);
    let other = rig.busy(1, 1, 0, 1);
    for round in 1..20 {
        let begin = f64::from(round) * 0.02;
        rig.until(begin);
        rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
        rig.until(begin + 0.0045);
        assert!(!rig.thawed.contains_key(&other), "it is off by then");
        let (said, at) = (rig.core.forecast(other, rig.now).expect("it waits"), rig.now);
        rig.until(begin + 0.005);
        rig.tell(Event::wants(service));
        rig.until(begin + 0.008);
        rig.tell(Event::Idle(service));
        rig.until(begin + 0.01);
        let was = rig.thawed[&other].0.since(at);
        if round > 5 {
            close(said.as_secs_f64(), was.as_secs_f64(), 0.1);
        }
    }
}

#[test]
fn nothing_is_said_of_those_who_do_not_wait_or_when_nobody_can_know() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 1);
    rig.tenant(2, 2, 0, 1);
    rig.until(1.0);
    assert_eq!(said(&rig, 1..=3), [], "one runs, one has nothing to do, one is not there");
    let mut rig = Rig::new(Settings { policy: PolicyKind::Serial, ..settings() });
    rig.busy(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    rig.until(1.0);
    assert_eq!(said(&rig, 1..=2), []);
}

#[test]
fn an_action_that_is_under_way_is_over_when_it_usually_is() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 12);
    rig.busy(2, 2, 0, 12);
    rig.until(30.0);
    let moves = |rig: &Rig| rig.core.describe(TenantId(1), rig.now).unwrap().state == State::Moving;
    let running = TenantId(rig.runs()[0]);
    let next = TenantId(3 - running.0);
    rig.wait_for(moves);
    // In the middle of its move, which takes about 250 ms.
    rig.until(rig.now.0 as f64 / 1e9 + 0.1);
    assert!(moves(&rig));
    let said = rig.core.forecast(next, rig.now).expect("it waits").as_secs_f64();
    let was = wait(&mut rig, next);
    assert!(was < 0.2, "{was}");
    assert!((said - was).abs() < 0.03, "{said}, and it was {was}");
}

#[test]
fn whoever_needs_the_room_of_one_who_died_waits_for_the_burial() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 12);
    rig.busy(2, 2, 0, 12);
    rig.until(30.0);
    let dies = TenantId(rig.runs()[0]);
    let next = TenantId(3 - dies.0);
    rig.tell(Event::Left(dies));
    let said = rig.core.forecast(next, rig.now).expect("it waits").as_secs_f64();
    let begin = rig.now.0 as f64 / 1e9;
    rig.until(begin + 0.1);
    rig.tell(Event::Buried(dies));
    close(said, 0.1 + wait(&mut rig, next), 0.1);
}

#[test]
fn what_somebody_asks_for_is_moved_in_its_turn_too() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { when_full: WhenFull::Wait, ..Terms::default() });
    rig.busy(1, 1, 0, 10);
    rig.busy(2, 2, 0, 6);
    rig.until(10.0);
    rig.wait_for(|rig| rig.runs() == [2]);
    rig.ask(TenantId(1), 50, 2 * GIB);
    let said = rig.core.forecast(TenantId(1), rig.now).expect("it waits").as_secs_f64();
    close(said, wait(&mut rig, TenantId(1)), 0.1);
}

/// Looking ahead ends also for one who could never get on, or not within the hour.
#[test]
fn what_is_too_far_away_is_not_said() {
    let mut rig = Rig::new(Settings { policy: PolicyKind::Priority, ageing: Span::MAX, ..settings() });
    rig.job(1, Terms { priority: Priority::High, ..Terms::default() });
    rig.busy(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    rig.until(1.0);
    assert_eq!(said(&rig, 1..=2), []);
    for (minutes, known) in [(50, true), (70, false)] {
        let turn = Span::from_secs(60 * minutes);
        let mut rig = Rig::new(Settings { turn_min: turn, turn_max: turn, gap_max: turn, ..settings() });
        rig.busy(1, 1, 0, 1);
        rig.busy(2, 2, 0, 1);
        rig.until(1.0);
        assert_eq!(said(&rig, 1..=2).len(), usize::from(known), "turns of {minutes} minutes");
    }
}

#[test]
fn where_all_are_full_a_newcomer_is_sent_to_a_door_and_told_its_place_there() {
    let mut rig = Rig::new(Settings { tenants_max: 1, ..settings() });
    let first = rig.tenant(1, 1, 0, 1);
    rig.until(8.0);
    rig.tell(Event::Left(first));
    rig.tell(Event::Buried(first));
    let second = rig.tenant(2, 2, 0, 1);
    let (ticket, bytes) = (TicketId(1), Bytes::from_gib(1));
    rig.job(3, Terms::default());
    rig.tell(Event::Place { ticket, job: JobId(3), count: 1, among: Vec::new(), bytes, residue: None });
    let placed = rig.said(8.0, |action| match action {
        Action::Place { gpus, .. } => Some(gpus.clone()),
        _ => None,
    });
    assert_eq!(placed, [[GpuId(0)]]);
    let third = rig.tenant(3, 3, 0, 0);
    let queued = rig.said(8.0, |action| match action {
        Action::Queue { tenant, place, forecast, why } => Some((*tenant, *place, *forecast, *why)),
        _ => None,
    });
    assert_eq!(queued, [(third, 1, Some(Span::from_secs(8)), Short::Tenants)]);
    rig.tell(Event::Left(second));
    let admitted = rig.said(8.0, |action| match action {
        Action::Admit { tenant } => Some(*tenant),
        _ => None,
    });
    assert_eq!(admitted, [second, third]);
}

#[test]
fn what_another_gets_and_has_to_move_off_again_is_part_of_a_forecast() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 0));
    rig.until(1.0);
    rig.ask(b, 0, 12 * GIB);
    rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).moving.is_some());
    let forecast = rig.core.forecast(a, rig.now);
    assert!(forecast.is_some(), "it runs again once the other has made room");
}
