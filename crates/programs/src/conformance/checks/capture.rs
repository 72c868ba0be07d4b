//! Graphs captured from streams: how a capture begins, goes on and ends.

use cuda::CUresult;
use cuda::types::{
    CU_EVENT_DISABLE_TIMING, CU_STREAM_LEGACY, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, CUdeviceptr,
    CUgraph, CUstream, CUstreamCaptureMode as Mode,
};

use super::graphs::{end, instantiate, node_count};
use super::{Check, check};
use crate::bench::Bench;
use crate::bench::words::fresh;
use crate::kernels::{ADD, FILL, INCREMENT};

/// Begins a capture; records it only if it fails.
pub(super) fn begin(b: &Bench, stream: CUstream, mode: Mode) {
    b.expect("begin", b.cu.cuStreamBeginCapture_v2(stream, mode));
}

/// Ends a capture and records its code.
pub(super) fn finish(b: &Bench, stream: CUstream) -> CUgraph {
    let mut graph = CUgraph::NULL;
    b.code(b.cu.cuStreamEndCapture(stream, &mut graph));
    graph
}

/// Ends a capture that is not looked at any more.
fn discard(b: &Bench, stream: CUstream) {
    let mut graph = CUgraph::NULL;
    if b.cu.cuStreamEndCapture(stream, &mut graph) == CUresult::SUCCESS && graph != CUgraph::NULL {
        b.expect("graph-destroy", b.cu.cuGraphDestroy(graph));
    }
}

fn status(b: &Bench, stream: CUstream) -> u32 {
    let mut status = 99;
    b.code(b.cu.cuStreamIsCapturing(stream, &mut status));
    status
}

