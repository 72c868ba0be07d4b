//! Memory that was there before the daemon. The next one is told of all that it may move, in one go; what it was not told of
//! is asked for as memory that is new. What must stay where it is, because others have it, it does not get to know: so it
//! cannot move it.

use std::collections::BTreeSet;

use wire::{GrantId, HandleId};

use super::parts::Whole;
use super::{Making, Part, Table};

/// What is left to say once a new daemon has taken this process in.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    /// What to ask it for, with the numbers of the requests.
    pub(crate) asked: Vec<(GrantId, u64)>,
    /// What it was told of, and is gone meanwhile or must stay where it is.
    pub(crate) freed: Vec<HandleId>,
}

impl Table {
    /// All that a new daemon may move.
    pub(crate) fn survivors(&self, is_pinned: impl Fn(HandleId) -> bool) -> Vec<HandleId> {
        let ranges = self.ranges.values().map(|(_, range)| (&range.parts, false));
        let created = self.created.iter().filter(|created| created.making() == Making::Moving);
        let created = created.map(|created| (&created.parts, created.is_shared()));
        let mut handles = Vec::new();
        for (parts, is_shared) in ranges.chain(created) {
            let stays = is_shared || parts.iter().any(|part| is_pinned(part.handle));
            // What is away has to be known, whatever becomes of the rest.
            let known = parts.iter().filter(|part| !part.is_on_host() && (!stays || part.physical.is_none()));
            handles.extend(known.map(|part| part.handle));
        }
        handles
    }

    /// A new daemon knows these handles, and nothing else of what is here.
    pub(crate) fn begin_again(
        &mut self,
        told: &BTreeSet<HandleId>,
        is_pinned: impl Fn(HandleId) -> bool,
        mut number: impl FnMut() -> GrantId,
    ) -> Untold {
        let movable: BTreeSet<HandleId> = self.survivors(is_pinned).into_iter().collect();
        self.parts.export_none();
        self.returning.clear();
        let mut asked = Vec::new();
        let mut ask = |whole: Whole, grant: &mut GrantId, parts: &mut [Part]| {
            let mut bytes = 0;
            for part in parts.iter_mut().filter(|part| movable.contains(&part.handle)) {
                part.exported = told.contains(&part.handle);
                bytes += if part.exported { 0 } else { part.bytes };
            }
            if bytes > 0 {
                *grant = number();
                asked.push((*grant, bytes));
                self.returning.insert(grant.0, whole);
            }
        };
        for (&start, (_, range)) in &mut self.ranges {
            ask(Whole::Range(start), &mut range.grant, &mut range.parts);
        }
        for (number, created) in self.created.iter_mut() {
            if created.making() == Making::Moving {
                ask(Whole::Created(number), &mut created.grant, &mut created.parts);
            }
        }
        Untold { asked, freed: told.difference(&movable).copied().collect() }
    }

    /// The new daemon has granted such a request, or denied it. False if it is none, or of memory that is gone.
    pub(crate) fn answered_again(&mut self, grant: GrantId, granted: bool) -> bool {
        let Some(whole) = self.returning.remove(&grant.0) else { return false };
        let found = match whole {
            Whole::Range(start) => self.ranges.get(&start).map(|(_, range)| (range.grant, &range.parts)),
            Whole::Created(number) => self.created.get(number).map(|created| (created.grant, &created.parts)),
        };
        let Some((_, parts)) = found.filter(|(now, _)| *now == grant) else { return false };
        if granted {
            let unknown = parts.iter().filter(|part| !part.exported);
            unknown.for_each(|part| self.parts.export_later(part.handle));
        }
        true
    }
}
