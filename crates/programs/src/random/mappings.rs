//! Random calls on physical memory and its mappings.

use cuda::types::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};

use super::world::World;
use crate::kernels::REWRITE;

/// The granularity of device memory.
const PIECE: usize = 2 << 20;
/// Most mappings at a time.
const PIECES_MAX: usize = 4;
/// How much of a mapping is written and read.
const USED_WORDS: u64 = 1000;

/// Reserved addresses with memory under them or without, and the stream that was last given work on it.
pub(super) struct Piece {
    address: CUdeviceptr,
    handle: CUmemGenericAllocationHandle,
    mapped: bool,
    pub(super) home: Option<usize>,
}

fn access() -> CUmemAccessDesc {
    let location = CUmemLocation { type_: CUmemLocationType::DEVICE, id: 0 };
    CUmemAccessDesc { location, flags: CUmemAccess_flags::READWRITE }
}

impl World {
    fn any_piece(&mut self) -> Option<usize> {
        (!self.pieces.is_empty()).then(|| self.dice.index(self.pieces.len()))
    }

    /// Makes a piece, or maps one again.
    pub(super) fn map(&mut self) {
        let cu = self.cu();
        if self.pieces.len() < PIECES_MAX {
            let (mut address, mut handle) = (CUdeviceptr(0), CUmemGenericAllocationHandle(0));
            let prop = CUmemAllocationProp::on_device(self.bench.device, CUmemAllocationHandleType::NONE);
            let reserved = cu.cuMemAddressReserve(&mut address, PIECE, 0, CUdeviceptr(0), 0);
            let created = cu.cuMemCreate(&mut handle, PIECE, &prop, 0);
            if self.note("cuMemAddressReserve", reserved) & self.note("cuMemCreate", created) {
                self.pieces.push(Piece { address, handle, mapped: false, home: None });
            }
        }
        let Some(index) = self.any_piece() else { return };
        let Piece { address, handle, mapped, .. } = self.pieces[index];
        // A piece that is mapped already is refused.
        let ok = self.note("cuMemMap", cu.cuMemMap(address, PIECE, 0, handle, 0));
        if !mapped && ok {
            self.pieces[index].mapped = true;
            self.note("cuMemSetAccess", cu.cuMemSetAccess(address, PIECE, &access(), 1));
            self.note("cuMemsetD8", cu.cuMemsetD8_v2(address, 0x33, (USED_WORDS * 8) as usize));
            self.pieces[index].home = Some(0);
        }
    }

    /// Unmaps a piece, also one that is not mapped; or lets it go.
    pub(super) fn unmap(&mut self) {
        let Some(index) = self.any_piece() else { return };
        self.settle_piece(index);
        if self.dice.below(3) == 0 {
            let piece = self.pieces.swap_remove(index);
            return self.let_go(piece);
        }
        let ok = self.note("cuMemUnmap", self.cu().cuMemUnmap(self.pieces[index].address, PIECE));
        self.pieces[index].mapped &= !ok;
    }

    /// Gives a piece back.
    pub(super) fn let_go(&mut self, piece: Piece) {
        let cu = self.cu();
        if piece.mapped {
            self.note("cuMemUnmap", cu.cuMemUnmap(piece.address, PIECE));
        }
        self.note("cuMemRelease", cu.cuMemRelease(piece.handle));
        self.note("cuMemAddressFree", cu.cuMemAddressFree(piece.address, PIECE));
    }

    pub(super) fn map_wrongly(&mut self) {
        let cu = self.cu();
        let prop = CUmemAllocationProp::on_device(self.bench.device, CUmemAllocationHandleType::NONE);
        let code = match self.dice.below(6) {
            0 => cu.cuMemAddressReserve(&mut CUdeviceptr(0), 0, 0, CUdeviceptr(0), 0),
            1 => cu.cuMemCreate(&mut CUmemGenericAllocationHandle(0), 5, &prop, 0),
            2 => cu.cuMemUnmap(CUdeviceptr(0x1000), PIECE),
            3 => cu.cuMemAddressFree(CUdeviceptr(0x1000), PIECE),
            4 => cu.cuMemSetAccess(CUdeviceptr(0x1000), PIECE, &access(), 1),
            _ => cu.cuMemCreate(&mut CUmemGenericAllocationHandle(0), 1 << 50, &prop, 0),
        };
        self.note("cuMemMap", code);
    }

    fn settle_piece(&mut self, index: usize) {
        if let Some(home) = self.pieces[index].home {
            self.wait_for_stream(home);
        }
    }

    /// Writes and reads a piece; one that is not mapped is refused.
    pub(super) fn use_mapping(&mut self) {
        let Some(index) = self.any_piece() else { return };
        let (address, mapped) = (self.pieces[index].address, self.pieces[index].mapped);
        self.settle_piece(index);
        if mapped && self.dice.below(2) == 0 {
            let (stream, seed) = (self.dice.index(self.streams.len()), self.dice.word());
            let function = self.bench.function(REWRITE);
            let parameters = [address.0, USED_WORDS, 0, seed, 1];
            let code = self.bench.launch_function(function, (2, 64), self.streams[stream], &parameters);
            self.note("rewrite", code);
            self.pieces[index].home = Some(stream);
            return;
        }
        let mut bytes = vec![0; (USED_WORDS * 8) as usize];
        let code = self.cu().cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, bytes.len());
        if self.note("cuMemcpyDtoH", code) {
            self.saw(&bytes);
        }
    }
}
