//! A worker's memory in pieces, and what each has to hold.

use std::ffi::c_void;

use cuda::types::{CUdeviceptr, CUstream};

use super::segment::Segment;
use super::{Options, WorkerError, ok};
use crate::bench::Bench;
use crate::kernels::{CHECKSUM, Checksum, GOLDEN, REWRITE, mix};

/// What a piece holds: the parameters of the `rewrite` that made it.
#[derive(Clone, Copy)]
struct Content {
    first: u64,
    seed: u64,
    step: u64,
    /// Its sum, once it was computed: that takes the host long.
    sum: Option<Checksum>,
}

struct Piece {
    address: CUdeviceptr,
    /// The same memory at other addresses.
    second: Option<CUdeviceptr>,
    words: u64,
    content: Content,
}

/// All pieces of a worker.
pub(crate) struct Pieces<'a> {
    bench: &'a Bench,
    /// Where they lie, if not in plain memory.
    segment: Option<Segment<'a>>,
    pieces: Vec<Piece>,
    /// Two words a piece, on the device.
    sums: CUdeviceptr,
    /// Pinned memory that holds one piece; empty if nothing is copied.
    host: &'static mut [u8],
    seed: u64,
    syncs: bool,
}

const MIB: u64 = 1 << 20;
/// How many pieces are moved in one step.
const MOVES: u64 = 4;

