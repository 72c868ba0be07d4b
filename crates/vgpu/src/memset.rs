//! Setting memory, in elements of one, two or four bytes, in lines and rows.

use std::ffi::{c_uchar, c_uint, c_ushort};

use cuda::CUresult;
use cuda::types::{CUdeviceptr, CUstream};
use vgpu_messages::stream::StreamRef;
use vgpu_messages::work::{Memset, Work, WorkRequest};
use vgpu_messages::{Address, Request};

use crate::context::current;
use crate::guard::{Outcome, export};
use crate::handle;
use crate::session;

fn set(memset: Memset, stream: StreamRef) -> Outcome {
    let context = current::id()?;
    // Nothing is set, so nothing is looked at.
    if memset.width == 0 || memset.height == 0 {
        return Ok(());
    }
    check(&memset)?;
    let work = Work::Memset(memset);
    session::tell(Request::Work(WorkRequest { context, stream, work, blocking: false }))
}

/// Refuses what is not aligned, and rows that overlap.
pub(crate) fn check(memset: &Memset) -> Outcome {
    let element = u64::from(memset.element_bytes);
    let aligned = memset.address.0.is_multiple_of(element)
        && (memset.height <= 1 || memset.pitch.is_multiple_of(element));
    let width = memset.width.checked_mul(element).ok_or(CUresult::INVALID_VALUE)?;
    if !aligned || (memset.height > 1 && memset.pitch < width) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(())
}

macro_rules! lines {
    ($($now:ident $now_own:ident $later:ident $later_own:ident $type:ty;)*) => {$(
        lines!(one $now $type, Legacy);
        lines!(one $now_own $type, PerThread);
        lines!(stream $later $type, Legacy);
        lines!(stream $later_own $type, PerThread);
    )*};
    (one $symbol:ident $type:ty, $default:ident) => {
        export!($symbol(address: CUdeviceptr, value: $type, count: usize) {
            set(line(address, value.into(), size_of::<$type>(), count), StreamRef::$default)
        });
    };
    (stream $symbol:ident $type:ty, $default:ident) => {
        export!($symbol(address: CUdeviceptr, value: $type, count: usize, stream: CUstream) {
            current::id()?;
            let stream = handle::stream(stream, StreamRef::$default)?;
            set(line(address, value.into(), size_of::<$type>(), count), stream)
        });
    };
}

macro_rules! rows {
    ($($now:ident $now_own:ident $later:ident $later_own:ident $type:ty;)*) => {$(
        rows!(one $now $type, Legacy);
        rows!(one $now_own $type, PerThread);
        rows!(stream $later $type, Legacy);
        rows!(stream $later_own $type, PerThread);
    )*};
    (one $symbol:ident $type:ty, $default:ident) => {
        export!($symbol(address: CUdeviceptr, pitch: usize, value: $type, width: usize, height: usize) {
            set(rows(address, pitch, value.into(), size_of::<$type>(), width, height), StreamRef::$default)
        });
    };
    (stream $symbol:ident $type:ty, $default:ident) => {
        export!($symbol(
            address: CUdeviceptr,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
            stream: CUstream,
        ) {
            current::id()?;
            let stream = handle::stream(stream, StreamRef::$default)?;
            set(rows(address, pitch, value.into(), size_of::<$type>(), width, height), stream)
        });
    };
}

fn line(address: CUdeviceptr, value: u32, element_bytes: usize, count: usize) -> Memset {
    rows(address, 0, value, element_bytes, count, 1)
}

fn rows(
    address: CUdeviceptr,
    pitch: usize,
    value: u32,
    element_bytes: usize,
    width: usize,
    height: usize,
) -> Memset {
    Memset {
        address: Address(address.0),
        value,
        element_bytes: element_bytes as u32,
        width: width as u64,
        height: height as u64,
        pitch: pitch as u64,
    }
}

lines! {
    cuMemsetD8_v2 cuMemsetD8_v2_ptds cuMemsetD8Async cuMemsetD8Async_ptsz c_uchar;
    cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD16Async cuMemsetD16Async_ptsz c_ushort;
    cuMemsetD32_v2 cuMemsetD32_v2_ptds cuMemsetD32Async cuMemsetD32Async_ptsz c_uint;
}

rows! {
    cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD2D8Async cuMemsetD2D8Async_ptsz c_uchar;
    cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D16Async cuMemsetD2D16Async_ptsz c_ushort;
    cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds cuMemsetD2D32Async cuMemsetD2D32Async_ptsz c_uint;
}
