//! What is fetched ahead of a turn, and what is not.

use super::*;

/// So many of 12 GiB on 16 GiB, each with a third of its memory beside whoever runs.
fn of_twelve(count: u64, settings: Settings) -> Rig {
    let mut rig = Rig::new(settings);
    rig.tell(Event::Arena(Bytes::from_gib(128)));
    for id in 1..=count {
        rig.busy(id, id, 0, 12);
    }
    rig
}

/// Turns of exactly 2 s.
fn two_seconds() -> Settings {
    Settings { turn_min: Span::from_secs(2), turn_max: Span::from_secs(2), ..settings() }
}

/// A move while somebody had its turn: when, who had it, until when, and whose handles came and went.
struct Ahead {
    at: Time,
    until: Time,
    owner: TenantId,
    into: BTreeSet<TenantId>,
    out: BTreeSet<TenantId>,
    gib: (u64, u64),
    next: Option<TenantId>,
}

/// All moves during turns, since an instant in seconds.
fn ahead(rig: &Rig, since: f64) -> Vec<Ahead> {
    let since = Time((since * 1e9) as u64);
    let owners = |all: &[Owned]| all.iter().map(|owned| owned.tenant).collect::<BTreeSet<_>>();
    let gib = |all: &[Owned]| all.iter().map(|owned| rig.sizes[owned].0).sum::<u64>() / GIB;
    let mut turn = None;
    let mut moves: Vec<Ahead> = Vec::new();
    for (at, action) in &rig.diary {
        match action {
            Action::TurnBegins { tenant, until } => {
                moves.iter_mut().filter(|one| one.next.is_none()).for_each(|one| one.next = Some(*tenant));
                turn = Some((*tenant, *until));
            }
            Action::TurnEnds { .. } => turn = None,
            // What an owner grows by is its own.
            Action::Move { into, .. } if into.is_empty() => {}
            Action::Move { out, into, .. } => moves.extend(turn.map(|(owner, until)| Ahead {
                at: *at,
                until,
                owner,
                into: owners(into),
                out: owners(out),
                gib: (gib(out), gib(into)),
                next: None,
            })),
            _ => {}
        }
    }
    moves.retain(|one| one.at >= since);
    moves
}

/// The moves between turns, in GiB out and in.
fn at_switches(rig: &Rig, since: f64) -> Vec<(u64, u64)> {
    let mut during = ahead(rig, since).into_iter().map(|one| one.at).collect::<Vec<_>>();
    let since = Time((since * 1e9) as u64);
    let comes_in = |action: &Action| matches!(action, Action::Move { into, .. } if !into.is_empty());
    let moves = rig.diary.iter().filter(|(at, action)| *at >= since && comes_in(action));
    let gib = |all: &[Owned]| all.iter().map(|owned| rig.sizes[owned].0).sum::<u64>() / GIB;
    let mut between = Vec::new();
    for (at, action) in moves {
        if let Some(place) = during.iter().position(|other| other == at) {
            during.remove(place);
        } else if let Action::Move { out, into, .. } = action {
            between.push((gib(out), gib(into)));
        }
    }
    between
}

#[test]
fn what_is_left_over_of_others_makes_room_for_the_next_one_and_every_switch_is_shorter() {
    let mut rig = of_twelve(4, two_seconds());
    rig.until(60.0);
    let fetched = ahead(&rig, 20.0);
    assert!(!fetched.is_empty());
    for one in &fetched {
        // One handle each way at a time, of one who comes later for the one who is next.
        assert_eq!(one.gib, (1, 1));
        assert!(one.next.is_none_or(|next| one.into == BTreeSet::from([next])), "{:?} came", one.into);
        assert!(!one.out.contains(&one.owner) && one.out.is_disjoint(&one.into));
        assert!(one.at < one.until);
    }
    let switches = at_switches(&rig, 20.0);
    assert!(switches.len() >= 15 && switches.iter().all(|&moved| moved == (8, 8)), "{switches:?}");
    let mut without = of_twelve(4, Settings { prefetch: false, ..two_seconds() });
    without.until(60.0);
    assert!(ahead(&without, 0.0).is_empty());
    let before = at_switches(&without, 20.0);
    assert!(before.iter().filter(|&&moved| moved == (12, 12)).count() * 2 > before.len(), "{before:?}");
}

