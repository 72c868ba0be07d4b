//! Memory: limits, waiting, the door, the arena.

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
        Event::Claimed { owned: Owned { tenant: a, handle: HandleId(55) }, request: RequestId(55) },
        Event::Wants(TenantId(99)),
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
fn what_device_and_arena_cannot_hold_together_is_denied_or_waited_for() {
    let mut rig = Rig::new(settings());
    rig.tell(Event::Arena(Bytes::from_gib(10)));
    let c = rig.busy(3, 3, 0, 0);
    rig.busy(1, 1, 0, 12);
    let b = rig.busy(2, 2, 0, 12);
    rig.until(20.0);
    assert_eq!(granted(&rig, b), Bytes::from_gib(12));
    for piece in 0..4 {
        rig.ask(c, piece, GIB);
    }
    rig.until(40.0);
    assert!(granted(&rig, c) < Bytes::from_gib(4));
    assert!(
        denials(&rig).iter().all(|why| matches!(why, Short::Together { .. } | Short::Pressure)),
        "{:?}",
        denials(&rig)
    );
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
fn room_is_made_for_whoever_has_the_turn_and_grows() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 10);
    rig.until(0.01);
    let b = rig.busy(2, 2, 0, 6);
    rig.until(1.0);
    rig.ask(a, 100, 3 * GIB);
    rig.until(20.0);
    assert_eq!(granted(&rig, a), Bytes::from_gib(13));
    assert!(rig.ran(a) > 5.0 && rig.ran(b) > 5.0, "{} {}", rig.ran(a), rig.ran(b));
}

#[test]
fn pinned_memory_stays() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 8);
    let pinned: Vec<_> = rig.sizes.keys().copied().filter(|owned| owned.tenant == a).collect();
    for &owned in &pinned {
        rig.tell(Event::Pinned { owned, pinned: true });
    }
    rig.until(0.01);
    let b = rig.busy(2, 2, 0, 8);
    let c = rig.busy(3, 3, 0, 8);
    rig.until(60.0);
    assert!(rig.away.iter().all(|owned| owned.tenant != a));
    assert!(rig.ran(b) > 10.0 && rig.ran(c) > 10.0);
}

#[test]
fn clean_memory_goes_first_and_its_copy_is_dropped_when_the_arena_fills() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 12);
    let last: Vec<_> = rig.sizes.keys().copied().filter(|owned| owned.tenant == a).skip(8).collect();
    for &owned in &last {
        rig.tell(Event::Copied { owned, clean: true });
    }
    assert_eq!(rig.core.arena().0, Bytes::from_gib(4));
    rig.until(0.01);
    rig.busy(2, 2, 0, 8);
    rig.until(30.0);
    let first = rig.said(0.0, |action| match action {
        Action::Move { out, .. } if out.iter().any(|owned| owned.tenant == a) => Some(out.clone()),
        _ => None,
    });
    assert_eq!(first[0], last);
    for &owned in &last {
        rig.tell(Event::Copied { owned, clean: rig.core.tenants.get(a).unwrap().is_whole() });
    }
    let b = rig.tenant(5, 5, 0, 1);
    let owned = *rig.sizes.keys().find(|owned| owned.tenant == b).unwrap_or(&last[0]);
    rig.tell(Event::Copied { owned, clean: true });
    let copies = rig.core.copies_sum;
    rig.tell(Event::Arena(rig.core.arena_needed));
    assert_eq!(rig.core.copies_sum, Bytes::ZERO);
    let dropped = rig.said(0.0, |action| matches!(action, Action::Drop(_)).then_some(()));
    assert!(copies == Bytes::ZERO || !dropped.is_empty());
}

#[test]
fn unmanaged_memory_comes_and_goes() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.busy(1, 1, 0, 8), rig.busy(2, 2, 0, 8));
    rig.until(2.0);
    assert!(rig.moves(0.0).is_empty());
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::from_gib(4) });
    rig.until(40.0);
    let on_device: u64 =
        rig.sizes.iter().filter(|(owned, _)| !rig.away.contains(owned)).map(|(_, bytes)| bytes.0).sum();
    assert!(on_device <= 12 * GIB);
    close(rig.ran(a), rig.ran(b), 0.2);
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::ZERO });
    rig.until(80.0);
    assert!(rig.moves(60.0).is_empty());
}

#[test]
fn when_others_take_so_much_that_one_cannot_run_at_all_it_waits_until_they_go() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 12);
    rig.until(1.0);
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::from_gib(10) });
    rig.until(10.0);
    assert!(rig.runs().is_empty());
    assert_eq!(rig.core.describe(a, rig.now).unwrap().resident, Bytes::from_gib(6));
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::ZERO });
    rig.until(20.0);
    assert_eq!(rig.runs(), [1]);
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
fn room_for_a_context_is_made_before_its_tenant_is_let_in() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 8);
    rig.until(0.5);
    rig.busy(2, 2, 0, 8);
    rig.until(1.0);
    rig.job(3, Terms::default());
    rig.tell(Event::Arrived {
        tenant: TenantId(3),
        job: JobId(3),
        gpu: GpuId(0),
        residue: Bytes::from_gib(2),
    });
    let admitted =
        |rig: &Rig| rig.said(1.0, |action| matches!(action, Action::Admit { .. }).then_some(())).len();
    assert_eq!(admitted(&rig), 0);
    rig.until(3.0);
    assert_eq!(admitted(&rig), 1);
    assert_eq!(rig.moves(1.0)[0], (2, 0));
}

#[test]
fn an_arena_that_shrinks_below_what_is_in_it_costs_one_tenant_by_the_rule() {
    let mut rig = Rig::new(settings());
    rig.job(2, Terms { priority: Priority::Low, ..Terms::default() });
    rig.busy(1, 1, 0, 12);
    rig.busy(2, 2, 0, 12);
    rig.until(20.0);
    assert!(rig.core.arena_needed >= Bytes::from_gib(8));
    rig.tell(Event::Arena(Bytes::from_gib(2)));
    rig.until(30.0);
    let ended = rig.said(0.0, |action| match action {
        Action::End { tenant, .. } => Some(tenant.0),
        _ => None,
    });
    assert_eq!(ended, [2]);
    assert_eq!(rig.runs(), [1]);
}

#[test]
fn a_full_arena_first_closes_the_door_then_stops_growth() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 12);
    rig.busy(2, 2, 0, 12);
    rig.until(20.0);
    // 8 GiB are away: 80% of 10.
    rig.tell(Event::Arena(Bytes::from_gib(10)));
    rig.until(21.0);
    rig.job(3, Terms::default());
    rig.tell(Event::Arrived { tenant: TenantId(3), job: JobId(3), gpu: GpuId(0), residue: Bytes::ZERO });
    let queued = rig.said(21.0, |action| match action {
        Action::Queue { why, .. } => Some(*why),
        _ => None,
    });
    assert_eq!(queued, [Short::Pressure]);
    rig.tell(Event::Arena(Bytes::from_gib(64)));
    let admitted = rig.said(21.0, |action| matches!(action, Action::Admit { .. }).then_some(()));
    assert_eq!(admitted.len(), 1);
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
    });
    let placed = rig.said(0.0, |action| match action {
        Action::Place { gpus, why, .. } => Some((gpus.clone(), why.clone())),
        _ => None,
    });
    assert_eq!(placed[0].0, [GpuId(1)]);
    assert!(!placed[0].1.is_empty());
}
