//! Events.

use std::ffi::c_uint;

use cuda::CUresult;
use cuda::types::{CUevent, CUstream};
use vgpu_messages::stream::{EventRequest, StreamRef};
use vgpu_messages::work::Work;
use vgpu_messages::{Answer, EventId, Request};

use crate::argument::Out;
use crate::context::current;
use crate::guard::{Outcome, api, stream_api};
use crate::handle::Handle;
use crate::session::{self, ask};
use crate::stream;
use crate::waits;

/// Waiting threads sleep; no time is kept; shared between processes.
const FLAGS: c_uint = 7;
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

fn elapsed(start: EventId, end: EventId) -> Result<u64, CUresult> {
    let request = Request::Event(EventRequest::Elapsed { start, end });
    Ok(ask!(request, Answer::Elapsed { nanos } => nanos))
}

fn record(event: CUevent, stream: CUstream, default: StreamRef, flags: c_uint) -> Outcome {
    current::id()?;
    if flags > 1 {
        return Err(CUresult::INVALID_VALUE);
    }
    stream::give(Work::Record(event.id()?), stream, default)
}

api! {
    cuEventCreate(event: Out<CUevent>, flags: c_uint) {
        let context = current::id()?;
        event.check()?;
        if flags & !FLAGS != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
            return Err(CUresult::INVALID_VALUE);
        }
        let request = Request::Event(EventRequest::Create { context, flags });
        event.set(ask!(request, Answer::Event(id) => CUevent::of(id)))
    }

    cuEventDestroy, cuEventDestroy_v2(event: CUevent) {
        session::current()?;
        session::tell(Request::Event(EventRequest::Destroy(event.id()?)))
    }

    cuEventQuery(event: CUevent) {
        session::current()?;
        session::tell(Request::Event(EventRequest::Query(event.id()?)))
    }

    cuEventSynchronize(event: CUevent) {
        session::current()?;
        let event = event.id()?;
        let look = || Request::Event(EventRequest::Query(event));
        waits::by(Request::Event(EventRequest::Synchronize(event)), look)
    }

    cuEventElapsedTime, cuEventElapsedTime_v2(milliseconds: Out<f32>, start: CUevent, end: CUevent) {
        session::current()?;
        if milliseconds.is_null() {
            return Err(CUresult::INVALID_HANDLE);
        }
        let (start, end) = (start.id()?, end.id()?);
        let nanos = match elapsed(start, end)? {
            // The device counts forwards only; the driver both ways.
            0 => -(elapsed(end, start)? as f64),
            nanos => nanos as f64,
        };
        milliseconds.set((nanos / 1e6) as f32)
    }
}

stream_api! {
    |default| cuEventRecord / cuEventRecord_ptsz(event: CUevent, stream: CUstream) {
        record(event, stream, default, 0)
    }

    |default| cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint) {
        record(event, stream, default, flags)
    }
}
