//! `hash_blocks`: the hash is that of `crates/blocks`, with the key and the places that are in device memory.

use std::ops::Range;

use blocks::{DeviceKey, STRIP_BYTES, STRIPS, Sums};
use vgpu_messages::quantity::Rate;

use super::Kernel;
use super::words::{Over, Places};
use crate::space::touch::{Fault, Touch, aligned};

/// A place is a strip: what a block of threads does, and adds to the sums at once.
#[derive(Debug)]
struct HashBlocks {
    places: u64,
    key: u64,
    sums: u64,
    /// Fetched with the first strip.
    fetched: Option<DeviceKey>,
    /// What the memory of a strip is read into.
    strip: Box<[u8]>,
}

impl HashBlocks {
    fn fetch_key(&self, memory: &mut Touch<'_>) -> Result<DeviceKey, Fault> {
        aligned(self.key)?;
        let mut bytes = vec![0; DeviceKey::BYTES];
        memory.read(self.key, &mut bytes)?;
        Ok(DeviceKey::from_bytes(&bytes).expect("as many bytes as it has"))
    }
}

impl Places for HashBlocks {
    fn places(&mut self, range: Range<u64>, memory: &mut Touch<'_>) -> Result<(), Fault> {
        let key = match self.fetched.take() {
            Some(key) => key,
            None => self.fetch_key(memory)?,
        };
        for place in range {
            let (block, strip) = (place / STRIPS as u64, place % STRIPS as u64);
            let address = memory.word(self.places.wrapping_add(8 * block))?;
            aligned(address)?;
            memory.read(address.wrapping_add(strip * STRIP_BYTES as u64), &mut self.strip)?;
            let bytes = self.strip.first_chunk().expect("as long as a strip");
            let more = key.strip(strip as usize, bytes);
            let at = |word: u64| self.sums.wrapping_add(block * Sums::BYTES as u64 + 8 * word);
            for (word, more) in (0..).zip(more.words()) {
                let sum = memory.word(at(word))?;
                memory.set_word(at(word), sum.wrapping_add(more))?;
            }
        }
        self.fetched = Some(key);
        Ok(())
    }
}

pub(super) fn hash_blocks(places: u64, count: u64, key: u64, sums: u64, rate: Rate) -> Box<dyn Kernel> {
    let strip = vec![0; STRIP_BYTES].into_boxed_slice();
    let hash = HashBlocks { places, key, sums, fetched: None, strip };
    Over::boxed(count.saturating_mul(STRIPS as u64), STRIP_BYTES as u64, rate, hash)
}
