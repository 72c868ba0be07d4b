//! What device and arena hold together, and what is done when the arena fills up.

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
fn what_comes_in_small_handles_needs_less_room_in_the_arena() {
    // 8 of 16 GiB are taken. 12 more, in one piece, need a place for two such pieces beside the 4 that do not fit.
    let denied = |handle_max: Bytes, arena: u64| {
        let mut rig = Rig::new(Settings { handle_max, ..settings() });
        rig.tell(Event::Arena(Bytes::from_gib(arena)));
        rig.busy(1, 1, 0, 8);
        let b = rig.busy(2, 2, 0, 0);
        rig.ask(b, 1, 12 * GIB);
        !denials(&rig).is_empty()
    };
    assert!(!denied(Bytes(u64::MAX), 28));
    assert!(denied(Bytes(u64::MAX), 27));
    assert!(!denied(Bytes::from_gib(1), 6));
    assert!(denied(Bytes::from_gib(1), 5));
}

#[test]
fn two_of_the_largest_pieces_must_always_find_a_place() {
    let mut rig = Rig::new(settings());
    rig.tell(Event::Arena(Bytes::from_gib(10)));
    let (a, b) = (rig.tenant(1, 1, 0, 0), rig.busy(2, 2, 0, 10));
    rig.ask(a, 1, 6 * GIB);
    rig.until(1.0);
    rig.ask(b, 100, GIB);
    // 17 and twice the 6 of the other one.
    assert_eq!(denials(&rig), [Short::Together { wanted: Bytes::from_gib(29), limit: Bytes::from_gib(26) }]);
    // Without that one nothing is in the way.
    let owned = *rig.sizes.keys().find(|owned| owned.tenant == a).unwrap();
    rig.tell(Event::Freed { tenant: a, handles: vec![owned.handle] });
    rig.tenant(3, 3, 0, 6);
    rig.ask(b, 101, GIB);
    rig.until(2.0);
    assert_eq!((denials(&rig).len(), granted(&rig, b)), (1, Bytes::from_gib(11)));
}

#[test]
fn at_95_per_cent_only_what_needs_no_moving_is_granted() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 12);
    rig.until(0.5);
    let b = rig.busy(2, 2, 0, 12);
    rig.until(20.0);
    let owner = rig.core.gpu_of(GpuId(0)).turn.unwrap().tenant;
    assert!([a, b].contains(&owner));
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::ZERO });
    // 8 GiB are away, and nothing is free.
    rig.tell(Event::Arena(Bytes::from_mib(8 * 1024 + 256)));
    rig.ask(owner, 100, GIB);
    assert_eq!(denials(&rig), [Short::Pressure]);
    let owned = *rig.sizes.keys().find(|owned| owned.tenant == owner).unwrap();
    rig.tell(Event::Freed { tenant: owner, handles: vec![owned.handle] });
    rig.tell(Event::Settings(Box::new(Settings { handle_max: Bytes(1 << 21), ..settings() })));
    rig.ask(owner, 101, 1 << 21);
    assert_eq!(denials(&rig).iter().filter(|why| **why == Short::Pressure).count(), 1, "{:?}", denials(&rig));
}

#[test]
fn pressure_drops_copies_until_an_eighth_of_the_arena_is_free_and_no_more() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 12);
    rig.until(0.5);
    let b = rig.busy(2, 2, 0, 11);
    for request in 100..110 {
        rig.ask(b, request, GIB / 16);
    }
    rig.until(20.0);
    let small = rig.sizes.iter().filter(|&(owned, &bytes)| bytes.0 == GIB / 16 && !rig.away.contains(owned));
    let small: Vec<Owned> = small.map(|(&owned, _)| owned).take(4).collect();
    assert_eq!(small.len(), 4);
    for owned in small {
        rig.tell(Event::Copied { owned, clean: true });
    }
    // With 86 per cent in use and 12.5 free, 1.5 are left for copies: about 140 MiB, which is two of them.
    let needed = rig.core.arena_needed;
    rig.tell(Event::Arena(Bytes(needed.0 / 86 * 100)));
    let dropped = rig.said(20.0, |action| match action {
        Action::Drop(dropped) => Some(dropped.len()),
        _ => None,
    });
    assert_eq!(dropped, [2]);
}

#[test]
fn with_no_place_for_what_has_to_go_somebody_ends_after_a_while() {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 12);
    rig.until(0.5);
    rig.busy(2, 2, 0, 12);
    rig.until(20.0);
    assert_eq!(rig.core.arena_needed, Bytes::from_gib(8));
    rig.tell(Event::Arena(Bytes::from_gib(8)));
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::from_gib(4) });
    let ended = |rig: &Rig| rig.said(20.0, |action| matches!(action, Action::End { .. }).then_some(())).len();
    rig.until(29.0);
    assert_eq!(ended(&rig), 0, "somebody may free something");
    rig.until(45.0);
    assert_eq!(ended(&rig), 1);
}

#[test]
fn while_the_arena_is_too_full_to_bring_one_in_another_has_its_turns() {
    let mut rig = Rig::new(Settings { moving_share: Ratio::from_percent(50), ..settings() });
    rig.busy(1, 1, 0, 12);
    rig.until(0.5);
    let b = rig.busy(2, 2, 0, 12);
    rig.wait_for(|rig| rig.runs() == [2] && rig.core.gpu_of(GpuId(0)).away == Bytes::from_gib(8));
    rig.tell(Event::Arena(Bytes::from_gib(8)));
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::from_gib(2) });
    let (now, before) = (rig.now.0 as f64 / 1e9, rig.ran(b));
    rig.until(now + 9.0);
    assert!(rig.ran(b) - before > 6.0, "{} of 9 s", rig.ran(b) - before);
}
