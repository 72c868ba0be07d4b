//! What a priority promises, and what it does not.

use super::*;

const LEVELS: [Priority; 5] =
    [Priority::Realtime, Priority::High, Priority::Normal, Priority::Low, Priority::Idle];

fn by_priority() -> Settings {
    Settings { policy: PolicyKind::Priority, ..settings() }
}

fn of(priority: Priority) -> Terms {
    Terms { priority, ..Terms::default() }
}

/// A freeze and a thaw of the rig.
const FREEZE: f64 = 0.001;
const THAW: f64 = 0.0005;

/// Somebody begins to have work now: says how long it takes until it runs, in seconds.
fn wait_of(rig: &mut Rig, tenant: TenantId) -> f64 {
    rig.tell(Event::wants(tenant));
    let began = rig.now.0 as f64 / 1e9;
    let mut at = began;
    while rig.thawed.get(&tenant).is_none_or(|&(since, _)| since > rig.now) {
        at += 0.000_1;
        rig.until(at);
        assert!(at < began + 60.0, "{tenant} waits for ever");
    }
    at - began
}

/// Instants that have nothing to do with turns, in seconds.
fn instants(count: u64) -> impl Iterator<Item = f64> {
    (1..=count).map(|n| 0.2 + (n * 7919 % 1009) as f64 / 1009.0)
}

#[test]
fn one_that_is_resident_waits_for_a_lower_one_no_longer_than_a_freeze() {
    for pair in LEVELS.windows(2) {
        let mut rig = Rig::new(by_priority());
        rig.job(1, of(pair[0]));
        rig.job(2, of(pair[1]));
        let (high, _) = (rig.tenant(1, 1, 0, 2), rig.busy(2, 2, 0, 2));
        let mut at = 0.0;
        for pause in instants(40) {
            at += pause;
            rig.until(at);
            assert_eq!(rig.runs(), [2], "{pair:?}");
            let waited = wait_of(&mut rig, high);
            assert!(waited <= FREEZE + THAW, "{pair:?}: {waited} s");
            at += waited + 0.05;
            rig.until(at);
            assert_eq!(rig.runs(), [1], "{pair:?}");
            rig.tell(Event::Idle(high));
        }
    }
}

#[test]
fn one_that_is_resident_does_not_wait_for_what_is_moved_for_lower_ones() {
    let mut rig = Rig::new(by_priority());
    rig.tell(Event::Arena(Bytes::from_gib(128)));
    rig.job(1, of(Priority::High));
    let high = rig.tenant(1, 1, 0, 2);
    let others: Vec<_> = (2..=4).map(|id| rig.busy(id, id, 0, 12)).collect();
    let (mut resident, mut during_moves, mut at) = (0, 0, 0.0);
    for pause in instants(1_500) {
        // Its pauses are short: so it keeps its memory.
        at += pause / 12.0;
        rig.until(at);
        let moves = rig.core.gpu_of(GpuId(0)).moving.is_some();
        let is_whole = rig.core.tenant(high).unwrap().is_whole();
        let waited = wait_of(&mut rig, high);
        if is_whole {
            (resident, during_moves) = (resident + 1, during_moves + u32::from(moves));
            assert!(waited <= FREEZE + THAW, "{waited} s, moves: {moves}");
        }
        at = rig.now.0 as f64 / 1e9 + 0.02;
        rig.until(at);
        rig.tell(Event::Idle(high));
    }
    assert!(resident > 1_400 && during_moves > 10, "{resident} times resident, {during_moves} during moves");
    // It cuts turns short all the time, and each of the others comes all the same.
    let ran: Vec<f64> = others.iter().map(|&id| rig.ran(id)).collect();
    assert!(ran.iter().all(|&one| one > ran.iter().sum::<f64>() / 5.0), "{ran:.1?}");
}

