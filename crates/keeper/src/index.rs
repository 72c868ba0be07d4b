//! What is where: tenants, their handles with bytes in the arena, and the arena's space.
//!
//! Pure: requests in, outcomes out. Each change is made wholly or not at all, and asking twice changes nothing more.
//!
//! A handle without an entry is on the device, and has nothing in the arena. An entry is
//! - *reserved*: a copy out may be under way; the device's bytes are the valid ones. Only a worker that is connected has
//!   reservations.
//! - *away*: the arena's bytes are the valid ones.
//! - *clean*: the device's bytes are the valid ones; the arena has what they were when they came back, which the worker
//!   compares by hashes, and which goes when room is needed.
//!
//!   Of these two, blocks that are zero by their facts have no place ([`crate::zeros`]).
//! - *in the cellar*: the cellar's bytes are the valid ones, and here are the tickets. It may have space in the arena that is
//!   reserved, to which it is being fetched. ([`cellar`])
//!
//! **Orphaned space.** When a worker goes without a word, the device may still be writing to what it had reserved: the
//! driver ends a dead process's copies when it gets to it, and that may be after the socket closed. So this space is not
//! free until the next worker says that nothing is under way any more ([`Index::reclaim`]). That one is let in only when the
//! process of the last one has ended (`server`); one that comes again is its own last one, and has to know.

mod cellar;
mod facts;
mod listing;
#[cfg(test)]
mod tests;

pub(crate) use cellar::bytes_of as ticket_bytes;

use crate::BLOCK_BYTES;
use crate::message::{
    BlockFact, Extent, HANDLE_BLOCKS_MAX, In, Lack, Out, Outcome, Progress, Reservation, Wanted,
};
use crate::names::{HandleKey, Node, Process, TenantNumber};
use crate::space::{Extents, Space};
use std::collections::BTreeMap;

/// The most tenants at a time.
pub const TENANTS_MAX: usize = 1 << 14;

/// See the module.
#[derive(Debug)]
pub struct Index {
    space: Space,
    tenants: BTreeMap<TenantNumber, Process>,
    highest_tenant: Option<TenantNumber>,
    entries: BTreeMap<HandleKey, Entry>,
    /// Clean copies by their age, the oldest first.
    clean: BTreeMap<Age, HandleKey>,
    next_age: Age,
    orphaned: Vec<Extents>,
    sums: Sums,
    tickets: cellar::Count,
}

/// How manieth clean copy it was.
type Age = u64;

#[derive(Debug)]
struct Entry {
    bytes: u64,
    state: State,
    extents: Extents,
    facts: Box<[BlockFact]>,
    /// Of its first blocks; of all of them once it is in the cellar.
    tickets: Vec<Box<[u8]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reserved,
    Away,
    Clean(Age),
    /// Its extents are those that it is fetched to, if any.
    Cellar,
}

/// Bytes of entries, by state: what is away counts wholly, of clean copies only what they have in the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    reserved: u64,
    away: u64,
    clean: u64,
    orphaned: u64,
    cellar: u64,
    /// What of those that are away has no place.
    zeros: u64,
}

impl Sums {
    fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Reserved => &mut self.reserved,
            State::Away => &mut self.away,
            State::Clean(_) => &mut self.clean,
            State::Cellar => &mut self.cellar,
        }
    }

    fn count(&mut self, entry: &Entry) {
        add(self.of(entry.state), entry.counted_bytes());
        add(&mut self.zeros, entry.zero_bytes());
    }

    fn discount(&mut self, entry: &Entry) {
        subtract(self.of(entry.state), entry.counted_bytes());
        subtract(&mut self.zeros, entry.zero_bytes());
    }
}

impl Entry {
    fn counted_bytes(&self) -> u64 {
        match self.state {
            State::Clean(_) => self.extents.bytes(),
            State::Reserved | State::Away | State::Cellar => self.bytes,
        }
    }

