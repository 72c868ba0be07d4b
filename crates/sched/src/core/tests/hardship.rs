//! Hardship: what once went wrong, or was suspected to: gangs that come apart, deaths all the time, settings at their ends.
use super::*;

fn lc() -> Terms {
    Terms { class: Class::LatencyCritical, slo: Some(Span::from_millis(10)), ..Terms::default() }
}
fn gang() -> Terms {
    Terms { gang: true, ..Terms::default() }
}

/// 1. A gang's second member is at the door (or has no context yet) while the first is on its way in.
#[test]
fn a_member_that_arrives_does_not_stop_the_gpu() {
    let mut rig = Rig::new(settings());
    rig.job(1, gang());
    let one = rig.busy(1, 1, 0, 12);
    let other = rig.busy(2, 2, 0, 12);
    rig.until(5.0);
    // Wait until the first one is on its way in.
    let at = rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).incoming == Some(one));
    // Somebody else of its job comes and takes its time to make a context.
    rig.tell(Event::Arrived { tenant: TenantId(3), job: JobId(1), gpu: GpuId(0), residue: Bytes::ZERO });
    let (a, b) = (rig.ran(one), rig.ran(other));
    rig.until(at + 100.0);
    assert!(
        rig.ran(one) - a > 20.0 && rig.ran(other) - b > 20.0,
        "{} {}",
        rig.ran(one) - a,
        rig.ran(other) - b
    );
}

/// 2. A member of a gang does not answer: others go on.
#[test]
fn a_gang_with_an_unsettled_member_does_not_stop_its_gpus() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, gang());
    let members = [rig.busy(1, 1, 0, 4), rig.busy(2, 1, 1, 10)];
    let (a, b) = (rig.busy(3, 3, 0, 4), rig.busy(4, 4, 1, 4));
    let big = rig.busy(5, 5, 1, 8);
    rig.until(5.0);
    rig.lose = |action| matches!(action, Action::Move { out, .. } if out.iter().any(|o| o.tenant.0 == 2));
    let moves = |rig: &Rig| {
        rig.said(5.0, |action| match action {
            Action::Move { op, out, .. } if out.iter().any(|o| o.tenant.0 == 2) => Some((*op, out.clone())),
            _ => None,
        })
    };
    let at = rig.wait_for(|rig| !moves(rig).is_empty());
    let (op, out) = moves(&rig).remove(0);
    rig.tell(Event::Done {
        op,
        outcome: Outcome::Moved {
            out: vec![],
            into: vec![],
            unsettled: out.iter().filter(|o| o.tenant.0 == 2).copied().collect(),
            took: Span::from_secs(3),
        },
    });
    rig.lose = |_| false;
    let before: Vec<f64> = [a, b].iter().map(|&t| rig.ran(t)).collect();
    rig.until(at + 60.0);
    let _ = big;
    for (tenant, before) in [a, b].iter().zip(before) {
        assert!(rig.ran(*tenant) - before > 15.0, "{tenant} ran {}", rig.ran(*tenant) - before);
    }
    rig.tell(Event::Answers(members[1]));
    let before: Vec<f64> = members.iter().map(|&t| rig.ran(t)).collect();
    rig.until(at + 160.0);
    for (tenant, before) in members.iter().zip(before) {
        assert!(rig.ran(*tenant) - before > 8.0, "{tenant} ran {}", rig.ran(*tenant) - before);
    }
}

/// 3. Serial while one runs, then fair.
#[test]
fn a_turn_to_the_end_is_cut_when_turns_are_wanted() {
    let mut rig = Rig::new(Settings { policy: PolicyKind::Serial, ..settings() });
    let (a, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    rig.until(2.0);
    rig.tell(Event::Settings(Box::new(settings())));
    rig.until(12.0);
    assert!(rig.ran(a) > 4.0 && rig.ran(b) > 4.0, "{} {}", rig.ran(a), rig.ran(b));
}

/// 4. Short-lived tenants die all the time: two large ones still take turns.
#[test]
fn deaths_all_the_time_do_not_stop_moves() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(5.0);
    let (ran_a, ran_b) = (rig.ran(a), rig.ran(b));
    let mut last: Option<TenantId> = None;
    for id in 10..310u64 {
        rig.job(id, Terms::default());
        let tenant = TenantId(id);
        rig.tell(Event::Arrived { tenant, job: JobId(id), gpu: GpuId(0), residue: Bytes(1 << 20) });
        rig.until(5.0 + (id - 10) as f64 * 0.2 + 0.1);
        rig.tell(Event::Left(tenant));
        rig.tell(Event::JobOver(JobId(id)));
        rig.until(5.0 + (id - 10) as f64 * 0.2 + 0.15);
        if let Some(last) = last.replace(tenant) {
            rig.tell(Event::Buried(last));
        }
        rig.until(5.0 + (id - 9) as f64 * 0.2);
    }
    let (ran_a, ran_b) = (rig.ran(a) - ran_a, rig.ran(b) - ran_b);
    assert!(ran_a > 20.0 && ran_b > 20.0, "of 60 s: {ran_a} {ran_b}");
}

