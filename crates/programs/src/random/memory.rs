//! Random calls on memory.

use std::ffi::c_void;

use cuda::types::{CU_MEMORYTYPE_DEVICE, CUDA_MEMCPY2D, CUdeviceptr, CUpointer_attribute};

use super::world::{BLOCK_BYTES_MAX, BLOCKS_MAX, Block, World};
use crate::api::Zeroed;
use crate::bench::words::{fresh, pattern};

impl World {
    pub(super) fn allocate(&mut self) {
        if self.blocks.len() >= BLOCKS_MAX {
            return self.free();
        }
        let mut address = CUdeviceptr(0);
        let mut bytes = 1 + self.dice.below(BLOCK_BYTES_MAX);
        let ok = if self.dice.below(8) == 0 {
            let (width, height, mut pitch) =
                (1 + self.dice.below(700) as usize, 1 + self.dice.below(8) as usize, 0);
            let code = self.cu().cuMemAllocPitch_v2(&mut address, &mut pitch, width, height, 8);
            bytes = (pitch * height) as u64;
            self.saw_number(pitch as u64);
            self.note("cuMemAllocPitch", code)
        } else {
            self.note("cuMemAlloc", self.cu().cuMemAlloc_v2(&mut address, bytes as usize))
        };
        if ok {
            self.note("cuMemsetD8", self.cu().cuMemsetD8_v2(address, 0x5A, bytes as usize));
            self.blocks.push(Block { address, bytes, home: Some(0) });
        }
    }

    fn take_block(&mut self) -> Option<Block> {
        let block = self.any_block()?;
        self.settle(block);
        Some(self.blocks.swap_remove(block))
    }

    pub(super) fn free(&mut self) {
        if let Some(block) = self.take_block() {
            self.note("cuMemFree", self.cu().cuMemFree_v2(block.address));
        }
    }

    pub(super) fn free_twice(&mut self) {
        if let Some(block) = self.take_block() {
            self.note("cuMemFree", self.cu().cuMemFree_v2(block.address));
            self.note("cuMemFree", self.cu().cuMemFree_v2(block.address));
        }
    }

    pub(super) fn free_wrongly(&mut self) {
        let address = match self.dice.below(4) {
            0 => CUdeviceptr(0),
            1 => CUdeviceptr(0x1000),
            2 => CUdeviceptr(u64::MAX),
            _ => {
                let Some(block) = self.any_block() else { return };
                CUdeviceptr(self.blocks[block].address.0 + 1)
            }
        };
        self.note("cuMemFree", self.cu().cuMemFree_v2(address));
    }

    pub(super) fn allocate_wrongly(&mut self) {
        let (mut address, mut pitch) = (CUdeviceptr(0), 0);
        let code = match self.dice.below(4) {
            0 => self.cu().cuMemAlloc_v2(&mut address, 0),
            1 => self.cu().cuMemAlloc_v2(&mut address, 1 << 50),
            2 => self.cu().cuMemAllocPitch_v2(&mut address, &mut pitch, 0, 1, 4),
            _ => self.cu().cuMemAllocPitch_v2(&mut address, &mut pitch, 16, 1, 5),
        };
        self.note("cuMemAlloc", code);
    }

    /// A part of a block: where it begins, and how long it is.
    fn part(&mut self, block: usize) -> (CUdeviceptr, usize) {
        let Block { address, bytes, .. } = self.blocks[block];
        let begin = self.dice.below(bytes);
        let count = self.dice.below(bytes - begin + 1);
        (CUdeviceptr(address.0 + begin), count as usize)
    }