#[test]
fn it_begins_as_late_as_it_can_and_is_over_in_time() {
    let mut rig = of_twelve(4, two_seconds());
    rig.until(60.0);
    for one in ahead(&rig, 20.0) {
        let left = one.until.since(one.at);
        // Four steps of 1 GiB, each counted as two, with 40 GiB/s, and as long again.
        assert!(left >= Span::from_millis(45), "only {left} were left");
        assert!(left <= Span::from_millis(400), "{left} were left");
    }
}

#[test]
fn free_room_is_used_and_the_switch_has_nothing_to_move() {
    let mut rig = Rig::new(two_seconds());
    let (a, b) = (rig.busy(1, 1, 0, 6), rig.busy(2, 2, 0, 12));
    rig.wait_for(|rig| {
        rig.turns(0.0).len() >= 6 && rig.core.gpu_of(GpuId(0)).turn.is_some_and(|t| t.tenant == a)
    });
    let away = rig.core.tenant(b).unwrap().away;
    assert_eq!(away, Bytes::from_gib(2));
    let begun = rig.now.0 as f64 / 1e9;
    let handles: Vec<_> = rig.core.tenant(a).unwrap().handles.keys().copied().take(3).collect();
    rig.tell(Event::Freed { tenant: a, handles });
    let turns = rig.turns(0.0).len();
    rig.wait_for(|rig| rig.turns(0.0).len() > turns);
    let fetched = ahead(&rig, begun);
    assert_eq!(fetched.iter().map(|one| one.gib).collect::<Vec<_>>(), [(0, 1), (0, 1)]);
    assert!(fetched.iter().all(|one| one.into == BTreeSet::from([b])));
    assert!(at_switches(&rig, begun).is_empty());
}

#[test]
fn whoever_is_whole_and_in_line_keeps_its_memory() {
    // Four of five fit.
    let mut rig = Rig::new(two_seconds());
    for id in 1..=5 {
        rig.busy(id, id, 0, 4);
    }
    rig.until(60.0);
    assert!(ahead(&rig, 0.0).is_empty());
    assert!(!at_switches(&rig, 20.0).is_empty());
}

#[test]
fn whoever_is_idle_makes_room_for_all_of_it() {
    // Two of three fit.
    let mut rig = Rig::new(two_seconds());
    let c = TenantId(3);
    for id in 1..=3 {
        rig.busy(id, id, 0, 8);
    }
    rig.until(20.0);
    let owner = |rig: &Rig| rig.core.gpu_of(GpuId(0)).turn.map(|turn| turn.tenant);
    let is_there = |rig: &Rig| rig.core.tenant(c).unwrap().away == Bytes::ZERO;
    rig.wait_for(|rig| owner(rig).is_some_and(|owner| owner != c) && is_there(rig));
    rig.tell(Event::Idle(c));
    let (begun, turns) = (rig.now.0 as f64 / 1e9, rig.turns(0.0).len());
    rig.wait_for(|rig| rig.turns(0.0).len() > turns);
    let fetched = ahead(&rig, begun);
    assert_eq!(fetched.iter().map(|one| one.gib).collect::<Vec<_>>(), [(1, 1); 8]);
    assert!(fetched.iter().all(|one| one.out == BTreeSet::from([c])));
    assert!(at_switches(&rig, begun).is_empty());
}

#[test]
fn nothing_is_fetched_beside_somebody_latency_critical() {
    let mut rig = Rig::new(two_seconds());
    rig.tell(Event::Arena(Bytes::from_gib(128)));
    rig.job(100, Terms { class: Class::LatencyCritical, ..Terms::default() });
    let lc = rig.tenant(10, 100, 0, 1);
    for id in 1..=4 {
        rig.busy(id, id, 0, 11);
    }
    rig.until(20.0);
    assert!(!ahead(&rig, 10.0).is_empty());
    rig.tell(Event::wants(lc));
    rig.until(20.1);
    rig.until(40.0);
    assert!(ahead(&rig, 20.1).is_empty());
    assert!(!at_switches(&rig, 20.1).is_empty());
}

