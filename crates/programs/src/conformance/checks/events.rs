//! Events: recorded, asked, waited for, and the time between two.

use cuda::types::{CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING, CUevent, CUstream};

use super::{Check, check};
use crate::bench::gate::Gate;
use crate::kernels::SPIN;

pub(super) const CHECKS: &[Check] = &[
    check("make and destroy", "ok ok ok ok", |b| {
        let mut event = CUevent::NULL;
        for flags in [0, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING] {
            b.code(b.cu.cuEventCreate(&mut event, flags));
            b.code(b.cu.cuEventDestroy_v2(event));
        }
    }),
    check("make errors", "INVALID_VALUE INVALID_VALUE INVALID_VALUE", |b| {
        let (mut event, interprocess) = (CUevent::NULL, 4);
        b.code(b.cu.cuEventCreate(&mut event, 0xFF00));
        b.code(b.cu.cuEventCreate(std::ptr::null_mut(), 0));
        b.code(b.cu.cuEventCreate(&mut event, interprocess));
    }),
    check("never recorded", "ok ok", |b| {
        let event = b.event(0);
        b.code(b.cu.cuEventQuery(event));
        b.code(b.cu.cuEventSynchronize(event));
        b.end_event(event);
    }),
    check("recorded", "ok ok ok", |b| {
        let (event, stream) = (b.event(0), b.stream(0));
        b.code(b.cu.cuEventRecord(event, stream));
        b.code(b.cu.cuEventSynchronize(event));
        b.code(b.cu.cuEventQuery(event));
        b.end_event(event);
        b.end_stream(stream);
    }),
    check("pending", "NOT_READY ok ok", |b| {
        let (event, stream) = (b.event(CU_EVENT_BLOCKING_SYNC), b.stream(0));
        let gate = Gate::close(b, stream);
        b.expect("record", b.cu.cuEventRecord(event, stream));
        b.code(b.cu.cuEventQuery(event));
        gate.open();
        b.code(b.cu.cuEventSynchronize(event));
        b.code(b.cu.cuEventQuery(event));
        drop(gate);
        b.end_event(event);
        b.end_stream(stream);
    }),
    check("recorded again", "ok NOT_READY ok", |b| {
        let (event, stream) = (b.event(CU_EVENT_DISABLE_TIMING), b.stream(0));
        b.expect("record", b.cu.cuEventRecord(event, stream));
        b.code(b.cu.cuEventSynchronize(event));
        let gate = Gate::close(b, stream);
        b.expect("record", b.cu.cuEventRecord(event, stream));
        b.code(b.cu.cuEventQuery(event));
        gate.open();
        b.code(b.cu.cuEventSynchronize(event));
        drop(gate);
        b.end_event(event);
        b.end_stream(stream);
    }),
    check("before the gate and behind it", "ok NOT_READY", |b| {
        let (one, two, stream) = (b.event(2), b.event(2), b.stream(0));
        b.expect("record", b.cu.cuEventRecord(one, stream));
        let gate = Gate::close(b, stream);
        b.expect("record", b.cu.cuEventRecord(two, stream));
        b.code(b.cu.cuEventSynchronize(one));
        b.code(b.cu.cuEventQuery(two));
        drop(gate);
        b.end_event(one);
        b.end_event(two);
        b.end_stream(stream);
    }),
    check("the time between", "ok right=true ok back=true", |b| {
        let (begin, end, stream) = (b.event(0), b.event(0), b.stream(0));
        b.expect("record", b.cu.cuEventRecord(begin, stream));
        let nanoseconds = 20_000_000;
        b.expect("spin", b.launch_function(b.function(SPIN), (1, 1), stream, &[u64::MAX, nanoseconds]));
        b.expect("record", b.cu.cuEventRecord(end, stream));
        b.expect("synchronize", b.cu.cuEventSynchronize(end));
        let mut milliseconds = -1.0;
        b.code(b.cu.cuEventElapsedTime(&mut milliseconds, begin, end));
        // The clock of the kernel and that of the events are read at slightly different instants.
        b.value("right", (19.5..5000.0).contains(&milliseconds));
        b.code(b.cu.cuEventElapsedTime(&mut milliseconds, end, begin));
        b.value("back", milliseconds < 0.0);
        b.end_event(begin);
        b.end_event(end);
        b.end_stream(stream);
    }),
    check("no time between", "INVALID_HANDLE INVALID_HANDLE NOT_READY INVALID_HANDLE", |b| {
        let (timed, untimed, never, stream) =
            (b.event(0), b.event(CU_EVENT_DISABLE_TIMING), b.event(0), b.stream(0));
        let mut milliseconds = 0.0;
        b.expect("record", b.cu.cuEventRecord(timed, stream));
        b.expect("record", b.cu.cuEventRecord(untimed, stream));
        b.expect("synchronize", b.cu.cuStreamSynchronize(stream));
        b.code(b.cu.cuEventElapsedTime(&mut milliseconds, timed, untimed));
        b.code(b.cu.cuEventElapsedTime(&mut milliseconds, timed, never));
        let gate = Gate::close(b, stream);
        b.expect("record", b.cu.cuEventRecord(never, stream));
        b.code(b.cu.cuEventElapsedTime(&mut milliseconds, timed, never));
        drop(gate);
        b.code(b.cu.cuEventElapsedTime(std::ptr::null_mut(), timed, never));
        for event in [timed, untimed, never] {
            b.end_event(event);
        }
        b.end_stream(stream);
    }),
    check("null ones", "INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE", |b| {
        b.code(b.cu.cuEventRecord(CUevent::NULL, CUstream::NULL));
        b.code(b.cu.cuEventQuery(CUevent::NULL));
        b.code(b.cu.cuEventSynchronize(CUevent::NULL));
        b.code(b.cu.cuEventDestroy_v2(CUevent::NULL));
        b.code(b.cu.cuStreamWaitEvent(CUstream::NULL, CUevent::NULL, 0));
    }),
    check("recorded with flags", "ok INVALID_VALUE", |b| {
        let event = b.event(0);
        b.code(b.cu.cuEventRecordWithFlags(event, CUstream::NULL, 0));
        b.code(b.cu.cuEventRecordWithFlags(event, CUstream::NULL, 0x40));
        b.end_event(event);
    }),
    check("destroyed while pending", "ok ok", |b| {
        let (event, stream) = (b.event(0), b.stream(0));
        let gate = Gate::close(b, stream);
        b.expect("record", b.cu.cuEventRecord(event, stream));
        b.code(b.cu.cuEventDestroy_v2(event));
        gate.open();
        b.code(b.cu.cuStreamSynchronize(stream));
        drop(gate);
        b.end_stream(stream);
    }),
];
