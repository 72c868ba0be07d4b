//! A gate in a stream: what comes behind it waits until the host opens it. With it, order can be checked without
//! any assumption about time.

use std::sync::atomic::{AtomicU64, Ordering};

use cuda::types::{CUdeviceptr, CUstream};

use super::Bench;
use crate::kernels;

/// How long a gate holds if nobody opens it: long against any delay, short enough to end a check that went wrong.
const HOLD_NS_MAX: u64 = 10_000_000_000;

/// A gate that is closed until it is opened or dropped.
pub(crate) struct Gate<'a> {
    bench: &'a Bench,
    /// The word the gate's kernel looks at. None once it is given back.
    word: Option<&'static mut [u8]>,
}

impl<'a> Gate<'a> {
    /// Closes a stream by a kernel that waits.
    pub(crate) fn close(bench: &'a Bench, stream: CUstream) -> Gate<'a> {
        // Loaded before: loading may wait for the work that the gate holds back.
        bench.function(kernels::WAIT_FOR_PEER);
        let gate = Gate { bench, word: Some(bench.pinned(8)) };
        let mut address = CUdeviceptr(0);
        let host = gate.host();
        bench.expect("gate-pointer", bench.cu.cuMemHostGetDevicePointer_v2(&mut address, host.cast(), 0));
        bench.run(kernels::WAIT_FOR_PEER, stream, &[address.0, 1, HOLD_NS_MAX, 0]);
        gate
    }

    fn host(&self) -> *mut u8 {
        self.word.as_ref().map_or(std::ptr::null_mut(), |word| word.as_ptr().cast_mut())
    }

    /// Lets the stream go on.
    pub(crate) fn open(&self) {
        let host = self.host();
        if !host.is_null() {
            // SAFETY: eight bytes of pinned memory, aligned to a page, that live until the gate is dropped.
            unsafe { AtomicU64::from_ptr(host.cast()) }.store(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.open();
        // The kernel may still look at the word.
        let _ = self.bench.cu.cuCtxSynchronize();
        if let Some(word) = self.word.take() {
            self.bench.end_pinned(word);
        }
    }
}
