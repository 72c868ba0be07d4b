//! Managed memory: host memory that kernels reach. It never moves, so advice and prefetching have nothing to do.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};

use cuda::CUresult;
use cuda::types::{CUdevice, CUdeviceptr, CUmemLocation, CUstream};

use super::host;
use crate::argument::Out;
use crate::context::current;
use crate::guard::{api, lock, stream_api};
use crate::handle;
use crate::session;

/// The ranges of this process: start and size.
#[derive(Default)]
pub(crate) struct Managed(BTreeMap<u64, u64>);

/// Frees a range if one begins here; whether it did.
pub(super) fn free(address: u64) -> Result<bool, CUresult> {
    let Some(bytes) = lock(&session::current()?.managed).0.remove(&address) else { return Ok(false) };
    host::free(address, bytes).map(|()| true)
}

/// Whether an address is in one.
pub(super) fn contains(address: u64) -> bool {
    let Ok(session) = session::current() else { return false };
    let managed = lock(&session.managed);
    managed.0.range(..=address).next_back().is_some_and(|(start, bytes)| address - start < *bytes)
}

fn check(address: CUdeviceptr, bytes: usize) -> Result<(), CUresult> {
    let last = (bytes as u64).checked_sub(1).and_then(|more| address.0.checked_add(more));
    match last {
        Some(last) if contains(address.0) && contains(last) => Ok(()),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

api! {
    cuMemAllocManaged(address: Out<CUdeviceptr>, bytes: usize, flags: c_uint) {
        /// Of all streams, or of none until attached.
        const FLAGS: [c_uint; 2] = [1, 2];
        let context = current::id()?;
        address.check()?;
        if bytes == 0 || !FLAGS.contains(&flags) {
            return Err(CUresult::INVALID_VALUE);
        }
        let start = host::allocate(context, bytes, 0)?;
        lock(&session::current()?.managed).0.insert(start, bytes as u64);
        address.set(CUdeviceptr(start))
    }

    cuMemAdvise(address: CUdeviceptr, bytes: usize, _advice: c_uint, _device: CUdevice) {
        session::current()?;
        check(address, bytes)
    }

    cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, _advice: c_uint, _place: CUmemLocation) {
        session::current()?;
        check(address, bytes)
    }
}

stream_api! {
    |default| cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz(
        address: CUdeviceptr,
        bytes: usize,
        _device: CUdevice,
        stream: CUstream,
    ) {
        current::id()?;
        handle::stream(stream, default)?;
        check(address, bytes)
    }

    |default| cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz(
        address: CUdeviceptr,
        bytes: usize,
        _place: CUmemLocation,
        flags: c_uint,
        stream: CUstream,
    ) {
        current::id()?;
        handle::stream(stream, default)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        check(address, bytes)
    }

    |default| cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(
        stream: CUstream,
        address: CUdeviceptr,
        _bytes: usize,
        flags: c_uint,
    ) {
        current::id()?;
        handle::stream(stream, default)?;
        if !matches!(flags as c_int, 1 | 2 | 4) {
            return Err(CUresult::INVALID_VALUE);
        }
        check(address, 1)
    }
}
