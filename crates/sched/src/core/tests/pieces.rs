//! Whoever takes its memory piece by piece, with no work yet, keeps its turn while it asks again soon enough.

use super::*;

const PIECES: u64 = 12;

/// To put any of the others on: 12 GiB at 40 GiB a second, a freeze and a thaw.
const SWITCH_S: f64 = 0.31;

fn has(rig: &Rig, tenant: TenantId) -> u64 {
    rig.core.tenants.get(tenant).unwrap().whole_bytes().0 / GIB
}

/// Two of 12 GiB that take turns on 16 GiB, and one that comes with nothing.
fn two_and_a_newcomer() -> (Rig, TenantId) {
    let mut rig = Rig::new(settings());
    rig.busy(1, 1, 0, 12);
    rig.busy(2, 2, 0, 12);
    rig.until(60.0);
    let newcomer = rig.tenant(3, 3, 0, 0);
    (rig, newcomer)
}

/// It asks for a piece, and again so long after it has it. Says when it has all.
fn take_all(rig: &mut Rig, tenant: TenantId, pauses: impl IntoIterator<Item = f64>) -> f64 {
    let mut at = rig.now.0 as f64 / 1e9;
    for (piece, pause) in (1..=PIECES).zip(pauses) {
        rig.ask(tenant, piece, GIB);
        at = rig.wait_for(|rig| has(rig, tenant) == piece);
        rig.until(at + pause);
    }
    at
}

/// From the last grant within each turn of a tenant to the end of that turn, in seconds.
fn kept_for_nothing(rig: &Rig, tenant: TenantId) -> Vec<f64> {
    let (mut last, mut kept) = (None, Vec::new());
    for (at, action) in &rig.diary {
        match action {
            Action::TurnBegins { tenant: owner, .. } if *owner == tenant => last = Some(*at),
            Action::Grant { tenant: owner, .. } if *owner == tenant && last.is_some() => last = Some(*at),
            Action::TurnEnds { tenant: owner, .. } if *owner == tenant => {
                kept.extend(last.take().map(|last| at.since(last).as_secs_f64()));
            }
            _ => {}
        }
    }
    kept
}

#[test]
fn pieces_that_follow_each_other_closely_are_had_in_one_turn() {
    let (mut rig, newcomer) = two_and_a_newcomer();
    let since = rig.now.0 as f64 / 1e9;
    take_all(&mut rig, newcomer, std::iter::repeat(0.005));
    assert_eq!(has(&rig, newcomer), PIECES);
    let turns = rig.turns(since).into_iter().filter(|&owner| owner == newcomer.0).count();
    assert_eq!(turns, 1, "{:?}", rig.turns(since));
}

#[test]
fn whoever_asks_no_more_gives_way_once_that_cost_as_much_as_the_switch() {
    let (mut rig, newcomer) = two_and_a_newcomer();
    let had = take_all(&mut rig, newcomer, std::iter::repeat(0.005));
    rig.until(had + 2.0);
    let others: Vec<u64> = rig.turns(had);
    assert!(others.first().is_some_and(|&owner| owner != newcomer.0), "{others:?}");
    let kept = kept_for_nothing(&rig, newcomer);
    assert!(kept.iter().all(|&kept| kept <= SWITCH_S), "{kept:?}");
}

/// Pauses of up to 0.8 s, another row of them for each seed.
fn pauses(seed: u64) -> Vec<f64> {
    let mut state = seed;
    let next = || {
        // Knuth's linear congruential generator: any will do.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64 * 0.8
    };
    std::iter::repeat_with(next).take(PIECES as usize).collect()
}

/// However it asks, it gets all, and the GPU stands idle for it no longer than a switch takes, each time.
#[test]
fn nobody_keeps_the_gpu_for_nothing() {
    for seed in 0..40 {
        let (mut rig, newcomer) = two_and_a_newcomer();
        take_all(&mut rig, newcomer, pauses(seed));
        assert_eq!(has(&rig, newcomer), PIECES, "seed {seed}");
        let end = rig.now.0 as f64 / 1e9;
        rig.until(end + 60.0);
        let after = rig.turns(end + 2.0);
        assert!(after.len() >= 2 && !after.contains(&newcomer.0), "seed {seed}: {after:?}");
        let kept = kept_for_nothing(&rig, newcomer);
        assert!(kept.iter().all(|&kept| kept <= SWITCH_S), "seed {seed}: {kept:?}");
    }
}

/// Room is made before it is on again, and then it has what it asked for and no work: it is on all the same, and may ask again.
#[test]
fn whoever_has_to_come_back_for_more_gets_on_too() {
    let (mut rig, newcomer) = two_and_a_newcomer();
    for piece in 1..=PIECES / 2 {
        rig.ask(newcomer, piece, GIB);
        rig.wait_for(|rig| has(rig, newcomer) == piece);
    }
    // It does something else, and what it has goes away.
    rig.wait_for(|rig| rig.core.tenants.get(newcomer).unwrap().away > Bytes::ZERO);
    let since = rig.now.0 as f64 / 1e9;
    for piece in PIECES / 2 + 1..=PIECES {
        rig.ask(newcomer, piece, GIB);
        let at = rig.wait_for(|rig| has(rig, newcomer) == piece);
        rig.until(at + 0.005);
    }
    let turns = rig.turns(since).into_iter().filter(|&owner| owner == newcomer.0).count();
    assert_eq!(turns, 1, "{:?}", rig.turns(since));
    let kept = kept_for_nothing(&rig, newcomer);
    assert!(kept.iter().all(|&kept| kept <= SWITCH_S), "{kept:?}");
}

/// A turn ends whose owner has just been given most of its memory, which the mover knows so much later: until then there is no
/// room for any of the others. Who had the next turn, and how long after that, in seconds.
fn next_turn_after_new_memory(known_after: Span) -> (u64, f64) {
    let (mut rig, newcomer) = two_and_a_newcomer();
    rig.tell(Event::wants(newcomer));
    rig.wait_for(|rig| rig.runs() == [newcomer.0]);
    rig.unknown = Some(Vec::new());
    for piece in 1..=14 {
        rig.ask(newcomer, piece, GIB);
    }
    rig.wait_for(|rig| has(rig, newcomer) == 14);
    let until = rig.core.gpu_of(GpuId(0)).turn.unwrap().until;
    rig.until(until.0 as f64 / 1e9 - 0.001);
    for owned in rig.unknown.take().unwrap() {
        rig.after(Span::from_millis(1) + known_after, Event::Adopted { owned, movable: true });
    }
    let (begun, ended) = (rig.diary.len(), until.0 as f64 / 1e9);
    let next = |rig: &Rig| {
        let begins = |(_, action): &(Time, Action)| match action {
            Action::TurnBegins { tenant, .. } => Some(tenant.0),
            _ => None,
        };
        rig.diary[begun..].iter().find_map(begins)
    };
    let at = rig.wait_for(|rig| next(rig).is_some());
    (next(&rig).unwrap(), at - ended)
}

#[test]
fn memory_that_is_just_being_made_keeps_others_from_their_turns_for_a_moment_only() {
    for known_after in [0, 1, 30, 150] {
        let (next, after) = next_turn_after_new_memory(Span::from_millis(known_after));
        assert!(next != 3 && after < SWITCH_S + 0.22, "{next} after {after} s, known after {known_after} ms");
    }
    // It may have been stopped in the middle: then nobody waits for that, and as there is room for nobody else, it goes on.
    let (next, after) = next_turn_after_new_memory(Span::from_secs(60));
    assert!(next == 3 && after < 0.22, "{next} after {after} s");
}
