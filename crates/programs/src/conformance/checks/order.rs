//! What waits for what: default streams, other streams, events, and calls that wait by themselves.

use std::time::{Duration, Instant};

use cuda::CUresult;
use cuda::types::{
    CU_EVENT_DISABLE_TIMING, CU_STREAM_LEGACY, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, CUdeviceptr,
    CUstream,
};

use super::{Check, check};
use crate::bench::Bench;
use crate::bench::gate::Gate;
use crate::kernels::{
    ADD, CHECKSUM, Checksum, FILL, INCREMENT, PEER_CAME, REWRITE, WAIT_FOR_PEER, rewritten,
};

/// Long against anything that is not a mistake.
const PATIENCE_NS: u64 = 20_000_000_000;

/// What is expected of work behind a gate in another stream.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Expected {
    Waits,
    GoesOn,
}

/// How long work is watched that should wait: longer than it would take if it did not.
const WATCH: Duration = Duration::from_millis(100);
/// How long work is waited for that should go on: shorter than a gate holds.
const GO_ON_TIME_MAX: Duration = Duration::from_secs(5);

/// Closes `first`, puts work into `second`, and records whether that waits for the gate, and what it left behind.
fn behind(b: &Bench, first: CUstream, second: CUstream, expected: Expected) {
    let memory = b.alloc_with(&[0; 8]);
    b.function(FILL);
    let event = b.event(CU_EVENT_DISABLE_TIMING);
    let gate = Gate::close(b, first);
    b.run(FILL, second, &[memory.0, 1, 9]);
    b.expect("record", b.cu.cuEventRecord(event, second));
    let (began, patience) =
        (Instant::now(), if expected == Expected::Waits { WATCH } else { GO_ON_TIME_MAX });
    let mut code = b.cu.cuEventQuery(event);
    while code == CUresult::NOT_READY && began.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(1));
        code = b.cu.cuEventQuery(event);
    }
    b.code(code);
    gate.open();
    b.code(b.cu.cuEventSynchronize(event));
    b.value("word", b.read_words(memory, 1)[0]);
    drop(gate);
    b.end_event(event);
    b.free(memory);
}

