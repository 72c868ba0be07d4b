//! In which order tenants make room.
//!
//! Where equal pieces of memory do not all fit, it is best to give up the one that is needed last. For those who wait in
//! line the policy's rank says who that is. Two kinds of tenants do not stand in line, so their rank says nothing of when
//! they come, and each has a rule of its own:
//!
//! - **Kept out until an instant**, mostly because a cap has used them up ([`Way::KeptOut`]). Nobody of them runs before
//!   then. Whoever is kept out for longer than all in line take for a turn each comes after the last of them, and of several
//!   the one that is kept out longest. Whoever is back sooner comes in the midst of the line, and its rank is as good a
//!   guess as any: with caps that hardly bind, giving such tenants' memory away moved a tenth more than was needed.
//! - **Idle** ([`Way::Idle`]). Nobody knows when they come back. They go before all who want turns, unless a pause is short
//!   by all that is known of the tenant ([`Pauses`](crate::pauses::Pauses)): then it is a step of its work, and the tenant
//!   keeps its rank as if it were in line.
//!
//! So a tenant's place may change with time alone, at one instant, which [`Place`] knows. Nobody has to wake up for that: it
//! is looked at when room is to be made (`Core::settle_way`).

use crate::policies::Rank;
use crate::{TenantId, Time};
use std::collections::BTreeSet;

/// Who makes room first: the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Way {
    /// Latency-critical.
    Critical(Rank),
    /// It is in line, or as good as.
    InLine(Rank),
    /// It cannot run before then, nor before all in line had a turn.
    KeptOut(Time),
    /// It has nothing to do.
    Idle(Rank),
    /// It was stopped by its user.
    Paused(Rank),
}

/// A tenant's place among those who make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) way: Way,
    /// When it will be another one, if nothing else happens.
    pub(crate) until: Option<Time>,
}

/// Those of one GPU who have something that could go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    order: BTreeSet<(Way, TenantId)>,
    /// Those whose place changes with time, the first first.
    passing: BTreeSet<(Time, TenantId)>,
}

impl Places {
    /// A tenant has another place from now on, or none.
    pub(crate) fn replace(&mut self, id: TenantId, before: Option<Place>, after: Option<Place>) {
        if let Some(Place { way, until }) = before {
            self.order.remove(&(way, id));
            until.map(|until| self.passing.remove(&(until, id)));
        }
        if let Some(Place { way, until }) = after {
            self.order.insert((way, id));
            self.passing.extend(until.map(|until| (until, id)));
        }
    }

    /// Everybody, who makes room first at the front.
    pub(crate) fn first_to_last(&self) -> impl Iterator<Item = TenantId> {
        self.order.iter().rev().map(|&(_, id)| id)
    }

    /// Somebody whose place is another one by now.
    pub(crate) fn past(&self, now: Time) -> Option<TenantId> {
        self.passing.first().filter(|&&(until, _)| until <= now).map(|&(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_replaced_leaves_nothing_behind() {
        let mut places = Places::default();
        let place = |at, until| Some(Place { way: Way::KeptOut(Time(at)), until });
        places.replace(TenantId(1), None, place(30, Some(Time(20))));
        places.replace(TenantId(2), None, place(40, Some(Time(10))));
        places.replace(TenantId(3), None, place(50, None));
        assert_eq!(places.first_to_last().map(|id| id.0).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!(places.past(Time(9)), None);
        assert_eq!(places.past(Time(10)), Some(TenantId(2)));
        places.replace(TenantId(2), place(40, Some(Time(10))), None);
        assert_eq!(places.past(Time(19)), None);
        assert_eq!(places.past(Time(20)), Some(TenantId(1)));
        places.replace(TenantId(1), place(30, Some(Time(20))), place(60, None));
        assert_eq!(places.past(Time::MAX), None);
        assert_eq!(places.first_to_last().map(|id| id.0).collect::<Vec<_>>(), [1, 3]);
        places.replace(TenantId(1), place(60, None), None);
        places.replace(TenantId(3), place(50, None), None);
        assert_eq!(places, Places::default());
    }
}
