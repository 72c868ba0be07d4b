//! Streams as objects: made, asked, destroyed; host functions and words in them.

use std::ffi::c_void;
use std::sync::Mutex;

use cuda::CUresult;
use cuda::types::{
    CU_STREAM_LEGACY, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, CUcontext, CUdeviceptr, CUstream,
};

use super::{Check, check};
use crate::bench::gate::Gate;
use crate::bench::words;
use crate::kernels::FILL;

/// What host functions saw, in the order in which they ran.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn see(word: String) {
    SEEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(word);
}

fn seen() -> String {
    let seen = std::mem::take(&mut *SEEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    if seen.is_empty() { "nothing".to_owned() } else { seen.join(",") }
}

/// A host function: its data is a number.
unsafe extern "C" fn note(data: *mut c_void) {
    see(data.addr().to_string());
}

/// A host function that looks at a byte of pinned memory.
unsafe extern "C" fn look(data: *mut c_void) {
    // SAFETY: the checks give a byte of pinned memory that lives until the stream is synchronised.
    see(format!("byte{}", unsafe { data.cast::<u8>().read_volatile() }));
}

/// A stream callback: its data is a number.
unsafe extern "C" fn called(_: CUstream, code: CUresult, data: *mut c_void) {
    see(format!("{}-{}", data.addr(), words::code(code)));
}

fn number(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

pub(super) const CHECKS: &[Check] = &[
    check("make and destroy", "ok null=false ok flags=0 ok", |b| {
        let (mut stream, mut flags) = (CUstream::NULL, 99);
        b.code(b.cu.cuStreamCreate(&mut stream, 0));
        b.value("null", stream.is_null());
        b.code(b.cu.cuStreamGetFlags(stream, &mut flags));
        b.value("flags", flags);
        b.code(b.cu.cuStreamDestroy_v2(stream));
    }),
    check("flags", "ok 1 ok 0 ok 0", |b| {
        let (stream, mut flags) = (b.stream(CU_STREAM_NON_BLOCKING), 99);
        b.code(b.cu.cuStreamGetFlags(stream, &mut flags));
        b.say(flags);
        b.code(b.cu.cuStreamGetFlags(CU_STREAM_LEGACY, &mut flags));
        b.say(flags);
        b.code(b.cu.cuStreamGetFlags(CU_STREAM_PER_THREAD, &mut flags));
        b.say(flags);
        b.end_stream(stream);
    }),
    check("make errors", "INVALID_VALUE INVALID_VALUE", |b| {
        b.code(b.cu.cuStreamCreate(&mut CUstream::default(), 0xFF));
        b.code(b.cu.cuStreamCreate(std::ptr::null_mut(), 0));
    }),
    check("priorities", "ok 0 ok low=true ok clamped=true", |b| {
        let (mut least, mut greatest, mut priority, mut stream) = (0, 0, 9, CUstream::NULL);
        b.expect("range", b.cu.cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
        b.expect("make", b.cu.cuStreamCreate(&mut stream, 0));
        b.code(b.cu.cuStreamGetPriority(stream, &mut priority));
        b.say(priority);
        b.end_stream(stream);
        b.code(b.cu.cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, greatest));
        b.expect("get", b.cu.cuStreamGetPriority(stream, &mut priority));
        b.value("low", priority == greatest);
        b.end_stream(stream);
        b.code(b.cu.cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, -1000));
        b.expect("get", b.cu.cuStreamGetPriority(stream, &mut priority));
        b.value("clamped", priority == greatest);
        b.end_stream(stream);
    }),
    check("its context", "ok same=true ok same=true", |b| {
        let (stream, mut context) = (b.stream(0), CUcontext::NULL);
        b.code(b.cu.cuStreamGetCtx(stream, &mut context));
        b.value("same", context == b.context);
        b.code(b.cu.cuStreamGetCtx(CUstream::NULL, &mut context));
        b.value("same", context == b.context);
        b.end_stream(stream);
    }),
    check("idle ones", "ok ok ok ok ok ok", |b| {
        let stream = b.stream(0);
        b.code(b.cu.cuStreamQuery(stream));
        b.code(b.cu.cuStreamSynchronize(stream));
        b.code(b.cu.cuStreamQuery(CUstream::NULL));
        b.code(b.cu.cuStreamSynchronize(CUstream::NULL));
        b.code(b.cu.cuStreamQuery(CU_STREAM_PER_THREAD));
        b.code(b.cu.cuStreamSynchronize(CU_STREAM_LEGACY));
        b.end_stream(stream);
    }),
    check("a busy one", "NOT_READY ok ok", |b| {
        let stream = b.stream(0);
        let gate = Gate::close(b, stream);
        b.code(b.cu.cuStreamQuery(stream));
        gate.open();
        b.code(b.cu.cuStreamSynchronize(stream));
        b.code(b.cu.cuStreamQuery(stream));
        drop(gate);
        b.end_stream(stream);
    }),
    check("destroy the default one", "INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE", |b| {
        b.code(b.cu.cuStreamDestroy_v2(CUstream::NULL));
        b.code(b.cu.cuStreamDestroy_v2(CU_STREAM_LEGACY));
        b.code(b.cu.cuStreamDestroy_v2(CU_STREAM_PER_THREAD));
    }),
    check("destroyed with work in it", "ok NOT_READY ok word=3", |b| {
        let (memory, stream) = (b.alloc_with(&[0; 8]), b.stream(CU_STREAM_NON_BLOCKING));
        b.function(FILL);
        let event = b.event(2);
        let gate = Gate::close(b, stream);
        b.run(FILL, stream, &[memory.0, 1, 3]);
        b.expect("record", b.cu.cuEventRecord(event, stream));
        b.code(b.cu.cuStreamDestroy_v2(stream));
        b.code(b.cu.cuEventQuery(event));
        gate.open();
        b.code(b.cu.cuEventSynchronize(event));
        b.value("word", b.read_words(memory, 1)[0]);
        drop(gate);
        b.end_event(event);
        b.free(memory);
    }),
    check("host functions in order", "ok ok ok ok seen=1,2,3", |b| {
        let stream = b.stream(0);
        for index in 1..=3 {
            b.code(b.cu.cuLaunchHostFunc(stream, note, number(index)));
        }
        b.code(b.cu.cuStreamSynchronize(stream));
        b.value("seen", seen());
        b.end_stream(stream);
    }),
    check("host functions between work", "ok seen=byte1,byte2", |b| {
        let (bytes, stream) = (b.pinned(8), b.stream(CU_STREAM_NON_BLOCKING));
        let host = CUdeviceptr(bytes.as_ptr().expose_provenance() as u64);
        for value in [1, 2] {
            b.expect("set", b.cu.cuMemsetD8Async(host, value, 1, stream));
            b.expect("function", b.cu.cuLaunchHostFunc(stream, look, bytes.as_mut_ptr().cast()));
        }
        b.code(b.cu.cuStreamSynchronize(stream));
        b.value("seen", seen());
        b.end_pinned(bytes);
        b.end_stream(stream);
    }),
    check("a host function waits for its turn", "before=nothing ok after=7", |b| {
        let stream = b.stream(CU_STREAM_NON_BLOCKING);
        let gate = Gate::close(b, stream);
        b.expect("function", b.cu.cuLaunchHostFunc(stream, note, number(7)));
        std::thread::sleep(std::time::Duration::from_millis(50));
        b.value("before", seen());
        gate.open();
        b.code(b.cu.cuStreamSynchronize(stream));
        b.value("after", seen());
        drop(gate);
        b.end_stream(stream);
    }),
    check("callbacks get the state", "ok ok ok seen=4-ok,5-ok INVALID_VALUE", |b| {
        let stream = b.stream(0);
        b.code(b.cu.cuStreamAddCallback(stream, called, number(4), 0));
        b.code(b.cu.cuStreamAddCallback(stream, called, number(5), 0));
        b.code(b.cu.cuStreamSynchronize(stream));
        b.value("seen", seen());
        b.code(b.cu.cuStreamAddCallback(stream, called, number(6), 1));
        b.end_stream(stream);
    }),
    check("words written and waited for", "ok ok ok bytes=2a000000 ok", |b| {
        let (memory, one, two) =
            (b.alloc_with(&[0; 8]), b.stream(CU_STREAM_NON_BLOCKING), b.stream(CU_STREAM_NON_BLOCKING));
        let equal = 1;
        b.code(b.cu.cuStreamWaitValue32_v2(one, memory, 42, equal));
        b.code(b.cu.cuStreamWriteValue32_v2(two, memory, 42, 0));
        b.code(b.cu.cuStreamSynchronize(one));
        b.bytes("bytes", &b.read(memory, 4));
        b.code(b.cu.cuStreamSynchronize(two));
        b.end_stream(one);
        b.end_stream(two);
        b.free(memory);
    }),
    check("a word that is waited for", "NOT_READY ok ok", |b| {
        let (memory, one, two) =
            (b.alloc_with(&[0; 8]), b.stream(CU_STREAM_NON_BLOCKING), b.stream(CU_STREAM_NON_BLOCKING));
        let at_least = 0;
        b.expect("wait", b.cu.cuStreamWaitValue32_v2(one, memory, 5, at_least));
        b.code(b.cu.cuStreamQuery(one));
        b.expect("write", b.cu.cuStreamWriteValue32_v2(two, memory, 6, 0));
        b.code(b.cu.cuStreamSynchronize(one));
        b.code(b.cu.cuStreamQuery(one));
        b.end_stream(one);
        b.end_stream(two);
        b.free(memory);
    }),
];