#[test]
fn one_that_is_away_waits_for_a_freeze_and_its_own_move() {
    let mut rig = Rig::new(by_priority());
    rig.job(1, of(Priority::High));
    let high = rig.tenant(1, 1, 0, 10);
    let low = rig.busy(2, 2, 0, 10);
    let mut at = 0.0;
    for pause in instants(20) {
        // Long enough for the lower one to have all of its memory and run.
        at += 1.0 + pause;
        rig.until(at);
        assert_eq!(rig.runs(), [low.0]);
        let away = rig.core.tenant(high).unwrap().away.0 as f64;
        assert!(away > 0.0);
        let own_move = away / (40.0 * GIB as f64);
        let waited = wait_of(&mut rig, high);
        assert!(waited <= FREEZE + own_move + THAW + 0.000_2, "{waited} s with {own_move} s to move");
        at = rig.now.0 as f64 / 1e9 + 0.1;
        rig.until(at);
        rig.tell(Event::Idle(high));
    }
}

#[test]
fn five_levels_go_in_their_order() {
    let mut rig = Rig::new(Settings { ageing: Span::MAX, ..by_priority() });
    for (id, priority) in (1..).zip(LEVELS) {
        rig.job(id, of(priority));
    }
    // The lowest comes first, and each next one takes the GPU at once.
    for id in (1..=5).rev() {
        rig.busy(id, id, 0, 1);
        let now = rig.now.0 as f64 / 1e9;
        rig.until(now + 0.1);
        assert_eq!(rig.runs(), [id]);
    }
    // And as each has no more work, the next lower one.
    for id in 1..=4 {
        rig.tell(Event::Idle(TenantId(id)));
        let now = rig.now.0 as f64 / 1e9;
        rig.until(now + 0.1);
        assert_eq!(rig.runs().last(), Some(&(id + 1)));
    }
}

#[test]
fn a_live_change_of_priority_counts_at_once() {
    let mut rig = Rig::new(by_priority());
    let (a, b) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.until(10.25);
    let waits = if rig.runs() == [1] { b } else { a };
    rig.job(waits.0, of(Priority::High));
    rig.until(10.26);
    assert_eq!(rig.runs(), [waits.0]);
    rig.job(waits.0, of(Priority::Idle));
    rig.until(10.27);
    assert_ne!(rig.runs(), [waits.0]);
}

#[test]
fn under_ageing_nobody_starves_also_where_higher_ones_have_all_to_move_again_and_again() {
    for gib in [2, 6, 10] {
        let ageing = Span::from_secs(5);
        let mut rig = Rig::new(Settings { ageing, gap_max: Span::from_secs(10), ..by_priority() });
        rig.tell(Event::Arena(Bytes::from_gib(128)));
        for (id, priority) in (1..).zip(LEVELS) {
            rig.job(id, of(priority));
            rig.busy(id, id, 0, gib);
        }
        // One that wants nothing for a moment, often, and comes back to cut others short.
        let mut at = 0.0;
        while at < 200.0 {
            at += 0.5;
            rig.until(at);
            rig.tell(Event::Idle(TenantId(1)));
            at += 0.1;
            rig.until(at);
            rig.tell(Event::wants(TenantId(1)));
        }
        let shares: Vec<f64> = (1..=5).map(|id| rig.ran(TenantId(id))).collect();
        // Whoever is lowest has risen to the highest by then, and those before it have a turn each.
        let most = 4.0 * 5.0 + 10.0;
        for id in 1..=5 {
            let mut begins: Vec<f64> = rig
                .diary
                .iter()
                .filter(|(_, action)| matches!(action, Action::TurnBegins { tenant, .. } if tenant.0 == id))
                .map(|(at, _)| at.0 as f64 / 1e9)
                .collect();
            begins.push(200.0);
            let longest = begins.windows(2).map(|two| two[1] - two[0]).fold(begins[0], f64::max);
            assert!(longest <= most, "{gib} GiB each: {id} waited for {longest:.1} s");
        }
        assert!(shares.windows(2).all(|two| two[0] > two[1] * 0.9), "{gib} GiB each: {shares:.1?}");
        let without = Settings { ageing: Span::MAX, ..by_priority() };
        let mut strict = Rig::new(without);
        strict.job(1, of(Priority::High));
        let (_, low) = (strict.busy(1, 1, 0, gib), strict.busy(2, 2, 0, gib));
        strict.until(50.0);
        assert!(strict.ran(low) < 1.0, "without ageing it starves, so the above shows something");
    }
}

