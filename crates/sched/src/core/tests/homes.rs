//! Memory of tenants that are larger than their GPU changes its home.

use super::*;

const ONE: TenantId = TenantId(1);

fn gib(gib: u64) -> Bytes {
    Bytes::from_gib(gib)
}

fn of_one(handle: u64) -> Owned {
    Owned { tenant: ONE, handle: HandleId(handle) }
}

/// A GPU of 16 GiB, of which nobody may have 1, with a tenant that has 15 in handles of 1 GiB, the first of them number 1, and 2 on the
/// host: 1001 and 1002. Its job may have so much there.
fn rig(host_gib: u64, terms: Terms) -> Rig {
    let settings = Settings { host_max: gib(32), context: Bytes::ZERO, headroom: gib(1), ..settings() };
    let mut rig = Rig::new(settings);
    rig.job(1, Terms { host_max: gib(host_gib), ..terms });
    rig.busy(1, 1, 0, 15);
    for handle in [1001, 1002] {
        let request = RequestId(handle);
        rig.tell(Event::AskHost { tenant: ONE, request, bytes: gib(1) });
        rig.tell(Event::ClaimedHost { owned: of_one(handle), request, bytes: gib(1) });
    }
    rig.until(1.0);
    rig
}

/// Looks that find these changed and all others not.
fn look(rig: &mut Rig, times: usize, changed: &[u64]) {
    let all = (1..=15).chain([1001, 1002]);
    let sighting = |handle: u64| Sighting {
        handle: HandleId(handle),
        blocks: 8,
        changed: if changed.contains(&handle) { 8 } else { 0 },
    };
    let seen: Vec<Sighting> = all.map(sighting).collect();
    for _ in 0..times {
        rig.tell(Event::Looked { tenant: ONE, seen: seen.clone() });
    }
}

fn prepares(rig: &Rig) -> Vec<(OpId, Vec<Owned>)> {
    rig.said(0.0, |action| match action {
        Action::Prepare { op, handles, .. } => Some((*op, handles.clone())),
        _ => None,
    })
}

type Swap = (OpId, Vec<Owned>, Vec<Owned>);

fn rehomes(rig: &Rig) -> Vec<Swap> {
    rig.said(0.0, |action| match action {
        Action::Rehome { op, down, up, .. } => Some((*op, down.clone(), up.clone())),
        _ => None,
    })
}

fn done(rig: &mut Rig, op: OpId, outcome: Outcome) {
    rig.tell(Event::Done { op, outcome });
}

const TOOK: Span = Span::from_millis(50);

fn described(rig: &Rig) -> Described {
    rig.core.describe(ONE, rig.now).unwrap()
}

/// Up to where the handles are to change places.
fn swap_begins(rig: &mut Rig) -> Swap {
    look(rig, 3, &[1001]);
    let (op, handles) = prepares(rig).pop().unwrap();
    assert_eq!(handles, [of_one(1)]);
    assert_eq!(rig.runs(), [1], "it runs while it makes memory");
    assert_eq!(rig.core.host().0, gib(3), "that counts already");
    done(rig, op, Outcome::Done { took: TOOK });
    rig.until(1.5);
    let swap = rehomes(rig).pop().unwrap();
    assert_eq!((&swap.1[..], &swap.2[..]), (&[of_one(1)][..], &[of_one(1001)][..]));
    assert_eq!(rig.runs(), [] as [u64; 0], "it is off the GPU");
    swap
}

fn all_of(swap: &Swap) -> Outcome {
    Outcome::Rehomed { down: swap.1.clone(), up: swap.2.clone(), unsettled: vec![], took: TOOK }
}

