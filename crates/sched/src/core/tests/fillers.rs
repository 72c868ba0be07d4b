//! Fillers: who runs beside an owner that has gaps.

use super::*;

fn with_gaps(rig: &mut Rig, tenant: TenantId) {
    rig.tell(Event::Measured { tenant, busy: Ratio::from_percent(40) });
}

/// The first has a long turn, with gaps.
fn owner(rig: &mut Rig) -> TenantId {
    let owner = rig.busy(1, 1, 0, 2);
    rig.until(0.1);
    with_gaps(rig, owner);
    owner
}

fn long_turns() -> Settings {
    Settings { turn_min: Span::from_secs(10), ..settings() }
}

#[test]
fn gaps_are_filled_as_soon_as_they_are_seen() {
    let mut rig = Rig::new(long_turns());
    let (a, _) = (rig.busy(1, 1, 0, 4), rig.busy(2, 2, 0, 4));
    rig.until(1.0);
    assert_eq!(rig.runs(), [1]);
    with_gaps(&mut rig, a);
    rig.until(1.01);
    assert_eq!(rig.runs(), [1, 2]);
    // And no longer when there are none.
    for _ in 0..10 {
        rig.tell(Event::Measured { tenant: a, busy: Ratio::ONE });
    }
    rig.until(1.02);
    assert_eq!(rig.runs(), [1]);
}

#[test]
fn whoever_has_a_cap_fills_no_gaps() {
    let mut rig = Rig::new(long_turns());
    owner(&mut rig);
    rig.job(2, Terms { compute_max: Some(Ratio::from_percent(50)), ..Terms::default() });
    rig.busy(2, 2, 0, 2);
    rig.until(1.0);
    assert_eq!(rig.runs(), [1]);
    rig.busy(3, 3, 0, 2);
    rig.until(2.0);
    assert_eq!(rig.runs(), [1, 3]);
}

#[test]
fn whoever_only_waits_for_memory_fills_no_gaps() {
    let mut rig = Rig::new(long_turns());
    owner(&mut rig);
    rig.job(2, Terms { when_full: WhenFull::Wait, ..Terms::default() });
    let asks = rig.tenant(2, 2, 0, 1);
    rig.busy(3, 3, 0, 12);
    rig.ask(asks, 100, 4 * GIB);
    rig.until(2.0);
    assert!(!rig.runs().contains(&2), "{:?}", rig.runs());
}

#[test]
fn one_of_a_gang_fills_no_gaps() {
    let mut rig = Rig::new(long_turns());
    owner(&mut rig);
    rig.job(2, Terms { gang: true, ..Terms::default() });
    rig.busy(2, 2, 0, 1);
    rig.busy(3, 2, 0, 1);
    rig.until(1.0);
    assert_eq!(rig.runs(), [1]);
}

#[test]
fn a_gang_has_no_filler_beside_it() {
    let mut rig = Rig::new(long_turns());
    rig.job(1, Terms { gang: true, ..Terms::default() });
    let members = [rig.busy(1, 1, 0, 1), rig.busy(2, 1, 0, 1)];
    rig.until(0.1);
    members.into_iter().for_each(|member| with_gaps(&mut rig, member));
    rig.busy(3, 3, 0, 1);
    rig.until(1.0);
    assert_eq!(rig.runs(), [1, 2]);
}

#[test]
fn whoever_is_not_all_there_fills_no_gaps() {
    let mut rig = Rig::new(long_turns());
    rig.busy(1, 1, 0, 12);
    rig.until(0.5);
    rig.busy(2, 2, 0, 12);
    rig.wait_for(|rig| rig.turns(0.0).len() > 2);
    for tenant in [1, 2].map(TenantId) {
        with_gaps(&mut rig, tenant);
    }
    rig.until(60.0);
    let together =
        rig.diary.iter().filter(|(_, action)| matches!(action, Action::Thaw { slice: Slice::Long, .. }));
    assert_eq!(together.count(), 0);
}

#[test]
fn a_filler_that_cannot_be_thawed_leaves_its_place_to_another() {
    let mut rig = Rig::new(long_turns());
    owner(&mut rig);
    rig.fail = |action| matches!(action, Action::Thaw { tenant, .. } if tenant.0 == 2);
    rig.busy(2, 2, 0, 2);
    rig.busy(3, 3, 0, 2);
    rig.until(0.5);
    assert_eq!(rig.runs(), [1, 3]);
}

#[test]
fn a_filler_pays_for_all_its_time_whoever_leaves_meanwhile() {
    let mut rig = Rig::new(long_turns());
    let a = owner(&mut rig);
    let (filler, idle) = (rig.busy(2, 2, 0, 2), rig.tenant(3, 3, 0, 2));
    rig.until(5.0);
    assert_eq!(rig.runs(), [1, 2]);
    let before = rig.core.tenants.get(filler).unwrap().virtual_time;
    rig.tell(Event::Left(idle));
    // No gaps any more: it goes, and pays.
    for _ in 0..10 {
        rig.tell(Event::Measured { tenant: a, busy: Ratio::ONE });
    }
    let paid = rig.core.tenants.get(filler).unwrap().virtual_time - before;
    assert!(paid > 2_000_000_000, "{paid} ns of almost 5 s beside one that was busy for two fifths of them");
}

#[test]
fn a_filler_pays_also_for_the_time_in_which_the_next_owner_is_put_on() {
    let mut rig = Rig::new(long_turns());
    let [first, filler, next] = [1, 2, 3].map(|id| rig.busy(id, id, 0, 2));
    [first, filler, next].into_iter().for_each(|tenant| with_gaps(&mut rig, tenant));
    rig.until(1.0);
    assert_eq!(rig.runs(), [1, 2]);
    rig.thaw = Span::from_secs(1);
    rig.tell(Event::Left(first));
    let paid = |rig: &Rig| rig.core.tenants.get(filler).unwrap().virtual_time;
    let before = paid(&rig);
    rig.until(2.01);
    assert_eq!((rig.turns(1.0), rig.runs()), (vec![3], vec![2, 3]));
    for _ in 0..10 {
        rig.tell(Event::Measured { tenant: next, busy: Ratio::ONE });
    }
    assert!(paid(&rig) - before > 200_000_000, "{} ns of a second", paid(&rig) - before);
}
