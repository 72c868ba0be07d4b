//! Which blocks there are, and what of the file is free. No I/O here: whoever has the lock never waits for a disk.

use crate::Ticket;
use crate::seal::Version;
use crate::settings::ZERO_BLOCKS_MAX;
use crate::space::{Extent, Space};
use crate::takeover::{Claims, SetAside};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The books of a cellar, behind their lock.
#[derive(Debug)]
pub(crate) struct Books(Mutex<State>);

#[derive(Debug)]
struct State {
    space: Space,
    held: HashMap<Version, Held>,
    plain_bytes: u64,
    disk_bytes: u64,
    /// Blocks that take nothing of the file, so that only their number bounds them.
    zeros: usize,
}

#[derive(Debug)]
struct Held {
    ticket: Ticket,
    /// Gets that are reading it now.
    readers: u32,
    /// To be gone when nobody reads it any more.
    discarded: bool,
}

/// Sums of what is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) blocks: u64,
    pub(crate) plain_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) present_free_bytes: u64,
}

impl Books {
    /// The books of a file that holds what these say, and those that cannot be true. Where some contradict each other,
    /// `is_there` tells whether the file has a ticket's block.
    pub(crate) fn with(
        limit_bytes: u64,
        segment_bytes: u64,
        claims: Claims,
        mut is_there: impl FnMut(&Ticket) -> bool,
    ) -> (Books, Vec<SetAside>) {
        let mut state = State {
            space: Space::new(limit_bytes, segment_bytes, claims.reach_bytes()),
            held: HashMap::new(),
            plain_bytes: 0,
            disk_bytes: 0,
            zeros: 0,
        };
        let Claims { agreed, contested, mut set_aside } = claims;
        set_aside.extend(agreed.into_iter().filter_map(|ticket| state.admit(ticket)));
        for ticket in contested {
            let refused = if is_there(&ticket) {
                state.admit(ticket)
            } else {
                Some(SetAside::new(ticket, "its place or version is another's, and its block is not there"))
            };
            set_aside.extend(refused);
        }
        (Books(Mutex::new(state)), set_aside)
    }