    fn zero_bytes(&self) -> u64 {
        match self.state {
            State::Away => self.bytes.saturating_sub(self.extents.bytes()),
            State::Reserved | State::Clean(_) | State::Cellar => 0,
        }
    }

    fn blocks(&self) -> usize {
        usize::try_from(self.bytes / BLOCK_BYTES).unwrap_or(usize::MAX)
    }

    /// Blocks that are zero have no place any more. What was theirs.
    fn let_go_of_zeros(&mut self) -> Extents {
        let (kept, free) = std::mem::take(&mut self.extents).part(zeros_of(&self.facts));
        self.extents = kept;
        free
    }
}

/// Is a block zero by these?
fn zeros_of(facts: &[BlockFact]) -> impl Fn(usize) -> bool {
    |block| facts.get(block).is_some_and(|fact| fact.zero)
}

impl Index {
    /// Nobody is there, and no space.
    pub fn new(segment_bytes: u64) -> Index {
        Index {
            space: Space::new(segment_bytes),
            tenants: BTreeMap::new(),
            highest_tenant: None,
            entries: BTreeMap::new(),
            clean: BTreeMap::new(),
            next_age: 0,
            orphaned: Vec::new(),
            sums: Sums::default(),
            tickets: cellar::Count::default(),
        }
    }

    /// Adds a segment that has become ready. False, and nothing changes, if there cannot be one.
    pub fn add_segment(&mut self, segment: Extent, node: Option<Node>) -> bool {
        self.space.add_segment(segment, node)
    }

    /// There is a tenant of this number.
    pub fn introduce(&mut self, tenant: TenantNumber, process: Process) -> Outcome {
        match self.tenants.get(&tenant) {
            Some(known) if *known == process => Outcome::AlreadySo,
            Some(_) => Outcome::OtherProcess,
            None if self.tenants.len() >= TENANTS_MAX => Outcome::TooManyTenants,
            None => {
                self.tenants.insert(tenant, process);
                self.highest_tenant = self.highest_tenant.max(Some(tenant));
                Outcome::Done
            }
        }
    }

    /// Space for a copy out, or to fetch something from the cellar to.
    pub fn reserve(&mut self, wanted: Wanted, near: Option<Node>) -> Reservation {
        let Wanted { key, bytes } = wanted;
        let blocks = bytes / BLOCK_BYTES;
        if !bytes.is_multiple_of(BLOCK_BYTES) || blocks == 0 || blocks > HANDLE_BLOCKS_MAX {
            return Reservation::Refused(Outcome::WrongSize);
        }
        if !self.tenants.contains_key(&key.tenant) {
            return Reservation::Refused(Outcome::UnknownTenant);
        }
        if let Some(entry) = self.entries.get(&key) {
            if entry.bytes != bytes {
                return Reservation::Refused(Outcome::WrongSize);
            }
            let extents = entry.extents.runs().to_vec();
            return match entry.state {
                State::Away => Reservation::Refused(Outcome::IsAway),
                State::Cellar if extents.is_empty() => self.reserve_landing(wanted, near),
                State::Cellar => Reservation::Space { extents, reused: false },
                // Asked twice. Whether it was a clean copy's place, the first answer has said; copying all is never wrong.
                State::Reserved => Reservation::Space { extents, reused: false },
                State::Clean(_) => self.reserve_clean(key, near),
            };
        }
        let Some(extents) = self.space.take(bytes, near) else {
            return Reservation::NoSpace(self.lack(bytes));
        };
        let runs = extents.runs().to_vec();
        add(&mut self.sums.reserved, bytes);
        let (state, facts) = (State::Reserved, Box::default());
        self.entries.insert(key, Entry { bytes, state, extents, facts, tickets: Vec::new() });
        Reservation::Space { extents: runs, reused: false }
    }

