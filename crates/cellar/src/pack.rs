//! Packing blocks. [`choice`] says whether; this does it, and tries it on samples.
//!
//! zstd's first level, and nothing else. LZ4 finds nothing in floating-point numbers, where zstd finds 10 to 22%, and
//! packs small integers at 150 to 260 MB/s to twice the size, where zstd has 110 to 145. Higher levels of zstd take two
//! to four times the time for the same size, on what programs keep on a GPU.

pub mod choice;

use choice::{Conditions, Patience, Trial, is_worth_it};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// How much of a block is tried.
const SAMPLE_BYTES: usize = 64 << 10;
/// In how many pieces, spread over the block: its beginning may be unlike its end.
const PIECES: usize = 16;
const PIECE_BYTES: usize = SAMPLE_BYTES / PIECES;
const ZSTD_LEVEL: i32 = 1;

/// How a block is packed. Tickets have it, so numbers of methods stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Method {
    /// Not at all.
    Plain,
    /// zstd, one frame.
    Zstd,
}

/// A packed block does not unpack. It was sealed, so whoever packed it was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// What one thread needs for packing and unpacking.
pub(crate) struct Packer {
    packer: zstd::bulk::Compressor<'static>,
    unpacker: zstd::bulk::Decompressor<'static>,
    sample: Vec<u8>,
    packed: Vec<u8>,
    unpacked: Vec<u8>,
    patience: Patience,
}

impl Packer {
    pub(crate) fn new() -> io::Result<Packer> {
        Ok(Packer {
            packer: zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
            unpacker: zstd::bulk::Decompressor::new()?,
            sample: Vec::with_capacity(SAMPLE_BYTES),
            packed: vec![0; SAMPLE_BYTES],
            unpacked: vec![0; SAMPLE_BYTES],
            patience: Patience::default(),
        })
    }

    /// The method for this block, by trying some of it: if packing has paid of late, and else now and then.
    pub(crate) fn choose(&mut self, block: &[u8], conditions: &Conditions) -> Method {
        let pays = self.patience.is_due() && {
            self.take_sample(block);
            self.try_sample().is_some_and(|trial| is_worth_it(conditions, &trial))
        };
        self.patience.note(pays);
        if pays { Method::Zstd } else { Method::Plain }
    }

    /// Packs a block. None if it does not get smaller than `into`.
    pub(crate) fn pack(&mut self, method: Method, block: &[u8], into: &mut [u8]) -> Option<usize> {
        pack(&mut self.packer, method, block, into)
    }

    /// Unpacks a block, which must have exactly the size of `into`.
    pub(crate) fn unpack(
        &mut self,
        method: Method,
        packed: &[u8],
        into: &mut [u8],
    ) -> Result<(), Unreadable> {
        unpack(&mut self.unpacker, method, packed, into)
    }

    fn take_sample(&mut self, block: &[u8]) {
        self.sample.clear();
        if block.len() <= SAMPLE_BYTES {
            self.sample.extend_from_slice(block);
            return;
        }
        for piece in 0..PIECES {
            let start = (block.len() - PIECE_BYTES) * piece / (PIECES - 1);
            self.sample.extend_from_slice(&block[start..start + PIECE_BYTES]);
        }
    }

    /// Packs and unpacks the sample. None if it gets no smaller.
    fn try_sample(&mut self) -> Option<Trial> {
        let plain_bytes = self.sample.len();
        let start = processor_time();
        let packed_bytes =
            pack(&mut self.packer, Method::Zstd, &self.sample, &mut self.packed[..plain_bytes])?;
        let between = processor_time();
        let packed = &self.packed[..packed_bytes];
        unpack(&mut self.unpacker, Method::Zstd, packed, &mut self.unpacked[..plain_bytes]).ok()?;
        let unpack = processor_time().saturating_sub(between);
        Some(Trial { plain_bytes, packed_bytes, pack: between.saturating_sub(start), unpack })
    }
}

fn pack(
    zstd: &mut zstd::bulk::Compressor<'_>,
    method: Method,
    block: &[u8],
    into: &mut [u8],
) -> Option<usize> {
    match method {
        Method::Plain => {
            into.get_mut(..block.len())?.copy_from_slice(block);
            Some(block.len())
        }
        Method::Zstd => zstd.compress_to_buffer(block, into).ok(),
    }
}

fn unpack(
    zstd: &mut zstd::bulk::Decompressor<'_>,
    method: Method,
    packed: &[u8],
    into: &mut [u8],
) -> Result<(), Unreadable> {
    let bytes = into.len();
    let unpacked = match method {
        Method::Plain if packed.len() == bytes => {
            into.copy_from_slice(packed);
            Some(bytes)
        }
        Method::Plain => None,
        Method::Zstd => zstd.decompress_to_buffer(packed, into).ok(),
    };
    if unpacked == Some(bytes) { Ok(()) } else { Err(Unreadable) }
}

