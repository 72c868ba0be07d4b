//! Putting and getting one block, by whichever thread.
//!
//! A put packs, takes space, seals for that space, writes, and only then enters the block into the books: before that,
//! dropping what it holds undoes everything. A get reads and opens into memory of its own, so that nothing unverified
//! ever reaches the caller's.

use super::error::{GetError, PutError};
use super::figures::{Figures, Spent, Way};
use crate::books::{Books, Taken};
use crate::buffer::{Buffer, UNIT_BYTES};
use crate::disk::{self, Disk};
use crate::pack::choice::SAVING_MIN;
use crate::pack::{Method, Packer, is_zero};
use crate::seal::{Key, Sealer};
use crate::settings::Settings;
use crate::space::Extent;
use crate::statistics::Statistics;
use crate::ticket::{Sealed, Ticket};
use crate::{BLOCK_BYTES_MAX, BlockId, GRANULE_BYTES};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a thread needs for one block at a time.
pub(super) struct Bench {
    packer: Packer,
    buffer: Buffer,
}

impl Bench {
    pub(super) fn new() -> io::Result<Bench> {
        Ok(Bench { packer: Packer::new()?, buffer: Buffer::new(BLOCK_BYTES_MAX) })
    }

    /// Packs a block into the buffer, if that is worth it after all: the sample may have promised too much. Says how,
    /// and how long it became.
    fn pack(&mut self, method: Method, bytes: &[u8]) -> (Method, usize) {
        let into = self.buffer.bytes();
        if method != Method::Plain {
            let worth_bytes = bytes.len() - (bytes.len() as f64 * SAVING_MIN) as usize;
            if let Some(packed_bytes) = self.packer.pack(method, bytes, &mut into[..worth_bytes]) {
                return (method, packed_bytes);
            }
        }
        into[..bytes.len()].copy_from_slice(bytes);
        (Method::Plain, bytes.len())
    }
}

/// Whether the disk has the block that this ticket is for, as far as its seal can tell. For zeros there is none.
pub(super) fn is_there(disk: &dyn Disk, sealer: &Sealer, buffer: &mut Buffer, ticket: &Ticket) -> bool {
    let Some(sealed) = &ticket.sealed else { return true };
    let padded = &mut buffer.bytes()[..(sealed.packed_bytes as usize).next_multiple_of(UNIT_BYTES)];
    disk::read_all(disk, padded, &sealed.extents).is_ok()
        && sealer.open(ticket.version, &ticket.bound(), sealed.tag, padded) == Ok(Ok(()))
}

/// Disk, key and books: all but the threads.
pub(super) struct Keep {
    disk: Box<dyn Disk>,
    sealer: Sealer,
    books: Books,
    figures: Figures,
    /// Taken by whoever makes the file larger or smaller, so that the books need not be locked meanwhile.
    growth: Mutex<()>,
    /// The file was to grow and could not, the last time.
    is_cramped: AtomicBool,
    leave_bytes: u64,
}

impl Keep {
    pub(super) fn new(
        settings: &Settings,
        disk: Box<dyn Disk>,
        sealer: Sealer,
        books: Books,
        figures: Figures,
    ) -> Keep {
        let (growth, is_cramped) = (Mutex::new(()), AtomicBool::new(false));
        Keep { disk, sealer, books, figures, growth, is_cramped, leave_bytes: settings.leave_bytes }
    }

    #[cfg(test)]
    pub(super) fn figures(&self) -> &Figures {
        &self.figures
    }