    /// The place of a clean copy, and places for its zero blocks.
    fn reserve_clean(&mut self, key: HandleKey, near: Option<Node>) -> Reservation {
        let Some(entry) = self.entries.get_mut(&key) else {
            return Reservation::Refused(Outcome::NotReserved);
        };
        let missing_bytes = entry.bytes.saturating_sub(entry.extents.bytes());
        let Some(new) = self.space.take(missing_bytes, near) else {
            return Reservation::NoSpace(self.lack(missing_bytes));
        };
        self.sums.discount(entry);
        let (blocks, is_zero) = (entry.blocks(), zeros_of(&entry.facts));
        entry.extents = std::mem::take(&mut entry.extents).join(new, blocks, is_zero);
        self.sums.count(entry);
        self.set_state(key, State::Reserved);
        let extents = self.entries.get(&key).map_or(Vec::new(), |entry| entry.extents.runs().to_vec());
        Reservation::Space { extents, reused: true }
    }

    fn lack(&self, missing_bytes: u64) -> Lack {
        Lack {
            missing_bytes,
            free_bytes: self.space.free_bytes(),
            clean_bytes: self.sums.clean,
            orphaned_bytes: self.sums.orphaned,
        }
    }

    /// What was reserved will not be used.
    pub fn cancel(&mut self, key: HandleKey) -> Outcome {
        match self.entries.get(&key).map(|entry| entry.state) {
            Some(State::Reserved) => self.remove(key),
            Some(State::Away) => Outcome::IsAway,
            Some(State::Cellar) => self.cancel_landing(key),
            Some(State::Clean(_)) | None => Outcome::AlreadySo,
        }
    }

    /// A copy out is complete. Its facts must follow from those of the clean copy whose place it has, if it has one.
    pub fn record_out(&mut self, out: Out) -> Outcome {
        let Out { key, facts } = out;
        let Some(entry) = self.entries.get_mut(&key) else { return Outcome::NotReserved };
        match entry.state {
            State::Away => Outcome::AlreadySo,
            State::Clean(_) | State::Cellar => Outcome::NotReserved,
            State::Reserved => {
                if !facts::follow(&entry.facts, &facts, entry.bytes / BLOCK_BYTES) {
                    return Outcome::WrongFacts;
                }
                entry.facts = facts.into_boxed_slice();
                let free = entry.let_go_of_zeros();
                self.set_state(key, State::Away);
                self.give_back(free);
                Outcome::Done
            }
        }
    }

    /// A copy in is complete.
    pub fn record_in(&mut self, done: In) -> Outcome {
        let In { key, keep_clean } = done;
        let state = self.entries.get(&key).map(|entry| entry.state);
        match (state, keep_clean) {
            (Some(State::Reserved | State::Cellar), _) => Outcome::NotAway,
            (Some(State::Away | State::Clean(_)), false) => self.remove(key),
            (Some(State::Away), true) => {
                self.drop_tickets(key);
                let age = self.next_age;
                self.next_age = age.saturating_add(1);
                self.set_state(key, State::Clean(age));
                Outcome::Done
            }
            (Some(State::Clean(_)) | None, _) => Outcome::AlreadySo,
        }
    }

    /// A handle was freed by its tenant.
    pub fn free(&mut self, key: HandleKey) -> Outcome {
        self.remove(key)
    }

    /// Makes at least this much room, if there are clean copies enough beside one that stays. Says how much.
    pub fn drop_clean(&mut self, bytes: u64, keep: Option<HandleKey>) -> u64 {
        let mut freed = 0;
        while freed < bytes
            && let Some((&age, &key)) = self.clean.iter().find(|&(_, &key)| Some(key) != keep)
        {
            add(&mut freed, self.entries.get(&key).map_or(0, |entry| entry.extents.bytes()));
            if self.remove(key) == Outcome::AlreadySo {
                // Not an entry: the two lists are one, so this is never so; but it must not go on for ever.
                self.clean.remove(&age);
            }
        }
        freed
    }

    /// A tenant is gone. Says how much room that makes.
    pub fn died(&mut self, tenant: TenantNumber) -> u64 {
        self.tenants.remove(&tenant);
        let keys: Vec<HandleKey> = self.of(tenant, None).map(|(&key, _)| key).collect();
        let before = self.space.free_bytes();
        for key in keys {
            self.remove(key);
        }
        self.space.free_bytes().saturating_sub(before)
    }