    pub(super) fn write(&mut self) {
        let Some(block) = self.any_block() else { return };
        self.settle(block);
        let (to, count) = self.part(block);
        let bytes = pattern(self.dice.word(), count);
        self.note("cuMemcpyHtoD", self.cu().cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), count));
    }

    pub(super) fn read(&mut self) {
        let Some(block) = self.any_block() else { return };
        self.settle(block);
        let (from, count) = self.part(block);
        let mut bytes = vec![0; count];
        self.note("cuMemcpyDtoH", self.cu().cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, count));
        self.saw(&bytes);
    }

    pub(super) fn copy(&mut self) {
        let Some((one, stream)) = self.block_in_stream() else { return };
        let Some(two) = self.any_block() else { return };
        if one == two {
            return;
        }
        self.hand_over(two, stream);
        let (to, room) = self.part(one);
        let (from, count) = self.part(two);
        let code = self.cu().cuMemcpyDtoDAsync_v2(to, from, room.min(count), self.streams[stream]);
        self.note("cuMemcpyDtoDAsync", code);
    }

    pub(super) fn copy_in(&mut self) {
        let Some((block, stream)) = self.block_in_stream() else { return };
        if let Some(home) = self.inbound_home {
            self.wait_for_stream(home);
            // Waiting may have been for this very stream.
            self.blocks[block].home = Some(stream);
        }
        let (to, count) = self.part(block);
        let bytes = pattern(self.dice.word(), count);
        self.inbound[..count].copy_from_slice(&bytes);
        let code =
            self.cu().cuMemcpyHtoDAsync_v2(to, self.inbound.as_ptr().cast(), count, self.streams[stream]);
        self.inbound_home = Some(stream);
        self.note("cuMemcpyHtoDAsync", code);
    }

    pub(super) fn copy_out(&mut self) {
        let Some((block, stream)) = self.block_in_stream() else { return };
        let (from, count) = self.part(block);
        let host = self.outbound.as_mut_ptr().cast::<c_void>();
        self.note(
            "cuMemcpyDtoHAsync",
            self.cu().cuMemcpyDtoHAsync_v2(host, from, count, self.streams[stream]),
        );
        self.wait_for_stream(stream);
        let bytes = fresh(&mut self.outbound[..count]);
        self.saw(&bytes);
    }

    pub(super) fn copy_rows(&mut self) {
        let Some((one, stream)) = self.block_in_stream() else { return };
        let Some(two) = self.any_block() else { return };
        if one == two {
            return;
        }
        self.hand_over(two, stream);
        let room = self.blocks[one].bytes.min(self.blocks[two].bytes) as usize;
        let (pitch, height) = (1 + self.dice.index(200), 1 + self.dice.index(20));
        // Half of them are wider than their pitch allows, or go past the end.
        let width = self.dice.index(pitch + 2);
        if pitch * height > room {
            return;
        }
        let mut copy = CUDA_MEMCPY2D::zeroed();
        (copy.source.kind, copy.source.device, copy.source.pitch) =
            (CU_MEMORYTYPE_DEVICE, self.blocks[two].address.0, pitch as u64);
        (copy.target.kind, copy.target.device, copy.target.pitch) =
            (CU_MEMORYTYPE_DEVICE, self.blocks[one].address.0, pitch as u64);
        (copy.width_bytes, copy.height) = (width as u64, height as u64);
        self.note("cuMemcpy2DAsync", self.cu().cuMemcpy2DAsync_v2(&copy, self.streams[stream]));
    }

    pub(super) fn copy_wrongly(&mut self) {
        let mut byte = 0_u8;
        let (host, strange) = (std::ptr::from_mut(&mut byte).cast::<c_void>(), CUdeviceptr(0x1000));
        let code = match self.dice.below(4) {
            0 => self.cu().cuMemcpyHtoD_v2(strange, host, 1),
            1 => self.cu().cuMemcpyDtoH_v2(host, strange, 1),
            2 => self.cu().cuMemcpyDtoD_v2(strange, strange, 1),
            _ => self.cu().cuMemcpyHtoD_v2(CUdeviceptr(0), host, 1),
        };
        self.note("cuMemcpy", code);
    }

    pub(super) fn set(&mut self) {
        let Some((block, stream)) = self.block_in_stream() else { return };
        let (to, count) = self.part(block);
        let (cu, value, stream) = (self.cu(), self.dice.word(), self.streams[stream]);
        // Two and four bytes at a time: refused where the part begins at an odd address.
        let code = match self.dice.below(3) {
            0 => cu.cuMemsetD8Async(to, value as u8, count, stream),
            1 => cu.cuMemsetD16Async(to, value as u16, count / 2, stream),
            _ => cu.cuMemsetD32Async(to, value as u32, count / 4, stream),
        };
        self.note("cuMemsetAsync", code);
    }

    pub(super) fn set_wrongly(&mut self) {
        let Some(block) = self.any_block() else { return };
        let address = self.blocks[block].address;
        let code = match self.dice.below(4) {
            0 => self.cu().cuMemsetD16_v2(CUdeviceptr(address.0 + 1), 1, 0),
            1 => self.cu().cuMemsetD32_v2(CUdeviceptr(address.0 + 2), 1, 0),
            2 => self.cu().cuMemsetD8_v2(CUdeviceptr(0x1000), 1, 1),
            _ => self.cu().cuMemsetD2D8_v2(address, 1, 1, 2, 2),
        };
        self.note("cuMemset", code);
    }

    pub(super) fn ask_pointer(&mut self) {
        let Some(block) = self.any_block() else { return };
        let Block { address, bytes, .. } = self.blocks[block];
        let inside = CUdeviceptr(address.0 + self.dice.below(bytes));
        let (mut base, mut size, mut kind) = (CUdeviceptr(0), 0, 0_u64);
        self.note("cuMemGetAddressRange", self.cu().cuMemGetAddressRange_v2(&mut base, &mut size, inside));
        self.saw_number(size as u64);
        self.saw_number(u64::from(base == address));
        let value = std::ptr::from_mut(&mut kind).cast();
        let attribute = CUpointer_attribute::MEMORY_TYPE;
        self.note("cuPointerGetAttribute", self.cu().cuPointerGetAttribute(value, attribute, inside));
        self.saw_number(kind);
        self.note(
            "cuPointerGetAttribute",
            self.cu().cuPointerGetAttribute(value, attribute, CUdeviceptr(0x1000)),
        );
    }

    pub(super) fn register(&mut self) {
        let mut pages = vec![0_u8; 3 * 4096];
        let skip = pages.as_ptr().align_offset(4096);
        let host = pages[skip..].as_mut_ptr().cast::<c_void>();
        self.note("cuMemHostRegister", self.cu().cuMemHostRegister_v2(host, 8192, 0));
        if self.dice.below(2) == 0 {
            self.note("cuMemHostRegister", self.cu().cuMemHostRegister_v2(host, 4096, 0));
        }
        self.note("cuMemHostUnregister", self.cu().cuMemHostUnregister(host));
        if self.dice.below(2) == 0 {
            self.note("cuMemHostUnregister", self.cu().cuMemHostUnregister(host));
        }
    }
}