    pub(super) fn books(&self) -> &Books {
        &self.books
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub(super) fn key(&self) -> &Key {
        self.sealer.key()
    }

    pub(super) fn into_key(self) -> Key {
        self.sealer.into_key()
    }

    pub(super) fn put(&self, bench: &mut Bench, block: BlockId, bytes: &[u8]) -> Result<Ticket, PutError> {
        let put = self.try_put(bench, block, bytes);
        if put.is_err() {
            self.figures.count(|totals| totals.puts_failed += 1);
        }
        put
    }

    fn try_put(&self, bench: &mut Bench, block: BlockId, bytes: &[u8]) -> Result<Ticket, PutError> {
        if bytes.is_empty() || bytes.len() > BLOCK_BYTES_MAX {
            return Err(PutError::Size { block, bytes: bytes.len() });
        }
        let permit = self.sealer.next().map_err(|why| PutError::Seal { block, why })?;
        let (version, plain_bytes) = (permit.version(), bytes.len() as u32);
        let mut ticket = Ticket { block, version, plain_bytes, sealed: None };
        if is_zero(bytes) {
            if !self.books.add_zero(ticket.clone()) {
                return Err(PutError::Zeros { block });
            }
            self.figures.count(|totals| totals.count_put(bytes.len(), 0, None));
            return Ok(ticket);
        }
        let method = bench.packer.choose(bytes, &self.figures.conditions());
        let ((method, packed_bytes), packing) = Spent::with(|| bench.pack(method, bytes));
        // Filled up with zeros, and sealed with them: every byte that is written is vouched for.
        let padded_bytes = packed_bytes.next_multiple_of(UNIT_BYTES);
        let padded = &mut bench.buffer.bytes()[..padded_bytes];
        padded[packed_bytes..].fill(0);

        let taken = self.take(block, (packed_bytes as u64).next_multiple_of(GRANULE_BYTES))?;
        let mut sealed = Sealed {
            method,
            packed_bytes: packed_bytes as u32,
            extents: taken.extents().to_vec(),
            tag: Default::default(),
        };
        ticket.sealed = Some(sealed.clone());
        let (tag, sealing) = Spent::with(|| permit.seal(&ticket.bound(), padded));
        sealed.tag = tag;
        ticket.sealed = Some(sealed);
        self.figures.note_computed(packing + sealing);
        if method == Method::Plain {
            self.figures.note_plain(packing + sealing, bytes.len());
        }
        self.write(block, padded, taken.extents())?;
        taken.keep(ticket.clone());
        self.figures.count(|totals| totals.count_put(bytes.len(), padded_bytes, Some(method)));
        Ok(ticket)
    }

    pub(super) fn get(&self, bench: &mut Bench, ticket: &Ticket, into: &mut [u8]) -> Result<(), GetError> {
        let got = self.try_get(bench, ticket, into);
        if got.is_err() {
            self.figures.count(|totals| totals.gets_failed += 1);
        }
        got
    }

    fn try_get(&self, bench: &mut Bench, ticket: &Ticket, into: &mut [u8]) -> Result<(), GetError> {
        let block = ticket.block;
        if into.len() != ticket.plain_bytes() {
            let (bytes, room_bytes) = (ticket.plain_bytes(), into.len());
            return Err(GetError::Size { block, bytes, room_bytes });
        }
        let _reading = self.books.read(ticket).ok_or(GetError::Unknown { block })?;
        let Some(sealed) = &ticket.sealed else {
            into.fill(0);
            self.figures.count(|totals| totals.got_bytes += into.len() as u64);
            return Ok(());
        };
        let offset = sealed.extents.first().map_or(0, |run| run.offset);
        let packed_bytes = sealed.packed_bytes as usize;
        let padded = &mut bench.buffer.bytes()[..packed_bytes.next_multiple_of(UNIT_BYTES)];
        let using = self.figures.begin(Way::Read);
        let read = disk::read_all(&*self.disk, padded, &sealed.extents);
        read.map_err(|why| GetError::Disk { block, offset, why })?;
        using.end(padded.len());

        let opened = self.sealer.open(ticket.version, &ticket.bound(), sealed.tag, padded);
        let opened = opened.map_err(|why| GetError::Seal { block, why })?;
        opened.map_err(|_| GetError::Broken { block, offset })?;
        let unpacked = bench.packer.unpack(sealed.method, &padded[..packed_bytes], into);
        unpacked.map_err(|_| GetError::Broken { block, offset })?;
        self.figures.count(|totals| {
            totals.got_bytes += into.len() as u64;
            totals.read_bytes += padded.len() as u64;
        });
        Ok(())
    }

    fn write(&self, block: BlockId, bytes: &[u8], extents: &[Extent]) -> Result<(), PutError> {
        let using = self.figures.begin(Way::Write);
        let written = disk::write_all(&*self.disk, bytes, extents);
        written.map_err(|why| self.failed(block, bytes.len() as u64, why))?;
        using.end(bytes.len());
        Ok(())
    }

    /// Space for a packed block, for which the file grows if need be.
    fn take(&self, block: BlockId, bytes: u64) -> Result<Taken<'_>, PutError> {
        if let Some(taken) = self.books.take(bytes) {
            return Ok(taken);
        }
        let _growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        // Ends at the latest when no part of the file is absent any more.
        loop {
            if let Some(taken) = self.books.take(bytes) {
                return Ok(taken);
            }
            let sums = self.books.sums();
            let full = PutError::Full {
                block,
                needed_bytes: bytes,
                free_bytes: sums.free_bytes,
                limit_bytes: sums.limit_bytes,
            };
            // What does not fit into what is left is not worth growing for.
            let segment = self.books.next_absent().filter(|_| bytes <= sums.free_bytes).ok_or(full)?;
            let grown = self.grow(segment);
            self.is_cramped.store(grown.is_err(), Ordering::Relaxed);
            grown.map_err(|why| self.failed(block, bytes, why))?;
        }
    }

