//! How many blocks fit on a multiprocessor, by threads, registers and shared memory.

use std::ffi::{c_int, c_uint};

use cuda::CUresult;
use cuda::types::{CUfunction, CUlaunchConfig};
use vgpu_messages::FunctionId;

use super::function::{attribute, resolve};
use crate::argument::{In, Out};
use crate::context::{current, table};
use crate::device::{REGISTERS_PER_MULTIPROCESSOR, SHARED_BYTES_MAX, THREADS_PER_MULTIPROCESSOR};
use crate::guard::{Outcome, api};
use crate::handle::Handle;
use crate::session;

const BLOCKS_PER_MULTIPROCESSOR: i32 = 32;
const THREADS_PER_BLOCK: i32 = 1024;
const WARP: i32 = 32;
/// Shared memory that the system takes of each block.
const SHARED_BYTES_KEPT: usize = 1024;

const ATTRIBUTE_SHARED_BYTES: c_uint = 1;
const ATTRIBUTE_REGISTERS: c_uint = 4;

/// Tells how much shared memory a block of a size takes.
type SharedOfBlock = Option<unsafe extern "C" fn(c_int) -> usize>;

fn blocks(function: FunctionId, block: c_int, shared_bytes: usize) -> Result<i32, CUresult> {
    if block < 1 {
        return Err(CUresult::INVALID_VALUE);
    }
    if block > THREADS_PER_BLOCK {
        return Ok(0);
    }
    let up = |value: i32, unit: i32| (value + unit - 1) / unit * unit;
    let threads = up(block, WARP);
    let by_threads = THREADS_PER_MULTIPROCESSOR / threads;
    let by_registers = match attribute(function, ATTRIBUTE_REGISTERS)? {
        registers @ 1.. => REGISTERS_PER_MULTIPROCESSOR / (up(registers, 8) * threads),
        _ => i32::MAX,
    };
    let own = usize::try_from(attribute(function, ATTRIBUTE_SHARED_BYTES)?).unwrap_or(0);
    let shared = own.saturating_add(shared_bytes).saturating_add(SHARED_BYTES_KEPT);
    let by_shared = (SHARED_BYTES_MAX as usize + SHARED_BYTES_KEPT) / shared;
    let by_shared = i32::try_from(by_shared).unwrap_or(i32::MAX);
    Ok(by_threads.min(by_registers).min(by_shared).min(BLOCKS_PER_MULTIPROCESSOR))
}

fn best_block(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    shared_of: SharedOfBlock,
    shared_bytes: usize,
    limit: c_int,
) -> Outcome {
    let context = current::handle()?;
    grid.check()?;
    block.check()?;
    let (function, _) = resolve(function)?;
    let most = if limit > 0 { limit.min(THREADS_PER_BLOCK) } else { THREADS_PER_BLOCK };
    let (mut best, mut best_threads, mut best_blocks) = (0, 0, 0);
    for threads in (1..=most / WARP).rev().map(|warps| warps * WARP).chain((most < WARP).then_some(most)) {
        // SAFETY: the program gave this function for this use.
        let shared = shared_of.map_or(shared_bytes, |shared_of| unsafe { shared_of(threads) });
        let fit = blocks(function, threads, shared)?;
        if fit * threads > best {
            (best, best_threads, best_blocks) = (fit * threads, threads, fit);
        }
    }
    let device = table::with(context.id()?, |record| record.device)?;
    let multiprocessors = session::current()?.device(device)?.multiprocessors;
    grid.set(best_blocks * i32::try_from(multiprocessors).unwrap_or(1))?;
    block.set(best_threads)
}

api! {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        count: Out<c_int>,
        function: CUfunction,
        block: c_int,
        shared_bytes: usize,
    ) {
        session::current()?;
        count.check()?;
        count.set(blocks(resolve(function)?.0, block, shared_bytes)?)
    }

    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: Out<c_int>,
        function: CUfunction,
        block: c_int,
        shared_bytes: usize,
        flags: c_uint,
    ) {
        session::current()?;
        count.check()?;
        if flags > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        count.set(blocks(resolve(function)?.0, block, shared_bytes)?)
    }

    cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>,
        block: Out<c_int>,
        function: CUfunction,
        shared_of: SharedOfBlock,
        shared_bytes: usize,
        limit: c_int,
    ) {
        best_block(grid, block, function, shared_of, shared_bytes, limit)
    }

    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>,
        block: Out<c_int>,
        function: CUfunction,
        shared_of: SharedOfBlock,
        shared_bytes: usize,
        limit: c_int,
        flags: c_uint,
    ) {
        if flags > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        best_block(grid, block, function, shared_of, shared_bytes, limit)
    }

    cuOccupancyAvailableDynamicSMemPerBlock(bytes: Out<usize>, function: CUfunction, count: c_int, block: c_int) {
        session::current()?;
        bytes.check()?;
        let (function, _) = resolve(function)?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(CUresult::INVALID_VALUE)?;
        if block < 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        let own = usize::try_from(attribute(function, ATTRIBUTE_SHARED_BYTES)?).unwrap_or(0);
        let each = (SHARED_BYTES_MAX as usize + SHARED_BYTES_KEPT) / count;
        bytes.set(each.saturating_sub(SHARED_BYTES_KEPT + own))
    }

    cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxActiveClusters(
        count: Out<c_int>,
        function: CUfunction,
        config: In<CUlaunchConfig>,
    ) {
        session::current()?;
        count.check()?;
        config.get()?;
        resolve(function)?;
        // A cluster is a single block here.
        count.set(1)
    }
}
