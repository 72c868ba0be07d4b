//! How full the arena is, what follows from that, and who is ended when nothing else helps.
//!
//! What counts is what is away, copies that can be dropped left out. The answer is graded:
//!
//! | needed of the arena | [`Pressure`] | what follows |
//! |---|---|---|
//! | below 75% | calm | nothing |
//! | from 75% | closed | nobody is admitted |
//! | from 85% | shrinking | unused grants come back, clean copies are dropped |
//! | from 95% | refusing | nobody gets more memory |
//!
//! Each level includes those before it, and ends only 5 points below where it began, so that it does not flicker.
//! Only when all of that was not enough is somebody ended.
//!
//! **Who is ended**: best-effort before latency-critical; among those the lowest priority; among those the paused
//! before the running; among those whoever has the most memory, since that frees most with one end; among those the
//! youngest, since it loses least. Who has no memory is not ended: that would free nothing.

use std::cmp::Reverse;

use crate::{Bytes, Class, Priority, TenantId, Time};

/// So many points below where it began a level ends.
const HYSTERESIS: u64 = 5;

/// How full the arena is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Pressure {
    /// There is room.
    #[default]
    Calm,
    /// Nobody is admitted.
    Closed,
    /// Unused grants come back, clean copies are dropped.
    Shrinking,
    /// Nobody gets more memory.
    Refusing,
}

/// The levels above calm, with the per cent at which they begin.
const LEVELS: [(Pressure, u64); 3] =
    [(Pressure::Refusing, 95), (Pressure::Shrinking, 85), (Pressure::Closed, 75)];

/// The level now, if so much is needed of an arena of that size and the level was `before`.
pub(crate) fn level(needed: Bytes, arena: Bytes, before: Pressure) -> Pressure {
    if needed == Bytes::ZERO {
        return Pressure::Calm;
    }
    let reaches = |percent: u64| u128::from(needed.0) * 100 >= u128::from(arena.0) * u128::from(percent);
    LEVELS
        .into_iter()
        .find(|&(level, begins)| reaches(if before >= level { begins - HYSTERESIS } else { begins }))
        .map_or(Pressure::Calm, |(level, _)| level)
}

/// Somebody who could be ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    /// Who.
    pub(crate) tenant: TenantId,
    /// Its class, inherited ones included.
    pub(crate) class: Class,
    /// Its job's priority.
    pub(crate) priority: Priority,
    /// Is its job paused?
    pub(crate) paused: bool,
    /// All that it has, on the device and away.
    pub(crate) whole: Bytes,
    /// Since when it is there.
    pub(crate) arrived: Time,
}

/// Whom to end, and why that one; nobody if nobody has anything.
pub(crate) fn whom_to_end(subjects: impl Iterator<Item = Subject>) -> Option<(TenantId, String)> {
    let mut by_rule: Vec<Subject> = subjects.filter(|subject| subject.whole > Bytes::ZERO).collect();
    // Classes and priorities are ordered from what matters most; names count up, so a higher one is younger.
    by_rule.sort_by_key(|one| {
        Reverse((one.class, one.priority, one.paused, one.whole, one.arrived, one.tenant))
    });
    let first = by_rule.first()?;
    Some((first.tenant, reason(first, by_rule.get(1))))
}

