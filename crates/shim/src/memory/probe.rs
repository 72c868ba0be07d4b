//! What the native driver would say to an allocation or a free, without making one of the same size.
//!
//! Outside of stream captures the cheapest calls that check the context do: an allocation looks at the default stream, which
//! tells errors that stay and contexts that are gone, and a free waits for the context, as the native one does. During a
//! capture the native calls have rules of their own, and waiting for the context would end the capture. So then a byte
//! of the driver's own is allocated, or freed, and its answer is the program's.

use std::sync::Mutex;

use cuda::CUresult;
use cuda::types::{CUcontext, CUdeviceptr, CUstream};

use super::{captures, native, physical};
use crate::demand::Inside;
use crate::guard::lock;
use crate::session::Session;

/// Bytes that were allocated to ask and wait for a free that asks, each with its context. An allocation must not wait for the
/// device, as freeing one does.
static BYTES: Mutex<Vec<(CUcontext, CUdeviceptr)>> = Mutex::new(Vec::new());
const BYTES_MAX: usize = 64;

/// Whether the driver would allocate in the current context now.
pub(crate) fn may_allocate(session: &Session, context: CUcontext) -> CUresult {
    // SAFETY: the default stream is always there.
    let asked = captures::unless_any(|| unsafe { (session.driver.cuStreamQuery)(CUstream::NULL) });
    if matches!(asked, Some(CUresult::SUCCESS | CUresult::NOT_READY)) {
        return CUresult::SUCCESS;
    }
    let mut byte = CUdeviceptr(0);
    // SAFETY: the driver writes one address.
    match unsafe { native::cuMemAlloc_v2(&mut byte, 1) } {
        CUresult::SUCCESS => keep(context, byte),
        // Not for this byte, but perhaps in memory that is there.
        CUresult::OUT_OF_MEMORY => {}
        other => return other,
    }
    CUresult::SUCCESS
}

/// Keeps memory of the driver's own for the next free that asks.
pub(super) fn keep(context: CUcontext, byte: CUdeviceptr) {
    let mut bytes = lock(&BYTES);
    if bytes.len() < BYTES_MAX {
        bytes.push((context, byte));
        return;
    }
    drop(bytes);
    // SAFETY: nobody else has it.
    let _ = unsafe { native::cuMemFree_v2(byte) };
}

/// Waits for the device as the driver's own `cuMemFree` does. The calling thread must hold no lock.
pub(crate) fn wait(session: &Session, context: CUcontext) -> CUresult {
    if context.is_null() {
        return CUresult::SUCCESS;
    }
    // A program that is frozen must have turns for it.
    let _inside = Inside::enter();
    physical::within(session.driver, context, || {
        if !captures::any_green() {
            // SAFETY: no conditions.
            let waited = captures::unless_any(|| unsafe { (session.driver.cuCtxSynchronize)() });
            // A capture that began just now is spoilt, but the program need not see it here too.
            if let Some(waited) = waited.filter(|waited| !is_capture(*waited)) {
                return waited;
            }
        }
        free_a_byte(session, context)
    })
}

fn free_a_byte(session: &Session, context: CUcontext) -> CUresult {
    let kept = {
        let mut bytes = lock(&BYTES);
        let found = bytes.iter().position(|(owner, _)| *owner == context);
        found.map(|index| bytes.swap_remove(index).1)
    };
    let byte = match kept {
        Some(byte) => byte,
        None => {
            let mut byte = CUdeviceptr(0);
            // SAFETY: the driver writes one address.
            match unsafe { native::cuMemAlloc_v2(&mut byte, 1) } {
                CUresult::SUCCESS => byte,
                // Not a byte is left on the device: the next best thing.
                // SAFETY: no conditions.
                CUresult::OUT_OF_MEMORY => return unsafe { (session.driver.cuCtxSynchronize)() },
                other => return other,
            }
        }
    };
    // SAFETY: only this thread has it.
    let freed = unsafe { native::cuMemFree_v2(byte) };
    if is_capture(freed) {
        keep(context, byte);
    }
    freed
}

/// A context is gone, and its memory with it.
pub(super) fn forget(context: CUcontext) {
    lock(&BYTES).retain(|(owner, _)| *owner != context);
}

/// Whether a call failed because of a stream capture.
pub(crate) fn is_capture(result: CUresult) -> bool {
    let first = CUresult::STREAM_CAPTURE_UNSUPPORTED.0;
    let last = CUresult::STREAM_CAPTURE_WRONG_THREAD.0;
    (first..=last).contains(&result.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_errors_are_told_from_others() {
        assert!(is_capture(CUresult(900)) && is_capture(CUresult(906)) && is_capture(CUresult(908)));
        for other in [CUresult::SUCCESS, CUresult::LAUNCH_FAILED, CUresult::TIMEOUT, CUresult::UNKNOWN] {
            assert!(!is_capture(other), "{other}");
        }
    }
}
