//! Who is next: one file for each policy, data in, data out.
//!
//! A policy turns how a tenant stands into a [`Rank`]; the lowest is next, and whoever has the highest has its next turn
//! furthest away, so the same order says whose memory goes, of those in line; `way.rs` has the others. It also says whether
//! one who comes may cut a turn short.

mod deadline;
mod fair;
mod priority;
mod serial;

use crate::{PolicyKind, Priority, Settings, Span, TenantId, Time};
use std::collections::BTreeSet;

/// How a tenant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    /// Latency-critical ones come before all others, whatever the policy.
    pub(crate) critical: bool,
    /// Its level.
    pub(crate) priority: Priority,
    /// It has waited longest, and goes before those who have had less: by little, or it would wait for too long.
    pub(crate) preferred: bool,
    /// Since when it is in line: when it began to want, or when its last turn was used up.
    pub(crate) queued_at: Time,
    /// By when it should be served, if it has an SLO.
    pub(crate) due: Option<Time>,
    /// GPU time it had, divided by its share.
    pub(crate) virtual_time: u64,
}

/// A place in line: the lowest is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Rank {
    tier: u8,
    key: u64,
    /// Equals go in the order in which they stand in line.
    then: Time,
}

/// The tier of whoever is neither latency-critical nor preferred.
const ORDINARY: u8 = 2;

/// The place in line of one who stands so.
pub(crate) fn rank(settings: &Settings, standing: &Standing) -> Rank {
    let tier = match (standing.critical, standing.preferred) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => ORDINARY,
    };
    let key = match settings.policy {
        // Among each other, latency-critical ones go by what is due first.
        _ if standing.critical => deadline::key(standing, settings.ageing),
        PolicyKind::Fair => fair::key(standing),
        PolicyKind::Priority => priority::key(standing, settings.ageing),
        PolicyKind::Deadline => deadline::key(standing, settings.ageing),
        PolicyKind::Serial => serial::KEY,
    };
    Rank { tier, key, then: standing.queued_at }
}

/// The least virtual time in a line that is between these two, if shares decide about it.
pub(crate) fn virtual_time_between(
    settings: &Settings,
    line: &BTreeSet<(Rank, TenantId)>,
    least: u64,
    most: u64,
) -> Option<u64> {
    if settings.policy != PolicyKind::Fair {
        return None;
    }
    let from = Rank { tier: ORDINARY, key: least, then: Time::ZERO };
    let &(found, _) = line.range((from, TenantId(0))..).next()?;
    (found.tier == ORDINARY && found.key <= most).then_some(found.key)
}

/// May a newcomer end the turn of one who runs, before it is used up? That one had run for so long when the newcomer came.
pub(crate) fn preempts(settings: &Settings, newcomer: &Standing, runner: &Standing, ran: Span) -> bool {
    if newcomer.critical != runner.critical {
        return newcomer.critical;
    }
    match settings.policy {
        _ if newcomer.critical => false,
        PolicyKind::Fair => fair::PREEMPTS,
        PolicyKind::Priority => priority::preempts(newcomer, runner, ran, settings.ageing),
        PolicyKind::Deadline => deadline::preempts(newcomer, runner, settings.ageing),
        PolicyKind::Serial => serial::PREEMPTS,
    }
}

/// Does whoever may cut a turn short do so at once, whatever was moved for it? Otherwise that is to have paid first.
pub(crate) fn at_once(settings: &Settings, newcomer: &Standing) -> bool {
    newcomer.critical || settings.policy == PolicyKind::Priority
}

/// Does whoever was cut short go on with the rest of its turn? Where shares decide they do so anyway. Where places in line
/// decide it would keep its place, and have a new turn each time, while those behind it never come.
pub(crate) fn rest_is_kept(settings: &Settings) -> bool {
    matches!(settings.policy, PolicyKind::Priority | PolicyKind::Deadline)
}

/// Does whoever went to the end of the line so long ago keep its place there, and what is left of its turn, when it pauses for a
/// moment? Where it has risen to that by waiting it would wait as long again for each of its pauses.
pub(crate) fn place_is_kept_in_pauses(settings: &Settings, queued_for: Span) -> bool {
    settings.policy == PolicyKind::Priority && queued_for >= settings.ageing
}

/// May a tenant run beside one that has the turn, in its gaps? It takes the GPU from that one for a slice at a time.
pub(crate) fn may_fill(settings: &Settings, filler: &Standing, owner: &Standing) -> bool {
    settings.policy != PolicyKind::Priority || filler.priority <= owner.priority
}

