//! Memory that was there before the daemon: a new one is told of it as of memory that is new.
//!
//! For each range, and for what the program created, room is asked for; once that is granted, the daemon gets the files. What
//! must stay where it is, because others have it, the new daemon does not get to know: so it cannot move it.

use wire::{GrantId, HandleId};

use super::parts::Home;
use super::{Making, Part, Table};

impl Table {
    /// A new daemon knows nothing of what is here. Returns what to ask it for, with the numbers of the requests.
    pub(crate) fn begin_again(
        &mut self,
        is_pinned: impl Fn(HandleId) -> bool,
        mut number: impl FnMut() -> GrantId,
    ) -> Vec<(GrantId, u64)> {
        self.parts.export_none();
        self.returning.clear();
        let may_move = |parts: &[Part]| !parts.iter().any(|part| is_pinned(part.handle));
        let mut asked = Vec::new();
        let mut ask = |home: Home, grant: &mut GrantId, parts: &mut [Part]| {
            if !may_move(parts) {
                return;
            }
            *grant = number();
            parts.iter_mut().for_each(|part| part.exported = false);
            asked.push((*grant, parts.iter().map(|part| part.bytes).sum()));
            self.returning.insert(grant.0, home);
        };
        for (&start, (_, range)) in &mut self.ranges {
            ask(Home::Range(start), &mut range.grant, &mut range.parts);
        }
        for (number, created) in self.created.iter_mut() {
            if created.making() == Making::Moving && !created.is_shared() {
                ask(Home::Created(number), &mut created.grant, &mut created.parts);
            }
        }
        asked
    }

    /// The new daemon has granted such a request, or denied it. False if it is none, or of memory that is gone.
    pub(crate) fn answered_again(&mut self, grant: GrantId, granted: bool) -> bool {
        let Some(home) = self.returning.remove(&grant.0) else { return false };
        let found = match home {
            Home::Range(start) => self.ranges.get(&start).map(|(_, range)| (range.grant, &range.parts)),
            Home::Created(number) => self.created.get(number).map(|created| (created.grant, &created.parts)),
        };
        let Some((_, parts)) = found.filter(|(now, _)| *now == grant) else { return false };
        if granted {
            parts.iter().for_each(|part| self.parts.export_later(part.handle));
        }
        true
    }
}
