//! What of the index is in the cellar: the tickets of a handle's blocks, and the space that it is fetched to.
//!
//! The order that keeps every byte: all blocks are put, their tickets are kept here, and only then it *sinks*, which frees its
//! arena space. All blocks are fetched into space that was reserved, and only then it *rises*, which forgets the tickets;
//! whoever discards their blocks does that afterwards. So at every moment one copy is whole and known here.

use super::{Entry, Index, State, add, subtract};
use crate::message::{Outcome, Reservation, TICKET_BYTES_MAX, TICKETS_BYTES_MAX, Wanted};
use crate::names::{HandleKey, Node};
use crate::space::Extents;

/// The most blocks with tickets: 2 TiB. Their entries need not have a block of the arena each, so this is what bounds them.
const TICKETS_MAX: usize = 1 << 20;

/// The most bytes of all tickets. One has about 70.
const ALL_TICKETS_BYTES_MAX: usize = 256 << 20;

/// How many tickets there are.
#[derive(Debug, Default)]
pub(super) struct Count {
    tickets: usize,
    bytes: usize,
}

impl Count {
    fn has_room_for(&self, tickets: &[Vec<u8>]) -> bool {
        self.tickets.saturating_add(tickets.len()) <= TICKETS_MAX
            && self.bytes.saturating_add(bytes_of(tickets)) <= ALL_TICKETS_BYTES_MAX
    }

    fn add<T: AsRef<[u8]>>(&mut self, tickets: &[T]) {
        self.tickets = self.tickets.saturating_add(tickets.len());
        self.bytes = self.bytes.saturating_add(bytes_of(tickets));
    }

    #[cfg(test)]
    pub(super) fn counted(&self) -> (usize, usize) {
        (self.tickets, self.bytes)
    }

    pub(super) fn forget<T: AsRef<[u8]>>(&mut self, tickets: &[T]) {
        self.tickets = self.tickets.saturating_sub(tickets.len());
        self.bytes = self.bytes.saturating_sub(bytes_of(tickets));
    }
}

/// How long these are together.
pub(crate) fn bytes_of<T: AsRef<[u8]>>(tickets: &[T]) -> usize {
    tickets.iter().fold(0, |sum, ticket| sum.saturating_add(ticket.as_ref().len()))
}

impl Index {
    /// The cellar has blocks of a handle that is away, from this one on. What was known of these and later ones is forgotten.
    pub fn keep_tickets(&mut self, key: HandleKey, first: u32, tickets: Vec<Vec<u8>>) -> Outcome {
        let Some(entry) = self.entries.get_mut(&key) else { return Outcome::NotAway };
        match entry.state {
            State::Away => {}
            State::Cellar => return Outcome::AlreadySo,
            State::Reserved | State::Clean(_) => return Outcome::NotAway,
        }
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let last = first.saturating_add(tickets.len());
        let fits = |ticket: &Vec<u8>| !ticket.is_empty() && ticket.len() <= TICKET_BYTES_MAX;
        if first > entry.tickets.len() || last > entry.blocks() || !tickets.iter().all(fits) {
            return Outcome::BadTickets;
        }
        let later = entry.tickets.split_off(first);
        self.tickets.forget(&later);
        if !self.tickets.has_room_for(&tickets) {
            return Outcome::BadTickets;
        }
        self.tickets.add(&tickets);
        entry.tickets.extend(tickets.into_iter().map(Vec::into_boxed_slice));
        Outcome::Done
    }

    /// All of a handle is in the cellar: its space is free.
    pub fn sink(&mut self, key: HandleKey) -> Outcome {
        let Some(entry) = self.entries.get(&key) else { return Outcome::NotAway };
        match entry.state {
            State::Cellar => Outcome::AlreadySo,
            State::Reserved | State::Clean(_) => Outcome::NotAway,
            State::Away if entry.tickets.len() != entry.blocks() => Outcome::NotInCellar,
            State::Away => {
                self.set_state(key, State::Cellar);
                let sunk = self.entries.get_mut(&key);
                let extents = sunk.map(|entry| std::mem::take(&mut entry.extents)).unwrap_or_default();
                self.give_back(extents);
                Outcome::Done
            }
        }
    }

