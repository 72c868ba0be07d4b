//! Shares: users, jobs, weights, priorities, deadlines and caps.

use super::*;

fn terms(user: u32, weight: u32) -> Terms {
    Terms { user: UserId(user), weight, ..Terms::default() }
}

#[test]
fn weights_are_shares() {
    let mut rig = Rig::new(settings());
    rig.job(1, terms(1, 3));
    rig.job(2, terms(1, 1));
    let (a, b) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.until(10.0);
    close(rig.ran(a) / rig.ran(b), 3.0, 0.06);
    // Live, within a second or so.
    rig.job(1, terms(1, 1));
    rig.job(2, terms(1, 4));
    let (a_then, b_then) = (rig.ran(a), rig.ran(b));
    rig.until(20.0);
    close((rig.ran(b) - b_then) / (rig.ran(a) - a_then), 4.0, 0.1);
}

#[test]
fn who_runs_on_after_its_turn_has_a_shorter_one_next() {
    let mut rig = Rig::new(settings());
    rig.job(1, terms(1, 3));
    rig.job(2, terms(1, 1));
    let (a, b) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.late.insert(b, Span::from_millis(9));
    rig.until(20.0);
    close(rig.ran(a) / rig.ran(b), 3.0, 0.03);
    // By nothing but its length: all have their turns as often as before.
    let turns = rig.turns(10.0);
    assert!(turns.windows(2).all(|two| two[0] != two[1]), "{turns:?}");
    // What is longer than a moment is not paid for.
    rig.late.insert(b, Span::from_millis(90));
    let (a_then, b_then) = (rig.ran(a), rig.ran(b));
    rig.until(40.0);
    let ratio = (rig.ran(a) - a_then) / (rig.ran(b) - b_then);
    assert!(ratio < 2.2, "{ratio}");
}

#[test]
fn a_cap_counts_what_was_had_after_the_turn() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { compute_max: Some(Ratio::from_percent(30)), ..Terms::default() });
    let capped = rig.busy(1, 1, 0, 1);
    rig.late.insert(capped, Span::from_millis(10));
    rig.until(20.0);
    close(rig.ran(capped), 6.0, 0.02);
}

#[test]
fn terms_that_are_told_once_more_cost_nobody_its_share() {
    let mut rig = Rig::new(settings());
    rig.job(1, terms(1, 3));
    rig.job(2, terms(1, 1));
    let (a, b) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    for step in 1..=200 {
        rig.until(f64::from(step) * 0.05);
        rig.job(1, terms(1, 3));
    }
    close(rig.ran(a) / rig.ran(b), 3.0, 0.06);
}

#[test]
fn users_come_before_jobs() {
    let mut rig = Rig::new(settings());
    rig.job(1, terms(1, 1));
    let alone = rig.busy(1, 1, 0, 1);
    let mut many = Vec::new();
    for job in 2..=5 {
        rig.job(job, terms(2, 1));
        many.push(rig.busy(job, job, 0, 1));
    }
    rig.until(20.0);
    close(rig.ran(alone), 10.0, 0.05);
    for tenant in many {
        close(rig.ran(tenant), 2.5, 0.1);
    }
}

#[test]
fn users_have_weights_too_and_processes_of_one_job_share_its_part() {
    let mut rig = Rig::new(settings());
    rig.tell(Event::User { user: UserId(1), weight: 3 });
    rig.job(1, terms(1, 1));
    rig.job(2, terms(2, 1));
    let heavy = rig.busy(1, 1, 0, 1);
    let (b, c) = (rig.busy(2, 2, 0, 1), rig.busy(3, 2, 0, 1));
    rig.until(20.0);
    close(rig.ran(heavy), 15.0, 0.05);
    close(rig.ran(b), 2.5, 0.1);
    close(rig.ran(c), 2.5, 0.1);
}

#[test]
fn a_newcomer_starts_at_the_present() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 1);
    rig.until(100.0);
    let b = rig.busy(2, 2, 0, 1);
    rig.until(110.0);
    close(rig.ran(a) - 100.0, 5.0, 0.05);
    close(rig.ran(b), 5.0, 0.05);
}

