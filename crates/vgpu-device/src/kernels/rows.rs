//! Memsets, and copies that stay on one device.

use vgpu_messages::quantity::{Nanos, Rate};
use vgpu_messages::work::Memset;

use super::{Kernel, Pace, Step};
use crate::space::touch::{CHUNK_BYTES, Fault, Touch};
use crate::transfer::Transfer;

/// Elements that are written at once.
const PATTERN_ELEMENTS: usize = 256;

/// A memset.
#[derive(Debug)]
pub struct Set {
    pace: Pace,
    what: Memset,
}

impl Set {
    /// Nothing is set yet.
    pub fn new(what: Memset, rate: Rate) -> Self {
        let bytes = what.width.saturating_mul(u64::from(what.element_bytes)).saturating_mul(what.height);
        Self { pace: Pace::new(bytes, rate), what }
    }
}

impl Kernel for Set {
    fn run(&mut self, time: Nanos, _now: Nanos, memory: &mut Touch<'_>) -> Result<Step, Fault> {
        let mut range = self.pace.advance(time);
        let row_bytes = self.what.width * u64::from(self.what.element_bytes);
        let value = self.what.value.to_le_bytes();
        let element = &value[..self.what.element_bytes as usize];
        while !range.is_empty() {
            let (row, column) = (range.start / row_bytes, range.start % row_bytes);
            let length = (row_bytes - column).min(range.end - range.start).min(CHUNK_BYTES as u64);
            let address = self.what.address.0 + row * self.what.pitch + column;
            memory.fill(address, length, |before, bytes| repeat(element, column + before, bytes))?;
            range.start += length;
        }
        Ok(if self.pace.is_over() { Step::Done } else { Step::More })
    }

    fn remaining(&self, _now: Nanos) -> Option<Nanos> {
        Some(self.pace.remaining())
    }

    fn is_heavy(&self) -> bool {
        true
    }

    fn longest_step(&self) -> Nanos {
        self.pace.longest_step()
    }
}

/// Fills bytes that begin so far into a row of these elements.
fn repeat(element: &[u8], column: u64, bytes: &mut [u8]) {
    let first = (column % element.len() as u64) as usize;
    let pattern: Vec<u8> =
        element.iter().cycle().skip(first).take(element.len() * PATTERN_ELEMENTS).copied().collect();
    for part in bytes.chunks_mut(pattern.len()) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
}

/// A copy that the compute engine does.
#[derive(Debug)]
pub struct DeviceCopy {
    pace: Pace,
    transfer: Transfer,
}

impl DeviceCopy {
    /// Nothing is copied yet.
    pub fn new(transfer: Transfer, rate: Rate) -> Self {
        Self { pace: Pace::new(transfer.bytes(), rate), transfer }
    }
}

impl Kernel for DeviceCopy {
    fn run(&mut self, time: Nanos, _now: Nanos, memory: &mut Touch<'_>) -> Result<Step, Fault> {
        let range = self.pace.advance(time);
        self.transfer.pass(range, memory)?;
        Ok(if self.pace.is_over() { Step::Done } else { Step::More })
    }

    fn remaining(&self, _now: Nanos) -> Option<Nanos> {
        Some(self.pace.remaining())
    }

    fn is_heavy(&self) -> bool {
        true
    }

    fn longest_step(&self) -> Nanos {
        self.pace.longest_step()
    }
}