    /// All of a handle was fetched to the space that was reserved for that.
    pub fn rise(&mut self, key: HandleKey) -> Outcome {
        let Some(entry) = self.entries.get_mut(&key) else { return Outcome::NotInCellar };
        match entry.state {
            State::Away => Outcome::AlreadySo,
            State::Reserved | State::Clean(_) => Outcome::NotInCellar,
            State::Cellar if entry.extents.runs().is_empty() => Outcome::NotReserved,
            State::Cellar => {
                subtract(&mut self.sums.reserved, entry.extents.bytes());
                let free = entry.let_go_of_zeros();
                self.set_state(key, State::Away);
                self.drop_tickets(key);
                self.give_back(free);
                Outcome::Done
            }
        }
    }

    /// The tickets of a handle in the cellar, from this block on, as many as fit into a message.
    pub fn tickets(&self, key: HandleKey, first: u32) -> Vec<Vec<u8>> {
        let in_cellar = self.entries.get(&key).filter(|entry| entry.state == State::Cellar);
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let mut page_bytes = 0usize;
        let tickets = in_cellar.into_iter().flat_map(|entry| entry.tickets.iter().skip(first));
        let fitting = tickets.take_while(|ticket| {
            page_bytes = page_bytes.saturating_add(ticket.len());
            page_bytes <= TICKETS_BYTES_MAX
        });
        fitting.map(|ticket| ticket.to_vec()).collect()
    }

    /// Space to fetch a handle to.
    pub(super) fn reserve_landing(&mut self, wanted: Wanted, near: Option<Node>) -> Reservation {
        let Some(extents) = self.space.take(wanted.bytes, near) else {
            return Reservation::NoSpace(self.lack(wanted.bytes));
        };
        let runs = extents.runs().to_vec();
        if let Some(entry) = self.entries.get_mut(&wanted.key) {
            add(&mut self.sums.reserved, extents.bytes());
            entry.extents = extents;
        }
        Reservation::Space { extents: runs, reused: false }
    }

    /// A handle stays in the cellar.
    pub(super) fn cancel_landing(&mut self, key: HandleKey) -> Outcome {
        match self.take_landing(key) {
            Some(extents) => {
                self.give_back(extents);
                Outcome::Done
            }
            None => Outcome::AlreadySo,
        }
    }

    /// All space that something was to be fetched to, and tickets of what has not sunk are dropped: their worker is gone, and
    /// knows best what it had put.
    pub(super) fn take_landings(&mut self) -> Vec<Extents> {
        let half = |(&key, entry): (&HandleKey, &Entry)| {
            (entry.state == State::Away && !entry.tickets.is_empty()).then_some(key)
        };
        let half_sunk: Vec<HandleKey> = self.entries.iter().filter_map(half).collect();
        for key in half_sunk {
            self.drop_tickets(key);
        }
        let in_cellar = |(&key, entry): (&HandleKey, &Entry)| (entry.state == State::Cellar).then_some(key);
        let keys: Vec<HandleKey> = self.entries.iter().filter_map(in_cellar).collect();
        keys.into_iter().filter_map(|key| self.take_landing(key)).collect()
    }

    fn take_landing(&mut self, key: HandleKey) -> Option<Extents> {
        let entry = self.entries.get_mut(&key).filter(|entry| !entry.extents.runs().is_empty())?;
        let extents = std::mem::take(&mut entry.extents);
        subtract(&mut self.sums.reserved, extents.bytes());
        Some(extents)
    }

    pub(super) fn drop_tickets(&mut self, key: HandleKey) {
        if let Some(entry) = self.entries.get_mut(&key) {
            self.tickets.forget(&std::mem::take(&mut entry.tickets));
        }
    }
}
