//! Memory that was there before the daemon. The next one is told of all of it, in one go; what it was not told of is asked for
//! as memory that is new. What must stay where it is, because others have it, and what cannot be shown just now, it gets no
//! file of: so it cannot move it. It hears of it all the same, as it would take it for freed otherwise, and may have bytes of it.

use std::collections::BTreeSet;

use wire::{GrantId, HandleId, SizedHandle};

use super::parts::Whole;
use super::{Making, Part, Table};

/// What a new daemon is to know.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Survivors {
    /// What it may move, or is away.
    pub(crate) movable: Vec<HandleId>,
    /// What is here, and must stay.
    pub(crate) staying: Vec<HandleId>,
}

/// What a new daemon was told of.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// With a file, or as being away.
    pub(crate) shown: BTreeSet<HandleId>,
    /// As being here, without a file.
    pub(crate) unshown: BTreeSet<HandleId>,
    /// The same of what never moves.
    pub(crate) kept: BTreeSet<HandleId>,
}

impl Told {
    fn has(&self, handle: HandleId) -> bool {
        self.shown.contains(&handle) || self.unshown.contains(&handle)
    }
}

/// What is left to say once a new daemon has taken this process in.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    /// What to ask it for, with the numbers of the requests.
    pub(crate) asked: Vec<(GrantId, u64)>,
    /// What it was told of, and is gone meanwhile; or it has a file of, and must stay where it is.
    pub(crate) freed: Vec<HandleId>,
    /// What it has no file of, and must stay where it is.
    pub(crate) pinned: Vec<HandleId>,
}

impl Table {
    /// What the program created, and never moves.
    pub(crate) fn kept_created(&self) -> impl Iterator<Item = SizedHandle> {
        let kept = self.created.iter().filter(|created| created.making() == Making::Kept);
        kept.flat_map(|created| &created.parts)
            .map(|part| SizedHandle { handle: part.handle, bytes: part.bytes })
    }

    /// All that a new daemon is to know of what may move.
    pub(crate) fn survivors(&self, is_pinned: impl Fn(HandleId) -> bool) -> Survivors {
        let ranges = self.ranges.values().map(|(_, range)| (&range.parts, false));
        let created = self.created.iter().filter(|created| created.making() == Making::Moving);
        let created = created.map(|created| (&created.parts, created.is_shared()));
        let mut survivors = Survivors::default();
        for (parts, is_shared) in ranges.chain(created) {
            let stays = is_shared || parts.iter().any(|part| is_pinned(part.handle));
            for part in parts.iter().filter(|part| !part.is_on_host()) {
                match stays && part.physical.is_some() {
                    true => survivors.staying.push(part.handle),
                    false => survivors.movable.push(part.handle),
                }
            }
        }
        survivors
    }

    /// A new daemon knows these handles, and nothing else of what is here.
    pub(crate) fn begin_again(
        &mut self,
        told: Told,
        is_pinned: impl Fn(HandleId) -> bool,
        mut number: impl FnMut() -> GrantId,
    ) -> Untold {
        let Survivors { movable, staying } = self.survivors(is_pinned);
        let movable: BTreeSet<HandleId> = movable.into_iter().collect();
        let staying: BTreeSet<HandleId> = staying.into_iter().collect();
        self.parts.export_none();
        self.returning.clear();
        let mut asked = Vec::new();
        let mut ask = |whole: Whole, grant: &mut GrantId, parts: &mut [Part]| {
            let mut bytes = 0;
            for part in parts.iter_mut().filter(|part| movable.contains(&part.handle)) {
                part.exported = told.has(part.handle);
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
        let gone =
            told.unshown.iter().filter(|handle| !movable.contains(handle) && !staying.contains(handle));
        let freed = told.shown.difference(&movable).chain(gone).copied().collect();
        let pinned = told.unshown.intersection(&staying).copied().collect();
        for &handle in told.unshown.intersection(&movable) {
            self.parts.export_later(handle);
        }
        self.unshown = told.unshown;
        self.show_homes();
        Untold { asked, freed, pinned }
    }

    /// Nothing keeps a handle where it is any more: its file goes to a daemon that has none.
    pub(crate) fn show_later(&mut self, handle: HandleId) {
        if self.unshown.contains(&handle) {
            self.parts.export_later(handle);
        }
    }

    /// Whether the daemon knows a handle, and gets its file only now.
    pub(crate) fn take_unshown(&mut self, handle: HandleId) -> bool {
        self.unshown.remove(&handle)
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
