//! Going on with a cellar whose process is gone: three rules.
//!
//! - **The file is an orphan** ([`Orphan`]): whoever wrote to it before is known to be dead, all of its threads. One that is
//!   still in the middle of a write would write over what the next one puts there.
//! - **A ticket is forgotten first, and its block discarded then.** The other way round a process may die in between, and
//!   leave a ticket to a place that has long been another's. A block that nobody has a ticket of is free space.
//! - **One wrong ticket costs no other one.** Those that cannot be true are set aside and handed back ([`SetAside`]). Of several
//!   that have one place, or one version, that one is kept whose block is there, by its seal: a stale ticket never costs a
//!   block that is whole. Reading takes time, so only these are read.

mod orphan;

pub use orphan::{Orphan, StillAlive};

use crate::Ticket;
use crate::seal::Version;
use crate::ticket::TicketError;
use std::collections::HashMap;

/// A ticket that is not taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// As it was handed over.
    pub ticket: Ticket,
    /// Why not.
    pub why: TicketError,
}

impl SetAside {
    pub(crate) fn new(ticket: Ticket, why: &'static str) -> SetAside {
        let why = TicketError::Impossible { block: ticket.block, why };
        SetAside { ticket, why }
    }
}

/// Tickets, by whether they agree.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Each has its place and its version for itself.
    pub(crate) agreed: Vec<Ticket>,
    /// Several want the same. Those that a seal can vouch for come first.
    pub(crate) contested: Vec<Ticket>,
    /// No cellar with this file gave these out.
    pub(crate) set_aside: Vec<SetAside>,
}

impl Claims {
    /// Sorts them, for a file of this length.
    pub(crate) fn of(tickets: impl IntoIterator<Item = Ticket>, length_bytes: u64) -> Claims {
        let mut claims = Claims::default();
        let mut possible = Vec::new();
        for ticket in tickets {
            match ticket.check() {
                Err(why) => claims.set_aside.push(SetAside { ticket, why }),
                Ok(()) if ticket.extents().iter().any(|run| run.offset >= length_bytes) => {
                    claims.set_aside.push(SetAside::new(ticket, "the file ends before it"));
                }
                Ok(()) => possible.push(ticket),
            }
        }
        let is_contested = contested(&possible);
        for (ticket, is_contested) in possible.into_iter().zip(is_contested) {
            if is_contested { &mut claims.contested } else { &mut claims.agreed }.push(ticket);
        }
        claims.contested.sort_by_key(|ticket| ticket.sealed.is_none());
        claims
    }

    /// How far into the file they reach.
    pub(crate) fn reach_bytes(&self) -> u64 {
        let runs = self.agreed.iter().chain(&self.contested).flat_map(Ticket::extents);
        runs.filter_map(|run| run.end()).max().unwrap_or(0)
    }
}

/// Which of them have a version or a part of the file that another one has, too.
fn contested(tickets: &[Ticket]) -> Vec<bool> {
    let mut found = vec![false; tickets.len()];
    let mut versions: HashMap<Version, usize> = HashMap::new();
    for (at, ticket) in tickets.iter().enumerate() {
        if let Some(other) = versions.insert(ticket.version, at) {
            (found[at], found[other]) = (true, true);
        }
    }
    let of_ticket = |(at, ticket)| Ticket::extents(ticket).iter().map(move |run| (run.offset, run.bytes, at));
    let mut runs: Vec<(u64, u64, usize)> = tickets.iter().enumerate().flat_map(of_ticket).collect();
    runs.sort_unstable();
    // From the front to the back: who begins before the end of whoever came furthest so far meets that one. Nobody is
    // missed: of two that meet, the first one is furthest, or met whoever is.
    let (mut furthest, mut furthest_at) = (0, None::<usize>);
    for (offset, bytes, at) in runs {
        if let Some(other) = furthest_at.filter(|_| offset < furthest) {
            (found[at], found[other]) = (true, true);
        }
        let end = offset.saturating_add(bytes);
        if end > furthest {
            (furthest, furthest_at) = (end, Some(at));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Method;
    use crate::seal::{Key, Sealer};
    use crate::space::Extent;
    use crate::ticket::Sealed;
    use crate::{BlockId, GRANULE_BYTES};
    use proptest::prelude::*;

    fn ticket(version: Version, runs: &[(u64, u64)]) -> Ticket {
        let run = |&(offset, bytes)| Extent { offset: offset * GRANULE_BYTES, bytes: bytes * GRANULE_BYTES };
        let extents: Vec<Extent> = runs.iter().map(run).collect();
        let bytes = extents.iter().map(|run| run.bytes).sum::<u64>() as u32;
        let block = BlockId { tenant: 0, handle: 0, index: 0 };
        let sealed = Sealed { method: Method::Plain, packed_bytes: bytes, extents, tag: [0; 16] };
        Ticket { block, version, plain_bytes: bytes, sealed: Some(sealed) }
    }

    proptest! {
        #[test]
        fn whoever_meets_another_is_found(
            wanted in prop::collection::vec((0usize..12, prop::collection::vec((0u64..40, 1u64..6), 1..4)), 0..12),
        ) {
            let sealer = Sealer::new(Key::random().expect("random")).expect("locked");
            let versions: Vec<Version> =
                (0..12).map(|_| sealer.next().expect("a session").version()).collect();
            let tickets: Vec<Ticket> =
                wanted.iter().map(|(version, runs)| ticket(versions[*version], runs)).collect();
            let meet = |a: &Extent, b: &Extent| a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
            let expected: Vec<bool> = (0..tickets.len())
                .map(|at| {
                    let mine = tickets[at].extents();
                    let with_itself = (1..mine.len()).any(|next| mine[..next].iter().any(|run| meet(run, &mine[next])));
                    let others = tickets.iter().enumerate().filter(|(other, _)| *other != at);
                    let with_others = |other: &Ticket| {
                        other.version == tickets[at].version
                            || mine.iter().any(|run| other.extents().iter().any(|theirs| meet(run, theirs)))
                    };
                    with_itself || others.map(|(_, other)| other).any(with_others)
                })
                .collect();
            prop_assert_eq!(contested(&tickets), expected);
        }
    }
}
