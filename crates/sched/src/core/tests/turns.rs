//! Turns: who has the GPU, for how long, and who gives way.

use super::*;

#[test]
fn co_residents_take_short_turns_one_at_a_time() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    rig.until(10.0);
    close(rig.ran(a), 5.0, 0.02);
    close(rig.ran(b), 5.0, 0.02);
    assert!(rig.moves(0.0).is_empty());
    let turns = rig.turns(1.0).len();
    assert!((85..=92).contains(&turns), "{turns} turns of 100 ms in 9 s");
}

#[test]
fn one_alone_is_never_disturbed() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 12);
    rig.until(100.0);
    close(rig.ran(a), 100.0, 0.001);
    assert_eq!(rig.turns(0.0), [1]);
    assert!(rig.said(0.0, |action| matches!(action, Action::Freeze { .. }).then_some(())).is_empty());
}

#[test]
fn moving_stays_under_its_share_and_just_enough_moves() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(200.0);
    let moves = rig.moves(50.0);
    // 12 + 12 on 16: of one the 8 GiB that do not fit, not 12.
    assert!(moves.iter().all(|&gib| gib == (8, 8)), "{moves:?}");
    let moving = moves.len() as f64 * 8.0 / 40.0 / 150.0;
    assert!(moving > 0.03 && moving < 0.051, "{moving} of the time went into moving");
    close(rig.ran(a), rig.ran(b), 0.1);
}

#[test]
fn gaps_are_bounded_when_many_wait() {
    let mut rig = Rig::new(Settings { gap_max: Span::from_secs(10), ..settings() });
    for id in 1..=4 {
        rig.busy(id, id, 0, 12);
    }
    rig.until(200.0);
    let begins: Vec<(Time, u64)> = rig
        .diary
        .iter()
        .filter_map(|(at, action)| match action {
            Action::TurnBegins { tenant, .. } => Some((*at, tenant.0)),
            _ => None,
        })
        .filter(|(at, _)| at.0 > 50_000_000_000)
        .collect();
    for id in 1..=4 {
        let own: Vec<_> = begins.iter().filter(|(_, tenant)| *tenant == id).map(|(at, _)| *at).collect();
        assert!(own.len() > 5, "{own:?}");
        for pair in own.windows(2) {
            assert!(pair[1].since(pair[0]) < Span::from_secs(14), "{pair:?}");
        }
    }
}

#[test]
fn whoever_goes_idle_gives_way_once_that_cost_as_much_as_the_switch() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_secs(10), ..settings() });
    let (a, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    rig.until(1.0);
    assert_eq!(rig.turns(0.0), [1]);
    rig.tell(Event::Idle(a));
    rig.until(1.0005);
    assert_eq!(rig.turns(0.0), [1], "too soon");
    rig.until(1.01);
    assert_eq!(rig.turns(0.0), [1, 2]);
    assert_eq!(rig.runs(), [b.0]);
}

#[test]
fn whoever_said_that_it_gives_way_does_so_at_once_and_only_without_work() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_secs(10), ..settings() });
    let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(1.0);
    rig.tell(Event::GivesWay { tenant: a, gives_way: true });
    rig.until(2.0);
    assert_eq!(rig.turns(0.0), [1], "it has work");
    rig.tell(Event::Idle(a));
    rig.until(2.01);
    assert_eq!(rig.moves(2.0).len(), 1, "its memory makes room already");
    rig.until(5.0);
    assert_eq!((rig.turns(0.0), rig.runs()), (vec![1, 2], vec![b.0]));
    // And as others do again.
    rig.tell(Event::GivesWay { tenant: b, gives_way: true });
    rig.tell(Event::GivesWay { tenant: b, gives_way: false });
    rig.tell(Event::wants(a));
    rig.tell(Event::Idle(b));
    rig.until(5.01);
    assert_eq!(rig.turns(0.0), [1, 2], "too soon");
}

#[test]
fn a_short_pause_does_not_cost_a_turn_that_would_have_to_be_moved_for() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 12);
    rig.until(0.5);
    rig.busy(2, 2, 0, 12);
    rig.until(10.0);
    let turns = rig.turns(0.0).len();
    let began = rig.wait_for(|rig| rig.turns(0.0).len() > turns);
    let owner = TenantId(*rig.turns(0.0).last().unwrap());
    // Back again before 8 GiB could have been moved.
    for pause in 0..5 {
        rig.tell(Event::Idle(owner));
        rig.until(began + 0.05 + 0.2 * f64::from(pause));
        rig.tell(Event::wants(owner));
        rig.until(began + 0.15 + 0.2 * f64::from(pause));
    }
    assert_eq!(rig.turns(0.0).len(), turns + 1);
}

#[test]
fn idle_ones_get_no_turns_and_make_room_first() {
    let mut rig = Rig::new(settings());
    let idle = rig.tenant(1, 1, 0, 6);
    let (a, b) = (rig.busy(2, 2, 0, 5), rig.busy(3, 3, 0, 5));
    rig.until(5.0);
    rig.busy(4, 4, 0, 5);
    rig.until(60.0);
    assert!(!rig.turns(0.0).contains(&idle.0));
    let away = rig.core.describe(idle, rig.now).unwrap().away;
    assert_eq!(away, Bytes(5 * GIB), "just enough of the idle one");
    for busy in [a, b] {
        assert_eq!(rig.core.describe(busy, rig.now).unwrap().away, Bytes::ZERO);
    }
}