#[test]
fn who_was_idle_has_saved_nothing() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.until(2.0);
    rig.tell(Event::Idle(a));
    rig.until(50.0);
    let before = rig.ran(b);
    rig.tell(Event::wants(a));
    rig.until(60.0);
    close(rig.ran(b) - before, 5.0, 0.05);
}

#[test]
fn a_cap_holds_with_and_without_others() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { compute_max: Some(Ratio::from_percent(30)), ..Terms::default() });
    let capped = rig.busy(1, 1, 0, 1);
    rig.until(20.0);
    close(rig.ran(capped), 6.0, 0.05);
    let other = rig.busy(2, 2, 0, 1);
    rig.until(40.0);
    close(rig.ran(capped), 12.0, 0.05);
    close(rig.ran(other), 14.0, 0.05);
}

#[test]
fn higher_priority_cuts_in_and_lower_waits() {
    let mut rig =
        Rig::new(Settings { policy: PolicyKind::Priority, ageing: Span::from_secs(1000), ..settings() });
    rig.job(1, Terms { priority: Priority::Low, ..Terms::default() });
    rig.job(2, Terms { priority: Priority::High, ..Terms::default() });
    let low = rig.busy(1, 1, 0, 1);
    rig.until(5.02);
    let high = rig.busy(2, 2, 0, 1);
    rig.until(5.12);
    assert_eq!(rig.runs(), [high.0], "at once, in the middle of a turn");
    rig.until(20.0);
    assert_eq!(rig.runs(), [high.0]);
    rig.tell(Event::Idle(high));
    rig.until(20.1);
    assert_eq!(rig.runs(), [low.0]);
}

#[test]
fn who_waits_long_rises() {
    let mut rig =
        Rig::new(Settings { policy: PolicyKind::Priority, ageing: Span::from_secs(2), ..settings() });
    rig.job(1, Terms { priority: Priority::Normal, ..Terms::default() });
    rig.job(2, Terms { priority: Priority::High, ..Terms::default() });
    let (normal, _) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.until(60.0);
    let turns = rig.turns(0.0).iter().filter(|&&tenant| tenant == normal.0).count();
    assert!((15..=40).contains(&turns), "{turns} turns in 60 s, about one in 2 s");
}

#[test]
fn equals_under_priority_take_turns() {
    let mut rig = Rig::new(Settings { policy: PolicyKind::Priority, ..settings() });
    let (a, b) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.until(10.0);
    close(rig.ran(a), 5.0, 0.05);
    close(rig.ran(b), 5.0, 0.05);
}

#[test]
fn what_is_due_first_runs_first() {
    let mut rig =
        Rig::new(Settings { policy: PolicyKind::Deadline, turn_min: Span::from_secs(5), ..settings() });
    rig.job(1, Terms { slo: Some(Span::from_secs(100)), ..Terms::default() });
    rig.job(2, Terms { slo: Some(Span::from_secs(1)), ..Terms::default() });
    rig.busy(1, 1, 0, 1);
    rig.until(2.0);
    let urgent = rig.busy(2, 2, 0, 1);
    rig.until(2.1);
    assert_eq!(rig.runs(), [urgent.0]);
}

#[test]
fn who_waits_rises_faster_as_soon_as_that_is_set() {
    let slow = Settings { policy: PolicyKind::Priority, ageing: Span::from_secs(1000), ..settings() };
    let mut rig = Rig::new(slow.clone());
    rig.job(2, Terms { priority: Priority::High, ..Terms::default() });
    let (normal, _) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.until(10.0);
    let before = rig.ran(normal);
    rig.until(20.0);
    assert_eq!(rig.ran(normal), before);
    rig.tell(Event::Settings(Box::new(Settings { ageing: Span::from_secs(1), ..slow })));
    rig.until(21.0);
    assert!(rig.ran(normal) > before);
}
