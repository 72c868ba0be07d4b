//! Whoever waited is owed nothing by those who did not, and nobody waits for what nobody will do.

use super::*;

fn gang() -> Terms {
    Terms { gang: true, ..Terms::default() }
}

/// Runs beside `other` for ten seconds, each for half of them.
fn share_equally(rig: &mut Rig, one: TenantId, other: TenantId) {
    let (one_before, other_before) = (rig.ran(one), rig.ran(other));
    let now = rig.now.0 as f64 / 1e9;
    rig.until(now + 10.0);
    close(rig.ran(one) - one_before, 5.0, 0.1);
    close(rig.ran(other) - other_before, 5.0, 0.1);
}

#[test]
fn who_waited_for_memory_in_vain_has_saved_nothing() {
    let mut rig = Rig::new(Settings { overcommit_max: Ratio::from_percent(100), ..settings() });
    rig.job(1, Terms { when_full: WhenFull::Wait, ..Terms::default() });
    let (a, b) = (rig.tenant(1, 1, 0, 8), rig.busy(2, 2, 0, 8));
    rig.ask(a, 100, GIB);
    rig.until(100.0);
    rig.tell(Event::wants(a));
    let handle = rig.handle_of(b);
    rig.tell(Event::Freed { tenant: b, handles: vec![handle] });
    share_equally(&mut rig, a, b);
}

#[test]
fn who_was_latency_critical_is_owed_no_turns() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { class: Class::LatencyCritical, ..Terms::default() });
    let (a, b) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.until(100.0);
    rig.job(1, Terms::default());
    rig.until(102.0);
    share_equally(&mut rig, a, b);
}

#[test]
fn who_was_capped_is_owed_no_turns() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { compute_max: Some(Ratio::from_percent(10)), ..Terms::default() });
    let (a, b) = (rig.busy(1, 1, 0, 1), rig.busy(2, 2, 0, 1));
    rig.until(100.0);
    rig.job(1, Terms::default());
    share_equally(&mut rig, a, b);
}

#[test]
fn an_idle_member_whose_freeze_was_lost_keeps_nobody_waiting_on_another_gpu() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, gang());
    rig.busy(1, 1, 0, 10);
    rig.tenant(2, 1, 1, 4);
    let other = rig.busy(3, 3, 0, 10);
    rig.until(30.0);
    rig.lose = |action| matches!(action, Action::Freeze { tenant: TenantId(2), .. });
    let frozen = |action: &Action| match action {
        Action::Freeze { tenant: TenantId(2), .. } => Some(()),
        _ => None,
    };
    rig.wait_for(|rig| !rig.said(30.0, frozen).is_empty());
    rig.lose = |_| false;
    let (now, before) = (rig.now.0 as f64 / 1e9, rig.ran(other));
    rig.until(now + 60.0);
    assert!(rig.ran(other) - before > 10.0, "{}", rig.ran(other) - before);
}

#[test]
fn what_an_inspection_finds_of_one_member_lets_the_others_run() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, gang());
    rig.tenant(1, 1, 0, 10);
    let member = rig.tenant(2, 1, 1, 4);
    let other = rig.busy(3, 3, 0, 10);
    rig.until(5.0);
    rig.tell(Event::Idle(other));
    rig.lose = |action| matches!(action, Action::Move { .. });
    rig.tell(Event::wants(member));
    rig.until(6.0);
    // The move was made, only nobody said so.
    let moves = rig.said(5.0, |action| match action {
        Action::Move { out, .. } => Some(out.clone()),
        _ => None,
    });
    assert_eq!(moves.len(), 1);
    rig.away = moves[0].iter().copied().collect();
    let before = rig.ran(member);
    rig.until(60.0);
    assert!(rig.ran(member) - before > 30.0, "{}", rig.ran(member) - before);
}

#[test]
fn a_gang_that_was_idle_has_saved_nothing_on_any_of_its_gpus() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, gang());
    let members = [rig.tenant(1, 1, 0, 4), rig.tenant(2, 1, 1, 4)];
    rig.busy(3, 3, 1, 4);
    rig.until(100.0);
    rig.tell(Event::wants(members[0]));
    let present = rig.core.gpu_of(GpuId(1)).present;
    assert!(present > 90_000_000_000, "{present}");
    assert!(rig.core.tenants.get(members[1]).unwrap().virtual_time >= present);
}