pub(super) const CHECKS: &[Check] = &[
    check("kernels, copies and memsets", "ok nodes=4 before=0 ok after=141414141414141b", |b| {
        let (memory, stream) = (b.alloc_with(&[0; 32]), b.stream(0));
        b.function(FILL);
        b.function(ADD);
        begin(b, stream, Mode::GLOBAL);
        b.expect("set", b.cu.cuMemsetD8Async(memory, 0x14, 8, stream));
        b.run(FILL, stream, &[memory.0 + 8, 1, 7]);
        b.run(ADD, stream, &[memory.0 + 16, memory.0, memory.0 + 8, 1]);
        b.expect(
            "copy",
            b.cu.cuMemcpyDtoDAsync_v2(CUdeviceptr(memory.0 + 24), CUdeviceptr(memory.0 + 16), 8, stream),
        );
        let graph = finish(b, stream);
        b.value("nodes", node_count(b, graph));
        b.value("before", b.read_words(memory, 4)[3]);
        let exec = instantiate(b, graph);
        b.code(b.cu.cuGraphLaunch(exec, stream));
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.value("after", format!("{:x}", b.read_words(memory, 4)[3]));
        end(b, graph, exec);
        b.end_stream(stream);
        b.free(memory);
    }),
    check("launched many times", "word=300", |b| {
        let (memory, stream) = (b.alloc_with(&[0; 8]), b.stream(CU_STREAM_NON_BLOCKING));
        b.function(INCREMENT);
        begin(b, stream, Mode::GLOBAL);
        for _ in 0..3 {
            b.run(INCREMENT, stream, &[memory.0, 1, 1, 0]);
        }
        let mut graph = CUgraph::NULL;
        b.expect("end", b.cu.cuStreamEndCapture(stream, &mut graph));
        let exec = instantiate(b, graph);
        for _ in 0..100 {
            b.expect("launch", b.cu.cuGraphLaunch(exec, stream));
        }
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.value("word", b.read_words(memory, 1)[0]);
        end(b, graph, exec);
        b.end_stream(stream);
        b.free(memory);
    }),
    check("copies of pinned memory", "ok right=true", |b| {
        let (memory, stream, from, to) = (b.alloc(8), b.stream(0), b.pinned(8), b.pinned(8));
        begin(b, stream, Mode::GLOBAL);
        b.expect("in", b.cu.cuMemcpyHtoDAsync_v2(memory, from.as_ptr().cast(), 8, stream));
        b.expect("out", b.cu.cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), memory, 8, stream));
        let graph = finish(b, stream);
        let exec = instantiate(b, graph);
        let mut right = true;
        for round in 1..=3 {
            from.fill(round);
            b.expect("launch", b.cu.cuGraphLaunch(exec, stream));
            b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
            right &= fresh(to) == [round; 8];
        }
        b.value("right", right);
        end(b, graph, exec);
        b.end_stream(stream);
        b.end_pinned(from);
        b.end_pinned(to);
        b.free(memory);
    }),
    check("status", "ok 0 ok 1 ok 0 ok 0", |b| {
        let stream = b.stream(0);
        b.say(status(b, stream));
        begin(b, stream, Mode::RELAXED);
        b.say(status(b, stream));
        discard(b, stream);
        b.say(status(b, stream));
        b.say(status(b, CUstream::NULL));
        b.end_stream(stream);
    }),
    check("the default stream is asked while another captures", "STREAM_CAPTURE_IMPLICIT ok 0", |b| {
        let stream = b.stream(0);
        begin(b, stream, Mode::GLOBAL);
        let mut status = 99;
        b.code(b.cu.cuStreamIsCapturing(CU_STREAM_LEGACY, &mut status));
        discard(b, stream);
        b.say({
            b.code(b.cu.cuStreamIsCapturing(CU_STREAM_LEGACY, &mut status));
            status
        });
        b.end_stream(stream);
    }),
    check("information", "ok 1 id=true graph=true count=1", |b| {
        let (memory, stream) = (b.alloc(8), b.stream(0));
        let (mut status, mut id, mut graph, mut nodes, mut count) =
            (99, 0, CUgraph::NULL, std::ptr::null(), 99);
        begin(b, stream, Mode::GLOBAL);
        b.expect("set", b.cu.cuMemsetD8Async(memory, 1, 8, stream));
        b.code(b.cu.cuStreamGetCaptureInfo_v2(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            &mut nodes,
            &mut count,
        ));
        b.say(status);
        b.value("id", id != 0);
        b.value("graph", graph != CUgraph::NULL);
        b.value("count", count);
        discard(b, stream);
        b.end_stream(stream);
        b.free(memory);
    }),
    // Refused, and the capture goes on.
    check("begun twice", "ILLEGAL_STATE ok", |b| {
        let stream = b.stream(0);
        begin(b, stream, Mode::GLOBAL);
        b.code(b.cu.cuStreamBeginCapture_v2(stream, Mode::GLOBAL));
        let graph = finish(b, stream);
        if graph != CUgraph::NULL {
            b.expect("graph-destroy", b.cu.cuGraphDestroy(graph));
        }
        b.end_stream(stream);
    }),
    check("ended without a beginning", "ILLEGAL_STATE null=true", |b| {
        let stream = b.stream(0);
        b.value("null", finish(b, stream) == CUgraph::NULL);
        b.end_stream(stream);
    }),
    check("ended in another stream", "ILLEGAL_STATE ok", |b| {
        let (one, two) = (b.stream(0), b.stream(0));
        begin(b, one, Mode::GLOBAL);
        finish(b, two);
        let graph = finish(b, one);
        b.expect("graph-destroy", b.cu.cuGraphDestroy(graph));
        b.end_stream(one);
        b.end_stream(two);
    }),
    // The capture is spoilt for its own stream too.
    check("ended in a stream that joined", "STREAM_CAPTURE_UNMATCHED STREAM_CAPTURE_INVALIDATED", |b| {
        let (one, two, event) = (b.stream(0), b.stream(0), b.event(CU_EVENT_DISABLE_TIMING));
        begin(b, one, Mode::GLOBAL);
        b.expect("record", b.cu.cuEventRecord(event, one));
        b.expect("wait", b.cu.cuStreamWaitEvent(two, event, 0));
        finish(b, two);
        let graph = finish(b, one);
        if graph != CUgraph::NULL {
            b.expect("graph-destroy", b.cu.cuGraphDestroy(graph));
        }
        b.end_event(event);
        b.end_stream(one);
        b.end_stream(two);
    }),
    // Refused, and yet the capture is over.
    check("ended by another thread", "STREAM_CAPTURE_WRONG_THREAD ILLEGAL_STATE", |b| {
        let (cu, context, stream) = (b.cu, b.context, b.stream(0));
        begin(b, stream, Mode::GLOBAL);
        let thread = std::thread::spawn(move || {
            let _ = cu.cuCtxSetCurrent(context);
            cu.cuStreamEndCapture(stream, &mut CUgraph::default())
        });
        b.code(thread.join().unwrap_or(CUresult::UNKNOWN));
        let graph = finish(b, stream);
        if graph != CUgraph::NULL {
            b.expect("graph-destroy", b.cu.cuGraphDestroy(graph));
        }
        b.end_stream(stream);
    }),
    check("the default streams", "STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_UNSUPPORTED ok ok", |b| {
        b.code(b.cu.cuStreamBeginCapture_v2(CUstream::NULL, Mode::GLOBAL));
        b.code(b.cu.cuStreamBeginCapture_v2(CU_STREAM_LEGACY, Mode::GLOBAL));
        b.code(b.cu.cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, Mode::GLOBAL));
        let graph = finish(b, CU_STREAM_PER_THREAD);
        b.expect("graph-destroy", b.cu.cuGraphDestroy(graph));
    }),
    check("a mode that is none", "INVALID_VALUE ok 0", |b| {
        let stream = b.stream(0);
        b.code(b.cu.cuStreamBeginCapture_v2(stream, Mode(9)));
        b.say(status(b, stream));
        b.end_stream(stream);
    }),
    check("fork and join", "ok nodes=3 word=9", |b| {
        let (one, two, memory) = (b.stream(0), b.stream(0), b.alloc(24));
        let (fork, join) = (b.event(CU_EVENT_DISABLE_TIMING), b.event(CU_EVENT_DISABLE_TIMING));
        b.function(FILL);
        b.function(ADD);
        begin(b, one, Mode::GLOBAL);
        b.expect("record", b.cu.cuEventRecord(fork, one));
        b.expect("wait", b.cu.cuStreamWaitEvent(two, fork, 0));
        b.run(FILL, one, &[memory.0, 1, 4]);
        b.run(FILL, two, &[memory.0 + 8, 1, 5]);
        b.expect("record", b.cu.cuEventRecord(join, two));
        b.expect("wait", b.cu.cuStreamWaitEvent(one, join, 0));
        b.run(ADD, one, &[memory.0 + 16, memory.0, memory.0 + 8, 1]);
        let graph = finish(b, one);
        b.value("nodes", node_count(b, graph));
        let exec = instantiate(b, graph);
        b.expect("launch", b.cu.cuGraphLaunch(exec, one));
        b.expect("synchronize", b.cu.cuStreamSynchronize(one));
        b.value("word", b.read_words(memory, 3)[2]);
        end(b, graph, exec);
        for event in [fork, join] {
            b.end_event(event);
        }
        b.end_stream(one);
        b.end_stream(two);
        b.free(memory);
    }),
    check("a fork that is not joined", "STREAM_CAPTURE_UNJOINED null=true", |b| {
        let (one, two, memory, fork) =
            (b.stream(0), b.stream(0), b.alloc(8), b.event(CU_EVENT_DISABLE_TIMING));
        b.function(FILL);
        begin(b, one, Mode::GLOBAL);
        b.expect("record", b.cu.cuEventRecord(fork, one));
        b.expect("wait", b.cu.cuStreamWaitEvent(two, fork, 0));
        b.run(FILL, two, &[memory.0, 1, 5]);
        b.value("null", finish(b, one) == CUgraph::NULL);
        b.end_event(fork);
        b.end_stream(one);
        b.end_stream(two);
        b.free(memory);
    }),
    check("destroy the stream", "ok", |b| {
        let stream = b.stream(0);
        begin(b, stream, Mode::RELAXED);
        b.code(b.cu.cuStreamDestroy_v2(stream));
    }),
    check("modes are exchanged", "ok 0 ok 2", |b| {
        let mut mode = Mode::RELAXED;
        b.code(b.cu.cuThreadExchangeStreamCaptureMode(&mut mode));
        b.say(mode.0);
        b.code(b.cu.cuThreadExchangeStreamCaptureMode(&mut mode));
        b.say(mode.0);
    }),
];
