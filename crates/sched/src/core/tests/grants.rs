//! What is asked for, granted and given back, and who is let in.

use super::*;

fn denials(rig: &Rig) -> Vec<Short> {
    rig.said(0.0, |action| match action {
        Action::Deny { why, .. } => Some(*why),
        _ => None,
    })
}

fn granted(rig: &Rig, tenant: TenantId) -> Bytes {
    rig.core.tenants.get(tenant).unwrap().whole_bytes()
}

#[test]
fn a_job_gets_no_more_than_its_limit() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { memory_max: Some(Bytes::from_gib(4)), ..Terms::default() });
    let a = rig.busy(1, 1, 0, 4);
    assert_eq!(granted(&rig, a), Bytes::from_gib(4));
    rig.ask(a, 100, GIB);
    assert_eq!(denials(&rig), [Short::Limit { wanted: Bytes::from_gib(5), limit: Bytes::from_gib(4) }]);
    // Of all its processes together.
    let b = rig.busy(2, 1, 0, 1);
    assert_eq!(granted(&rig, b), Bytes::ZERO);
    assert_eq!(denials(&rig).len(), 2);
}

#[test]
fn whoever_chose_to_wait_waits_for_its_own_limit() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { memory_max: Some(Bytes::from_gib(4)), when_full: WhenFull::Wait, ..Terms::default() });
    let a = rig.busy(1, 1, 0, 3);
    let b = rig.busy(2, 1, 0, 2);
    rig.until(1.0);
    assert_eq!(granted(&rig, b), Bytes::from_gib(1));
    assert!(denials(&rig).is_empty());
    let handle = rig.sizes.keys().find(|owned| owned.tenant == a).unwrap().handle;
    rig.tell(Event::Freed { tenant: a, handles: vec![handle] });
    assert_eq!(granted(&rig, b), Bytes::from_gib(2));
}

#[test]
fn more_than_the_gpu_has_is_denied_at_once() {
    let mut rig = Rig::new(Settings { headroom: Bytes::from_gib(1), ..settings() });
    let a = rig.busy(1, 1, 0, 15);
    rig.ask(a, 100, GIB);
    assert_eq!(denials(&rig), [Short::Device { wanted: Bytes::from_gib(16), usable: Bytes::from_gib(15) }]);
}

#[test]
fn malformed_requests_change_nothing() {
    let mut rig = Rig::new(settings());
    let a = rig.tenant(1, 1, 0, 1);
    rig.ask(a, 7, 0);
    assert_eq!(denials(&rig), [Short::Malformed]);
    let before = rig.core.clone();
    for event in [
        Event::Ask { tenant: TenantId(99), request: RequestId(1), bytes: Bytes(GIB) },
        Event::Freed { tenant: TenantId(99), handles: vec![HandleId(1)] },
        Event::Claimed {
            owned: Owned { tenant: a, handle: HandleId(55) },
            request: RequestId(55),
            bytes: Bytes(GIB),
        },
        Event::wants(TenantId(99)),
        Event::Left(TenantId(99)),
        Event::Buried(TenantId(99)),
        Event::Done { op: OpId(999), outcome: Outcome::Failed },
        Event::Context { tenant: TenantId(99), present: true },
        Event::Hint { tenant: TenantId(99), within: Span(1) },
        Event::Answers(TenantId(99)),
        Event::Pause(JobId(99)),
        Event::JobOver(JobId(1)),
        Event::Unmanaged { gpu: GpuId(9), bytes: Bytes(1) },
    ] {
        rig.tell(event.clone());
        assert_eq!(rig.core, before, "{event:?}");
    }
}

#[test]
fn overcommitment_has_a_limit() {
    let mut rig = Rig::new(Settings { overcommit_max: Ratio::from_percent(100), ..settings() });
    rig.busy(1, 1, 0, 10);
    let b = rig.busy(2, 2, 0, 7);
    assert_eq!(granted(&rig, b), Bytes::from_gib(6));
    assert_eq!(denials(&rig), [Short::Together { wanted: Bytes::from_gib(17), limit: Bytes::from_gib(16) }]);
}