    /// The worker is gone: of what it had reserved, the device's bytes are the valid ones, and the space is nobody's until
    /// [`Index::reclaim`].
    pub fn orphan_reservations(&mut self) {
        for key in self.reserved() {
            if let Some(entry) = self.detach(key) {
                add(&mut self.sums.orphaned, entry.bytes);
                self.orphaned.push(entry.extents);
            }
        }
        for extents in self.take_landings() {
            add(&mut self.sums.orphaned, extents.bytes());
            self.orphaned.push(extents);
        }
    }

    /// The worker leaves, and nothing of it is under way.
    pub fn drop_reservations(&mut self) {
        for key in self.reserved() {
            self.remove(key);
        }
        for extents in self.take_landings() {
            self.give_back(extents);
        }
    }

    /// Nothing of an earlier worker is under way any more. Says how much room that makes.
    pub fn reclaim(&mut self) -> u64 {
        let before = self.space.free_bytes();
        for extents in std::mem::take(&mut self.orphaned) {
            self.give_back(extents);
        }
        self.sums.orphaned = 0;
        self.space.free_bytes().saturating_sub(before)
    }

    /// What is away, in the arena or the cellar.
    pub fn away_bytes(&self) -> u64 {
        self.sums.away.saturating_add(self.sums.cellar)
    }

    /// The highest number that a tenant ever had.
    pub fn highest_tenant(&self) -> Option<TenantNumber> {
        self.highest_tenant
    }

    /// How much is what, as far as it is known here.
    pub fn progress(&self) -> Progress {
        Progress {
            ready_bytes: self.space.ready_bytes(),
            free_bytes: self.space.free_bytes(),
            reserved_bytes: self.sums.reserved,
            away_bytes: self.sums.away,
            clean_bytes: self.sums.clean,
            orphaned_bytes: self.sums.orphaned,
            zero_bytes: self.sums.zeros,
            cellar_bytes: self.sums.cellar,
            ..Progress::default()
        }
    }

    fn reserved(&self) -> Vec<HandleKey> {
        let reserved = self.entries.iter().filter(|(_, entry)| entry.state == State::Reserved);
        reserved.map(|(&key, _)| key).collect()
    }

    /// The entries of a tenant behind a handle.
    fn of(&self, tenant: TenantNumber, after: Option<u64>) -> impl Iterator<Item = (&HandleKey, &Entry)> {
        let first = match after {
            None => Some(0),
            Some(handle) => handle.checked_add(1),
        };
        let last = HandleKey { tenant, handle: u64::MAX };
        first.into_iter().flat_map(move |handle| self.entries.range(HandleKey { tenant, handle }..=last))
    }

    fn set_state(&mut self, key: HandleKey, state: State) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        self.sums.discount(entry);
        if let State::Clean(age) = entry.state {
            self.clean.remove(&age);
        }
        if let State::Clean(age) = state {
            self.clean.insert(age, key);
        }
        entry.state = state;
        self.sums.count(entry);
    }

    /// Takes an entry out of all lists, with its space.
    fn detach(&mut self, key: HandleKey) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.sums.discount(&entry);
        if let State::Clean(age) = entry.state {
            self.clean.remove(&age);
        }
        if entry.state == State::Cellar {
            subtract(&mut self.sums.reserved, entry.extents.bytes());
        }
        self.tickets.forget(&entry.tickets);
        Some(entry)
    }

    fn remove(&mut self, key: HandleKey) -> Outcome {
        let Some(entry) = self.detach(key) else { return Outcome::AlreadySo };
        self.give_back(entry.extents);
        Outcome::Done
    }

    fn give_back(&mut self, extents: Extents) {
        let all = self.space.give_back(extents);
        debug_assert!(all, "space was given back twice");
        if !all {
            tracing::error!("space was given back twice; what was free stays so");
        }
    }
}

fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

fn subtract(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_sub(bytes);
}