#[test]
fn nobody_lower_runs_beside_the_owner_of_a_turn() {
    for (priority, runs) in [(Priority::Low, vec![1]), (Priority::Normal, vec![1, 2])] {
        let mut rig = Rig::new(by_priority());
        rig.job(2, of(priority));
        let (owner, other) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
        for tenant in [owner, other] {
            rig.tell(Event::Measured { tenant, busy: Ratio::from_percent(50) });
        }
        rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).turn.is_some_and(|turn| turn.tenant == owner));
        let now = rig.now.0 as f64 / 1e9;
        rig.until(now + 0.01);
        assert_eq!(rig.runs(), runs, "{priority:?}");
    }
}

#[test]
fn who_is_cut_short_again_and_again_keeps_nobody_behind_it_from_a_turn() {
    let mut rig = Rig::new(by_priority());
    rig.job(1, of(Priority::High));
    let high = rig.tenant(1, 1, 0, 1);
    let (a, b) = (rig.busy(2, 2, 0, 1), rig.busy(3, 3, 0, 1));
    let mut at = 0.0;
    while at < 20.0 {
        at += 0.04;
        rig.until(at);
        rig.tell(Event::wants(high));
        at += 0.01;
        rig.until(at);
        rig.tell(Event::Idle(high));
    }
    let shares = [rig.ran(a), rig.ran(b)];
    close(shares[0], shares[1], 0.1);
}

/// Four busy ones and a lowest that has work for `works` seconds at a time, and none for `pause` in between: for how long it ran
/// from when it began to wait until 30 s later, with an ageing of 6 s.
fn lowest_that_pauses(works: f64, pause: f64) -> f64 {
    let mut rig = Rig::new(Settings { ageing: Span::from_secs(6), ..by_priority() });
    for (id, priority) in (1..).zip(LEVELS) {
        rig.job(id, of(priority));
        rig.busy(id, id, 0, 1);
    }
    let lowest = TenantId(5);
    let (mut at, mut paused_at) = (1.0, 0.0);
    rig.until(at);
    rig.ran.remove(&lowest);
    while at < 31.0 {
        at += 0.000_5;
        rig.until(at);
        if rig.ran(lowest) >= paused_at + works {
            rig.tell(Event::Idle(lowest));
            at += pause;
            rig.until(at);
            rig.tell(Event::wants(lowest));
            paused_at = rig.ran(lowest);
        }
    }
    rig.ran(lowest)
}

#[test]
fn whoever_has_risen_has_all_of_its_turn_also_if_it_pauses_in_it() {
    for pause in [0.000_5, 0.003, 0.05] {
        let ran = lowest_that_pauses(0.02, pause);
        // A pause for which nobody else gets the turn is part of it.
        assert!((0.085..0.12).contains(&ran), "{pause} s: it ran for {ran} s");
    }
    let ran = lowest_that_pauses(0.02, 0.5);
    assert!(ran < 0.05, "whoever pauses for longer than a turn begins to wait anew: {ran} s");
    let ran = lowest_that_pauses(1.0, 0.0);
    assert!((0.099..0.12).contains(&ran), "it has no more without a pause: {ran} s");
}

#[test]
fn one_that_goes_on_turn_after_turn_has_not_waited_all_the_time() {
    for at in [43.03, 47.07, 51.01, 55.05] {
        let mut rig = Rig::new(by_priority());
        rig.job(1, of(Priority::High));
        rig.job(3, of(Priority::Idle));
        let high = rig.tenant(1, 1, 0, 2);
        let (normal, _lowest) = (rig.busy(2, 2, 0, 10), rig.busy(3, 3, 0, 10));
        rig.until(at);
        assert_eq!(rig.runs(), [normal.0], "the lowest has not risen so far");
        let waited = wait_of(&mut rig, high);
        assert!(waited <= FREEZE + THAW, "after {at} s: {waited} s");
    }
}