#[test]
fn a_context_that_grew_takes_from_what_is_granted_and_ends_nobody() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 6), rig.busy(2, 2, 0, 6));
    rig.until(2.0);
    assert!(rig.moves(0.0).is_empty());
    let used = |rig: &Rig| rig.core.gpu(GpuId(0)).unwrap().used;
    let before = used(&rig);
    rig.tell(Event::Residue { tenant: a, bytes: Bytes::from_gib(6) });
    assert_eq!(rig.core.describe(a, rig.now).unwrap().residue, Bytes::from_gib(6));
    assert!(used(&rig) > before);
    rig.until(40.0);
    let on_device: u64 =
        rig.sizes.iter().filter(|(owned, _)| !rig.away.contains(owned)).map(|(_, bytes)| bytes.0).sum();
    assert!(on_device <= 10 * GIB, "they take turns in what is left");
    close(rig.ran(a), rig.ran(b), 0.2);
    rig.tell(Event::Residue { tenant: a, bytes: Bytes::ZERO });
    rig.until(80.0);
    assert!(rig.moves(60.0).is_empty());
    assert_eq!(used(&rig), before);
}

#[test]
fn a_context_never_grows_so_far_that_somebody_could_not_run_any_more() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 12), rig.busy(2, 2, 0, 2));
    rig.until(2.0);
    rig.tell(Event::Residue { tenant: b, bytes: Bytes::from_gib(9) });
    assert_eq!(
        rig.core.describe(b, rig.now).unwrap().residue,
        Bytes::from_gib(4),
        "12 of 16 are the other's"
    );
    rig.until(40.0);
    assert!(rig.ran(a) > 10.0 && rig.ran(b) > 10.0);
    rig.tell(Event::Residue { tenant: TenantId(77), bytes: Bytes::from_gib(9) });
}

#[test]
fn a_limit_leaves_room_for_contexts_to_grow() {
    let mib = Bytes::from_mib;
    for (processes, left) in [(1, 2), (2, 4)] {
        let mut rig = Rig::new(Settings { context_growth: mib(2), ..settings() });
        let residue = mib(500);
        let limit = Bytes(residue.0 * processes) + mib(64);
        rig.job(1, Terms { memory_max: Some(limit), ..Terms::default() });
        let tenants: Vec<TenantId> = (1..=processes).map(|id| rig.tenant(id, 1, 0, 0)).collect();
        for &tenant in &tenants {
            rig.tell(Event::Residue { tenant, bytes: residue });
        }
        rig.ask(tenants[0], 100, mib(64 - left).0);
        rig.until(1.0);
        assert_eq!((granted(&rig, tenants[0]), denials(&rig)), (mib(64 - left), vec![]));
        rig.ask(tenants[0], 101, 1);
        assert_eq!(denials(&rig), [Short::Limit { wanted: limit + Bytes(1), limit }]);
    }
}

#[test]
fn a_context_that_grew_counts_for_the_limit_of_its_job() {
    let mut rig = Rig::new(settings());
    let limit = Some(Bytes::from_gib(8));
    rig.job(1, Terms { memory_max: limit, ..Terms::default() });
    let a = rig.tenant(1, 1, 0, 4);
    rig.until(1.0);
    rig.tell(Event::Residue { tenant: a, bytes: Bytes::from_gib(3) });
    rig.ask(a, 100, GIB);
    rig.until(2.0);
    assert_eq!(denials(&rig), []);
    rig.ask(a, 101, GIB);
    assert_eq!(denials(&rig), [Short::Limit { wanted: Bytes::from_gib(9), limit: Bytes::from_gib(8) }]);
}

#[test]
fn the_door_opens_when_somebody_leaves() {
    let mut rig = Rig::new(Settings { tenants_max: 2, ..settings() });
    let a = rig.busy(1, 1, 0, 1);
    rig.busy(2, 2, 0, 1);
    rig.until(10.0);
    rig.job(3, Terms::default());
    rig.job(4, Terms { priority: Priority::High, ..Terms::default() });
    let arrived = |tenant, job| Event::Arrived {
        tenant: TenantId(tenant),
        job: JobId(job),
        gpu: GpuId(0),
        residue: Bytes::ZERO,
    };
    rig.tell(arrived(3, 3));
    rig.tell(arrived(4, 4));
    let queued = rig.said(0.0, |action| match action {
        Action::Queue { tenant, place, why, .. } => Some((tenant.0, *place, *why)),
        _ => None,
    });
    assert_eq!(queued, [(3, 1, Short::Tenants), (4, 1, Short::Tenants)], "the higher priority comes first");
    rig.tell(Event::Left(a));
    let admitted = |rig: &Rig| {
        rig.said(0.0, |action| match action {
            Action::Admit { tenant } => Some(tenant.0),
            _ => None,
        })
    };
    assert_eq!(admitted(&rig), [1, 2, 4]);
    rig.tell(Event::Left(TenantId(2)));
    assert_eq!(admitted(&rig), [1, 2, 4, 3]);
}

