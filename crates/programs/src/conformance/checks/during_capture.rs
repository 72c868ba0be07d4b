//! What a capture forbids while it goes on, by its mode.

use cuda::CUresult;
use cuda::types::{
    CU_EVENT_DISABLE_TIMING, CU_STREAM_NON_BLOCKING, CUdeviceptr, CUevent, CUgraph, CUstream,
    CUstreamCaptureMode as Mode,
};

use super::capture::{begin, finish};
use super::graphs::{end, instantiate};
use super::{Check, check};
use crate::bench::Bench;
use crate::kernels::FILL;

/// Tries a call in the middle of a capture, and records its code and that of the capture's end.
fn during(b: &Bench, mode: Mode, call: impl FnOnce(CUstream) -> CUresult) {
    let stream = b.stream(CU_STREAM_NON_BLOCKING);
    begin(b, stream, mode);
    b.code(call(stream));
    let graph = finish(b, stream);
    if graph != CUgraph::NULL {
        b.expect("graph-destroy", b.cu.cuGraphDestroy(graph));
    }
    b.end_stream(stream);
}

pub(super) const CHECKS: &[Check] = &[
    check("synchronise the stream", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED", |b| {
        during(b, Mode::RELAXED, |stream| b.cu.cuStreamSynchronize(stream));
    }),
    check("query the stream", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED", |b| {
        during(b, Mode::RELAXED, |stream| b.cu.cuStreamQuery(stream));
    }),
    check("synchronise the context", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED", |b| {
        during(b, Mode::GLOBAL, |_| b.cu.cuCtxSynchronize());
    }),
    // Even a relaxed capture forbids waiting for its own stream.
    check("synchronise the context, relaxed", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED", |b| {
        during(b, Mode::RELAXED, |_| b.cu.cuCtxSynchronize());
    }),
    check("allocate", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED", |b| {
        during(b, Mode::GLOBAL, |_| b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
    }),
    check("allocate, thread local", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED", |b| {
        during(b, Mode::THREAD_LOCAL, |_| b.cu.cuMemAlloc_v2(&mut CUdeviceptr(0), 64));
    }),
    check("allocate, relaxed", "ok ok", |b| {
        let mut memory = CUdeviceptr(0);
        during(b, Mode::RELAXED, |_| b.cu.cuMemAlloc_v2(&mut memory, 64));
        b.free(memory);
    }),
    check("allocate in another thread", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED ok ok", |b| {
        let (cu, context) = (b.cu, b.context);
        let elsewhere = move || {
            let thread = std::thread::spawn(move || {
                let mut memory = CUdeviceptr(0);
                let _ = cu.cuCtxSetCurrent(context);
                let code = cu.cuMemAlloc_v2(&mut memory, 64);
                let _ = cu.cuMemFree_v2(memory);
                code
            });
            thread.join().unwrap_or(CUresult::UNKNOWN)
        };
        during(b, Mode::GLOBAL, |_| elsewhere());
        during(b, Mode::THREAD_LOCAL, |_| elsewhere());
    }),
    check("free", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED", |b| {
        let memory = b.alloc(64);
        during(b, Mode::GLOBAL, |_| b.cu.cuMemFree_v2(memory));
        let _ = b.cu.cuMemFree_v2(memory);
    }),
    check("copy at once", "ok ok", |b| {
        let (memory, bytes) = (b.alloc(64), [0_u8; 8]);
        during(b, Mode::GLOBAL, |_| b.cu.cuMemcpyHtoD_v2(memory, bytes.as_ptr().cast(), 8));
        b.free(memory);
    }),
    check("map memory", "ok ok", |b| {
        during(b, Mode::GLOBAL, |_| {
            let mut address = CUdeviceptr(0);
            let code = b.cu.cuMemAddressReserve(&mut address, 2 << 20, 0, CUdeviceptr(0), 0);
            let _ = b.cu.cuMemAddressFree(address, 2 << 20);
            code
        });
    }),
    check("ask about memory", "ok ok ok ok", |b| {
        let memory = b.alloc(64);
        during(b, Mode::GLOBAL, |_| b.cu.cuMemGetInfo_v2(&mut 0, &mut 0));
        during(b, Mode::GLOBAL, |_| b.cu.cuMemGetAddressRange_v2(&mut CUdeviceptr(0), &mut 0, memory));
        b.free(memory);
    }),
    check("make a stream and an event", "ok ok ok ok", |b| {
        let mut stream = CUstream::NULL;
        during(b, Mode::GLOBAL, |_| b.cu.cuStreamCreate(&mut stream, 0));
        let _ = b.cu.cuStreamDestroy_v2(stream);
        let mut event = CUevent::NULL;
        during(b, Mode::GLOBAL, |_| b.cu.cuEventCreate(&mut event, 0));
        let _ = b.cu.cuEventDestroy_v2(event);
    }),
    check("work in the default stream", "STREAM_CAPTURE_IMPLICIT STREAM_CAPTURE_INVALIDATED", |b| {
        let (memory, stream) = (b.alloc(64), b.stream(0));
        b.function(FILL);
        begin(b, stream, Mode::GLOBAL);
        b.code(b.launch(FILL, CUstream::NULL, &[memory.0, 1, 1]));
        let graph = finish(b, stream);
        if graph != CUgraph::NULL {
            b.expect("graph-destroy", b.cu.cuGraphDestroy(graph));
        }
        b.end_stream(stream);
        b.free(memory);
    }),
    check("work in the default stream beside a non-blocking one", "ok ok", |b| {
        let memory = b.alloc(64);
        b.function(FILL);
        during(b, Mode::GLOBAL, |_| b.launch(FILL, CUstream::NULL, &[memory.0, 1, 1]));
        b.free(memory);
    }),
    check("an event of a capture", "CAPTURED_EVENT STREAM_CAPTURE_INVALIDATED", |b| {
        let event = b.event(CU_EVENT_DISABLE_TIMING);
        during(b, Mode::RELAXED, |stream| {
            b.expect("record", b.cu.cuEventRecord(event, stream));
            b.cu.cuEventQuery(event)
        });
        b.end_event(event);
    }),
    check("an event from outside", "STREAM_CAPTURE_ISOLATION STREAM_CAPTURE_INVALIDATED", |b| {
        let (event, other) = (b.event(CU_EVENT_DISABLE_TIMING), b.stream(CU_STREAM_NON_BLOCKING));
        b.expect("record", b.cu.cuEventRecord(event, other));
        during(b, Mode::RELAXED, |stream| b.cu.cuStreamWaitEvent(stream, event, 0));
        b.end_event(event);
        b.end_stream(other);
    }),
    // The manual has this become a child graph; the driver refuses.
    check("a graph in a capture", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED", |b| {
        let (memory, stream) = (b.alloc(8), b.stream(CU_STREAM_NON_BLOCKING));
        b.function(FILL);
        begin(b, stream, Mode::RELAXED);
        b.run(FILL, stream, &[memory.0, 1, 4]);
        let mut graph = CUgraph::NULL;
        b.expect("end", b.cu.cuStreamEndCapture(stream, &mut graph));
        let exec = instantiate(b, graph);
        during(b, Mode::RELAXED, |stream| b.cu.cuGraphLaunch(exec, stream));
        end(b, graph, exec);
        b.end_stream(stream);
        b.free(memory);
    }),
    check("a relaxed thread may allocate", "ok ok", |b| {
        let mut memory = CUdeviceptr(0);
        during(b, Mode::GLOBAL, |_| {
            let mut mode = Mode::RELAXED;
            b.expect("relax", b.cu.cuThreadExchangeStreamCaptureMode(&mut mode));
            let code = b.cu.cuMemAlloc_v2(&mut memory, 64);
            b.expect("back", b.cu.cuThreadExchangeStreamCaptureMode(&mut mode));
            code
        });
        b.free(memory);
    }),
];