#[test]
fn two_with_gaps_fill_each_others_gaps_on_long_slices() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    for tenant in [a, b] {
        rig.tell(Event::Measured { tenant, busy: Ratio::from_percent(62) });
    }
    rig.until(5.0);
    assert_eq!(rig.runs(), [1, 2]);
    assert!(rig.thawed.values().all(|&(_, slice)| slice == Slice::Long), "{:?}", rig.thawed);
    let c = rig.busy(3, 3, 0, 4);
    rig.tell(Event::Measured { tenant: c, busy: Ratio::from_percent(62) });
    rig.until(20.0);
    assert_eq!(rig.runs().len(), 2, "one beside the owner, not two");
    close(rig.ran(c) / 15.0, 2.0 / 3.0, 0.15);
}

#[test]
fn those_of_whom_no_work_was_seen_still_take_turns() {
    let mut rig = Rig::new(settings());
    let all = [rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4), rig.busy(3, 3, 0, 4)];
    for tenant in all {
        rig.tell(Event::Measured { tenant, busy: Ratio::ZERO });
    }
    rig.until(30.0);
    for tenant in all {
        close(rig.ran(tenant), 20.0, 0.1);
    }
}

#[test]
fn those_who_are_busy_run_one_at_a_time() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    for tenant in [a, b] {
        rig.tell(Event::Measured { tenant, busy: Ratio::from_percent(80) });
    }
    rig.until(5.05);
    assert_eq!(rig.runs().len(), 1);
}

#[test]
fn serial_runs_each_to_its_end() {
    let mut rig = Rig::new(Settings { policy: PolicyKind::Serial, ..settings() });
    let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(100.0);
    assert_eq!(rig.turns(0.0), [1]);
    rig.tell(Event::Left(a));
    rig.tell(Event::Buried(a));
    rig.until(200.0);
    assert_eq!(rig.turns(0.0), [1, 2]);
    close(rig.ran(b), 100.0, 0.01);
}

#[test]
fn a_paused_job_stops_and_goes_on() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    rig.until(1.0);
    rig.tell(Event::Pause(JobId(1)));
    rig.until(1.1);
    let before = rig.ran(a);
    rig.until(5.0);
    assert_eq!(rig.ran(a), before);
    assert_eq!(rig.core.describe(a, rig.now).unwrap().state, State::Paused);
    assert_eq!(rig.runs(), [b.0]);
    rig.tell(Event::Resume(JobId(1)));
    rig.until(10.0);
    close(rig.ran(a) - before, 2.5, 0.05);
}

#[test]
fn a_turn_forecast_is_about_right() {
    let mut rig = Rig::new(settings());
    for id in 1..=4 {
        rig.busy(id, id, 0, 12);
    }
    rig.until(100.0);
    let waiting: Vec<_> =
        (1..=4).filter_map(|id| Some((id, rig.core.forecast(TenantId(id), rig.now)?))).collect();
    assert_eq!(waiting.len(), 3);
    let from = rig.diary.len();
    rig.until(130.0);
    for (id, forecast) in waiting {
        let mut begins = rig.diary[from..].iter().filter_map(|(at, action)| match action {
            Action::TurnBegins { tenant, .. } if tenant.0 == id => Some(at.0 as f64 / 1e9),
            _ => None,
        });
        let took = begins.next().unwrap() - 100.0;
        close(forecast.as_secs_f64(), took, 0.1);
    }
}

#[test]
fn turns_get_shorter_once_moving_has_become_cheaper() {
    let mut rig = Rig::new(settings());
    let _ = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(100.0);
    let before = rig.turns(50.0).len();
    rig.bandwidth *= 8;
    rig.until(300.0);
    let after = rig.turns(250.0).len();
    assert!(after > 3 * before, "{before} turns in 50 s before, {after} after");
}

/// Who is switched on and off in each instant, in order.
fn switches(rig: &Rig, since: f64) -> Vec<(bool, u64)> {
    rig.said(since, |action| match action {
        Action::Thaw { tenant, .. } => Some((true, tenant.0)),
        Action::Freeze { tenant, .. } => Some((false, tenant.0)),
        _ => None,
    })
}

#[test]
fn the_next_is_put_on_before_the_last_is_taken_off() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    rig.until(1.0);
    let switches = switches(&rig, 0.2);
    assert!(switches.len() > 4);
    for two in switches.chunks_exact(2) {
        assert!(two[0].0 && !two[1].0 && two[0].1 != two[1].1, "{switches:?}");
    }
}

#[test]
fn a_turn_is_whole_from_when_the_last_one_is_off() {
    let mut rig = Rig::new(Settings { turn_max: Span::from_millis(100), ..settings() });
    rig.freeze = Span::from_millis(10);
    rig.busy(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    rig.until(3.0);
    let ends = rig.diary.iter().filter(|(_, action)| matches!(action, Action::TurnEnds { .. }));
    let ends: Vec<_> = ends.map(|&(at, _)| at).skip(2).collect();
    assert!(ends.len() > 10);
    for two in ends.windows(2) {
        assert_eq!(two[1].since(two[0]), Span::from_millis(110));
    }
    // Not for ever: whoever cannot be frozen costs the next one its turn.
    rig.freeze = Span::from_millis(60);
    rig.until(6.0);
    let ran = rig.said(4.0, |action| match action {
        Action::TurnEnds { ran, .. } => Some(*ran),
        _ => None,
    });
    assert!(ran.iter().all(|&ran| ran == Span::from_millis(100)), "{ran:?}");
}