#[test]
fn contexts_need_room_too() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 16);
    rig.until(1.0);
    rig.job(2, Terms::default());
    rig.tell(Event::Arrived {
        tenant: TenantId(2),
        job: JobId(2),
        gpu: GpuId(0),
        residue: Bytes::from_mib(512),
    });
    // One more context would leave the first one too little to run with.
    let queued = rig.said(1.0, |action| match action {
        Action::Queue { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(queued, [Short::Context]);
    rig.tell(Event::Arrived {
        tenant: TenantId(3),
        job: JobId(2),
        gpu: GpuId(0),
        residue: Bytes::from_gib(99),
    });
    let refused = rig.said(1.0, |action| matches!(action, Action::Refuse { .. }).then_some(()));
    assert_eq!(refused.len(), 1);
}

#[test]
fn places_are_given_with_a_reason() {
    let mut rig = Rig::new(settings());
    rig.gpu(1, 16);
    rig.busy(1, 1, 0, 12);
    rig.tell(Event::Place {
        ticket: TicketId(1),
        job: JobId(1),
        count: 1,
        among: vec![],
        bytes: Bytes::from_gib(12),
        residue: None,
    });
    let placed = rig.said(0.0, |action| match action {
        Action::Place { gpus, why, .. } => Some((gpus.clone(), why.clone())),
        _ => None,
    });
    assert_eq!(placed[0].0, [GpuId(1)]);
    assert!(!placed[0].1.is_empty());
}

#[test]
fn a_grant_may_become_several_handles_and_the_rest_goes_back() {
    let mut rig = Rig::new(settings());
    let a = rig.tenant(1, 1, 0, 0);
    let request = RequestId(1);
    rig.core.step(rig.now, Event::Ask { tenant: a, request, bytes: Bytes::from_gib(4) });
    let claim = |rig: &mut Rig, handle: u64, gib: u64| {
        let owned = Owned { tenant: a, handle: HandleId(handle) };
        rig.core.step(rig.now, Event::Claimed { owned, request, bytes: Bytes::from_gib(gib) });
        rig.core.check().unwrap();
        (rig.core.has_handle(owned), rig.core.has_grant(a, request))
    };
    assert_eq!(claim(&mut rig, 1, 1), (true, Some(Bytes::from_gib(3))));
    assert_eq!(claim(&mut rig, 2, 2), (true, Some(Bytes::from_gib(1))));
    assert_eq!(claim(&mut rig, 3, 2), (false, Some(Bytes::from_gib(1))), "more than is left");
    assert_eq!(claim(&mut rig, 3, 0), (false, Some(Bytes::from_gib(1))), "nothing at all");
    assert_eq!(granted(&rig, a), Bytes::from_gib(4));
    rig.core.step(rig.now, Event::Returned { tenant: a, request });
    assert_eq!(granted(&rig, a), Bytes::from_gib(3));
    assert_eq!(rig.core.has_grant(a, request), None);
    rig.core.check().unwrap();
}

#[test]
fn a_context_counts_for_the_limit_of_its_job() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { memory_max: Some(Bytes::from_gib(4)), ..Terms::default() });
    let (tenant, residue) = (TenantId(1), Bytes::from_gib(1));
    rig.tell(Event::Arrived { tenant, job: JobId(1), gpu: GpuId(0), residue });
    rig.tell(Event::Context { tenant, present: true });
    rig.ask(tenant, 1, 4 * GIB);
    assert_eq!(denials(&rig), [Short::Limit { wanted: Bytes::from_gib(5), limit: Bytes::from_gib(4) }]);
    rig.ask(tenant, 2, 3 * GIB);
    assert_eq!(granted(&rig, tenant), Bytes::from_gib(3));
}