    /// Takes space, if the file has it.
    pub(crate) fn take(&self, bytes: u64) -> Option<Taken<'_>> {
        let extents = self.state().space.take(bytes)?;
        Some(Taken { books: self, extents })
    }

    /// Begins to read a block. None if it is not held.
    pub(crate) fn read(&self, ticket: &Ticket) -> Option<Reading<'_>> {
        let mut state = self.state();
        let held = state.held.get_mut(&ticket.version)?;
        if held.discarded || held.ticket != *ticket {
            return None;
        }
        held.readers += 1;
        Some(Reading { books: self, version: ticket.version })
    }

    /// Adds a block that has no bytes on the disk. False if there are too many of them.
    pub(crate) fn add_zero(&self, ticket: Ticket) -> bool {
        let mut state = self.state();
        let has_room = state.zeros < ZERO_BLOCKS_MAX;
        if has_room {
            state.insert(ticket);
        }
        has_room
    }

    /// Forgets a block. False if it is not held. Its space is free at once, or when the last reader is done.
    pub(crate) fn discard(&self, ticket: &Ticket) -> bool {
        let mut state = self.state();
        let Some(held) = state.held.get_mut(&ticket.version) else { return false };
        if held.discarded || held.ticket != *ticket {
            return false;
        }
        held.discarded = true;
        state.settle(ticket.version);
        true
    }

    /// All blocks that are held, in no order.
    pub(crate) fn tickets(&self) -> Vec<Ticket> {
        let state = self.state();
        state.held.values().filter(|held| !held.discarded).map(|held| held.ticket.clone()).collect()
    }

    /// Whether nobody reads a block now.
    #[cfg(test)]
    pub(crate) fn is_unread(&self, ticket: &Ticket) -> bool {
        self.state().held.get(&ticket.version).is_none_or(|held| held.readers == 0)
    }

    pub(crate) fn sums(&self) -> Sums {
        let state = self.state();
        Sums {
            blocks: state.held.len() as u64,
            plain_bytes: state.plain_bytes,
            disk_bytes: state.disk_bytes,
            file_bytes: state.space.present_bytes(),
            limit_bytes: state.space.limit_bytes(),
            free_bytes: state.space.free_bytes(),
            present_free_bytes: state.space.present_free_bytes(),
        }
    }

    /// The part by which the file could grow.
    pub(crate) fn next_absent(&self) -> Option<Extent> {
        self.state().space.next_absent()
    }

    /// All parts that the file does not have, though it is so long; the last of them is whatever is beyond its end.
    pub(crate) fn all_absent(&self, length_bytes: u64) -> Vec<Extent> {
        let state = self.state();
        let end_bytes = state.space.end_bytes();
        let beyond = Extent { offset: end_bytes, bytes: length_bytes.saturating_sub(end_bytes) };
        let parts = state.space.all_absent().into_iter().chain([beyond]);
        parts.filter(|part| part.offset < length_bytes).collect()
    }

    /// The file has grown.
    pub(crate) fn add(&self, segment: Extent) {
        self.state().space.add(segment);
    }

    /// A part that nobody has, and nobody gets until it is said to be absent.
    pub(crate) fn withdraw_free(&self) -> Option<Extent> {
        self.state().space.withdraw_free()
    }

    /// A withdrawn part is gone from the file.
    pub(crate) fn set_absent(&self, segment: Extent) {
        self.state().space.set_absent(segment);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a block over, or sets its ticket aside if another one has its place.
    fn admit(&mut self, ticket: Ticket) -> Option<SetAside> {
        if self.held.contains_key(&ticket.version) {
            return Some(SetAside::new(ticket, "there is another with the same version"));
        }
        if !self.space.take_exactly(ticket.extents()) {
            return Some(SetAside::new(ticket, "its place is another's, or none that is given out"));
        }
        self.insert(ticket);
        None
    }

    fn insert(&mut self, ticket: Ticket) {
        self.plain_bytes += u64::from(ticket.plain_bytes);
        self.disk_bytes += ticket.disk_bytes();
        self.zeros += usize::from(ticket.sealed.is_none());
        let version = ticket.version;
        let before = self.held.insert(version, Held { ticket, readers: 0, discarded: false });
        assert!(before.is_none(), "a version is given out once");
    }

    /// Frees a block that was discarded and that nobody reads.
    fn settle(&mut self, version: Version) {
        let is_over = |held: &Held| held.discarded && held.readers == 0;
        if self.held.get(&version).is_some_and(is_over)
            && let Some(Held { ticket, .. }) = self.held.remove(&version)
        {
            self.plain_bytes -= u64::from(ticket.plain_bytes);
            self.disk_bytes -= ticket.disk_bytes();
            self.zeros -= usize::from(ticket.sealed.is_none());
            self.space.give_back(ticket.extents());
        }
    }
}

/// Space that was taken for a block. It goes back when this is dropped, also by a panic, unless the block is there.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    books: &'a Books,
    extents: Vec<Extent>,
}

impl Taken<'_> {
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The block is on the disk.
    pub(crate) fn keep(mut self, ticket: Ticket) {
        assert_eq!(self.extents, ticket.extents(), "a ticket says where its block is");
        self.extents.clear();
        self.books.state().insert(ticket);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.books.state().space.give_back(&self.extents);
    }
}

/// A block that is being read: its space stays until this is dropped.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    books: &'a Books,
    version: Version,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = self.books.state();
        if let Some(held) = state.held.get_mut(&self.version) {
            held.readers -= 1;
        }
        state.settle(self.version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::{Key, Sealer};
    use crate::{BlockId, GRANULE_BYTES};

    #[test]
    fn even_zeros_have_an_end() {
        let (books, _) = Books::with(GRANULE_BYTES, GRANULE_BYTES, Claims::default(), |_| true);
        let sealer = Sealer::new(Key::random().expect("random")).expect("locked");
        let zero = || Ticket {
            block: BlockId { tenant: 0, handle: 0, index: 0 },
            version: sealer.next().expect("a session").version(),
            plain_bytes: 1,
            sealed: None,
        };
        let last = zero();
        assert!((1..ZERO_BLOCKS_MAX).all(|_| books.add_zero(zero())) && books.add_zero(last.clone()));
        assert!(!books.add_zero(zero()));
        assert!(books.discard(&last));
        assert!(books.add_zero(zero()) && !books.add_zero(zero()));
    }
}
