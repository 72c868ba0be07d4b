//! What the program created itself (`cuMemCreate`), under which numbers it knows it, and where it mapped it.
//!
//! The driver's own handle changes whenever the memory moves, so the program has a **number** in its place. Memory is there
//! as long as the program holds its number, or it is mapped. Then it is idle: kept for the next one of its kind and
//! size.
//!
//! A mapping always shows all of what was created, as the driver demands; only whole mappings are unmapped or opened to
//! somebody. Pure bookkeeping.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cuda::CUresult;
use cuda::types::{CUmemAccess_flags, CUmemAccessDesc};
use wire::{GrantId, HandleId};

use super::{Kind, Mapping, Part};

/// What all numbers begin with: no handle of the driver looks like that.
const NUMBERS: u64 = 0x7261_0000_0000_0000;
const NUMBERS_MASK: u64 = 0xffff_0000_0000_0000;

/// How many were given out, to all sessions together: a number says whose it is.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// Whether a number may be one that was given out here.
pub(crate) fn is_number(number: u64) -> bool {
    number & NUMBERS_MASK == NUMBERS
}

/// How memory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// So that it can be moved.
    Moving,
    /// Exactly as asked for; it stays where it is.
    Kept,
}

/// Memory that the program created.
#[derive(Debug)]
pub(crate) struct Created {
    /// As the program asked for it.
    pub(crate) kind: Kind,
    /// Its size.
    pub(crate) bytes: u64,
    /// The grant that covers it, until the daemon has the files of all parts.
    pub(crate) grant: GrantId,
    /// The memory, in order.
    pub(crate) parts: Vec<Part>,
    /// How often the program has its number.
    references: u64,
    /// At how many addresses it is.
    mappings: usize,
    making: Making,
    /// Since when nobody has it.
    idle_since: Option<u64>,
    /// How many calls gave it to others, or are about to: then it stays where it is, and is not kept for the next one.
    shares: u64,
}

impl Created {
    /// New memory, that nobody has yet.
    pub(crate) fn new(kind: Kind, making: Making, grant: GrantId, parts: Vec<Part>) -> Self {
        let bytes = parts.iter().map(|part| part.bytes).sum();
        Self { kind, bytes, grant, parts, references: 0, mappings: 0, making, idle_since: None, shares: 0 }
    }

    /// How it was made.
    pub(super) fn making(&self) -> Making {
        self.making
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shares > 0
    }

    fn is_unused(&self) -> bool {
        self.references == 0 && self.mappings == 0
    }
}

/// One mapping of something that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Of what.
    pub(crate) number: u64,
    /// Where it starts.
    pub(crate) address: u64,
    /// Its size.
    pub(crate) bytes: u64,
    /// Its number as a buffer: that of the driver changes when memory moves.
    pub(crate) buffer: u64,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Creations {
    all: HashMap<u64, Created>,
    /// By address.
    mapped: BTreeMap<u64, Mapped>,
    /// What nobody has, the longest idle first.
    idle: VecDeque<u64>,
    used_bytes: u64,
    idle_bytes: u64,
}

impl Creations {
    pub(super) fn add(&mut self, mut created: Created) -> u64 {
        let number = NUMBERS | (GIVEN.fetch_add(1, Relaxed) + 1);
        created.references = 1;
        self.used_bytes += created.bytes;
        self.all.insert(number, created);
        number
    }