#[test]
fn nothing_makes_room_while_the_arena_is_all_but_full() {
    let mut rig = Rig::new(two_seconds());
    // 32 GiB are away, and two pieces have to find a place.
    rig.tell(Event::Arena(Bytes::from_gib(34)));
    for id in 1..=4 {
        rig.job(id, Terms { when_full: WhenFull::Wait, ..Terms::default() });
        rig.busy(id, id, 0, 12);
    }
    rig.until(30.0);
    rig.tell(Event::Arena(Bytes::from_gib(33)));
    rig.until(60.0);
    assert_eq!(rig.core.pressure, crate::pressure::Pressure::Refusing);
    assert!(ahead(&rig, 31.0).is_empty() && !at_switches(&rig, 31.0).is_empty());
}

#[test]
fn what_cannot_be_fetched_ahead_keeps_nobody_from_its_turn() {
    let mut rig = of_twelve(4, two_seconds());
    rig.fail = |action| matches!(action, Action::Move { into, .. } if into.len() == 1);
    rig.until(200.0);
    // Once in a while it is tried again, not all the time.
    assert!((2..=4).contains(&ahead(&rig, 20.0).len()), "{}", ahead(&rig, 20.0).len());
    // A switch takes 0.3 s, and nothing is waited for besides.
    assert!(rig.turns(20.0).len() >= 72, "{:?}", rig.turns(20.0));
}

#[test]
fn a_look_more_changes_nothing() {
    let mut rig = of_twelve(4, two_seconds());
    rig.wait_for(|rig| !ahead(rig, 10.0).is_empty());
    rig.tell(Event::Tick);
    let (before, said) = (rig.core.clone(), rig.diary.len());
    for _ in 0..3 {
        rig.tell(Event::Tick);
    }
    assert!(rig.core == before && rig.diary.len() == said);
}

#[test]
fn turns_do_not_get_shorter_by_what_is_moved_ahead_of_them() {
    let usual = Settings { gap_max: Span::from_secs(600), ..settings() };
    let length = |prefetch: bool| {
        let mut rig = of_twelve(4, Settings { prefetch, ..usual.clone() });
        rig.until(200.0);
        let ran = rig.said(100.0, |action| match action {
            Action::TurnEnds { ran, .. } => Some(ran.as_secs_f64()),
            _ => None,
        });
        ran.iter().sum::<f64>() / ran.len() as f64
    };
    close(length(true), length(false), 0.15);
}

#[test]
fn a_paused_one_is_not_fetched_and_makes_room() {
    let mut rig = of_twelve(4, two_seconds());
    rig.until(20.0);
    rig.tell(Event::Pause(JobId(3)));
    rig.until(40.0);
    let fetched = ahead(&rig, 22.0);
    assert!(!fetched.is_empty());
    assert!(fetched.iter().all(|one| !one.into.contains(&TenantId(3))));
}

/// The owner frees and allocates all the time, and finds what was fetched ahead in its place.
#[test]
fn turns_of_one_that_frees_and_allocates_are_no_longer_than_others() {
    let mut rig = of_twelve(4, two_seconds());
    rig.until(20.0);
    let (one, mut next, mut at) = (TenantId(1), 1000, 20.0);
    while at < 200.0 {
        at += 0.02;
        rig.until(at);
        let asks =
            rig.core.tenant(one).is_some_and(|tenant| tenant.resident + tenant.away < Bytes::from_gib(12));
        if !rig.thawed.contains_key(&one) {
            continue;
        }
        if asks {
            next += 1;
            rig.ask(one, next, GIB);
        } else {
            let handle = *rig.core.tenant(one).unwrap().handles.keys().next_back().unwrap();
            rig.tell(Event::Freed { tenant: one, handles: vec![handle] });
        }
    }
    let turns = rig.said(20.0, |action| match action {
        Action::TurnEnds { ran, .. } => Some(ran.as_secs_f64()),
        _ => None,
    });
    assert!(turns.len() > 40 && turns.iter().all(|ran| *ran < 3.0), "{turns:.1?}");
}
