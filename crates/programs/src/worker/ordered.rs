//! Memory that is allocated, written, summed up and freed in the order of several streams at once.
//!
//! Nothing is waited for between two rounds: what one stream frees the next one may get, and if that is too early, the sum of
//! one of them is wrong.

use cuda::types::{CU_EVENT_DISABLE_TIMING, CU_STREAM_NON_BLOCKING, CUdeviceptr, CUevent, CUstream};

use super::{WorkerError, ok};
use crate::bench::Bench;
use crate::kernels::{CHECKSUM, Checksum, GOLDEN, REWRITE, SPIN, mix};

/// How many rounds a step has.
const ROUNDS: usize = 48;
/// The words of an allocation: this, times a power of two.
const WORDS_MIN: u64 = 64;
const SIZES: u64 = 10;
/// For how long the first stream does nothing; the others a multiple of it.
const SPIN_NS: u64 = 20_000_000;

/// Streams, and where the sums of a step go.
pub(super) struct Ordered<'a> {
    bench: &'a Bench,
    streams: Vec<CUstream>,
    event: CUevent,
    sums: CUdeviceptr,
}

impl<'a> Ordered<'a> {
    pub(super) fn new(bench: &'a Bench, streams: usize) -> Result<Self, WorkerError> {
        let mut sums = CUdeviceptr(0);
        ok("cuMemAlloc", 0, bench.cu.cuMemAlloc_v2(&mut sums, 16 * ROUNDS))?;
        let streams = (0..streams).map(|_| bench.stream(CU_STREAM_NON_BLOCKING)).collect();
        Ok(Self { bench, streams, event: bench.event(CU_EVENT_DISABLE_TIMING), sums })
    }

    /// Does a step, and says how many of its sums are wrong.
    pub(super) fn step(&mut self, step: u64, mut chance: u64) -> Result<u64, WorkerError> {
        if self.streams.is_empty() {
            return Ok(0);
        }
        let (bench, cu) = (self.bench, self.bench.cu);
        ok("cuMemsetD8", step, cu.cuMemsetD8_v2(self.sums, 0, 16 * ROUNDS))?;
        ok("cuCtxSynchronize", step, cu.cuCtxSynchronize())?;
        // Streams begin at different times, long after all of it was asked for.
        for (index, stream) in (1..).zip(&self.streams) {
            let spin = bench.function(SPIN);
            ok("spin", step, bench.launch_function(spin, (1, 32), *stream, &[u64::MAX, index * SPIN_NS]))?;
        }
        let mut written = Vec::new();
        for round in 0..ROUNDS {
            chance = mix(chance.wrapping_add(GOLDEN));
            let stream = self.streams[(chance % self.streams.len() as u64) as usize];
            let other = self.streams[((chance >> 8) % self.streams.len() as u64) as usize];
            let words = WORDS_MIN << ((chance >> 16) % SIZES);
            let mut memory = CUdeviceptr(0);
            let code = cu.cuMemAllocAsync(&mut memory, (words * 8) as usize, stream);
            ok("cuMemAllocAsync", step, code)?;
            let place = self.sums.0 + 16 * round as u64;
            let launch = |kernel, parameters: &[u64]| {
                bench.launch_function(bench.function(kernel), (4, 64), stream, parameters)
            };
            ok("rewrite", step, launch(REWRITE, &[memory.0, words, 0, chance, step]))?;
            ok("checksum", step, launch(CHECKSUM, &[memory.0, words, place]))?;
            ok("cuEventRecord", step, cu.cuEventRecord(self.event, stream))?;
            ok("cuStreamWaitEvent", step, cu.cuStreamWaitEvent(other, self.event, 0))?;
            ok("cuMemFreeAsync", step, cu.cuMemFreeAsync(memory, other))?;
            written.push((words, chance));
        }
        ok("cuCtxSynchronize", step, cu.cuCtxSynchronize())?;
        let mut found = [[0_u64; 2]; ROUNDS];
        ok("cuMemcpyDtoH", step, cu.cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), self.sums, 16 * ROUNDS))?;
        let is_wrong = |(found, (words, chance)): &(&[u64; 2], (u64, u64))| {
            let sum = Checksum::of_rewritten(*words, 0, *chance, step);
            **found != [sum.plain, sum.mixed]
        };
        // A stream goes, and another comes, perhaps under the same name.
        let index = (chance >> 32) as usize % self.streams.len();
        bench.end_stream(self.streams[index]);
        self.streams[index] = bench.stream(CU_STREAM_NON_BLOCKING);
        Ok(found.iter().zip(written).filter(is_wrong).count() as u64)
    }

    pub(super) fn free(self, step: u64) -> Result<(), WorkerError> {
        self.streams.iter().for_each(|stream| self.bench.end_stream(*stream));
        self.bench.end_event(self.event);
        ok("cuMemFree", step, self.bench.cu.cuMemFree_v2(self.sums))
    }
}
