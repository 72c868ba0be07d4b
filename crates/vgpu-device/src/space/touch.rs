//! Touching memory: every access of a kernel or copy, checked.
//!
//! [`Store`] is all memory that can be touched; [`Touch`] is one toucher's view of it.

use std::collections::{BTreeMap, BTreeSet};

use vgpu_messages::memory::{Access, Location};
use vgpu_messages::{DeviceId, SessionId};

use super::{Kind, Space};
use crate::host::{HostError, HostMemory};
use crate::misuse::Misuse;
use crate::physical::{BlockId, Physical};

/// The most bytes of host memory that are moved in one go.
pub const CHUNK_BYTES: usize = 64 << 10;

/// Why an access did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing is mapped there, or not for this device, or not to be written.
    #[error("illegal address {0:#x}")]
    Address(u64),
    /// A word at an address that is no multiple of its size.
    #[error("misaligned address {0:#x}")]
    Misaligned(u64),
    /// A copy fails because that was asked for.
    #[error("a copy failed, as was asked for")]
    Copy,
    /// The process is gone: there is nobody to tell.
    #[error("the process is gone")]
    Gone,
}

/// All memory: the machine's, and that of the programs.
#[derive(Debug)]
pub struct Store {
    /// Bytes on the devices.
    pub physical: Physical,
    /// Addresses of each process.
    pub spaces: BTreeMap<SessionId, Space>,
    /// Bytes of programs.
    pub host: Box<dyn HostMemory>,
    /// Bytes of the host's memory that were reached over the bus, since somebody last took them out.
    pub over_bus: u64,
    /// Misuse seen so far and not yet written down.
    pub misuse: Vec<Misuse>,
}

/// Who touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toucher {
    /// Whose addresses.
    pub session: SessionId,
    /// Its process.
    pub pid: i32,
    /// From which GPU.
    pub device: DeviceId,
    /// GPUs whose `cuMemAlloc` memory it may reach, too.
    pub peers: BTreeSet<DeviceId>,
    /// A copy: goes where kernels need permission.
    pub copies: bool,
}

/// Memory as one toucher sees it.
#[derive(Debug)]
pub struct Touch<'a> {
    /// All of it.
    pub store: &'a mut Store,
    /// Who.
    pub who: &'a Toucher,
}

enum Segment {
    Block(BlockId, u64),
    Host,
}

