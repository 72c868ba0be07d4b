//! Tenants that are larger than their GPU.

use super::*;

const ONE: TenantId = TenantId(1);

fn gib(gib: u64) -> Bytes {
    Bytes::from_gib(gib)
}

/// A GPU of 16 GiB on which contexts take nothing, and so much of the host's memory.
fn rig(host_gib: u64, handle_max: Bytes) -> Rig {
    Rig::new(Settings { host_max: gib(host_gib), handle_max, context: Bytes::ZERO, ..settings() })
}

fn oversize(host_gib: u64) -> Terms {
    Terms { host_max: gib(host_gib), ..Terms::default() }
}

/// What was granted on the host so far: of which request, and how much.
fn on_host(rig: &Rig) -> Vec<(u64, Bytes)> {
    rig.said(0.0, |action| match action {
        Action::GrantHost { request, host, .. } => Some((request.0, *host)),
        _ => None,
    })
}

fn denied(rig: &Rig) -> Vec<(u64, Short)> {
    rig.said(0.0, |action| match action {
        Action::Deny { request, why, .. } => Some((request.0, *why)),
        _ => None,
    })
}

fn use_it(rig: &mut Rig, request: u64, handle: u64, bytes: Bytes) {
    let owned = Owned { tenant: ONE, handle: HandleId(handle) };
    rig.tell(Event::ClaimedHost { owned, request: RequestId(request), bytes });
}

fn hosted(rig: &Rig) -> Bytes {
    rig.core.describe(ONE, rig.now).map_or(Bytes::ZERO, |described| described.host)
}

#[test]
fn what_the_device_can_never_have_lies_on_the_host() {
    let mut rig = rig(32, Bytes(u64::MAX));
    rig.job(1, oversize(8));
    rig.busy(1, 1, 0, 14);
    rig.ask(ONE, 100, 4 * GIB);
    assert_eq!(on_host(&rig), [(100, gib(4))]);
    assert_eq!(rig.core.describe(ONE, rig.now).unwrap().resident, gib(14), "nothing of it is on the device");
    rig.ask(ONE, 101, 2 * GIB);
    assert_eq!(on_host(&rig).len(), 1, "what fits goes to the device");
    use_it(&mut rig, 100, 1000, gib(3));
    assert_eq!(rig.core.has_host_grant(ONE, RequestId(100)), Some(gib(1)));
    assert_eq!(rig.core.has_grant(ONE, RequestId(100)), None);
    rig.tell(Event::Returned { tenant: ONE, request: RequestId(100) });
    assert_eq!((hosted(&rig), rig.core.host()), (gib(3), (gib(3), gib(32))));
    let freed = |handle| Event::Freed { tenant: ONE, handles: vec![HandleId(handle)] };
    rig.tell(freed(1000));
    rig.tell(freed(1000));
    assert_eq!((hosted(&rig), rig.core.host().0), (Bytes::ZERO, Bytes::ZERO));
    assert!(denied(&rig).is_empty());
}

#[test]
fn without_a_budget_it_is_out_of_memory_as_ever() {
    let mut rig = rig(32, Bytes(u64::MAX));
    rig.busy(1, 1, 0, 14);
    rig.ask(ONE, 100, 4 * GIB);
    assert_eq!(denied(&rig), [(100, Short::Device { wanted: gib(18), usable: gib(16) })]);
    assert!(on_host(&rig).is_empty());
}