/// Whether all bytes are zero. Stops at the first that is not.
pub(crate) fn is_zero(block: &[u8]) -> bool {
    // In chunks, which the compiler turns into wide instructions.
    let mut chunks = block.chunks_exact(256);
    chunks.by_ref().all(|chunk| chunk.iter().fold(0, |all, &byte| all | byte) == 0)
        && chunks.remainder().iter().all(|&byte| byte == 0)
}

/// Processor time of this thread: what a trial takes, whoever else the processor is given to meanwhile.
pub(crate) fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in the time that it is given, which lives until then.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(answer, 0, "Linux has this clock since 2.6.12");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Speed;
    use proptest::prelude::*;

    const BLOCK: usize = 1 << 20;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..bytes).map(next).collect()
    }

    /// A disk so slow that packing pays whenever it saves anything.
    fn slow() -> Conditions {
        let disk = Some(Speed::bytes_per_second(1000));
        Conditions { write: disk, read: disk, seal: None, threads: 4, processors: 4, share: None }
    }

    #[test]
    fn noise_stays_as_it_is_and_patterns_are_packed() {
        let mut packer = Packer::new().expect("zstd has memory");
        assert_eq!(packer.choose(&noise(BLOCK), &slow()), Method::Plain);
        let pattern: Vec<u8> = (0..BLOCK).map(|at| (at / 1000) as u8).collect();
        assert_ne!(packer.choose(&pattern, &slow()), Method::Plain);
    }

    /// A block whose beginning, or whose end, says nothing about the rest.
    #[test]
    fn the_sample_is_of_the_whole_block() {
        let mut packer = Packer::new().expect("zstd has memory");
        for noisy in [0..BLOCK / 2, BLOCK / 2..BLOCK] {
            let mut block = vec![0; BLOCK];
            block[noisy.clone()].copy_from_slice(&noise(BLOCK / 2));
            packer.take_sample(&block);
            assert_eq!(packer.sample.len(), SAMPLE_BYTES);
            let trial = packer.try_sample().expect("half of it is zero");
            let ratio = trial.packed_bytes as f64 / trial.plain_bytes as f64;
            assert!((0.45..0.6).contains(&ratio), "{ratio}");
        }
        packer.take_sample(&[1, 2, 3]);
        assert_eq!(packer.sample, [1, 2, 3]);
    }

    #[test]
    fn what_does_not_get_small_enough_is_not_packed() {
        let mut packer = Packer::new().expect("zstd has memory");
        let block = noise(10_000);
        for method in [Method::Plain, Method::Zstd] {
            assert_eq!(packer.pack(method, &block, &mut vec![0; 9_000]), None, "{method:?}");
        }
    }

    #[test]
    fn a_size_that_is_not_the_blocks_is_noticed() {
        let mut packer = Packer::new().expect("zstd has memory");
        let block = vec![7; 10_000];
        let mut packed = vec![0; 20_000];
        for method in [Method::Plain, Method::Zstd] {
            let bytes = packer.pack(method, &block, &mut packed).expect("it fits");
            for wrong in [9_999, 10_001] {
                let unpacked = packer.unpack(method, &packed[..bytes], &mut vec![0; wrong]);
                assert_eq!(unpacked, Err(Unreadable), "{method:?}");
            }
        }
    }

    #[test]
    fn a_single_bit_is_not_zero() {
        for bytes in [1, 255, 256, 257, 5000] {
            let mut block = vec![0; bytes];
            assert!(is_zero(&block));
            for at in [0, bytes / 2, bytes - 1] {
                block[at] = 0x10;
                assert!(!is_zero(&block), "byte {at} of {bytes}");
                block[at] = 0;
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_is_packed_comes_back(
            seed in prop::collection::vec(any::<u8>(), 1..400),
            repeated in 1usize..50,
            method in prop::sample::select(vec![Method::Plain, Method::Zstd]),
        ) {
            let mut packer = Packer::new().expect("zstd has memory");
            let block = seed.repeat(repeated);
            let mut packed = vec![0; 2 * block.len() + 100];
            let bytes = packer.pack(method, &block, &mut packed).expect("there is room");
            let mut back = vec![0xAA; block.len()];
            prop_assert_eq!(packer.unpack(method, &packed[..bytes], &mut back), Ok(()));
            prop_assert_eq!(back, block);
        }
    }
}