#[test]
fn what_changes_comes_to_the_device_and_its_tenant_goes_on() {
    let mut rig = rig(8, Terms::default());
    let swap = swap_begins(&mut rig);
    done(&mut rig, swap.0, all_of(&swap));
    rig.until(2.0);
    assert_eq!(rig.runs(), [1]);
    let now = described(&rig);
    assert_eq!((now.resident, now.host, now.rehomed), (gib(15), gib(2), gib(2)));
    assert!(rig.core.is_on_host(of_one(1)) && rig.core.has_handle(of_one(1001)));
    // Both have just changed places.
    look(&mut rig, 20, &[1]);
    assert_eq!(prepares(&rig).len(), 1);
    rig.tell(Event::Freed { tenant: ONE, handles: vec![HandleId(1), HandleId(1001)] });
    assert_eq!((described(&rig).resident, described(&rig).host), (gib(14), gib(1)));
}

#[test]
fn nothing_changes_places_without_a_budget_or_beside_the_latency_critical() {
    let mut full = rig(2, Terms::default());
    look(&mut full, 10, &[1001]);
    assert_eq!(prepares(&full), [], "all of the budget is used");
    let mut reserved = rig(8, Terms { reserve: true, ..Terms::default() });
    look(&mut reserved, 10, &[1001]);
    assert_eq!(prepares(&reserved), []);
    let mut beside = rig(8, Terms::default());
    beside.job(2, Terms { class: Class::LatencyCritical, ..Terms::default() });
    beside.busy(2, 2, 0, 0);
    look(&mut beside, 10, &[1001]);
    assert_eq!(prepares(&beside), []);
}

#[test]
fn what_was_prepared_is_dropped_when_somebody_latency_critical_comes() {
    let mut rig = rig(8, Terms::default());
    look(&mut rig, 3, &[1001]);
    let (op, _) = prepares(&rig).pop().unwrap();
    rig.job(2, Terms { class: Class::LatencyCritical, ..Terms::default() });
    rig.busy(2, 2, 0, 0);
    done(&mut rig, op, Outcome::Done { took: TOOK });
    rig.until(1.5);
    let dropped = rehomes(&rig).pop().unwrap();
    assert!(dropped.1.is_empty() && dropped.2.is_empty());
    done(&mut rig, dropped.0, all_of(&dropped));
    assert_eq!((described(&rig).host, described(&rig).rehomed), (gib(2), Bytes::ZERO));
}

/// Another one comes while memory is prepared, and has its turn first.
fn prepared_while_away() -> Rig {
    let mut rig = rig(8, Terms::default());
    look(&mut rig, 3, &[1001]);
    let (op, _) = prepares(&rig).pop().unwrap();
    rig.busy(2, 2, 0, 8);
    rig.wait_for(|rig| described(rig).away > Bytes::ZERO);
    done(&mut rig, op, Outcome::Done { took: TOOK });
    assert_eq!(rehomes(&rig), []);
    rig
}

#[test]
fn one_that_has_to_make_room_changes_places_with_its_next_turn() {
    let mut rig = prepared_while_away();
    rig.wait_for(|rig| !rehomes(rig).is_empty());
    let swap = rehomes(&rig).pop().unwrap();
    assert_eq!((swap.1.len(), described(&rig).away), (1, Bytes::ZERO));
    assert!(!rig.runs().contains(&1));
    done(&mut rig, swap.0, all_of(&swap));
    let (begin, end) = (rig.now.0 as f64 / 1e9, rig.now.0 as f64 / 1e9 + 20.0);
    rig.until(end);
    assert!(rig.turns(begin).contains(&1) && rig.turns(begin).contains(&2), "both go on");
}

#[test]
fn what_was_prepared_for_somebody_who_does_not_come_back_lapses() {
    let mut rig = prepared_while_away();
    rig.tell(Event::Pause(JobId(1)));
    rig.wait_for(|rig| !rehomes(rig).is_empty());
    let dropped = rehomes(&rig).pop().unwrap();
    assert!(dropped.1.is_empty() && dropped.2.is_empty());
    done(&mut rig, dropped.0, all_of(&dropped));
    assert_eq!(rig.core.host().0, gib(2));
}