impl Touch<'_> {
    /// What lies at `address`, and how far it goes on like that.
    fn segment(&mut self, address: u64, write: bool) -> Result<(Segment, u64), Fault> {
        let illegal = Fault::Address(address);
        let space = self.store.spaces.get(&self.who.session).ok_or(illegal)?;
        let (start, region) = space.around(address).ok_or(illegal)?;
        let inside = address - start;
        match &region.kind {
            Kind::Allocation(allocation) => {
                let own = allocation.device == self.who.device;
                if !own && !self.who.copies && !self.who.peers.contains(&allocation.device) {
                    return Err(illegal);
                }
                if inside >= allocation.asked_bytes {
                    let what = format!(
                        "touches {address:#x}, behind the {} bytes asked for",
                        allocation.asked_bytes
                    );
                    self.store.misuse.push(Misuse { pid: self.who.pid, what });
                    return Ok((Segment::Block(allocation.block, inside), region.bytes - inside));
                }
                Ok((Segment::Block(allocation.block, inside), allocation.asked_bytes - inside))
            }
            Kind::Reservation(_) => {
                let (start, mapping) = space.mapping(address).ok_or(illegal)?;
                let granted = match mapping.access.get(&Location::Device(self.who.device)) {
                    Some(access) => *access,
                    None if self.who.copies => mapping.access.values().copied().max().unwrap_or_default(),
                    None => Access::None,
                };
                let wanted = if write { Access::ReadWrite } else { Access::Read };
                if granted < wanted {
                    return Err(illegal);
                }
                let inside = address - start;
                Ok((Segment::Block(mapping.block, mapping.offset + inside), mapping.bytes - inside))
            }
            Kind::Host(_) => Ok((Segment::Host, region.bytes - inside)),
        }
    }

    /// Bytes of a block are touched: those of the host's memory go over the bus.
    fn passes(&mut self, block: BlockId, bytes: usize) {
        if self.store.physical.block(block).device().is_none() {
            self.store.over_bus += bytes as u64;
        }
    }

    /// Reads from device addresses.
    pub fn read(&mut self, mut address: u64, mut into: &mut [u8]) -> Result<(), Fault> {
        while !into.is_empty() {
            let (segment, room) = self.segment(address, false)?;
            let length = into.len().min(room.min(CHUNK_BYTES as u64) as usize);
            let (now, rest) = into.split_at_mut(length);
            match segment {
                Segment::Block(block, offset) => {
                    self.passes(block, now.len());
                    self.store.physical.block(block).read(offset, now);
                }
                Segment::Host => self.host_read(address, now)?,
            }
            into = rest;
            address += length as u64;
        }
        Ok(())
    }

    /// Writes to device addresses.
    pub fn write(&mut self, mut address: u64, mut from: &[u8]) -> Result<(), Fault> {
        while !from.is_empty() {
            let (segment, room) = self.segment(address, true)?;
            let length = from.len().min(room.min(CHUNK_BYTES as u64) as usize);
            let (now, rest) = from.split_at(length);
            match segment {
                Segment::Block(block, offset) => {
                    self.passes(block, now.len());
                    self.store.physical.block_mut(block).write(offset, now);
                }
                Segment::Host => self.host_write(address, now)?,
            }
            from = rest;
            address += length as u64;
        }
        Ok(())
    }

    /// Shows bytes at device addresses where they lie, piece by piece: each with how many come before it.
    pub fn look(
        &mut self,
        mut address: u64,
        bytes: u64,
        mut at: impl FnMut(u64, &[u8]),
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < bytes {
            let (segment, room) = self.segment(address, false)?;
            let most = (bytes - done).min(room).min(CHUNK_BYTES as u64) as usize;
            let length = match segment {
                Segment::Block(block, offset) => {
                    let piece = self.store.physical.block(block).piece(offset, most);
                    at(done, piece);
                    let length = piece.len();
                    self.passes(block, length);
                    length
                }
                Segment::Host => {
                    let mut buffer = vec![0; most];
                    self.host_read(address, &mut buffer)?;
                    at(done, &buffer);
                    most
                }
            } as u64;
            (address, done) = (address + length, done + length);
        }
        Ok(())
    }

    /// Has bytes at device addresses filled where they lie, piece by piece: each with how many come before it.
    pub fn fill(
        &mut self,
        mut address: u64,
        bytes: u64,
        mut with: impl FnMut(u64, &mut [u8]),
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < bytes {
            let (segment, room) = self.segment(address, true)?;
            let most = (bytes - done).min(room).min(CHUNK_BYTES as u64) as usize;
            let length = match segment {
                Segment::Block(block, offset) => {
                    let piece = self.store.physical.block_mut(block).piece_mut(offset, most);
                    with(done, piece);
                    let length = piece.len();
                    self.passes(block, length);
                    length
                }
                Segment::Host => {
                    let mut buffer = vec![0; most];
                    with(done, &mut buffer);
                    self.host_write(address, &buffer)?;
                    most
                }
            } as u64;
            (address, done) = (address + length, done + length);
        }
        Ok(())
    }

    /// Writes what is at device addresses to the program's own memory.
    pub fn send_to_host(&mut self, mut address: u64, mut host: u64, mut bytes: u64) -> Result<(), Fault> {
        while bytes > 0 {
            let (segment, room) = self.segment(address, false)?;
            let most = bytes.min(room).min(CHUNK_BYTES as u64) as usize;
            let done = match segment {
                Segment::Block(block, offset) => {
                    let piece = self.store.physical.block(block).piece(offset, most);
                    let (result, done) = (self.store.host.write(self.who.pid, host, piece), piece.len());
                    self.passes(block, done);
                    self.host_result(result, host)?;
                    done
                }
                Segment::Host => {
                    let mut buffer = vec![0; most];
                    self.host_read(address, &mut buffer)?;
                    self.host_write(host, &buffer)?;
                    most
                }
            } as u64;
            (address, host, bytes) = (address + done, host + done, bytes - done);
        }
        Ok(())
    }

    /// Fills device addresses from the program's own memory.
    pub fn fill_from_host(&mut self, mut address: u64, mut host: u64, mut bytes: u64) -> Result<(), Fault> {
        while bytes > 0 {
            let (segment, room) = self.segment(address, true)?;
            let most = bytes.min(room).min(CHUNK_BYTES as u64) as usize;
            let done = match segment {
                Segment::Block(block, offset) => {
                    let piece = self.store.physical.block_mut(block).piece_mut(offset, most);
                    let (result, done) = (self.store.host.read(self.who.pid, host, piece), piece.len());
                    self.host_result(result, host)?;
                    done
                }
                Segment::Host => {
                    let mut buffer = vec![0; most];
                    self.host_read(host, &mut buffer)?;
                    self.host_write(address, &buffer)?;
                    most
                }
            } as u64;
            (address, host, bytes) = (address + done, host + done, bytes - done);
        }
        Ok(())
    }

    /// A 64-bit word, as kernels read it.
    pub fn word(&mut self, address: u64) -> Result<u64, Fault> {
        aligned(address)?;
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The same, written.
    pub fn set_word(&mut self, address: u64, word: u64) -> Result<(), Fault> {
        aligned(address)?;
        self.write(address, &word.to_le_bytes())
    }

    /// Reads the program's own memory, known to the device or not.
    pub fn host_read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let result = self.store.host.read(self.who.pid, address, into);
        self.host_result(result, address)
    }

    /// Writes it.
    pub fn host_write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        let result = self.store.host.write(self.who.pid, address, from);
        self.host_result(result, address)
    }

    fn host_result(&mut self, result: Result<(), HostError>, address: u64) -> Result<(), Fault> {
        match result {
            Ok(()) => Ok(()),
            Err(HostError::Gone) => Err(Fault::Gone),
            Err(HostError::Refused(_)) => Err(Fault::Address(address)),
        }
    }
}

/// Whether a 64-bit word may lie there.
pub fn aligned(address: u64) -> Result<(), Fault> {
    if address.is_multiple_of(8) { Ok(()) } else { Err(Fault::Misaligned(address)) }
}
