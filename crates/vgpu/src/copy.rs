//! Copies of all kinds: lines, rows and layers of bytes, between host and device in any direction.

use std::ffi::{c_uint, c_void};

use cuda::CUresult;
use cuda::types::*;
use vgpu_messages::Request;
use vgpu_messages::stream::StreamRef;
use vgpu_messages::work::{Copy, Place, Work, WorkRequest};

use crate::argument::{In, Out};
use crate::context::{current, table};
use crate::guard::{Outcome, api, export, stream_api};
use crate::handle;
use crate::session;

/// The longest pitch, as the device's attribute says.
const PITCH_MAX: u64 = i32::MAX as u64;

fn do_copy(copy: Copy, stream: StreamRef, blocking: bool) -> Outcome {
    let context = current::id()?;
    if copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0 {
        return Ok(());
    }
    if [copy.source, copy.target].contains(&Place::Host(0)) {
        return Err(CUresult::INVALID_VALUE);
    }
    session::tell(Request::Work(WorkRequest { context, stream, work: Work::Copy(copy), blocking }))
}

fn line(source: Place, target: Place, bytes: usize) -> Copy {
    Copy::line(source, target, bytes as u64)
}

/// Where one side of a copy begins: the kind of memory, its addresses and the offset into it.
fn place(kind: u32, host: u64, device: u64, offset: u64) -> Result<Place, CUresult> {
    let at = |base: u64| base.checked_add(offset).ok_or(CUresult::INVALID_VALUE);
    match kind {
        CU_MEMORYTYPE_HOST => Ok(Place::Host(at(host)?)),
        CU_MEMORYTYPE_DEVICE => Ok(Place::Device(at(device)?)),
        CU_MEMORYTYPE_UNIFIED => Ok(Place::Either(at(device)?)),
        CU_MEMORYTYPE_ARRAY => Err(CUresult::NOT_SUPPORTED),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn offset(x: u64, rows: u64, pitch: u64) -> Result<u64, CUresult> {
    rows.checked_mul(pitch).and_then(|start| start.checked_add(x)).ok_or(CUresult::INVALID_VALUE)
}

/// Pitch 0 means rows without gaps.
fn pitch(given: u64, x: u64, width: u64) -> Result<u64, CUresult> {
    let row = x.checked_add(width).ok_or(CUresult::INVALID_VALUE)?;
    match given {
        0 => Ok(row),
        given if given < row || given > PITCH_MAX => Err(CUresult::INVALID_VALUE),
        given => Ok(given),
    }
}

fn rows(copy: In<CUDA_MEMCPY2D>) -> Result<Copy, CUresult> {
    let CUDA_MEMCPY2D { source, target, width_bytes, height } = copy.get()?;
    let side = |side: Side2D| -> Result<(Place, u64), CUresult> {
        let pitch = pitch(side.pitch, side.x_bytes, width_bytes)?;
        let place = place(side.kind, side.host, side.device, offset(side.x_bytes, side.y, pitch)?)?;
        Ok((place, pitch))
    };
    let (source, source_pitch) = side(source)?;
    let (target, target_pitch) = side(target)?;
    let (source_slice, target_slice) = (0, 0);
    Ok(Copy {
        source,
        target,
        width_bytes,
        height,
        depth: 1,
        source_pitch,
        source_slice,
        target_pitch,
        target_slice,
    })
}

/// Layers of rows.
pub(crate) fn layers(copy: &CUDA_MEMCPY3D) -> Result<Copy, CUresult> {
    let CUDA_MEMCPY3D { source, target, width_bytes, height, depth } = *copy;
    let side = |side: Side3D| -> Result<(Place, u64, u64), CUresult> {
        if side.level != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let pitch = pitch(side.pitch, side.x_bytes, width_bytes)?;
        let rows = match side.height {
            0 => side.y.checked_add(height).ok_or(CUresult::INVALID_VALUE)?,
            rows if depth > 1 && rows < side.y + height => return Err(CUresult::INVALID_VALUE),
            rows => rows,
        };
        let slice = pitch.checked_mul(rows).ok_or(CUresult::INVALID_VALUE)?;
        let start = offset(offset(side.x_bytes, side.y, pitch)?, side.z, slice)?;
        Ok((place(side.kind, side.host, side.device, start)?, pitch, slice))
    };
    let (source, source_pitch, source_slice) = side(source)?;
    let (target, target_pitch, target_slice) = side(target)?;
    Ok(Copy {
        source,
        target,
        width_bytes,
        height,
        depth,
        source_pitch,
        source_slice,
        target_pitch,
        target_slice,
    })
}

/// Whether the function without `Async` waits: it does where the host takes part.
fn waits(copy: &Copy) -> bool {
    !matches!((copy.source, copy.target), (Place::Device(_), Place::Device(_)))
}

fn check_peers(one: CUcontext, other: CUcontext) -> Outcome {
    current::id()?;
    // Unified addresses say themselves where they are: a context that is not named is not missed.
    for context in [one, other].into_iter().filter(|context| !context.is_null()) {
        table::id_of(context)?;
    }
    Ok(())
}

fn host(address: Out<c_void>) -> Place {
    Place::Host(address.address())
}

fn device(address: CUdeviceptr) -> Place {
    Place::Device(address.0)
}

fn either(address: CUdeviceptr) -> Place {
    Place::Either(address.0)
}

fn batch(
    targets: In<CUdeviceptr>,
    sources: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    failed: Out<usize>,
    stream: CUstream,
    default: StreamRef,
) -> Outcome {
    current::id()?;
    if stream.is_null() || count == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let stream = handle::stream(stream, default)?;
    let (targets, sources, sizes) = (targets.list(count)?, sources.list(count)?, sizes.list(count)?);
    for (index, ((target, source), bytes)) in targets.into_iter().zip(sources).zip(sizes).enumerate() {
        do_copy(line(either(source), either(target), bytes), stream, false)
            .inspect_err(|_| failed.offer(index))?;
    }
    Ok(())
}

stream_api! {
    |default| cuMemcpy / cuMemcpy_ptds(target: CUdeviceptr, source: CUdeviceptr, bytes: usize) {
        do_copy(line(either(source), either(target), bytes), default, true)
    }

    |default| cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(target: CUdeviceptr, source: Out<c_void>, bytes: usize) {
        do_copy(line(host(source), device(target), bytes), default, true)
    }

    |default| cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(target: Out<c_void>, source: CUdeviceptr, bytes: usize) {
        do_copy(line(device(source), host(target), bytes), default, true)
    }

    |default| cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(target: CUdeviceptr, source: CUdeviceptr, bytes: usize) {
        do_copy(line(device(source), device(target), bytes), default, false)
    }

    |default| cuMemcpyPeer / cuMemcpyPeer_ptds(
        target: CUdeviceptr,
        target_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        bytes: usize,
    ) {
        check_peers(source_context, target_context)?;
        do_copy(line(device(source), device(target), bytes), default, false)
    }

    |default| cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(copy: In<CUDA_MEMCPY2D>) {
        current::id()?;
        let copy = rows(copy)?;
        do_copy(copy, default, waits(&copy))
    }

    |default| cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(copy: In<CUDA_MEMCPY2D>) {
        current::id()?;
        let copy = rows(copy)?;
        do_copy(copy, default, waits(&copy))
    }

    |default| cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds(copy: In<CUDA_MEMCPY3D>) {
        current::id()?;
        let copy = layers(&copy.get()?)?;
        do_copy(copy, default, waits(&copy))
    }

    |default| cuMemcpy3DPeer / cuMemcpy3DPeer_ptds(copy: In<CUDA_MEMCPY3D>) {
        let copy = copy.get()?;
        check_peers(copy.source.context, copy.target.context)?;
        let copy = layers(&copy)?;
        do_copy(copy, default, waits(&copy))
    }

    |default| cuMemcpyAsync / cuMemcpyAsync_ptsz(
        target: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) {
        current::id()?;
        do_copy(line(either(source), either(target), bytes), handle::stream(stream, default)?, false)
    }

    |default| cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(
        target: CUdeviceptr,
        source: Out<c_void>,
        bytes: usize,
        stream: CUstream,
    ) {
        current::id()?;
        do_copy(line(host(source), device(target), bytes), handle::stream(stream, default)?, false)
    }

    |default| cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(
        target: Out<c_void>,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) {
        current::id()?;
        do_copy(line(device(source), host(target), bytes), handle::stream(stream, default)?, false)
    }

    |default| cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(
        target: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) {
        current::id()?;
        do_copy(line(device(source), device(target), bytes), handle::stream(stream, default)?, false)
    }

    |default| cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        target: CUdeviceptr,
        target_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) {
        check_peers(source_context, target_context)?;
        do_copy(line(device(source), device(target), bytes), handle::stream(stream, default)?, false)
    }

    |default| cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(copy: In<CUDA_MEMCPY2D>, stream: CUstream) {
        current::id()?;
        let stream = handle::stream(stream, default)?;
        do_copy(rows(copy)?, stream, false)
    }

    |default| cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz(copy: In<CUDA_MEMCPY3D>, stream: CUstream) {
        current::id()?;
        let stream = handle::stream(stream, default)?;
        do_copy(layers(&copy.get()?)?, stream, false)
    }

    |default| cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz(copy: In<CUDA_MEMCPY3D>, stream: CUstream) {
        let copy = copy.get()?;
        check_peers(copy.source.context, copy.target.context)?;
        do_copy(layers(&copy)?, handle::stream(stream, default)?, false)
    }

    |default| cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz(
        targets: In<CUdeviceptr>,
        sources: In<CUdeviceptr>,
        sizes: In<usize>,
        count: usize,
        _attributes: In<u8>,
        _attribute_indices: In<usize>,
        _attribute_count: usize,
        failed: Out<usize>,
        stream: CUstream,
    ) {
        batch(targets, sources, sizes, count, failed, stream, default)
    }
}

api! {
    cuFlushGPUDirectRDMAWrites(_target: c_uint, _scope: c_uint) {
        // Nobody writes past the device here.
        current::id().map(drop)
    }
}

// Without the place for the index that failed.
macro_rules! batch_v2 {
    ($($symbol:ident $default:ident;)*) => {$(
        export!($symbol(
            targets: In<CUdeviceptr>,
            sources: In<CUdeviceptr>,
            sizes: In<usize>,
            count: usize,
            _attributes: In<u8>,
            _attribute_indices: In<usize>,
            _attribute_count: usize,
            stream: CUstream,
        ) {
            let mut failed = 0_usize;
            batch(targets, sources, sizes, count, Out::to(&mut failed), stream, StreamRef::$default)
        });
    )*};
}

batch_v2! {
    cuMemcpyBatchAsync_v2 Legacy;
    cuMemcpyBatchAsync_v2_ptsz PerThread;
}