/// 5. Two services, honest hints that overlap, requests of 20 ms.
#[test]
fn overlapping_hints_leave_best_effort_its_share() {
    let mut rig = Rig::new(Settings { be_guarantee: Ratio::from_percent(20), ..settings() });
    rig.job(100, lc());
    rig.job(101, lc());
    let (x, y) = (rig.tenant(10, 100, 0, 1), rig.tenant(11, 101, 0, 1));
    let be = rig.busy(1, 1, 0, 1);
    rig.until(1.0);
    let before = rig.ran(be);
    let mut at = 1.0;
    for round in 0..500 {
        let (one, other) = if round % 2 == 0 { (x, y) } else { (y, x) };
        rig.tell(Event::wants(one));
        rig.until(at + 0.002);
        if round > 0 {
            rig.tell(Event::Idle(other));
        }
        rig.until(at + 0.015);
        rig.tell(Event::Hint { tenant: other, within: Span::from_millis(5) });
        at += 0.02;
        rig.until(at);
    }
    let got = rig.ran(be) - before;
    assert!(got > 10.0 * 0.19, "best effort got {got} of 10 s");
}

/// 6. A hint for tomorrow, and its sender leaves.
#[test]
fn a_hint_for_tomorrow_is_not_a_mode_for_a_day() {
    let mut rig = Rig::new(settings());
    rig.job(100, lc());
    let service = rig.tenant(10, 100, 0, 1);
    rig.busy(1, 1, 0, 1);
    rig.until(5.0);
    assert!(!rig.core.gpu(GpuId(0)).unwrap().critical);
    rig.tell(Event::Hint { tenant: service, within: Span::from_secs(86_400) });
    rig.until(10.0);
    let hinted = rig.core.gpu(GpuId(0)).unwrap().critical;
    rig.tell(Event::Left(service));
    rig.tell(Event::Buried(service));
    rig.until(20.0);
    let left = rig.core.gpu(GpuId(0)).unwrap().critical;
    assert_eq!((hinted, left), (false, false));
}

/// 7. One slow freeze, and hints are too late for ever.
#[test]
fn one_slow_freeze_does_not_end_all_hints() {
    let mut rig = Rig::new(Settings { hint_lead: Span::from_millis(2), ..settings() });
    rig.job(100, lc());
    let service = rig.tenant(10, 100, 0, 1);
    rig.busy(1, 1, 0, 1);
    let mut at = 1.0;
    rig.until(at);
    rig.freeze = Span::from_millis(60);
    for round in 0..300 {
        rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
        rig.until(at + 0.005);
        rig.tell(Event::wants(service));
        rig.until(at + 0.006);
        rig.tell(Event::Idle(service));
        at += 0.1;
        rig.until(at);
        if round == 0 {
            rig.freeze = Span::from_millis(1);
        }
    }
    let late = rig.said(2.0, |action| match action {
        Action::HintMissed { why, .. } => Some(*why),
        _ => None,
    });
    assert!(late.len() < 50, "{} of 300 missed: {:?}", late.len(), &late[..3.min(late.len())]);
}

/// 8. A copy is found clean while its handle moves.
#[test]
fn what_is_copied_during_a_move_is_counted_once() {
    let mut rig = Rig::new(settings());
    let _ = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.fail = |action| matches!(action, Action::Move { .. });
    let at = rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).moving.is_some());
    let (owned, _) = rig.core.gpu_of(GpuId(0)).moving.as_ref().unwrap().out[0];
    rig.tell(Event::Copied { owned, clean: true });
    rig.until(at + 0.5);
    rig.core.check().unwrap();
}

