//! Memory of tenants that are larger than their GPU changes its home.

use super::*;

const ONE: TenantId = TenantId(1);

fn gib(gib: u64) -> Bytes {
    Bytes::from_gib(gib)
}

fn of_one(handle: u64) -> Owned {
    Owned { tenant: ONE, handle: HandleId(handle) }
}

/// A GPU of 16 GiB, of which nobody may have 1, with a tenant that has 15 in handles of 1 GiB, the first of them number 1, and
/// 2 on the host: 1001 and 1002. Its job may have so much there.
fn rig(host_gib: u64, terms: Terms) -> Rig {
    rig_with(Settings { context: Bytes::ZERO, ..settings() }, host_gib, 15, terms)
}

/// The same with so much on the device.
fn rig_with(settings: Settings, host_gib: u64, device_gib: u64, terms: Terms) -> Rig {
    let mut rig = Rig::new(Settings { host_max: gib(32), headroom: gib(1), ..settings });
    rig.job(1, Terms { host_max: gib(host_gib), ..terms });
    rig.busy(1, 1, 0, device_gib);
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

/// What came, or was to come, into room that was free.
fn came_alone(rig: &Rig) -> usize {
    rehomes(rig).iter().filter(|(_, down, up)| down.is_empty() && !up.is_empty()).count()
}

/// The same at the begin of its turn, beside another one with so much.
fn beside(gib: u64) -> Rig {
    let mut rig = halfway();
    rig.busy(2, 2, 0, gib);
    rig.wait_for(|rig| rig.runs() == [2]);
    rig.wait_for(|rig| rig.runs() == [1]);
    rig
}

fn a_moment(rig: &mut Rig) {
    let later = rig.now.0 as f64 / 1e9 + 0.01;
    rig.until(later);
}

#[test]
fn room_that_others_have_away_or_ask_for_is_left_to_them() {
    let mut away = beside(8);
    away.tell(Event::Freed { tenant: ONE, handles: vec![HandleId(2), HandleId(3), HandleId(4)] });
    look(&mut away, 3, &[1002]);
    a_moment(&mut away);
    assert_eq!((came_alone(&away), prepares(&away).len()), (0, 2), "something goes for it");
    for gib_asked in [0, 2] {
        let mut asked = beside(0);
        if gib_asked > 0 {
            asked.ask(TenantId(2), 77, gib_asked * GIB);
        }
        look(&mut asked, 3, &[1002]);
        a_moment(&mut asked);
        assert_eq!(came_alone(&asked), usize::from(gib_asked == 0));
    }
}

#[test]
fn room_for_contexts_and_beyond_the_limit_of_a_job_is_not_used() {
    let context = Bytes::from_mib(256);
    let mut spared = rig_with(Settings { context, ..settings() }, 8, 14, Terms::default());
    look(&mut spared, 3, &[1001]);
    spared.until(1.5);
    assert_eq!((came_alone(&spared), prepares(&spared).len()), (0, 1));
    let mut limited = halfway();
    limited.tell(Event::Freed { tenant: ONE, handles: vec![HandleId(2), HandleId(3)] });
    limited.tenant(2, 1, 0, 1);
    let memory_max = Some(gib(13) + Bytes::from_mib(512));
    limited.job(1, Terms { host_max: gib(8), memory_max, ..Terms::default() });
    look(&mut limited, 3, &[1002]);
    limited.until(2.5);
    assert_eq!((came_alone(&limited), prepares(&limited).len()), (0, 2), "its other program counts too");
}

#[test]
fn what_finds_its_room_taken_stays() {
    let mut rig = halfway();
    look(&mut rig, 3, &[1002]);
    assert_eq!(rehomes(&rig).len(), 1, "it is about to be frozen");
    rig.tenant(2, 2, 0, 1);
    rig.until(2.5);
    let dropped = rehomes(&rig).pop().unwrap();
    assert!(rehomes(&rig).len() == 2 && dropped.1.is_empty() && dropped.2.is_empty());
    done(&mut rig, dropped.0, all_of(&dropped));
    rig.until(3.0);
    assert_eq!((described(&rig).resident, described(&rig).host), (gib(14), gib(3)));
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
