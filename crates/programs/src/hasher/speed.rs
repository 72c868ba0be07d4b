//! How long hashing takes, beside other ways to go through the same memory.

use std::time::Instant;

use blocks::BLOCK_BYTES;
use cuda::types::{CUdeviceptr, CUevent, CUstream};
use serde_json::json;

use super::device::Device;
use super::{HasherError, Options};
use crate::worker::tell;

/// Between two instants of the device.
struct Watch<'a> {
    device: &'a Device<'a>,
    begin: CUevent,
    end: CUevent,
}

impl Watch<'_> {
    /// How long the device takes for some work, in milliseconds.
    fn time(&self, work: impl FnOnce()) -> Result<f64, HasherError> {
        let (bench, mut milliseconds) = (self.device.bench, 0_f32);
        bench.expect("record", bench.cu.cuEventRecord(self.begin, CUstream::NULL));
        work();
        bench.expect("record", bench.cu.cuEventRecord(self.end, CUstream::NULL));
        bench.expect("wait", bench.cu.cuEventSynchronize(self.end));
        bench.expect("elapsed", bench.cu.cuEventElapsedTime(&mut milliseconds, self.begin, self.end));
        self.device.no_trouble()?;
        Ok(f64::from(milliseconds))
    }
}

/// Measures each way a few times, in turns; a line for each. What the blocks hold is gone afterwards.
pub(super) fn measure(device: &Device<'_>, options: &Options) -> Result<(), HasherError> {
    let Device { bench, blocks, memory, .. } = *device;
    let watch = Watch { device, begin: bench.event(0), end: bench.event(0) };
    let short = options.short_blocks.clamp(1, blocks);
    let half = blocks / 2 * BLOCK_BYTES;
    let upper = CUdeviceptr(memory.0 + half as u64);
    device.prepare(blocks);
    // The name of each, the bytes that the memory reads and writes for it, and the milliseconds that it took.
    let ways = [
        ("hash, one launch", blocks * BLOCK_BYTES),
        ("hash, short launches", blocks * BLOCK_BYTES),
        ("one short launch", short * BLOCK_BYTES),
        ("copy on the device", 2 * half),
        ("memset", blocks * BLOCK_BYTES),
        ("list, hash, fetch, by the host's clock", blocks * BLOCK_BYTES),
    ];
    let mut times: [Vec<f64>; 6] = Default::default();
    // One round more than asked for: the first finds clocks low and caches empty.
    for round in 0..=options.rounds {
        let began = Instant::now();
        device.hashes(blocks, usize::MAX)?;
        let by_host = began.elapsed().as_secs_f64() * 1e3;
        let took = [
            watch.time(|| device.launch(blocks, usize::MAX))?,
            watch.time(|| device.launch(blocks, short))?,
            watch.time(|| device.launch(short, short))?,
            watch.time(|| {
                let code = bench.cu.cuMemcpyDtoDAsync_v2(upper, memory, half, CUstream::NULL);
                bench.expect("copy", code);
            })?,
            watch.time(|| {
                let bytes = blocks * BLOCK_BYTES;
                bench.expect("memset", bench.cu.cuMemsetD8Async(memory, round as u8, bytes, CUstream::NULL));
            })?,
            by_host,
        ];
        if round > 0 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    for ((way, bytes), times) in ways.into_iter().zip(times) {
        tell(&json!({ "measured": way, "bytes": bytes, "ms": times }))?;
    }
    bench.end_event(watch.begin);
    bench.end_event(watch.end);
    device.no_trouble()
}
