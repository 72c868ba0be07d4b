//! Memory that must stay: when it does, and what that leaves for others.

use super::*;

fn pin(rig: &mut Rig, tenant: TenantId, count: usize) -> Vec<Owned> {
    let owned: Vec<_> =
        rig.sizes.keys().copied().filter(|owned| owned.tenant == tenant).take(count).collect();
    for &owned in &owned {
        rig.tell(Event::Pinned { owned, pinned: true });
    }
    owned
}

fn last_denial(rig: &Rig) -> Option<Short> {
    let denials = rig.said(0.0, |action| match action {
        Action::Deny { why, .. } => Some(*why),
        _ => None,
    });
    denials.last().copied()
}

#[test]
fn a_pinned_handle_stays_once_it_is_there_and_no_move_has_it() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 10);
    let one = Owned { tenant: a, handle: HandleId(1) };
    assert_eq!(rig.core.stays(one), None, "it is not pinned");
    assert_eq!(rig.core.stays(Owned { tenant: a, handle: HandleId(99) }), None);
    let b = rig.busy(2, 2, 0, 10);
    let goes = |rig: &Rig| {
        let moving = rig.core.gpu_of(GpuId(0)).moving.as_ref();
        moving.is_some_and(|moving| moving.out.iter().any(|(owned, _)| *owned == one))
    };
    rig.wait_for(goes);
    rig.tell(Event::Pinned { owned: one, pinned: true });
    assert_eq!(rig.core.stays(one), Some(false), "it is on its way out");
    rig.wait_for(|rig| rig.away.contains(&one) && !goes(rig));
    assert_eq!(rig.core.stays(one), Some(false), "it is away");
    rig.wait_for(|rig| rig.core.stays(one) == Some(true));
    let from = rig.now.0 as f64 / 1e9;
    rig.until(from + 30.0);
    assert_eq!(rig.core.stays(one), Some(true));
    assert!(rig.ran(a) > 10.0 && rig.ran(b) > 10.0);
}

#[test]
fn what_would_not_fit_beside_pinned_memory_is_denied() {
    let mut rig = Rig::new(settings());
    let a = rig.tenant(1, 1, 0, 8);
    pin(&mut rig, a, 6);
    let b = rig.busy(2, 2, 0, 10);
    assert_eq!(last_denial(&rig), None);
    rig.ask(b, 100, GIB);
    let beside = Short::Device { wanted: Bytes::from_gib(11), usable: Bytes::from_gib(10) };
    assert_eq!(last_denial(&rig), Some(beside));
    // What it has pinned itself is in nobody's way but others'.
    rig.ask(a, 100, 8 * GIB);
    assert_eq!(last_denial(&rig), Some(beside));
    rig.until(5.0);
    let freed: Vec<_> =
        rig.sizes.keys().filter(|owned| owned.tenant == a).map(|owned| owned.handle).collect();
    rig.tell(Event::Freed { tenant: a, handles: freed[..1].to_vec() });
    rig.ask(b, 101, GIB);
    rig.until(10.0);
    assert_eq!(rig.core.tenants.get(b).unwrap().whole_bytes(), Bytes::from_gib(11));
}

#[test]
fn nothing_may_stay_that_leaves_somebody_no_room() {
    let mut rig = Rig::new(settings());
    let (a, b) = (rig.tenant(1, 1, 0, 8), rig.tenant(2, 2, 0, 8));
    rig.until(0.1);
    assert_eq!(rig.core.cannot_stay(a, Bytes::from_gib(8)), None);
    let wanted = Short::Device { wanted: Bytes::from_gib(17), usable: Bytes::from_gib(16) };
    assert_eq!(rig.core.cannot_stay(a, Bytes::from_gib(9)), Some(wanted));
    pin(&mut rig, b, 4);
    assert_eq!(rig.core.cannot_stay(a, Bytes::from_gib(9)), Some(wanted), "pinned or not, it is there");
    pin(&mut rig, a, 8);
    assert_eq!(rig.core.cannot_stay(b, Bytes::from_gib(4)), None, "nobody else has anything to move");
    let wanted = Short::Device { wanted: Bytes::from_gib(17), usable: Bytes::from_gib(16) };
    assert_eq!(rig.core.cannot_stay(b, Bytes::from_gib(5)), Some(wanted));
    assert_eq!(rig.core.cannot_stay(TenantId(99), Bytes::from_gib(99)), None);
}

#[test]
fn a_context_that_leaves_no_room_beside_pinned_memory_waits() {
    let mut rig = Rig::new(settings());
    let (a, _) = (rig.tenant(1, 1, 0, 8), rig.tenant(2, 2, 0, 8));
    rig.until(0.1);
    pin(&mut rig, a, 8);
    let newcomer = Event::Arrived { tenant: TenantId(3), job: JobId(1), gpu: GpuId(0), residue: Bytes(GIB) };
    rig.tell(newcomer);
    rig.until(1.0);
    let admitted = |rig: &Rig| {
        !rig.said(0.0, |action| matches!(action, Action::Admit { tenant: TenantId(3) }).then_some(()))
            .is_empty()
    };
    assert!(!admitted(&rig));
    for handle in 1..=8 {
        rig.tell(Event::Pinned { owned: Owned { tenant: a, handle: HandleId(handle) }, pinned: false });
    }
    rig.until(3.0);
    assert!(admitted(&rig));
}

#[test]
fn the_size_of_what_never_moves_asks_for_no_room_in_the_arena() {
    let settings = Settings { handle_max: Bytes(GIB), ..settings() };
    let mut rig = Rig::new(settings);
    rig.tell(Event::Arena(Bytes::from_gib(6)));
    let a = rig.tenant(1, 1, 0, 0);
    rig.ask(a, 1, 8 * GIB);
    let owned = Owned { tenant: a, handle: HandleId(1) };
    rig.tell(Event::Adopted { owned, movable: false });
    rig.tell(Event::Pinned { owned, pinned: true });
    // 8 stay, 12 take turns in the other 8: 4 in the arena and two pieces more.
    let (b, c) = (rig.busy(2, 2, 0, 6), rig.busy(3, 3, 0, 6));
    rig.until(20.0);
    assert_eq!(last_denial(&rig), None);
    assert!(rig.ran(b) > 5.0 && rig.ran(c) > 5.0);
}