impl<'a> Pieces<'a> {
    pub(crate) fn allocate(bench: &'a Bench, options: &Options) -> Result<Pieces<'a>, WorkerError> {
        let mut segment = options.segments.then(|| Segment::reserve(bench)).transpose()?;
        let (whole, each) = (options.mib * MIB, options.piece_mib.max(1) * MIB);
        let mut pieces = Vec::new();
        let mut before = 0;
        while before < whole {
            let bytes = each.min(whole - before);
            let content = Content { first: before / 8, seed: options.seed, step: 0, sum: None };
            let address = match &mut segment {
                Some(segment) => segment.allocate(0, bytes)?,
                None => allocate(bench, 0, bytes)?,
            };
            pieces.push(Piece { address, second: None, words: bytes / 8, content });
            before += bytes;
        }
        let sums = allocate(bench, 0, 16 * pieces.len().max(1) as u64)?;
        let host = if options.copies { bench.pinned(each as usize) } else { &mut [] };
        Ok(Pieces { bench, segment, pieces, sums, host, seed: options.seed, syncs: options.syncs })
    }

    /// Gives every piece the bytes of a step, or only the last ones, that have so many MiB; or so many times that much before
    /// them.
    pub(crate) fn rewrite(&mut self, step: u64, mib: u64, moved: u64) -> Result<(), WorkerError> {
        let mut left = mib.saturating_mul(MIB);
        let count = self.pieces.len();
        let each = self.pieces.first().map_or(1, |piece| 8 * piece.words);
        let before = (moved.saturating_mul(left / each) % count.max(1) as u64) as usize;
        for number in 0..count {
            let index = count - 1 - (number + before) % count;
            let bytes = 8 * self.pieces[index].words;
            if left < bytes {
                break;
            }
            left -= bytes;
            self.rewrite_one(index, step)?;
        }
        Ok(())
    }

    fn rewrite_one(&mut self, index: usize, step: u64) -> Result<(), WorkerError> {
        let piece = &mut self.pieces[index];
        piece.content = Content { first: piece.content.first, seed: self.seed, step, sum: None };
        let Content { first, seed, step, .. } = piece.content;
        let parameters = [piece.address.0, piece.words, first, seed, step];
        ok("rewrite", step, self.launch(REWRITE, &parameters))
    }

    fn launch(&self, kernel: crate::kernels::Kernel, parameters: &[u64]) -> cuda::CUresult {
        // Enough threads for a large GPU.
        let function = self.bench.function(kernel);
        self.bench.launch_function(function, (1024, 256), CUstream::NULL, parameters)
    }

    /// Moves some pieces, chosen by a number: inside the device, through the host, or to memory that is allocated anew.
    pub(crate) fn move_about(&mut self, step: u64, mut chance: u64) -> Result<(), WorkerError> {
        for _ in 0..MOVES {
            chance = mix(chance.wrapping_add(GOLDEN));
            let count = self.pieces.len() as u64;
            if count == 0 {
                return Ok(());
            }
            let (from, to) = ((chance % count) as usize, (chance / count % count) as usize);
            match chance >> 62 {
                0 if self.segment.is_some() && chance >> 61 & 1 == 0 => {
                    self.map_elsewhere(from, step, chance)?;
                }
                0 => self.replace(from, step)?,
                1 => self.copy_inside(from, to, step)?,
                _ => self.copy_through_host(from, to, step)?,
            }
        }
        Ok(())
    }

    fn replace(&mut self, index: usize, step: u64) -> Result<(), WorkerError> {
        let bench = self.bench;
        let piece = &mut self.pieces[index];
        ok("cuCtxSynchronize", step, bench.cu.cuCtxSynchronize())?;
        match &mut self.segment {
            Some(segment) => {
                segment.free(step, piece.address)?;
                if let Some(second) = piece.second.take() {
                    segment.free(step, second)?;
                }
                piece.address = segment.allocate(step, piece.words * 8)?;
            }
            None => {
                ok("cuMemFree", step, bench.cu.cuMemFree_v2(piece.address))?;
                piece.address = allocate(bench, step, piece.words * 8)?;
            }
        }
        self.rewrite_one(index, step)
    }

    /// Has the memory of a piece at other addresses: instead of those where it was, or both, which then take turns.
    fn map_elsewhere(&mut self, index: usize, step: u64, chance: u64) -> Result<(), WorkerError> {
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let piece = &mut self.pieces[index];
        match piece.second {
            Some(second) if chance >> 60 & 1 == 0 => {
                piece.second = Some(std::mem::replace(&mut piece.address, second));
            }
            None if chance >> 60 & 1 == 0 => piece.second = Some(segment.second(step, piece.address)?),
            _ => {
                ok("cuCtxSynchronize", step, self.bench.cu.cuCtxSynchronize())?;
                piece.address = segment.relocate(step, piece.address)?;
            }
        }
        Ok(())
    }

    fn copy_inside(&mut self, from: usize, to: usize, step: u64) -> Result<(), WorkerError> {
        let (source, target) = (&self.pieces[from], &self.pieces[to]);
        if from == to || source.words != target.words {
            return Ok(());
        }
        let (bytes, content) = ((source.words * 8) as usize, source.content);
        let code = self.bench.cu.cuMemcpyDtoDAsync_v2(target.address, source.address, bytes, CUstream::NULL);
        ok("cuMemcpyDtoDAsync", step, code)?;
        self.pieces[to].content = content;
        Ok(())
    }

    fn copy_through_host(&mut self, from: usize, to: usize, step: u64) -> Result<(), WorkerError> {
        let (source, target, cu) = (&self.pieces[from], &self.pieces[to], self.bench.cu);
        let bytes = (source.words * 8) as usize;
        if source.words != target.words || bytes > self.host.len() {
            return Ok(());
        }
        let (host, content) = (self.host.as_mut_ptr().cast::<c_void>(), source.content);
        ok("cuMemcpyDtoHAsync", step, cu.cuMemcpyDtoHAsync_v2(host, source.address, bytes, CUstream::NULL))?;
        ok("cuMemcpyHtoDAsync", step, cu.cuMemcpyHtoDAsync_v2(target.address, host, bytes, CUstream::NULL))?;
        self.pieces[to].content = content;
        Ok(())
    }

    /// How many pieces do not hold what they have to.
    pub(crate) fn wrong(&mut self, step: u64) -> Result<u64, WorkerError> {
        let (cu, bytes) = (self.bench.cu, 16 * self.pieces.len());
        ok("cuMemsetD8Async", step, cu.cuMemsetD8Async(self.sums, 0, bytes, CUstream::NULL))?;
        for (piece, place) in self.pieces.iter().zip((self.sums.0..).step_by(16)) {
            ok("checksum", step, self.launch(CHECKSUM, &[piece.address.0, piece.words, place]))?;
        }
        // While the GPU does the same.
        let expected: Vec<Checksum> = self.pieces.iter_mut().map(Piece::expected).collect();
        if self.syncs {
            ok("cuCtxSynchronize", step, cu.cuCtxSynchronize())?;
        }
        let mut found = vec![[0_u64; 2]; self.pieces.len()];
        ok("cuMemcpyDtoH", step, cu.cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), self.sums, bytes))?;
        let wrong = found.iter().zip(expected).filter(|(found, sum)| **found != [sum.plain, sum.mixed]);
        Ok(wrong.count() as u64)
    }

    /// Gives all memory back.
    pub(crate) fn free(mut self, step: u64) -> Result<(), WorkerError> {
        for piece in &self.pieces {
            match &mut self.segment {
                Some(segment) => {
                    for address in [Some(piece.address), piece.second].into_iter().flatten() {
                        segment.free(step, address)?;
                    }
                }
                None => ok("cuMemFree", step, self.bench.cu.cuMemFree_v2(piece.address))?,
            }
        }
        ok("cuMemFree", step, self.bench.cu.cuMemFree_v2(self.sums))?;
        if !self.host.is_empty() {
            ok("cuMemFreeHost", step, self.bench.cu.cuMemFreeHost(self.host.as_mut_ptr().cast()))?;
        }
        Ok(())
    }
}

impl Piece {
    fn expected(&mut self) -> Checksum {
        let Content { first, seed, step, .. } = self.content;
        *self.content.sum.get_or_insert_with(|| Checksum::of_rewritten(self.words, first, seed, step))
    }
}

fn allocate(bench: &Bench, step: u64, bytes: u64) -> Result<CUdeviceptr, WorkerError> {
    let mut address = CUdeviceptr(0);
    ok("cuMemAlloc", step, bench.cu.cuMemAlloc_v2(&mut address, bytes as usize))?;
    Ok(address)
}