/// 9. A cap that is lifted holds no more.
#[test]
fn a_cap_that_is_lifted_holds_no_longer() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_secs(10), ..settings() });
    rig.job(1, Terms { compute_max: Some(Ratio::from_percent(1)), ..Terms::default() });
    let a = rig.busy(1, 1, 0, 4);
    rig.until(15.0);
    rig.tell(Event::Job { job: JobId(1), terms: Terms::default() });
    let before = rig.ran(a);
    rig.until(115.0);
    assert!(rig.ran(a) - before > 90.0, "{}", rig.ran(a) - before);
}

/// 10. A request of a job that wants out-of-memory, when its limit goes down.
#[test]
fn a_request_that_can_never_be_granted_any_more_is_denied() {
    let mut rig = Rig::new(settings());
    let (a, _b) = (rig.busy(1, 1, 0, 10), rig.busy(2, 2, 0, 12));
    rig.until(5.0);
    let at = rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).turn.is_some_and(|turn| turn.tenant != a));
    rig.ask(a, 100, 2 * GIB);
    rig.tell(Event::Job {
        job: JobId(1),
        terms: Terms { memory_max: Some(Bytes(10 * GIB)), ..Terms::default() },
    });
    rig.until(at + 300.0);
    let answered = rig.said(5.0, |action| match action {
        Action::Deny { request, .. } | Action::Grant { request, .. } if request.0 == 100 => Some(()),
        _ => None,
    });
    assert_eq!(answered.len(), 1);
}

fn hangs(run: impl FnOnce() + Send + 'static) -> bool {
    let (done, over) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        run();
        let _ = done.send(());
    });
    over.recv_timeout(std::time::Duration::from_secs(10)).is_err()
}

/// 11. Deadlines of nothing.
#[test]
fn deadlines_of_zero_do_not_hang() {
    let zero = |retry: u64, movement: u64, grip: u64| {
        move || {
            let deadlines = Deadlines { grip: Span(grip), movement: Span(movement), retry: Span(retry) };
            let mut rig = Rig::new(Settings { deadlines, ..settings() });
            let _ = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
            let end = Time(1_000_000_000);
            for _ in 0..20_000 {
                let pending = rig.pending.first_key_value().map(|(&(at, _), _)| at);
                let Some(next) =
                    [pending, rig.core.wake_at()].into_iter().flatten().min().filter(|&at| at <= end)
                else {
                    return;
                };
                rig.now = rig.now.max(next);
                if pending == Some(next) {
                    let (_, event) = rig.pending.pop_first().unwrap();
                    rig.tell(event);
                } else {
                    rig.tell(Event::Tick);
                }
            }
        }
    };
    let found = [
        hangs(zero(0, 1_000_000_000, 1_000_000_000)),
        hangs(zero(1_000_000_000, 0, 1_000_000_000)),
        hangs(zero(1_000_000_000, 1_000_000_000, 0)),
    ];
    assert_eq!(found, [false; 3]);
}

/// 11b. A vain asker with a retry of nothing.
#[test]
fn trying_again_at_once_ends() {
    assert!(!hangs(|| {
        let deadlines = Deadlines { retry: Span(0), ..Deadlines::default() };
        let mut rig = Rig::new(Settings { deadlines, ..settings() });
        rig.job(1, Terms { when_full: WhenFull::Wait, memory_max: Some(Bytes(2 * GIB)), ..Terms::default() });
        let _a = rig.tenant(1, 1, 0, 2);
        let b = rig.tenant(2, 1, 0, 0);
        rig.ask(b, 100, GIB);
    }));
}

/// 12. The state with the present moved goes on as the other one does.
#[test]
fn a_rebased_core_goes_on_while_somebody_looks() {
    let mut rig = Rig::new(settings());
    let _ = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.lose = |action| matches!(action, Action::Move { .. } | Action::Inspect { .. });
    rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).looking.is_some());
    let moved = rig.core.rebased(OpId(1)).0;
    let looking = moved.gpu_of(GpuId(0)).looking.unwrap();
    assert!(moved.ops.contains_key(&looking), "{looking:?} is none of {:?}", moved.ops.keys());
}

/// 13. Whoever answers again keeps to its cap.
#[test]
fn answers_does_not_lift_a_cap() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_millis(100), ..settings() });
    rig.job(1, Terms { compute_max: Some(Ratio::from_percent(10)), ..Terms::default() });
    let a = rig.busy(1, 1, 0, 4);
    for step in 0..100 {
        rig.until(f64::from(step) * 0.1);
        rig.tell(Event::Answers(a));
    }
    assert!(rig.ran(a) < 1.5, "{} of 10 s", rig.ran(a));
}