pub(super) const CHECKS: &[Check] = &[
    check("default waits for a stream", "NOT_READY ok word=9", |b| {
        let stream = b.stream(0);
        behind(b, stream, CUstream::NULL, Expected::Waits);
        b.end_stream(stream);
    }),
    check("a stream waits for default", "NOT_READY ok word=9", |b| {
        let stream = b.stream(0);
        behind(b, CUstream::NULL, stream, Expected::Waits);
        b.end_stream(stream);
    }),
    check("default does not wait for a non-blocking stream", "ok ok word=9", |b| {
        let stream = b.stream(CU_STREAM_NON_BLOCKING);
        behind(b, stream, CUstream::NULL, Expected::GoesOn);
        b.end_stream(stream);
    }),
    check("a non-blocking stream does not wait for default", "ok ok word=9", |b| {
        let stream = b.stream(CU_STREAM_NON_BLOCKING);
        behind(b, CUstream::NULL, stream, Expected::GoesOn);
        b.end_stream(stream);
    }),
    check("streams do not wait for each other", "ok ok word=9", |b| {
        let (one, two) = (b.stream(0), b.stream(0));
        behind(b, one, two, Expected::GoesOn);
        b.end_stream(one);
        b.end_stream(two);
    }),
    check("streams wait across default work", "NOT_READY ok word=9", |b| {
        let (one, two, memory) = (b.stream(0), b.stream(0), b.alloc(8));
        b.function(FILL);
        let event = b.event(CU_EVENT_DISABLE_TIMING);
        let gate = Gate::close(b, one);
        b.run(FILL, CUstream::NULL, &[memory.0, 1, 8]);
        b.run(FILL, two, &[memory.0, 1, 9]);
        b.expect("record", b.cu.cuEventRecord(event, two));
        std::thread::sleep(Duration::from_millis(50));
        b.code(b.cu.cuEventQuery(event));
        gate.open();
        b.code(b.cu.cuEventSynchronize(event));
        b.value("word", b.read_words(memory, 1)[0]);
        drop(gate);
        b.end_event(event);
        b.end_stream(one);
        b.end_stream(two);
        b.free(memory);
    }),
    check("the thread's stream waits for default", "NOT_READY ok word=9", |b| {
        behind(b, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, Expected::Waits);
    }),
    check("default waits for the thread's stream", "NOT_READY ok word=9", |b| {
        behind(b, CU_STREAM_PER_THREAD, CU_STREAM_LEGACY, Expected::Waits);
    }),
    check("the thread's stream and another", "ok ok word=9", |b| {
        let stream = b.stream(0);
        behind(b, stream, CU_STREAM_PER_THREAD, Expected::GoesOn);
        b.end_stream(stream);
    }),
    check("a stream waits for an event", "NOT_READY ok word=4", |b| {
        let (one, two) = (b.stream(CU_STREAM_NON_BLOCKING), b.stream(CU_STREAM_NON_BLOCKING));
        let (memory, event) = (b.alloc_with(&[0; 8]), b.event(CU_EVENT_DISABLE_TIMING));
        b.function(FILL);
        let gate = Gate::close(b, one);
        b.run(FILL, one, &[memory.0, 1, 3]);
        b.expect("record", b.cu.cuEventRecord(event, one));
        b.expect("wait", b.cu.cuStreamWaitEvent(two, event, 0));
        b.run(FILL, two, &[memory.0, 1, 4]);
        std::thread::sleep(Duration::from_millis(50));
        b.code(b.cu.cuStreamQuery(two));
        gate.open();
        b.code(b.cu.cuStreamSynchronize(two));
        b.value("word", b.read_words(memory, 1)[0]);
        drop(gate);
        b.end_event(event);
        b.end_stream(one);
        b.end_stream(two);
        b.free(memory);
    }),
    check("a wait is for what was recorded then", "ok ok", |b| {
        let (one, two) = (b.stream(CU_STREAM_NON_BLOCKING), b.stream(CU_STREAM_NON_BLOCKING));
        let event = b.event(CU_EVENT_DISABLE_TIMING);
        b.expect("record", b.cu.cuEventRecord(event, one));
        b.expect("wait", b.cu.cuStreamWaitEvent(two, event, 0));
        let gate = Gate::close(b, one);
        b.expect("record", b.cu.cuEventRecord(event, one));
        b.code(b.cu.cuStreamSynchronize(two));
        gate.open();
        b.code(b.cu.cuStreamSynchronize(one));
        drop(gate);
        b.end_event(event);
        b.end_stream(one);
        b.end_stream(two);
    }),
    check("a wait outlives its event", "ok NOT_READY ok", |b| {
        let (one, two) = (b.stream(CU_STREAM_NON_BLOCKING), b.stream(CU_STREAM_NON_BLOCKING));
        let event = b.event(CU_EVENT_DISABLE_TIMING);
        let gate = Gate::close(b, one);
        b.expect("record", b.cu.cuEventRecord(event, one));
        b.expect("wait", b.cu.cuStreamWaitEvent(two, event, 0));
        b.code(b.cu.cuEventDestroy_v2(event));
        b.code(b.cu.cuStreamQuery(two));
        gate.open();
        b.code(b.cu.cuStreamSynchronize(two));
        drop(gate);
        b.end_stream(one);
        b.end_stream(two);
    }),
    check("an event that was never recorded holds nobody", "ok ok", |b| {
        let (stream, event) = (b.stream(0), b.event(0));
        b.code(b.cu.cuStreamWaitEvent(stream, event, 0));
        b.code(b.cu.cuStreamQuery(stream));
        b.end_event(event);
        b.end_stream(stream);
    }),
    check("two kernels run together", "outcome=1", |b| {
        let (one, two) = (b.stream(CU_STREAM_NON_BLOCKING), b.stream(CU_STREAM_NON_BLOCKING));
        let memory = b.alloc_with(&[0; 16]);
        b.function(FILL);
        b.run(WAIT_FOR_PEER, one, &[memory.0, 5, PATIENCE_NS, memory.0 + 8]);
        b.run(FILL, two, &[memory.0, 1, 5]);
        b.synchronize();
        let outcome = b.read_words(memory, 2)[1];
        b.value("outcome", if outcome == PEER_CAME { 1 } else { outcome });
        b.end_stream(one);
        b.end_stream(two);
        b.free(memory);
    }),
    check("a copy runs beside a kernel", "ok NOT_READY right=true", |b| {
        let (one, two) = (b.stream(CU_STREAM_NON_BLOCKING), b.stream(CU_STREAM_NON_BLOCKING));
        let (from, memory) = (b.pinned(1 << 20), b.alloc(1 << 20));
        from.fill(7);
        let gate = Gate::close(b, one);
        b.expect("copy", b.cu.cuMemcpyHtoDAsync_v2(memory, from.as_ptr().cast(), from.len(), two));
        b.code(b.cu.cuStreamSynchronize(two));
        b.code(b.cu.cuStreamQuery(one));
        drop(gate);
        b.value("right", b.read(memory, 1 << 20) == *from);
        b.free(memory);
        b.end_pinned(from);
        b.end_stream(one);
        b.end_stream(two);
    }),
    check("a copy waits for the kernel before it", "word=77", |b| {
        let (memory, heart) = (b.alloc_with(&[0; 8]), b.pinned(8));
        b.run(INCREMENT, CUstream::NULL, &[memory.0, 1, 77, heart.as_ptr().expose_provenance() as u64]);
        b.value("word", b.read_words(memory, 1)[0]);
        b.free(memory);
        b.end_pinned(heart);
    }),
    check("one stream keeps its order", "right=true", |b| {
        let (stream, count) = (b.stream(CU_STREAM_NON_BLOCKING), 10_000_u64);
        let [one, two] = [b.alloc(80_000), b.alloc(80_000)];
        for step in 1..=20 {
            b.run(REWRITE, stream, &[one.0, count, 0, 7, step]);
            b.expect("copy", b.cu.cuMemcpyDtoDAsync_v2(two, one, 80_000, stream));
            b.expect("set", b.cu.cuMemsetD8Async(one, 0xAB, 80_000, stream));
            b.run(ADD, stream, &[one.0, one.0, two.0, count]);
        }
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        let set = 0xABAB_ABAB_ABAB_ABAB_u64;
        let expected: Vec<u64> = (0..count).map(|i| set.wrapping_add(rewritten(0, 7, 20, i))).collect();
        b.value("right", b.read_words(one, 10_000) == expected);
        b.free(one);
        b.free(two);
        b.end_stream(stream);
    }),
    check("eight streams join", "right=true", |b| {
        let (memory, sums, count) = (b.alloc(8 * 8000), b.alloc_with(&[0; 16]), 1000_u64);
        let streams: Vec<CUstream> = (0..8).map(|_| b.stream(CU_STREAM_NON_BLOCKING)).collect();
        let last = b.stream(CU_STREAM_NON_BLOCKING);
        for (stream, index) in streams.iter().zip(0..) {
            let part = CUdeviceptr(memory.0 + index * 8000);
            b.run(REWRITE, *stream, &[part.0, count, index * count, 3, 1]);
            let event = b.event(CU_EVENT_DISABLE_TIMING);
            b.expect("record", b.cu.cuEventRecord(event, *stream));
            b.expect("wait", b.cu.cuStreamWaitEvent(last, event, 0));
            b.end_event(event);
        }
        b.run(CHECKSUM, last, &[memory.0, 8 * count, sums.0]);
        b.expect("synchronize", b.cu.cuStreamSynchronize(last));
        let found = b.read_words(sums, 2);
        let expected = Checksum::of_rewritten(8 * count, 0, 3, 1);
        b.value("right", found == [expected.plain, expected.mixed]);
        for stream in streams {
            b.end_stream(stream);
        }
        b.end_stream(last);
        b.free(memory);
        b.free(sums);
    }),
];