#[test]
fn to_run_is_not_to_wait() {
    // Turns take longer than it takes to rise.
    let (ageing, turn_min) = (Span::from_secs(1), Span::from_secs(5));
    let mut rig = Rig::new(Settings { ageing, turn_min, ..by_priority() });
    rig.job(1, of(Priority::High));
    rig.job(3, of(Priority::Idle));
    let high = rig.tenant(1, 1, 0, 2);
    let normal = rig.busy(2, 2, 0, 10);
    rig.busy(3, 3, 0, 10);
    rig.until(2.5);
    let turn = rig.core.gpu_of(GpuId(0)).turn.unwrap();
    assert!(turn.tenant == normal && turn.since < Time(1_000_000_000), "{turn:?}");
    let waited = wait_of(&mut rig, high);
    assert!(waited <= FREEZE + THAW, "{waited} s");
}

/// The lowest is cut short, and then kept from all work for a minute by something else. Does it have the GPU at once afterwards?
fn comes_first_after(stop: Event, go_on: Event) -> bool {
    let mut rig = Rig::new(Settings { ageing: Span::from_secs(6), ..by_priority() });
    rig.job(1, of(Priority::High));
    rig.job(5, of(Priority::Idle));
    let (high, lowest) = (rig.tenant(1, 1, 0, 1), rig.busy(5, 5, 0, 1));
    rig.busy(6, 5, 0, 1);
    rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).turn.is_some_and(|turn| turn.tenant == lowest));
    rig.tell(Event::wants(high));
    rig.until(8.0);
    assert_eq!(rig.runs(), [high.0]);
    assert!(rig.core.tenant(lowest).unwrap().cut_short.is_some(), "something is left of its turn");
    rig.tell(stop);
    rig.until(65.0);
    rig.tell(go_on);
    rig.until(66.0);
    rig.turns(65.0).contains(&lowest.0)
}

#[test]
fn whoever_was_stopped_has_no_rest_of_a_turn_and_waits_anew() {
    let (tenant, job) = (TenantId(5), JobId(5));
    assert!(!comes_first_after(Event::Pause(job), Event::Resume(job)));
    let context = |present| Event::Context { tenant, present };
    assert!(!comes_first_after(context(false), context(true)));
}

#[test]
fn whoever_was_latency_critical_has_waited_for_no_turn() {
    let mut rig = Rig::new(by_priority());
    let critical = Terms { class: Class::LatencyCritical, ..of(Priority::Low) };
    rig.job(1, critical);
    let service = rig.busy(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    // It has had work for longer than it takes to rise by a level.
    rig.until(100.0);
    rig.job(1, of(Priority::Low));
    rig.until(101.0);
    assert_eq!(rig.runs(), [2]);
    assert!(!rig.turns(100.0).contains(&service.0));
}

#[test]
fn whoever_was_latency_critical_has_no_rest_of_a_turn_from_before() {
    let mut rig = Rig::new(by_priority());
    rig.job(1, of(Priority::High));
    let (high, other) = (rig.tenant(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.busy(3, 3, 0, 1);
    let has_turn = |rig: &Rig| rig.core.gpu_of(GpuId(0)).turn.filter(|turn| turn.tenant == other);
    rig.wait_for(|rig| has_turn(rig).is_some());
    rig.tell(Event::wants(high));
    let now = rig.now.0 as f64 / 1e9;
    rig.until(now + 0.01);
    assert!(rig.core.tenant(other).unwrap().cut_short.is_some(), "something is left of its turn");
    rig.job(2, Terms { class: Class::LatencyCritical, ..Terms::default() });
    rig.until(now + 10.0);
    rig.job(2, Terms::default());
    assert_eq!(rig.core.tenant(other).unwrap().cut_short, None);
}
