//! Everybody waits for everybody else's memory.

use super::*;

/// Who was denied what, and why.
fn denials(rig: &Rig) -> Vec<(u64, u64, Short)> {
    rig.said(0.0, |action| match action {
        Action::Deny { tenant, request, why } => Some((tenant.0, request.0, *why)),
        _ => None,
    })
}

/// Two tenants on a full GPU, of jobs that wait for memory.
fn full() -> (Rig, TenantId, TenantId) {
    let mut rig = Rig::new(Settings { overcommit_max: Ratio::from_percent(100), ..settings() });
    for job in 1..=3 {
        rig.job(job, Terms { when_full: WhenFull::Wait, ..Terms::default() });
    }
    let (a, b) = (rig.tenant(1, 1, 0, 8), rig.tenant(2, 2, 0, 8));
    (rig, a, b)
}

#[test]
fn the_youngest_request_is_out_of_memory() {
    let (mut rig, a, b) = full();
    rig.ask(b, 100, GIB);
    rig.until(10.0);
    assert_eq!(denials(&rig), [], "somebody may still free something");
    rig.ask(a, 100, GIB);
    rig.until(20.0);
    assert_eq!(denials(&rig), [(1, 100, Short::Standstill)]);
    rig.tell(Event::Left(a));
    rig.tell(Event::Buried(a));
    assert_eq!(rig.core.tenants.get(b).unwrap().whole_bytes(), Bytes::from_gib(9));
}

#[test]
fn whoever_has_work_or_is_paused_or_has_nothing_to_ask_may_free_something() {
    let (mut rig, a, b) = full();
    rig.tell(Event::wants(b));
    rig.ask(b, 100, GIB);
    rig.ask(a, 100, GIB);
    let newcomer = rig.tenant(3, 3, 0, 1);
    rig.until(10.0);
    assert_eq!(denials(&rig), []);
    rig.tell(Event::Pause(JobId(2)));
    rig.tell(Event::Idle(b));
    rig.until(20.0);
    assert_eq!(denials(&rig), []);
    rig.tell(Event::Resume(JobId(2)));
    assert_eq!(denials(&rig).len(), 1);
    assert_ne!(denials(&rig)[0].0, newcomer.0, "it has nothing that others wait for");
}

#[test]
fn what_a_stranger_holds_is_waited_for() {
    let (mut rig, a, b) = full();
    rig.tell(Event::Arena(Bytes::ZERO));
    let handle = rig.handle_of(b);
    rig.tell(Event::Freed { tenant: b, handles: vec![handle] });
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::from_gib(1) });
    rig.ask(a, 100, GIB);
    rig.ask(b, 100, GIB);
    rig.until(10.0);
    assert_eq!(denials(&rig), [], "one of them can have it once the stranger is gone");
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::ZERO });
    rig.until(20.0);
    assert_eq!(denials(&rig), []);
    assert_eq!(rig.core.tenants.get(a).unwrap().whole_bytes(), Bytes::from_gib(9));
}

#[test]
fn memory_of_the_dead_is_waited_for() {
    let (mut rig, a, b) = full();
    rig.ask(a, 100, GIB);
    rig.tell(Event::Left(b));
    rig.until(0.5);
    let c = rig.tenant(3, 3, 0, 0);
    rig.ask(c, 100, GIB);
    rig.until(1.0);
    assert_eq!(denials(&rig), []);
    rig.tell(Event::Buried(b));
    rig.until(2.0);
    assert_eq!(rig.core.tenants.get(a).unwrap().whole_bytes(), Bytes::from_gib(9));
}