#[test]
fn what_fails_changes_nothing() {
    let mut unprepared = rig(8, Terms::default());
    look(&mut unprepared, 3, &[1001]);
    let (op, _) = prepares(&unprepared).pop().unwrap();
    done(&mut unprepared, op, Outcome::Failed);
    assert_eq!((described(&unprepared).host, rehomes(&unprepared)), (gib(2), vec![]));
    look(&mut unprepared, 1, &[1001]);
    assert_eq!(prepares(&unprepared).len(), 2, "it is tried again");
    let mut half = rig(8, Terms::default());
    let swap = swap_begins(&mut half);
    let outcome = Outcome::Rehomed { down: swap.1.clone(), up: vec![], unsettled: vec![], took: TOOK };
    done(&mut half, swap.0, outcome);
    half.until(2.0);
    assert_eq!((described(&half).resident, described(&half).host), (gib(14), gib(3)));
    assert_eq!(half.runs(), [1]);
    let mut lost = rig(8, Terms::default());
    swap_begins(&mut lost);
    lost.until(100.0);
    assert_eq!((described(&lost).resident, described(&lost).host), (gib(15), gib(2)));
}

/// A change of places that ended halfway: 1 has gone to the host's memory, and nothing has come for it.
fn halfway() -> Rig {
    let mut rig = rig(8, Terms::default());
    let swap = swap_begins(&mut rig);
    let outcome = Outcome::Rehomed { down: swap.1, up: vec![], unsettled: vec![], took: TOOK };
    done(&mut rig, swap.0, outcome);
    rig.until(2.0);
    assert_eq!((described(&rig).resident, described(&rig).host), (gib(14), gib(3)));
    rig
}

/// Up to where a handle is to come into room that is free.
fn comes_alone(rig: &mut Rig) -> Swap {
    let before = (prepares(rig).len(), rehomes(rig).len());
    look(rig, 3, &[1002]);
    rig.until(2.5);
    assert_eq!(
        (prepares(rig).len(), rehomes(rig).len()),
        (before.0, before.1 + 1),
        "nothing is to be made for it"
    );
    let swap = rehomes(rig).pop().unwrap();
    assert_eq!((&swap.1[..], &swap.2[..]), (&[][..], &[of_one(1002)][..]));
    assert_eq!(rig.runs(), [] as [u64; 0], "it is off the GPU");
    swap
}

#[test]
fn room_that_half_a_change_left_is_used_again() {
    let mut rig = halfway();
    let swap = comes_alone(&mut rig);
    done(&mut rig, swap.0, all_of(&swap));
    rig.until(3.0);
    assert_eq!((described(&rig).resident, described(&rig).host), (gib(15), gib(2)));
    assert!(rig.core.has_handle(of_one(1002)));
    assert_eq!(rig.runs(), [1]);
    look(&mut rig, 5, &[1001]);
    assert_eq!(prepares(&rig).len(), 2, "there is no room any more: something goes for it");
}

#[test]
fn what_cannot_come_into_free_room_is_not_tried_with_every_look() {
    let mut rig = halfway();
    let swap = comes_alone(&mut rig);
    let outcome = Outcome::Rehomed { down: vec![], up: vec![], unsettled: vec![], took: TOOK };
    done(&mut rig, swap.0, outcome);
    rig.until(3.0);
    assert_eq!((described(&rig).resident, described(&rig).host), (gib(14), gib(3)));
    assert_eq!(rig.runs(), [1]);
    let before = rehomes(&rig).len();
    look(&mut rig, 10, &[1002]);
    rig.until(20.0);
    assert_eq!((prepares(&rig).len(), rehomes(&rig).len()), (1, before));
    rig.until(40.0);
    look(&mut rig, 1, &[1002]);
    rig.until(41.0);
    assert_eq!(rehomes(&rig).len(), before + 1);
}

