//! Paused jobs whose memory goes out although nobody needs the room.

use super::*;
use crate::Hindrance;

fn is_emptied(rig: &Rig, tenant: TenantId) -> bool {
    rig.core.hinders_deep(tenant).is_none()
}

#[test]
fn all_memory_of_a_deeply_paused_job_goes_out_and_comes_back_with_its_turn() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms::default());
    rig.job(2, Terms::default());
    let (a, b) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 2));
    rig.until(2.0);
    rig.tell(Event::Pause(JobId(1)));
    rig.until(4.0);
    assert_eq!(rig.core.tenant(a).unwrap().away, Bytes::ZERO, "nobody needs its room");
    assert!(!is_emptied(&rig, a));
    rig.tell(Event::Deep { job: JobId(1), deep: true });
    rig.until(6.0);
    assert_eq!(rig.core.tenant(a).unwrap().away, Bytes::from_gib(4));
    assert!(is_emptied(&rig, a) && !is_emptied(&rig, b));
    assert_eq!(rig.core.tenant(b).unwrap().away, Bytes::ZERO);
    rig.tell(Event::Deep { job: JobId(1), deep: false });
    rig.tell(Event::Resume(JobId(1)));
    let ran = rig.ran(a);
    rig.until(12.0);
    assert_eq!(rig.core.tenant(a).unwrap().away, Bytes::ZERO);
    assert!(rig.ran(a) > ran, "it has its turns again");
}

#[test]
fn one_without_work_on_an_empty_gpu_goes_too() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms::default());
    let a = rig.tenant(1, 1, 0, 4);
    rig.until(1.0);
    rig.tell(Event::Deep { job: JobId(1), deep: true });
    rig.until(2.0);
    assert_eq!(rig.core.tenant(a).unwrap().away, Bytes::ZERO, "it is not paused");
    rig.tell(Event::Pause(JobId(1)));
    rig.until(4.0);
    assert!(is_emptied(&rig, a), "{:?}", rig.core.tenant(a));
}

#[test]
fn without_a_place_in_the_arena_it_stays_and_nobody_ends() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms::default());
    let a = rig.busy(1, 1, 0, 4);
    rig.tell(Event::Arena(Bytes::ZERO));
    rig.tell(Event::Pause(JobId(1)));
    rig.tell(Event::Deep { job: JobId(1), deep: true });
    rig.until(60.0);
    assert_eq!(rig.core.tenant(a).unwrap().away, Bytes::ZERO);
    assert!(!is_emptied(&rig, a));
    let ended = rig.said(0.0, |action| matches!(action, Action::End { .. }).then_some(()));
    assert_eq!(ended, []);
}

#[test]
fn one_that_has_no_place_in_the_arena_keeps_no_other_one() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms::default());
    rig.job(2, Terms::default());
    let (large, small) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 2));
    rig.tell(Event::Arena(Bytes::from_gib(3)));
    for job in [1, 2].map(JobId) {
        rig.tell(Event::Pause(job));
        rig.tell(Event::Deep { job, deep: true });
    }
    rig.until(10.0);
    assert!(!is_emptied(&rig, large) && is_emptied(&rig, small));
}

#[test]
fn what_keeps_one_on_the_gpu_is_said() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms::default());
    let a = rig.busy(1, 1, 0, 1);
    rig.until(1.0);
    assert_eq!(rig.core.hinders_deep(a), Some(Hindrance::NotOff));
    rig.tell(Event::Arena(Bytes::ZERO));
    rig.tell(Event::Pause(JobId(1)));
    rig.tell(Event::Deep { job: JobId(1), deep: true });
    rig.until(3.0);
    assert_eq!(rig.core.hinders_deep(a), Some(Hindrance::InLine(Bytes::from_gib(1))));
    let owned = Owned { tenant: a, handle: rig.handle_of(a) };
    rig.tell(Event::Pinned { owned, pinned: true });
    assert_eq!(rig.core.hinders_deep(a), Some(Hindrance::Shared(Bytes::from_gib(1))));
    // What the mover does not have goes and comes with the rest.
    rig.tell(Event::Adopted { owned, movable: false });
    assert_eq!(rig.core.hinders_deep(a), None);
    rig.tell(Event::Pinned { owned, pinned: false });
    assert_eq!(rig.core.hinders_deep(a), Some(Hindrance::Untold));
}