#[test]
fn more_than_the_budgets_is_out_of_memory() {
    let mut rig = rig(6, Bytes(u64::MAX));
    rig.job(1, oversize(4));
    rig.job(2, oversize(100));
    rig.busy(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    rig.ask(ONE, 100, 20 * GIB);
    assert_eq!(denied(&rig), [(100, Short::Host { wanted: gib(20), limit: gib(4) })], "the job's");
    rig.tell(Event::AskHost { tenant: ONE, request: RequestId(101), bytes: gib(4) });
    rig.tell(Event::AskHost { tenant: TenantId(2), request: RequestId(102), bytes: gib(3) });
    assert_eq!(denied(&rig)[1], (102, Short::Host { wanted: gib(7), limit: gib(6) }), "the machine's");
    rig.tell(Event::AskHost { tenant: TenantId(2), request: RequestId(103), bytes: gib(2) });
    assert_eq!(on_host(&rig), [(101, gib(4)), (103, gib(2))]);
    assert_eq!(rig.core.host().0, gib(6));
}

#[test]
fn beyond_a_limit_of_the_job_it_lies_on_the_host_too() {
    let mut rig = rig(32, Bytes(u64::MAX));
    rig.job(1, Terms { memory_max: Some(gib(4)), ..oversize(8) });
    rig.busy(1, 1, 0, 4);
    rig.ask(ONE, 100, GIB);
    assert_eq!(on_host(&rig), [(100, gib(1))]);
    rig.job(2, Terms { memory_max: Some(gib(4)), ..Terms::default() });
    rig.busy(2, 2, 0, 4);
    rig.ask(TenantId(2), 200, GIB);
    assert_eq!(denied(&rig), [(200, Short::Limit { wanted: gib(5), limit: gib(4) })]);
}

#[test]
fn of_what_is_larger_than_a_handle_as_much_as_fits_is_on_the_device() {
    let mut rig = rig(64, gib(1));
    rig.job(1, oversize(64));
    rig.busy(1, 1, 0, 5);
    rig.requests.insert((ONE, RequestId(100)), gib(24));
    rig.tell(Event::Ask { tenant: ONE, request: RequestId(100), bytes: gib(24) });
    assert_eq!(on_host(&rig), [(100, gib(13))]);
    assert_eq!(rig.core.has_grant(ONE, RequestId(100)), Some(gib(11)));
    use_it(&mut rig, 100, 1000, gib(13));
    assert_eq!(hosted(&rig), gib(13));
    assert_eq!(rig.core.has_grant(ONE, RequestId(100)), Some(gib(11)), "each part is used for itself");
}

#[test]
fn the_part_on_the_device_waits_for_room_with_the_other_set_aside() {
    let mut rig = rig(64, gib(1));
    rig.job(1, oversize(12));
    rig.busy(2, 2, 0, 10);
    rig.busy(1, 1, 0, 1);
    rig.until(0.01);
    rig.tell(Event::Ask { tenant: ONE, request: RequestId(100), bytes: gib(24) });
    let asked = |rig: &Rig| on_host(rig).len();
    assert_eq!(asked(&rig), 0, "the other one's memory has to go first");
    assert_eq!(rig.core.host().0, gib(9), "set aside");
    rig.tell(Event::AskHost { tenant: ONE, request: RequestId(101), bytes: gib(4) });
    assert_eq!(denied(&rig), [(101, Short::Host { wanted: gib(13), limit: gib(12) })]);
    rig.wait_for(|rig| asked(rig) == 1);
    assert_eq!(on_host(&rig), [(100, gib(9))]);
    assert_eq!(rig.core.has_grant(ONE, RequestId(100)), Some(gib(15)));
}

#[test]
fn a_request_that_is_taken_back_leaves_nothing_set_aside() {
    let mut rig = rig(64, gib(1));
    rig.job(1, oversize(64));
    rig.busy(2, 2, 0, 10);
    rig.busy(1, 1, 0, 1);
    rig.until(0.01);
    rig.tell(Event::Ask { tenant: ONE, request: RequestId(100), bytes: gib(24) });
    assert_eq!(rig.core.host().0, gib(9));
    rig.tell(Event::Returned { tenant: ONE, request: RequestId(100) });
    assert_eq!(rig.core.host().0, Bytes::ZERO);
}

#[test]
fn what_the_dead_had_is_free_when_they_are_buried() {
    let mut rig = rig(8, Bytes(u64::MAX));
    rig.job(1, oversize(8));
    rig.job(2, oversize(8));
    rig.busy(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    rig.tell(Event::AskHost { tenant: ONE, request: RequestId(100), bytes: gib(6) });
    use_it(&mut rig, 100, 1000, gib(4));
    rig.tell(Event::Left(ONE));
    assert_eq!(rig.core.host().0, gib(6));
    let ask = |request| Event::AskHost { tenant: TenantId(2), request: RequestId(request), bytes: gib(3) };
    rig.tell(ask(200));
    rig.tell(Event::Buried(ONE));
    rig.tell(ask(201));
    assert_eq!(denied(&rig), [(200, Short::Host { wanted: gib(9), limit: gib(8) })]);
    assert_eq!((on_host(&rig).last(), rig.core.host().0), (Some(&(201, gib(3))), gib(3)));
}

#[test]
fn it_takes_turns_with_what_it_has_on_the_device_only() {
    let mut rig = rig(64, Bytes(u64::MAX));
    rig.job(1, oversize(64));
    rig.busy(1, 1, 0, 10);
    rig.ask(ONE, 100, 20 * GIB);
    use_it(&mut rig, 100, 1000, gib(20));
    rig.busy(2, 2, 0, 10);
    rig.until(60.0);
    assert!(rig.moves(0.0).iter().all(|&(out, into)| out <= 10 && into <= 10), "{:?}", rig.moves(0.0));
    assert!(rig.ran(ONE) > 15.0 && rig.ran(TenantId(2)) > 15.0);
    assert_eq!(hosted(&rig), gib(20));
}

#[test]
fn nonsense_changes_nothing() {
    let mut rig = rig(64, Bytes(u64::MAX));
    rig.job(1, oversize(64));
    rig.busy(1, 1, 0, 1);
    let ask = |tenant, request, bytes| Event::AskHost { tenant, request: RequestId(request), bytes };
    rig.tell(ask(TenantId(9), 100, gib(1)));
    rig.tell(ask(ONE, 100, Bytes::ZERO));
    rig.tell(ask(ONE, 101, gib(1)));
    rig.tell(ask(ONE, 101, gib(1)));
    rig.ask(ONE, 101, GIB);
    assert_eq!(denied(&rig), [(100, Short::Malformed), (101, Short::Malformed), (101, Short::Malformed)]);
    use_it(&mut rig, 101, 1000, gib(2));
    let on_device = rig.handle_of(ONE).0;
    use_it(&mut rig, 101, on_device, gib(1));
    assert_eq!(rig.core.has_host_grant(ONE, RequestId(101)), Some(gib(1)));
    assert!(!rig.core.is_on_host(Owned { tenant: ONE, handle: HandleId(on_device) }));
    let claimed = Owned { tenant: ONE, handle: HandleId(2000) };
    rig.tell(Event::Claimed { owned: claimed, request: RequestId(101), bytes: gib(1) });
    assert!(!rig.core.has_handle(claimed), "memory of the host's makes no handle on the device");
}

#[test]
fn what_was_there_before_counts_as_far_as_the_budgets_go() {
    let mut rig = rig(8, Bytes(u64::MAX));
    rig.job(1, oversize(6));
    rig.busy(1, 1, 0, 1);
    let on_device = rig.handle_of(ONE);
    let handles = [(on_device, gib(1)), (HandleId(1000), gib(4)), (HandleId(1001), gib(4))];
    let before = Event::HostedBefore { tenant: ONE, handles: handles.into() };
    rig.tell(before.clone());
    assert_eq!(hosted(&rig), gib(6));
    rig.tell(before);
    assert_eq!(hosted(&rig), gib(6), "told twice is there once");
    rig.tell(Event::Freed { tenant: ONE, handles: vec![HandleId(1000), HandleId(1001)] });
    assert_eq!((hosted(&rig), rig.core.host().0), (Bytes::ZERO, Bytes::ZERO));
    assert_eq!(rig.core.describe(ONE, rig.now).unwrap().resident, gib(1));
}

#[test]
fn who_is_larger_than_the_device_leaves_room_for_contexts_while_it_has_a_budget() {
    let settings = Settings { host_max: gib(64), context: Bytes::from_mib(512), ..settings() };
    let mut rig = Rig::new(settings);
    rig.job(1, oversize(2));
    // A fifteenth of 16 GiB: room for two contexts.
    rig.busy(1, 1, 0, 14);
    assert!(on_host(&rig).is_empty());
    rig.ask(ONE, 100, GIB);
    rig.ask(ONE, 101, GIB);
    assert_eq!(
        on_host(&rig),
        [(100, gib(1)), (101, gib(1))],
        "less than 2 GiB are left for others' contexts"
    );
    // It may have no more there: better here than not at all.
    rig.ask(ONE, 102, GIB);
    rig.ask(ONE, 103, GIB);
    rig.ask(ONE, 104, GIB);
    assert_eq!((on_host(&rig).len(), denied(&rig).len()), (2, 1));
    assert_eq!(rig.core.describe(ONE, rig.now).unwrap().resident, gib(16));
    // Whoever has no budget has all of the device.
    rig.tell(Event::Left(ONE));
    rig.tell(Event::Buried(ONE));
    rig.busy(2, 2, 0, 16);
    assert_eq!(denied(&rig).len(), 1);
}