#[test]
fn room_that_others_need_is_left_to_them() {
    let mut rig = halfway();
    rig.busy(2, 2, 0, 3);
    rig.wait_for(|rig| described(rig).away > Bytes::ZERO || rig.runs() == [2]);
    let before = rehomes(&rig).len();
    for _ in 0..20 {
        look(&mut rig, 3, &[1002]);
        let later = rig.now.0 as f64 / 1e9 + 0.2;
        rig.until(later);
    }
    let alone = rehomes(&rig).into_iter().skip(before).filter(|swap| swap.1.is_empty() && !swap.2.is_empty());
    assert_eq!(alone.count(), 0);
}

#[test]
fn what_comes_into_free_room_takes_it_from_the_start_and_with_whoever_leaves() {
    let mut rig = halfway();
    let swap = comes_alone(&mut rig);
    rig.ask(ONE, 77, GIB);
    let grants = |rig: &Rig| {
        let granted =
            |action: &Action| matches!(action, Action::Grant { request: RequestId(77), .. }).then_some(());
        rig.said(0.0, granted).len()
    };
    assert_eq!(grants(&rig), 0, "it is spoken for");
    rig.tell(Event::Left(ONE));
    assert_eq!(rig.core.gpu_of(GpuId(0)).departed(), gib(15), "with what it may have made");
    done(&mut rig, swap.0, Outcome::Failed);
    rig.tell(Event::Buried(ONE));
    rig.busy(2, 2, 0, 15);
    rig.until(5.0);
    assert_eq!(rig.runs(), [2]);
}

#[test]
fn one_that_does_not_answer_counts_in_both_homes_and_stays_off() {
    for on_host in [true, false] {
        for goes_down in [true, false] {
            let mut rig = rig(8, Terms::default());
            let swap = swap_begins(&mut rig);
            let doubted = if goes_down { of_one(1) } else { of_one(1001) };
            let down = if goes_down { vec![] } else { swap.1.clone() };
            done(
                &mut rig,
                swap.0,
                Outcome::Rehomed { down, up: vec![], unsettled: vec![doubted], took: TOOK },
            );
            rig.until(3.0);
            assert_eq!((described(&rig).resident, rig.core.host().0), (gib(15), gib(3)));
            assert_eq!(rig.runs(), [] as [u64; 0]);
            rig.tell(Event::HomeIs { owned: doubted, on_host });
            rig.until(5.0);
            assert_eq!(rig.runs(), [1]);
            let (device, host) = if on_host { (gib(14), gib(3)) } else { (gib(15), gib(2)) };
            assert_eq!((described(&rig).resident, described(&rig).host), (device, host));
            assert_eq!(rig.core.is_on_host(doubted), on_host);
        }
    }
}

#[test]
fn one_that_frees_or_leaves_in_the_middle_is_no_trouble() {
    let mut frees = rig(8, Terms::default());
    let swap = swap_begins(&mut frees);
    frees.tell(Event::Freed { tenant: ONE, handles: vec![HandleId(1), HandleId(1001)] });
    done(&mut frees, swap.0, all_of(&swap));
    assert_eq!((described(&frees).resident, described(&frees).host), (gib(14), gib(1)));
    let mut doubts = rig(8, Terms::default());
    let swap = swap_begins(&mut doubts);
    let unsettled = vec![of_one(1)];
    done(&mut doubts, swap.0, Outcome::Rehomed { down: vec![], up: vec![], unsettled, took: TOOK });
    doubts.tell(Event::Freed { tenant: ONE, handles: vec![HandleId(1)] });
    assert_eq!((described(&doubts).resident, described(&doubts).host), (gib(14), gib(2)));
    let mut leaves = rig(8, Terms::default());
    let swap = swap_begins(&mut leaves);
    leaves.tell(Event::Left(ONE));
    assert_eq!(leaves.core.host().0, gib(3), "until it is buried");
    done(&mut leaves, swap.0, Outcome::Failed);
    leaves.tell(Event::Buried(ONE));
    assert_eq!(leaves.core.host().0, Bytes::ZERO);
    leaves.busy(2, 2, 0, 16);
    leaves.until(5.0);
    assert_eq!(leaves.runs(), [2]);
}