    /// What has a number, also if the program only has it mapped.
    pub(crate) fn get(&self, number: u64) -> Option<&Created> {
        self.all.get(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Created> {
        self.all.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Created)> {
        self.all.iter_mut().map(|(number, created)| (*number, created))
    }

    pub(super) fn parts_mut(&mut self, number: u64) -> Option<&mut Vec<Part>> {
        self.all.get_mut(&number).map(|created| &mut created.parts)
    }

    /// Hands out idle memory of a kind and size.
    pub(crate) fn take_idle(&mut self, kind: Kind, bytes: u64) -> Option<u64> {
        let fits = |number: &u64| {
            let created = self.all.get(number);
            created.is_some_and(|it| it.kind == kind && it.bytes == bytes && !it.is_shared())
        };
        let place = self.idle.iter().rposition(fits)?;
        let number = self.idle.remove(place)?;
        let created = self.all.get_mut(&number)?;
        created.references = 1;
        created.idle_since = None;
        self.idle_bytes -= created.bytes;
        self.used_bytes += created.bytes;
        Some(number)
    }

    /// What the program has under a number.
    pub(crate) fn named(&self, number: u64) -> Option<&Created> {
        self.all.get(&number).filter(|created| created.references > 0)
    }

    /// The mapping around an address.
    pub(crate) fn around(&self, address: u64) -> Option<&Mapped> {
        let (start, mapped) = self.mapped.range(..=address).next_back()?;
        (address - start < mapped.bytes).then_some(mapped)
    }

    /// Gives the program the number of what is mapped at an address, once more.
    pub(crate) fn retain(&mut self, address: u64) -> Option<u64> {
        let number = self.around(address)?.number;
        self.all.get_mut(&number)?.references += 1;
        Some(number)
    }

    /// The program lets a number go. False if it does not have it.
    pub(crate) fn release(&mut self, number: u64, now_ns: u64) -> bool {
        let Some(created) = self.all.get_mut(&number).filter(|created| created.references > 0) else {
            return false;
        };
        created.references -= 1;
        self.settle(number, now_ns);
        true
    }

    /// Others may have it from now on. Whether they might before.
    pub(crate) fn share(&mut self, number: u64) -> bool {
        let Some(created) = self.all.get_mut(&number) else { return false };
        created.shares += 1;
        created.shares > 1
    }

    /// One of those has not got it after all. With the last of them its handles, which need not stay any more.
    pub(crate) fn unshare(&mut self, number: u64) -> Vec<HandleId> {
        let Some(created) = self.all.get_mut(&number).filter(|created| created.is_shared()) else {
            return Vec::new();
        };
        created.shares -= 1;
        match created.is_shared() || created.making == Making::Kept {
            true => Vec::new(),
            false => created.parts.iter().map(|part| part.handle).collect(),
        }
    }

    /// Whether it stays where it is in any case.
    pub(crate) fn stays(&self, number: u64) -> bool {
        self.all.get(&number).is_some_and(|it| it.is_shared() || it.making == Making::Kept)
    }

    /// The driver has mapped it there.
    pub(super) fn map(&mut self, number: u64, address: u64, buffer: u64) {
        let Some(created) = self.all.get_mut(&number) else { return };
        created.mappings += 1;
        let mut next = address;
        for part in &mut created.parts {
            part.mappings.push(Mapping { address: next, access: Vec::new() });
            next += part.bytes;
        }
        let bytes = created.bytes;
        let before = self.mapped.insert(address, Mapped { number, address, bytes, buffer });
        debug_assert!(before.is_none(), "the driver mapped an address twice");
    }

    /// The mappings that lie in a range of addresses; none of them may reach out of it.
    pub(crate) fn whole_in(&self, address: u64, bytes: u64) -> Result<Vec<Mapped>, CUresult> {
        let end = address.saturating_add(bytes);
        let touched: Vec<Mapped> = self.touching(address, bytes).copied().collect();
        let is_inside = |mapped: &Mapped| mapped.address >= address && mapped.address + mapped.bytes <= end;
        if touched.iter().all(is_inside) { Ok(touched) } else { Err(CUresult::INVALID_VALUE) }
    }

    /// The numbers of what is mapped somewhere in a range of addresses.
    pub(crate) fn touched_by(&self, address: u64, bytes: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.touching(address, bytes).map(|mapped| mapped.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn touching(&self, address: u64, bytes: u64) -> impl Iterator<Item = &Mapped> {
        let first = self.around(address).map_or(address, |mapped| mapped.address);
        self.mapped.range(first..address.saturating_add(bytes).max(first)).map(|(_, mapped)| mapped)
    }

    /// The driver has unmapped it.
    pub(crate) fn unmap(&mut self, mapped: &Mapped, now_ns: u64) {
        if self.mapped.remove(&mapped.address).is_none() {
            return;
        }
        let Some(created) = self.all.get_mut(&mapped.number) else { return };
        created.mappings -= 1;
        let mut next = mapped.address;
        for part in &mut created.parts {
            part.mappings.retain(|mapping| mapping.address != next);
            next += part.bytes;
        }
        self.settle(mapped.number, now_ns);
    }

    /// The driver has opened a mapping to these, or closed it.
    pub(crate) fn set_access(&mut self, mapped: &Mapped, access: &[CUmemAccessDesc]) {
        let Some(created) = self.all.get_mut(&mapped.number) else { return };
        let mut next = mapped.address;
        for part in &mut created.parts {
            for mapping in part.mappings.iter_mut().filter(|mapping| mapping.address == next) {
                for asked in access {
                    mapping.access.retain(|known| known.location != asked.location);
                    if asked.flags != CUmemAccess_flags::NONE {
                        mapping.access.push(*asked);
                    }
                }
            }
            next += part.bytes;
        }
    }

    fn settle(&mut self, number: u64, now_ns: u64) {
        let Some(created) = self.all.get_mut(&number) else { return };
        if created.is_unused() && created.idle_since.is_none() {
            // What is shared goes first.
            created.idle_since = Some(if created.is_shared() { 0 } else { now_ns });
            self.used_bytes -= created.bytes;
            self.idle_bytes += created.bytes;
            match created.is_shared() {
                true => self.idle.push_front(number),
                false => self.idle.push_back(number),
            }
        }
    }

    /// What the program has.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// What nobody has.
    pub(super) fn idle_bytes(&self) -> u64 {
        self.idle_bytes
    }

    /// Since when that is idle which is so for longest.
    pub(super) fn idle_since(&self) -> Option<u64> {
        self.all.get(self.idle.front()?)?.idle_since
    }

    /// Takes out what is idle since this time or longer, the oldest first, until that is so many bytes.
    pub(super) fn drop_idle(&mut self, since_ns: u64, bytes: u64) -> Vec<Created> {
        let mut dropped = Vec::new();
        let mut left = bytes;
        while left > 0 && self.idle_since().is_some_and(|since| since <= since_ns) {
            let Some(created) = self.idle.pop_front().and_then(|number| self.all.remove(&number)) else {
                break;
            };
            self.idle_bytes -= created.bytes;
            left = left.saturating_sub(created.bytes);
            dropped.push(created);
        }
        dropped
    }
}

#[cfg(test)]
mod tests;