/// 15. One who should end and does not.
#[test]
fn an_end_that_nobody_heard_is_said_again() {
    let mut rig = Rig::new(settings());
    let _ = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12));
    rig.until(5.0);
    rig.lose = |action| matches!(action, Action::End { .. });
    rig.tell(Event::Arena(Bytes(GIB)));
    rig.until(65.0);
    let ends = rig.said(5.0, |action| matches!(action, Action::End { .. }).then_some(()));
    // Once in ten seconds: what the first one leaves behind has to be used before another one ends.
    assert!((2..=7).contains(&ends.len()), "{}", ends.len());
}

/// The same, when nothing else happens that the core would look up for.
#[test]
fn an_end_that_nobody_heard_is_said_again_also_when_all_are_idle() {
    let mut rig = Rig::new(settings());
    let all = [rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 12)];
    rig.until(5.0);
    all.into_iter().for_each(|tenant| rig.tell(Event::Idle(tenant)));
    rig.until(30.0);
    rig.lose = |action| matches!(action, Action::End { .. });
    rig.tell(Event::Arena(Bytes(GIB)));
    rig.until(65.0);
    let ends = rig.said(30.0, |action| matches!(action, Action::End { .. }).then_some(()));
    assert!((2..=4).contains(&ends.len()), "{}", ends.len());
}

/// 16. Compute cap of a gang.
#[test]
fn a_capped_gang_keeps_its_cap() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, Terms { compute_max: Some(Ratio::from_percent(20)), ..gang() });
    let members = [rig.busy(1, 1, 0, 4), rig.busy(2, 1, 1, 4)];
    rig.until(20.0);
    for m in members {
        assert!(rig.ran(m) > 3.0 && rig.ran(m) < 5.0, "{}", rig.ran(m));
    }
}

/// 17. Extremes, live.
#[test]
fn everybody_runs_again_after_settings_at_their_ends() {
    let extremes = [
        Settings { turn_min: Span::from_secs(5), turn_max: Span::ZERO, ..settings() },
        Settings { moving_share: Ratio::ZERO, ..settings() },
        Settings { moving_share: Ratio(u32::MAX), turn_min: Span::ZERO, ..settings() },
        Settings { gap_max: Span::ZERO, ..settings() },
        Settings { ageing: Span::ZERO, policy: PolicyKind::Priority, ..settings() },
        Settings { ageing: Span::MAX, policy: PolicyKind::Deadline, ..settings() },
        Settings { tenants_max: 0, ..settings() },
        Settings { overcommit_max: Ratio::ZERO, ..settings() },
        Settings { headroom: Bytes::from_gib(100), ..settings() },
        Settings { lc_turn: Span::ZERO, lc_linger: Span::MAX, ..settings() },
        Settings {
            filler_below: Ratio(u32::MAX),
            be_guarantee: Ratio(u32::MAX),
            hint_lead: Span::MAX,
            ..settings()
        },
        Settings {
            costs: Costs {
                freeze: Span::MAX,
                thaw: Span::MAX,
                out_per_second: 0,
                in_per_second: 0,
                per_move: Span::MAX,
            },
            ..settings()
        },
    ];
    for (at, extreme) in extremes.into_iter().enumerate() {
        let mut rig = Rig::new(settings());
        rig.job(100, lc());
        let service = rig.tenant(10, 100, 0, 1);
        let all = [rig.busy(1, 1, 0, 10), rig.busy(2, 2, 0, 10), rig.busy(3, 3, 0, 2)];
        rig.until(5.0);
        rig.tell(Event::Settings(Box::new(extreme)));
        for round in 0..20 {
            rig.tell(Event::Hint { tenant: service, within: Span::from_millis(5) });
            rig.tell(Event::wants(service));
            rig.until(5.0 + f64::from(round) * 0.2 + 0.1);
            rig.tell(Event::Idle(service));
            rig.until(5.0 + f64::from(round) * 0.2 + 0.2);
        }
        rig.tell(Event::Settings(Box::new(settings())));
        rig.until(80.0);
        let before = all.map(|t| rig.ran(t));
        rig.until(280.0);
        let after = all.map(|t| rig.ran(t));
        for (b, a) in before.iter().zip(after) {
            assert!(a - b > 20.0, "extreme {at}: {before:?} {after:?}");
        }
    }
}
