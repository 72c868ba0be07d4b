//! Whose memory moves, and when.

use super::*;

fn granted(rig: &Rig, tenant: TenantId) -> Bytes {
    rig.core.tenants.get(tenant).unwrap().whole_bytes()
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
fn an_idle_tenant_makes_room_for_others_also_while_nobody_has_the_turn() {
    let mut rig = Rig::new(settings());
    let a = rig.tenant(1, 1, 0, 12);
    rig.until(1.0);
    rig.tell(Event::Unmanaged { gpu: GpuId(0), bytes: Bytes::from_gib(10) });
    rig.until(10.0);
    assert_eq!(rig.core.describe(a, rig.now).unwrap().resident, Bytes::from_gib(6));
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
fn a_moment_is_waited_for_what_the_dead_held() {
    let mut rig = Rig::new(settings());
    let dead = rig.tenant(1, 1, 0, 6);
    let a = rig.busy(2, 2, 0, 10);
    rig.until(1.0);
    rig.tell(Event::Left(dead));
    let b = rig.busy(3, 3, 0, 0);
    rig.ask(b, 1, 6 * GIB);
    rig.until(1.5);
    assert_eq!(rig.moves(0.0), [], "what it needs is free in a moment");
    rig.tell(Event::Buried(dead));
    rig.until(3.0);
    assert_eq!((rig.moves(0.0), granted(&rig, b)), (vec![], Bytes::from_gib(6)));
    // But not for ever.
    let slow = rig.tenant(4, 4, 0, 0);
    rig.tell(Event::Left(b));
    rig.tell(Event::wants(slow));
    rig.ask(slow, 1, 4 * GIB);
    rig.until(8.0);
    assert_eq!(rig.moves(3.0).first(), Some(&(4, 0)));
    assert!(rig.ran(a) > 1.0);
}

#[test]
fn what_could_not_be_enough_to_grow_moves_no_more_than_it_takes_to_run() {
    let mut rig = Rig::new(settings());
    rig.job(1, Terms { when_full: WhenFull::Wait, ..Terms::default() });
    let (a, b) = (rig.busy(1, 1, 0, 8), rig.busy(2, 2, 0, 12));
    rig.until(5.0);
    let held: Vec<Owned> = rig.sizes.keys().filter(|owned| owned.tenant == b).copied().collect();
    rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).turn.is_some_and(|turn| turn.tenant == b));
    for &owned in &held[5..] {
        rig.tell(Event::Pinned { owned, pinned: true });
    }
    // 8 and the 7 that stay leave 1, and it asks for 2.
    rig.ask(a, 100, 2 * GIB);
    let from = rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).moving.is_some());
    assert_eq!(rig.moves(from - 0.01)[0], (4, 4));
    rig.until(from + 1.0);
    assert_eq!((rig.runs(), granted(&rig, a)), (vec![1], Bytes::from_gib(8)));
}

#[test]
fn a_turn_for_which_room_was_made_is_worth_it() {
    let mut rig = Rig::new(settings());
    let (a, _) = (rig.busy(1, 1, 0, 10), rig.busy(2, 2, 0, 6));
    rig.until(1.0);
    rig.wait_for(|rig| rig.core.gpu_of(GpuId(0)).turn.is_some_and(|turn| turn.tenant == a));
    rig.ask(a, 100, 4 * GIB);
    rig.wait_for(|rig| granted(rig, a) == Bytes::from_gib(14));
    let from = rig.now.0 as f64 / 1e9;
    assert_eq!(rig.core.gpu_of(GpuId(0)).turn.unwrap().tenant, a);
    rig.until(from + 1.0);
    assert_eq!(rig.runs(), [1], "100 ms of moving are worth more than 100 ms of turn");
}

#[test]
fn whoever_does_not_answer_is_asked_for_no_room() {
    let mut rig = Rig::new(settings());
    let _ = (rig.busy(1, 1, 0, 8), rig.busy(2, 2, 0, 8));
    rig.until(1.0);
    rig.busy(3, 3, 0, 2);
    rig.lose = |action| matches!(action, Action::Move { .. });
    rig.wait_for(|rig| !rig.moves(0.0).is_empty());
    let moves = |rig: &Rig| {
        rig.said(0.0, |action| match action {
            Action::Move { op, out, .. } => Some((*op, out.clone())),
            _ => None,
        })
    };
    let (op, out) = moves(&rig).remove(0);
    let stopped = out[0].tenant;
    assert_eq!(out.len(), 2);
    let outcome = Outcome::Moved { out: vec![], into: vec![], unsettled: out, took: Span::from_secs(3) };
    rig.tell(Event::Done { op, outcome });
    rig.lose = |_| false;
    rig.until(90.0);
    let later = moves(&rig);
    assert!(
        later.len() > 1 && later[1..].iter().all(|(_, out)| out.iter().all(|owned| owned.tenant != stopped))
    );
}

#[test]
fn the_copy_of_what_could_not_go_keeps_its_place_in_the_arena() {
    let mut rig = Rig::new(settings());
    let a = rig.busy(1, 1, 0, 12);
    for owned in rig.sizes.keys().copied().filter(|owned| owned.tenant == a).collect::<Vec<_>>() {
        rig.tell(Event::Copied { owned, clean: true });
    }
    rig.until(0.01);
    rig.fail = |action| matches!(action, Action::Move { .. });
    rig.busy(2, 2, 0, 8);
    rig.wait_for(|rig| !rig.moves(0.0).is_empty() && rig.core.gpu_of(GpuId(0)).moving.is_none());
    assert_eq!(rig.core.arena().0, Bytes::from_gib(12));
}