#[test]
fn who_asks_for_too_much_just_now_is_not_overtaken_and_all_who_fit_get_theirs_at_once() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_secs(10), ..settings() });
    rig.busy(8, 8, 0, 0);
    let dead = rig.tenant(9, 9, 0, 10);
    rig.tell(Event::Left(dead));
    rig.until(1.0);
    let (a, b, c) = (rig.tenant(1, 1, 0, 0), rig.tenant(2, 2, 0, 0), rig.tenant(3, 3, 0, 0));
    rig.ask(a, 1, 8 * GIB);
    rig.ask(b, 1, GIB);
    rig.ask(c, 1, GIB);
    let of_all = |rig: &Rig| [a, b, c].map(|tenant| granted(rig, tenant).0 / GIB);
    assert_eq!(of_all(&rig), [0, 0, 0]);
    rig.tell(Event::Buried(dead));
    assert_eq!(of_all(&rig), [8, 1, 1]);
}

#[test]
fn whoever_only_asks_for_what_it_cannot_get_now_keeps_nobody_from_a_turn() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { memory_max: Some(Bytes::from_gib(2)), when_full: WhenFull::Wait, ..Terms::default() });
    let asks = rig.tenant(1, 1, 0, 2);
    let (a, b) = (rig.busy(2, 2, 0, 2), rig.busy(3, 3, 0, 2));
    // Another one of its job has what it would need.
    let other = rig.tenant(4, 1, 0, 0);
    rig.ask(other, 100, GIB);
    rig.until(10.0);
    assert!(rig.turns(0.0).iter().all(|id| *id != other.0), "{:?}", rig.turns(0.0));
    assert!(rig.ran(a) + rig.ran(b) > 9.7, "{} {}", rig.ran(a), rig.ran(b));
    let owned = *rig.sizes.keys().find(|owned| owned.tenant == asks).unwrap();
    rig.tell(Event::Freed { tenant: asks, handles: vec![owned.handle] });
    rig.until(12.0);
    assert_eq!(granted(&rig, other), Bytes::from_gib(1));
}

#[test]
fn waiting_for_memory_costs_no_turns() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { memory_max: Some(Bytes::from_gib(2)), when_full: WhenFull::Wait, ..Terms::default() });
    let a = rig.busy(1, 1, 0, 1);
    rig.busy(2, 1, 0, 1);
    rig.tell(Event::Idle(TenantId(2)));
    let b = rig.busy(3, 3, 0, 2);
    rig.ask(a, 100, GIB);
    rig.until(20.0);
    close(rig.ran(a), rig.ran(b), 0.05);
}

#[test]
fn once_memory_is_away_nobody_grows_before_its_turn() {
    let mut rig = Rig::new(Settings { turn_min: Span::from_secs(1), ..settings() });
    let c = rig.tenant(3, 3, 0, 0);
    rig.busy(1, 1, 0, 12);
    rig.until(0.5);
    rig.busy(2, 2, 0, 12);
    rig.wait_for(|rig| rig.runs() == [2] && rig.core.gpu_of(GpuId(0)).away > Bytes::ZERO);
    let handle = rig.handle_of(TenantId(2));
    rig.tell(Event::Freed { tenant: TenantId(2), handles: vec![handle] });
    rig.ask(c, 0, GIB);
    assert_eq!(granted(&rig, c), Bytes::ZERO, "there is room, but it would have to go again");
    rig.wait_for(|rig| granted(rig, c) == Bytes::from_gib(1));
}

#[test]
fn who_waits_for_more_than_its_limit_is_by_now_is_out_of_memory() {
    let mut rig = Rig::new(settings());
    let waits =
        Terms { when_full: WhenFull::Wait, memory_max: Some(Bytes::from_gib(12)), ..Terms::default() };
    rig.job(1, waits.clone());
    let a = rig.tenant(1, 1, 0, 2);
    let other = rig.tenant(2, 1, 0, 4);
    rig.ask(a, 100, 8 * GIB);
    rig.until(1.0);
    let denied =
        |rig: &Rig| rig.said(0.0, |action| matches!(action, Action::Deny { .. }).then_some(())).len();
    assert_eq!(denied(&rig), 0, "it waits for what the other one of its job has");
    rig.job(1, Terms { memory_max: Some(Bytes::from_gib(9)), ..waits });
    rig.until(3.0);
    assert_eq!(denied(&rig), 1);
    rig.ask(a, 101, 4 * GIB);
    rig.until(6.0);
    assert_eq!(denied(&rig), 1, "that may come");
    rig.tell(Event::Left(other));
    rig.tell(Event::Buried(other));
    rig.until(9.0);
    assert_eq!(rig.core.tenant(a).unwrap().whole_bytes(), Bytes::from_gib(6));
}