/// Why it is the first one's end: what sets it apart from the next.
fn reason(first: &Subject, next: Option<&Subject>) -> String {
    let rule = match next {
        None => "nobody else has memory to give back",
        Some(next) if next.class != first.class => "best-effort goes before latency-critical",
        Some(next) if next.priority != first.priority => "the lowest priority goes first",
        Some(next) if next.paused != first.paused => "among equals, who is paused goes first",
        Some(next) if next.whole != first.whole => {
            "among equals, who has the most goes first, so one end frees most"
        }
        Some(_) => "among equals, the youngest goes first, as it loses least",
    };
    let class = match first.class {
        Class::LatencyCritical => "latency-critical",
        Class::BestEffort => "best-effort",
    };
    let priority = match first.priority {
        Priority::Realtime => "realtime",
        Priority::High => "high",
        Priority::Normal => "normal",
        Priority::Low => "low",
        Priority::Idle => "idle",
    };
    let paused = if first.paused { ", paused" } else { "" };
    let Subject { tenant, whole, .. } = first;
    format!(
        "the arena is full and tenant {tenant} ({class}, priority {priority}{paused}, {whole}) is ended: {rule}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use Pressure::{Calm, Closed, Refusing, Shrinking};

    const ARENA: Bytes = Bytes(10_000);

    #[test]
    fn levels_begin_exactly_at_their_per_cent() {
        for (needed, expected) in [
            (0, Calm),
            (7_499, Calm),
            (7_500, Closed),
            (8_499, Closed),
            (8_500, Shrinking),
            (9_499, Shrinking),
            (9_500, Refusing),
            (10_000, Refusing),
            (50_000, Refusing),
        ] {
            assert_eq!(level(Bytes(needed), ARENA, Calm), expected, "{needed}");
        }
    }

    #[test]
    fn levels_end_five_points_lower_than_they_began() {
        for (needed, before, expected) in [
            (9_000, Refusing, Refusing),
            (8_999, Refusing, Shrinking),
            (8_000, Refusing, Shrinking),
            (7_999, Refusing, Closed),
            (7_000, Refusing, Closed),
            (6_999, Refusing, Calm),
            (8_000, Shrinking, Shrinking),
            (7_999, Shrinking, Closed),
            (7_000, Closed, Closed),
            (6_999, Closed, Calm),
        ] {
            assert_eq!(level(Bytes(needed), ARENA, before), expected, "{needed} after {before:?}");
        }
    }

    #[test]
    fn a_level_that_was_not_reached_has_no_hysteresis() {
        assert_eq!(level(Bytes(9_400), ARENA, Shrinking), Shrinking);
        assert_eq!(level(Bytes(8_400), ARENA, Closed), Closed);
        assert_eq!(level(Bytes(7_400), ARENA, Calm), Calm);
    }

    #[test]
    fn it_does_not_flicker_around_a_border() {
        let mut now = Calm;
        let mut changes = 0;
        for round in 0..100 {
            let next = level(Bytes(if round % 2 == 0 { 7_510 } else { 7_490 }), ARENA, now);
            changes += u32::from(next != now);
            now = next;
        }
        assert_eq!((now, changes), (Closed, 1));
    }

    #[test]
    fn without_an_arena_nothing_can_go_away() {
        for before in [Calm, Closed, Shrinking, Refusing] {
            assert_eq!(level(Bytes(0), Bytes(0), before), Calm);
            assert_eq!(level(Bytes(1), Bytes(0), before), Refusing);
            assert_eq!(level(Bytes(0), ARENA, before), Calm);
        }
    }

    #[test]
    fn the_largest_amounts_do_not_overflow() {
        assert_eq!(level(Bytes(u64::MAX), Bytes(u64::MAX), Calm), Refusing);
        assert_eq!(level(Bytes(u64::MAX / 2), Bytes(u64::MAX), Refusing), Calm);
        assert_eq!(level(Bytes(u64::MAX), Bytes(1), Calm), Refusing);
    }

    #[test]
    fn levels_are_ordered() {
        assert!(Calm < Closed && Closed < Shrinking && Shrinking < Refusing);
        assert_eq!(Pressure::default(), Calm);
    }

    /// Tenant 1 as most are, changed by `change` for the others.
    fn subject(tenant: u64, change: impl FnOnce(&mut Subject)) -> Subject {
        let mut subject = Subject {
            tenant: TenantId(tenant),
            class: Class::BestEffort,
            priority: Priority::Normal,
            paused: false,
            whole: Bytes::from_gib(4),
            arrived: Time(100),
        };
        change(&mut subject);
        subject
    }

    /// Whoever comes first in the list is named, in either order, and why.
    fn ends(expected: u64, rule: &str, subjects: &[Subject]) {
        for turned in [false, true] {
            let mut all = subjects.to_vec();
            if turned {
                all.reverse();
            }
            let (tenant, why) = whom_to_end(all.into_iter()).expect("somebody");
            assert_eq!(tenant, TenantId(expected), "{why}");
            assert!(why.ends_with(&format!("is ended: {rule}")), "{why}");
        }
    }

    #[test]
    fn best_effort_goes_before_latency_critical_whatever_else() {
        let critical = subject(1, |one| {
            one.class = Class::LatencyCritical;
            one.priority = Priority::Idle;
            one.paused = true;
            one.whole = Bytes::from_gib(100);
            one.arrived = Time(900);
        });
        let best_effort = subject(2, |one| one.priority = Priority::Realtime);
        ends(2, "best-effort goes before latency-critical", &[critical, best_effort]);
    }

    #[test]
    fn the_lowest_priority_goes_before_the_paused_and_the_large() {
        let all = [Priority::Idle, Priority::Low, Priority::Normal, Priority::High, Priority::Realtime];
        for pair in all.windows(2) {
            let lower = subject(1, |one| one.priority = pair[0]);
            let higher = subject(2, |one| {
                one.priority = pair[1];
                one.paused = true;
                one.whole = Bytes::from_gib(100);
                one.arrived = Time(900);
            });
            ends(1, "the lowest priority goes first", &[lower, higher]);
        }
    }

    #[test]
    fn the_paused_goes_before_the_large() {
        let paused = subject(1, |one| one.paused = true);
        let large = subject(2, |one| one.whole = Bytes::from_gib(100));
        ends(1, "among equals, who is paused goes first", &[paused, large]);
    }

    #[test]
    fn the_largest_goes_before_the_youngest() {
        let larger = subject(1, |one| one.whole = Bytes(one.whole.0 + 1));
        let younger = subject(2, |one| one.arrived = Time(900));
        ends(1, "among equals, who has the most goes first, so one end frees most", &[larger, younger]);
    }

    #[test]
    fn the_youngest_goes_last_of_all_rules_and_then_the_highest_name() {
        let rule = "among equals, the youngest goes first, as it loses least";
        ends(1, rule, &[subject(1, |one| one.arrived = Time(101)), subject(2, |_| ())]);
        ends(2, rule, &[subject(1, |_| ()), subject(2, |_| ())]);
    }

    #[test]
    fn who_has_nothing_is_not_ended() {
        let nothing = subject(1, |one| {
            one.priority = Priority::Idle;
            one.whole = Bytes::ZERO;
        });
        assert_eq!(whom_to_end([nothing.clone()].into_iter()), None);
        assert_eq!(whom_to_end(std::iter::empty()), None);
        let byte = subject(2, |one| one.whole = Bytes(1));
        ends(2, "nobody else has memory to give back", &[nothing, byte]);
    }

    #[test]
    fn the_reason_says_who_it_was() {
        let low = subject(7, |one| {
            one.priority = Priority::Low;
            one.paused = true;
        });
        let (_, why) = whom_to_end([low, subject(8, |_| ())].into_iter()).expect("somebody");
        assert_eq!(
            why,
            "the arena is full and tenant 7 (best-effort, priority low, paused, 4.00 GiB) is ended: the lowest priority \
             goes first"
        );
        let critical = subject(9, |one| {
            one.class = Class::LatencyCritical;
            one.priority = Priority::Realtime;
        });
        let (_, why) = whom_to_end([critical].into_iter()).expect("somebody");
        assert_eq!(
            why,
            "the arena is full and tenant 9 (latency-critical, priority realtime, 4.00 GiB) is ended: nobody else has \
             memory to give back"
        );
    }

    #[test]
    fn every_priority_has_its_word() {
        let words = [Priority::High, Priority::Normal, Priority::Idle].map(|priority| {
            let (_, why) =
                whom_to_end([subject(1, |one| one.priority = priority)].into_iter()).expect("somebody");
            why.split("priority ").nth(1).and_then(|rest| rest.split(',').next()).map(str::to_owned)
        });
        assert_eq!(words, ["high", "normal", "idle"].map(|word| Some(word.to_owned())));
    }
}
