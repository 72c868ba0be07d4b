//! What random calls work on, and the hash of what came out.

use cuda::CUresult;
use cuda::types::{CU_EVENT_DISABLE_TIMING, CU_STREAM_NON_BLOCKING, CUdeviceptr, CUevent, CUstream};

use super::REPORT_CALLS;
use super::dice::Dice;
use super::mappings::Piece;
use crate::api::{Api, ApiError};
use crate::bench::Bench;
use crate::bench::words::{self, HASH_BEGIN, hash};

/// Most blocks of device memory at a time.
pub(super) const BLOCKS_MAX: usize = 24;
/// The largest block.
pub(super) const BLOCK_BYTES_MAX: u64 = 64 << 10;
/// Streams beside the default stream.
const STREAMS: usize = 4;
/// Events.
const EVENTS: usize = 6;

/// Memory, and the stream that was last given work on it and was not waited for.
pub(super) struct Block {
    pub(super) address: CUdeviceptr,
    pub(super) bytes: u64,
    pub(super) home: Option<usize>,
}

/// All that random calls work on.
pub(super) struct World {
    pub(super) bench: Bench,
    pub(super) dice: Dice,
    pub(super) blocks: Vec<Block>,
    /// The first is the default stream.
    pub(super) streams: Vec<CUstream>,
    pub(super) events: Vec<CUevent>,
    pub(super) pieces: Vec<Piece>,
    /// Pinned memory that copies come from and go to.
    pub(super) inbound: &'static mut [u8],
    pub(super) outbound: &'static mut [u8],
    /// The stream that may still read what is inbound.
    pub(super) inbound_home: Option<usize>,
    calls: u64,
    hash: u64,
    verbose_from: u64,
}

impl World {
    pub(super) fn new(seed: u64, verbose_from: u64) -> Result<World, ApiError> {
        let bench = Bench::with_context()?;
        let streams = (0..=STREAMS).map(|index| match index {
            0 => CUstream::NULL,
            _ => bench.stream(if index % 2 == 0 { CU_STREAM_NON_BLOCKING } else { 0 }),
        });
        let streams = streams.collect();
        let events = (0..EVENTS).map(|index| bench.event([0, CU_EVENT_DISABLE_TIMING][index % 2])).collect();
        let (inbound, outbound) =
            (bench.pinned(BLOCK_BYTES_MAX as usize), bench.pinned(BLOCK_BYTES_MAX as usize));
        let trouble = bench.take_record();
        if !trouble.is_empty() {
            println!("the beginning failed: {trouble}");
        }
        Ok(World {
            bench,
            dice: Dice::new(seed),
            blocks: Vec::new(),
            streams,
            events,
            pieces: Vec::new(),
            inbound,
            outbound,
            inbound_home: None,
            calls: 0,
            hash: HASH_BEGIN,
            verbose_from,
        })
    }

    pub(super) fn cu(&self) -> &'static Api {
        self.bench.cu
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Takes a call's code into the hash; true if it succeeded.
    pub(super) fn note(&mut self, call: &str, code: CUresult) -> bool {
        self.calls += 1;
        self.hash = hash(self.hash, call.as_bytes());
        self.hash = hash(self.hash, &code.0.to_le_bytes());
        if self.calls >= self.verbose_from {
            println!("{} {call} {} {:016x}", self.calls, words::code(code), self.hash);
        }
        if self.calls.is_multiple_of(REPORT_CALLS) {
            println!("{} calls: {:016x}", self.calls, self.hash);
        }
        code == CUresult::SUCCESS
    }

    /// Takes bytes that were read into the hash.
    pub(super) fn saw(&mut self, bytes: &[u8]) {
        self.hash = hash(self.hash, bytes);
    }

    /// Takes a number into the hash.
    pub(super) fn saw_number(&mut self, number: u64) {
        self.saw(&number.to_le_bytes());
    }

    /// A block, if there is one.
    pub(super) fn any_block(&mut self) -> Option<usize> {
        (!self.blocks.is_empty()).then(|| self.dice.index(self.blocks.len()))
    }

    /// A block and a stream: the block's earlier work in other streams is waited for.
    pub(super) fn block_in_stream(&mut self) -> Option<(usize, usize)> {
        let block = self.any_block()?;
        let stream = self.dice.index(self.streams.len());
        self.hand_over(block, stream);
        Some((block, stream))
    }

    /// Gives a block to a stream.
    pub(super) fn hand_over(&mut self, block: usize, stream: usize) {
        if self.blocks[block].home != Some(stream) {
            self.settle(block);
        }
        self.blocks[block].home = Some(stream);
    }

    /// Waits for the work on a block.
    pub(super) fn settle(&mut self, block: usize) {
        if let Some(stream) = self.blocks[block].home {
            self.wait_for_stream(stream);
        }
    }

    /// Waits for a stream; what it had is nobody's then.
    pub(super) fn wait_for_stream(&mut self, stream: usize) {
        self.note("cuStreamSynchronize", self.cu().cuStreamSynchronize(self.streams[stream]));
        for block in &mut self.blocks {
            block.home = block.home.filter(|home| *home != stream);
        }
        for piece in &mut self.pieces {
            piece.home = piece.home.filter(|home| *home != stream);
        }
        self.inbound_home = self.inbound_home.filter(|home| *home != stream);
    }

    /// Gives everything back and prints the last line.
    pub(super) fn end(mut self) {
        for stream in 0..self.streams.len() {
            self.wait_for_stream(stream);
        }
        while let Some(block) = self.blocks.pop() {
            self.note("cuMemFree", self.cu().cuMemFree_v2(block.address));
        }
        while let Some(piece) = self.pieces.pop() {
            self.let_go(piece);
        }
        println!("{} calls in all: {:016x}", self.calls, self.hash);
    }
}