/// Does a turn end only with the work?
pub(crate) fn to_the_end(settings: &Settings) -> bool {
    settings.policy == PolicyKind::Serial
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    fn standing() -> Standing {
        Standing {
            critical: false,
            priority: Priority::Normal,
            preferred: false,
            queued_at: Time(100),
            due: None,
            virtual_time: 50,
        }
    }

    fn settings(policy: PolicyKind) -> Settings {
        Settings { policy, ageing: Span(10), ..Settings::default() }
    }

    #[test]
    fn latency_critical_comes_first_under_every_policy() {
        for policy in [PolicyKind::Fair, PolicyKind::Priority, PolicyKind::Deadline, PolicyKind::Serial] {
            let settings = settings(policy);
            let critical =
                Standing { critical: true, priority: Priority::Idle, virtual_time: 999, ..standing() };
            assert!(rank(&settings, &critical) < rank(&settings, &standing()), "{policy:?}");
            assert!(preempts(&settings, &critical, &standing(), Span::ZERO), "{policy:?}");
            assert!(!preempts(&settings, &standing(), &critical, Span::ZERO), "{policy:?}");
        }
    }

    #[test]
    fn latency_critical_ones_go_by_what_is_due_and_do_not_cut_each_other_short() {
        let soon = Standing { critical: true, due: Some(Time(200)), virtual_time: 999, ..standing() };
        let later = Standing {
            critical: true,
            due: Some(Time(300)),
            virtual_time: 0,
            priority: Priority::Low,
            ..standing()
        };
        for policy in [PolicyKind::Fair, PolicyKind::Priority, PolicyKind::Deadline, PolicyKind::Serial] {
            let settings = settings(policy);
            assert!(rank(&settings, &soon) < rank(&settings, &later), "{policy:?}");
            assert!(!preempts(&settings, &soon, &later, Span::ZERO), "{policy:?}");
        }
    }

    #[test]
    fn among_equal_shares_the_least_in_line_is_found() {
        let fair = settings(PolicyKind::Fair);
        let of = |critical, virtual_time| {
            rank(&fair, &Standing { critical, due: Some(Time(55)), virtual_time, ..standing() })
        };
        let line = BTreeSet::from([
            (of(true, 50), TenantId(1)),
            (of(false, 50), TenantId(2)),
            (of(false, 60), TenantId(3)),
        ]);
        assert_eq!(virtual_time_between(&fair, &line, 45, 55), Some(50));
        assert_eq!(virtual_time_between(&fair, &line, 45, 50), Some(50));
        assert_eq!(virtual_time_between(&fair, &line, 50, 70), Some(50));
        assert_eq!(virtual_time_between(&fair, &line, 51, 59), None);
        assert_eq!(virtual_time_between(&fair, &line, 51, 60), Some(60));
        assert_eq!(virtual_time_between(&fair, &line, 61, u64::MAX), None);
        let other = settings(PolicyKind::Priority);
        assert_eq!(virtual_time_between(&other, &line, 0, u64::MAX), None, "shares do not decide there");
    }

    #[test]
    fn fair_goes_by_virtual_time_and_never_cuts_short() {
        let settings = settings(PolicyKind::Fair);
        let less =
            Standing { virtual_time: 49, queued_at: Time(900), priority: Priority::Idle, ..standing() };
        assert!(rank(&settings, &less) < rank(&settings, &standing()));
        assert!(!preempts(&settings, &less, &standing(), Span::ZERO));
    }

    #[test]
    fn priority_goes_by_level_and_waiting_raises() {
        let settings = settings(PolicyKind::Priority);
        let high = Standing { priority: Priority::High, queued_at: Time(109), ..standing() };
        assert!(rank(&settings, &high) < rank(&settings, &standing()));
        assert!(preempts(&settings, &high, &standing(), Span::ZERO));
        // One level is worth ten nanoseconds of waiting here.
        let high = Standing { priority: Priority::High, queued_at: Time(111), ..standing() };
        assert!(rank(&settings, &high) > rank(&settings, &standing()));
        assert!(!preempts(&settings, &high, &standing(), Span::ZERO), "it has risen above that one");
        let equal = Standing { queued_at: Time(99), ..standing() };
        assert!(rank(&settings, &equal) < rank(&settings, &standing()));
        assert!(!preempts(&settings, &equal, &standing(), Span::ZERO));
    }

    #[test]
    fn priority_without_ageing_is_strict() {
        let settings = Settings { ageing: Span::MAX, ..settings(PolicyKind::Priority) };
        let order = [Priority::Realtime, Priority::High, Priority::Normal, Priority::Low, Priority::Idle];
        let of = |priority, at| rank(&settings, &Standing { priority, queued_at: Time(at), ..standing() });
        for pair in order.windows(2) {
            assert!(of(pair[0], 1 << 50) < of(pair[1], 0), "{pair:?}");
            assert!(of(pair[0], 1) < of(pair[0], 2), "{pair:?}");
        }
    }

    #[test]
    fn deadline_goes_by_what_is_due_and_cuts_short() {
        let settings = settings(PolicyKind::Deadline);
        let due = Standing { due: Some(Time(130)), ..standing() };
        let sooner = Standing { due: Some(Time(129)), ..standing() };
        assert!(rank(&settings, &sooner) < rank(&settings, &due));
        assert!(rank(&settings, &due) < rank(&settings, &standing()));
        // Whoever has none is due after four times the ageing, which is 140 here.
        let later = Standing { due: Some(Time(141)), ..standing() };
        assert!(rank(&settings, &standing()) < rank(&settings, &later), "nobody waits for ever");
        assert!(preempts(&settings, &sooner, &due, Span::ZERO));
        assert!(preempts(&settings, &due, &standing(), Span::ZERO));
        assert!(!preempts(&settings, &due, &due, Span::ZERO));
        assert!(!preempts(&settings, &standing(), &standing(), Span::ZERO));
        assert!(!preempts(&settings, &standing(), &due, Span::ZERO));
        assert!(
            !preempts(&settings, &later, &standing(), Span::ZERO),
            "that one has waited for so long that it goes first"
        );
    }

    #[test]
    fn serial_goes_in_order_and_never_cuts_short() {
        let settings = settings(PolicyKind::Serial);
        let earlier = Standing { queued_at: Time(99), virtual_time: 1 << 40, ..standing() };
        assert!(rank(&settings, &earlier) < rank(&settings, &standing()));
        assert!(!preempts(&settings, &earlier, &standing(), Span::ZERO));
        assert!(to_the_end(&settings));
        assert!(!to_the_end(&Settings::default()));
    }
}
