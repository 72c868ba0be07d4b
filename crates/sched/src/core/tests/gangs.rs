//! Gangs over several GPUs.

use super::*;

fn gang() -> Terms {
    Terms { gang: true, ..Terms::default() }
}

/// For how long some members of a gang ran without the others, in seconds, looked at every millisecond.
fn apart(rig: &mut Rig, members: &[TenantId], until: f64) -> f64 {
    let mut apart = 0.0;
    let mut at = rig.now.0 as f64 / 1e9;
    while at < until {
        at += 0.001;
        rig.until(at);
        let on = members.iter().filter(|member| rig.thawed.contains_key(member)).count();
        if on != 0 && on != members.len() {
            apart += 0.001;
        }
    }
    apart
}

#[test]
fn members_run_together_on_all_their_gpus() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, gang());
    let members = [rig.busy(1, 1, 0, 4), rig.busy(2, 1, 1, 4)];
    let (a, b) = (rig.busy(3, 3, 0, 4), rig.busy(4, 4, 1, 4));
    rig.until(1.0);
    let before = rig.ran(members[0]);
    let apart = apart(&mut rig, &members, 11.0);
    assert!(apart < 0.3, "{apart} s of 10 they ran apart");
    assert!(rig.ran(members[0]) - before > 3.5, "{}", rig.ran(members[0]) - before);
    for single in [a, b] {
        assert!(rig.ran(single) > 3.5, "{}", rig.ran(single));
    }
}

#[test]
fn gangs_that_overlap_never_wait_for_each_other() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.gpu(2, 16);
    let mut members = Vec::new();
    for (job, gpus) in [(1, [0, 1]), (2, [1, 2]), (3, [0, 2])] {
        rig.job(job, gang());
        for (at, gpu) in gpus.into_iter().enumerate() {
            members.push(rig.busy(job * 10 + at as u64, job, gpu, 4));
        }
    }
    let single = rig.busy(1, 9, 1, 4);
    rig.until(30.0);
    for member in members {
        assert!(rig.ran(member) > 5.0, "{member} ran {}", rig.ran(member));
    }
    assert!(rig.ran(single) > 5.0, "{}", rig.ran(single));
}

#[test]
fn a_gang_that_does_not_fit_is_moved_as_a_whole() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, gang());
    rig.job(2, gang());
    let one = [rig.busy(1, 1, 0, 10), rig.busy(2, 1, 1, 10)];
    rig.until(0.1);
    let other = [rig.busy(3, 2, 0, 10), rig.busy(4, 2, 1, 10)];
    rig.until(100.0);
    for pair in [one, other] {
        close(rig.ran(pair[0]), rig.ran(pair[1]), 0.1);
        assert!(rig.ran(pair[0]) > 30.0, "{}", rig.ran(pair[0]));
    }
    let moving = rig.moves(10.0).len();
    assert!(moving > 4, "{moving}");
}

#[test]
fn members_on_one_gpu_run_side_by_side() {
    let mut rig = Rig::new(settings());
    rig.job(1, gang());
    let members = [rig.busy(1, 1, 0, 2), rig.busy(2, 1, 0, 2)];
    rig.busy(3, 3, 0, 2);
    rig.until(1.0);
    let apart = apart(&mut rig, &members, 5.0);
    assert!(apart < 0.2, "{apart}");
    close(rig.ran(members[0]), rig.ran(members[1]), 0.1);
    assert!(rig.ran(TenantId(3)) > 1.5);
}

#[test]
fn a_gang_goes_on_without_a_member_that_died() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, gang());
    let members = [rig.busy(1, 1, 0, 4), rig.busy(2, 1, 1, 4), rig.busy(3, 1, 1, 4)];
    rig.busy(4, 4, 1, 4);
    rig.until(2.0);
    rig.tell(Event::Left(members[1]));
    rig.tell(Event::Buried(members[1]));
    let before = rig.ran(members[2]);
    rig.until(6.0);
    assert!(rig.ran(members[2]) - before > 1.0);
    rig.tell(Event::Left(members[0]));
    let before = rig.ran(members[2]);
    rig.until(10.0);
    assert!(rig.ran(members[2]) - before > 1.0);
}

/// A thaw takes a little longer here than there. Who comes next must not hang on that.
#[test]
fn a_turn_of_a_gang_ends_on_all_its_gpus_at_once() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, gang());
    let members = [rig.busy(1, 1, 0, 4), rig.busy(2, 1, 1, 4)];
    rig.busy(3, 3, 0, 4);
    rig.busy(4, 4, 1, 4);
    for _ in 0..2 {
        // The one on the second GPU is on sooner, and so its turn begins sooner.
        rig.wait_for(|rig| rig.runs() == [3, 4]);
        let mut looks = 0;
        while rig.turns(0.0).last() != Some(&2) {
            looks += 1;
            assert!(looks < EVENTS_MAX && rig.now < Time(60_000_000_000), "its turn never comes");
            let next = rig.pending.keys().next().map_or(Time::MAX, |&(at, _)| at);
            rig.until(next.min(rig.core.wake_at().unwrap_or(Time::MAX)).0 as f64 / 1e9);
            let thaw = |(_, action): &(Time, Action)| match action {
                Action::Thaw { op, tenant, .. } if *tenant == members[1] => Some(*op),
                _ => None,
            };
            let Some(thaw) = rig.diary.iter().rev().find_map(thaw) else { continue };
            let is_it = |event: &Event| matches!(event, Event::Done { op, .. } if *op == thaw);
            let key = rig.pending.iter().find(|(_, event)| is_it(event)).map(|(&key, _)| key);
            if let Some(event) = key.and_then(|key| rig.pending.remove(&key)) {
                let sooner = rig.now + Span::from_micros(100);
                rig.pending.insert((sooner, 0), event);
            }
        }
        rig.until(rig.now.0 as f64 / 1e9 + 0.002);
        let ends: Vec<_> = rig.core.gpus.values().filter_map(|books| Some(books.turn?.until)).collect();
        assert_eq!(ends.len(), 2);
        assert_eq!(ends[0], ends[1]);
    }
}

