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