    fn grow(&self, segment: Extent) -> io::Result<()> {
        let available_bytes = self.disk.available_bytes()?;
        if available_bytes < segment.bytes.saturating_add(self.leave_bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Err(error) = self.disk.allocate(segment) {
            // Some of it may have been allocated.
            self.release(segment);
            return Err(error);
        }
        self.books.add(segment);
        Ok(())
    }

    pub(super) fn trim(&self) -> u64 {
        let _growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = 0;
        // Ends: nothing becomes present while growth is locked.
        while let Some(segment) = self.books.withdraw_free() {
            self.release(segment);
            self.books.set_absent(segment);
            bytes += segment.bytes;
        }
        bytes
    }

    /// What nobody has of a file of this length that was another's, goes back to the disk.
    pub(super) fn release_absent(&self, length_bytes: u64) {
        let _growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        for part in self.books.all_absent(length_bytes) {
            self.release(part);
        }
    }

    fn release(&self, segment: Extent) {
        if let Err(error) = self.disk.release(segment) {
            // It is taken again when the file grows, so nothing is lost but room for others.
            tracing::warn!(%error, offset = segment.offset, "the cellar's disk does not take room back");
        }
    }

    /// A failure of the disk, in the words of a put.
    fn failed(&self, block: BlockId, needed_bytes: u64, why: io::Error) -> PutError {
        if disk::is_full(&why) {
            let available_bytes = self.disk.available_bytes().unwrap_or(0);
            PutError::DiskFull { block, needed_bytes, available_bytes, leave_bytes: self.leave_bytes }
        } else {
            PutError::Disk { block, why }
        }
    }

    pub(super) fn statistics(&self) -> Statistics {
        let sums = self.books.sums();
        let is_cramped = self.is_cramped.load(Ordering::Relaxed);
        let conditions = self.figures.conditions();
        Statistics {
            blocks: sums.blocks,
            plain_bytes: sums.plain_bytes,
            disk_bytes: sums.disk_bytes,
            file_bytes: sums.file_bytes,
            limit_bytes: sums.limit_bytes,
            free_bytes: sums.free_bytes,
            ready_bytes: if is_cramped { sums.present_free_bytes } else { sums.free_bytes },
            write_speed: conditions.write,
            read_speed: conditions.read,
            jobs: 0,
            totals: self.figures.totals(),
        }
    }
}