#[test]
fn every_member_may_grow_in_the_turn_of_its_gang() {
    // Serial: a turn lasts until all of the gang have what they want and have done their work.
    let mut rig = Rig::new(Settings { policy: PolicyKind::Serial, ..settings() });
    rig.job(1, Terms { when_full: WhenFull::Wait, ..gang() });
    let members = [rig.busy(1, 1, 0, 2), rig.busy(2, 1, 0, 2)];
    let other = rig.busy(3, 3, 0, 15);
    rig.until(1.0);
    // The other one's memory has to go for it.
    rig.ask(members[1], 100, 4 * GIB);
    rig.until(5.0);
    assert_eq!(rig.core.tenants.get(members[1]).unwrap().whole_bytes(), Bytes::from_gib(6));
    for member in members {
        rig.tell(Event::Idle(member));
    }
    rig.until(10.0);
    assert!(rig.ran(other) > 1.0);
}

#[test]
fn a_gang_need_not_wait_for_the_turn_of_one_who_has_gone_idle() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_secs(10), ..settings() });
    rig.gpu(1, 16);
    let single = rig.busy(3, 3, 1, 4);
    rig.until(0.1);
    rig.job(1, gang());
    let members = [rig.busy(1, 1, 0, 4), rig.busy(2, 1, 1, 4)];
    rig.until(1.0);
    assert_eq!(rig.runs(), [single.0], "it waits for the second GPU");
    rig.tell(Event::Idle(single));
    rig.until(1.1);
    assert_eq!(rig.runs(), members.map(|member| member.0));
}

#[test]
fn a_gang_that_goes_idle_while_it_gathers_keeps_no_gpu() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_secs(10), ..settings() });
    rig.gpu(1, 16);
    rig.busy(3, 3, 1, 4);
    rig.until(0.1);
    rig.job(1, gang());
    let members = [rig.busy(1, 1, 0, 4), rig.busy(2, 1, 1, 4)];
    rig.until(1.0);
    assert_eq!(rig.core.gpu_of(GpuId(0)).held_by, Some(JobId(1)));
    members.into_iter().for_each(|member| rig.tell(Event::Idle(member)));
    assert_eq!(rig.core.gpu_of(GpuId(0)).held_by, None);
    assert!(rig.core.gpu_of(GpuId(1)).gangs_waiting.is_empty());
}

#[test]
fn a_gang_that_only_asks_for_what_it_cannot_get_keeps_nobody_from_a_turn() {
    // Serial: nothing else would end its turn.
    let mut rig = Rig::new(Settings { policy: PolicyKind::Serial, ..settings() });
    rig.job(1, Terms { memory_max: Some(Bytes::from_gib(4)), when_full: WhenFull::Wait, ..gang() });
    let members = [rig.busy(1, 1, 0, 2), rig.busy(2, 1, 0, 2)];
    let other = rig.busy(3, 3, 0, 2);
    rig.until(1.0);
    rig.ask(members[1], 100, GIB);
    rig.until(2.0);
    assert_eq!(rig.runs(), [1, 2], "it has work besides");
    members.into_iter().for_each(|member| rig.tell(Event::Idle(member)));
    rig.until(12.0);
    assert!(rig.ran(other) > 9.0, "{}", rig.ran(other));
}

#[test]
fn all_of_a_gang_has_to_fit_on_a_gpu_together() {
    let mut rig = Rig::new(settings());
    rig.job(1, gang());
    let members = [rig.busy(1, 1, 0, 10), rig.busy(2, 1, 0, 2)];
    rig.until(1.0);
    rig.ask(members[1], 100, 5 * GIB);
    let denied = rig.said(1.0, |action| match action {
        Action::Deny { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(denied, [Short::Device { wanted: Bytes::from_gib(17), usable: Bytes::from_gib(16) }]);
    rig.ask(members[1], 101, 4 * GIB);
    assert_eq!(rig.core.tenants.get(members[1]).unwrap().whole_bytes(), Bytes::from_gib(6));
}

#[test]
fn nothing_of_a_gang_moves_while_copies_of_a_fellow_may_run() {
    use crate::tenant::Grip;
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.job(1, gang());
    let [here, there] = [rig.busy(1, 1, 0, 9), rig.busy(2, 1, 1, 1)];
    rig.busy(3, 3, 1, 1);
    rig.until(5.0);
    let is_off = |rig: &Rig, id: TenantId| rig.core.tenants.get(id).unwrap().is_off();
    rig.wait_for(|rig| is_off(rig, here) && is_off(rig, there));
    // As it is if it was frozen for somebody latency-critical, before it had fellows.
    rig.core.update(there, |tenant| tenant.grip = Grip::Frozen(Scope::Compute));
    rig.fail = |action| matches!(action, Action::Freeze { tenant: TenantId(2), scope: Scope::All, .. });
    let begin = rig.now.0 as f64 / 1e9;
    let other = rig.busy(4, 4, 0, 9);
    rig.until(begin + 0.9);
    assert_eq!(rig.moves(begin), [], "copies of its fellow may run");
    rig.fail = |_| false;
    rig.until(begin + 5.0);
    assert!(rig.moves(begin).iter().any(|&(out, _)| out > 0));
    assert!(rig.ran(other) > 1.0, "{}", rig.ran(other));
}
