//! Streams: order, waiting, values in memory, callbacks.

use std::ffi::{c_int, c_uint, c_void};

use cuda::CUresult;
use cuda::types::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUstream, CUstreamBatchMemOpParams};
use vgpu_messages::stream::{StreamFacts, StreamRef, StreamRequest};
use vgpu_messages::work::{HostCall, Work, WorkRequest};
use vgpu_messages::{Address, Answer, Request};

use crate::argument::{In, Out};
use crate::context::{current, table};
use crate::guard::{Outcome, api, stream_api};
use crate::handle::{self, Handle};
use crate::session::{self, ask};
use crate::waits;

/// The only flag of a stream.
const NON_BLOCKING: c_uint = 1;
/// Flags of waits for values: how to compare (two bits), and a flush, which is nothing here.
const WAIT_FLUSH: c_uint = 1 << 30;
/// The only flag of writes of values: no barrier.
const WRITE_NO_BARRIER: c_uint = 1;
/// Numbers that stand for attributes of streams.
const ATTRIBUTES: [c_uint; 5] = [1, 3, 8, 9, 10];

fn facts(stream: CUstream, default: StreamRef) -> Result<StreamFacts, CUresult> {
    let context = current::id()?;
    let stream = handle::stream(stream, default)?;
    let request = Request::Stream(StreamRequest::Facts { context, stream });
    Ok(ask!(request, Answer::StreamFacts(facts) => facts))
}

/// Gives work to a stream.
pub(crate) fn give(work: Work, stream: CUstream, default: StreamRef) -> Outcome {
    let context = current::id()?;
    let stream = handle::stream(stream, default)?;
    session::tell(Request::Work(WorkRequest { context, stream, work, blocking: false }))
}

fn create(stream: Out<CUstream>, flags: c_uint, priority: c_int) -> Outcome {
    let context = current::id()?;
    stream.check()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    // Priorities beyond the range are brought into it.
    let priority = priority.clamp(crate::context::PRIORITY_GREATEST, 0);
    let request = Request::Stream(StreamRequest::Create { context, flags, priority });
    stream.set(ask!(request, Answer::Stream(id) => CUstream::of(id)))
}

fn wait_value(address: CUdeviceptr, value: u64, wide: bool, flags: c_uint) -> Result<Work, CUresult> {
    if flags & !(3 | WAIT_FLUSH) != 0 || !address.0.is_multiple_of(if wide { 8 } else { 4 }) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(Work::WaitValue { address: Address(address.0), value, wide, flags: flags & 3 })
}

fn write_value(address: CUdeviceptr, value: u64, wide: bool, flags: c_uint) -> Result<Work, CUresult> {
    if flags & !WRITE_NO_BARRIER != 0 || !address.0.is_multiple_of(if wide { 8 } else { 4 }) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(Work::WriteValue { address: Address(address.0), value, wide })
}

fn batch(
    stream: CUstream,
    count: c_uint,
    list: In<CUstreamBatchMemOpParams>,
    flags: c_uint,
    default: StreamRef,
) -> Outcome {
    /// No more operations than this in one call.
    const COUNT_MAX: c_uint = 256;
    current::id()?;
    if flags != 0 || count > COUNT_MAX {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut all = Vec::new();
    for one in list.list(count as usize)? {
        all.push(match one.operation {
            1 => wait_value(one.address, one.value & u64::from(u32::MAX), false, one.flags)?,
            2 => write_value(one.address, one.value & u64::from(u32::MAX), false, one.flags)?,
            4 => wait_value(one.address, one.value, true, one.flags)?,
            5 => write_value(one.address, one.value, true, one.flags)?,
            // Flushes and barriers: memory here is always in order.
            3 | 6 => continue,
            _ => return Err(CUresult::INVALID_VALUE),
        });
    }
    all.into_iter().try_for_each(|work| give(work, stream, default))
}

api! {
    cuStreamCreate(stream: Out<CUstream>, flags: c_uint) {
        create(stream, flags, 0)
    }

    cuStreamCreateWithPriority(stream: Out<CUstream>, flags: c_uint, priority: c_int) {
        create(stream, flags, priority)
    }

    cuStreamDestroy, cuStreamDestroy_v2(stream: CUstream) {
        session::current()?;
        let stream = StreamRef::Made(stream.id()?);
        let context = current::id()?;
        session::tell(Request::Stream(StreamRequest::Destroy { context, stream }))
    }
}

stream_api! {
    |default| cuStreamQuery / cuStreamQuery_ptsz(stream: CUstream) {
        let context = current::id()?;
        let stream = handle::stream(stream, default)?;
        session::tell(Request::Stream(StreamRequest::Query { context, stream }))
    }

    |default| cuStreamSynchronize / cuStreamSynchronize_ptsz(stream: CUstream) {
        let context = current::id()?;
        let stream = handle::stream(stream, default)?;
        let look = || Request::Stream(StreamRequest::Query { context, stream });
        waits::by(Request::Stream(StreamRequest::Synchronize { context, stream }), look)
    }

    |default| cuStreamGetFlags / cuStreamGetFlags_ptsz(stream: CUstream, flags: Out<c_uint>) {
        session::current()?;
        flags.check()?;
        flags.set(facts(stream, default)?.flags)
    }

    |default| cuStreamGetPriority / cuStreamGetPriority_ptsz(stream: CUstream, priority: Out<c_int>) {
        session::current()?;
        priority.check()?;
        priority.set(facts(stream, default)?.priority)
    }

    |default| cuStreamGetId / cuStreamGetId_ptsz(stream: CUstream, id: Out<u64>) {
        session::current()?;
        id.check()?;
        id.set(facts(stream, default)?.number)
    }

    |default| cuStreamGetCtx / cuStreamGetCtx_ptsz(stream: CUstream, context: Out<CUcontext>) {
        let session = session::current()?;
        context.check()?;
        context.set(table::handle_of(session, facts(stream, default)?.context))
    }

    |default| cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz(
        stream: CUstream,
        context: Out<CUcontext>,
        green: Out<*mut c_void>,
    ) {
        let session = session::current()?;
        context.check()?;
        green.offer(std::ptr::null_mut());
        context.set(table::handle_of(session, facts(stream, default)?.context))
    }

    |default| cuStreamGetDevice / cuStreamGetDevice_ptsz(stream: CUstream, device: Out<CUdevice>) {
        let session = session::current()?;
        device.check()?;
        let context = table::handle_of(session, facts(stream, default)?.context);
        device.set(table::with(context.id()?, |record| record.device)?)
    }

    |default| cuStreamWaitEvent / cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint) {
        current::id()?;
        if flags > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        give(Work::WaitEvent(event.id()?), stream, default)
    }

    |default| cuStreamAddCallback / cuStreamAddCallback_ptsz(
        stream: CUstream,
        function: In<u8>,
        data: Out<c_void>,
        flags: c_uint,
    ) {
        let session = session::current()?;
        if flags != 0 || function.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        session.callbacks.start()?;
        let named = Some(stream.0.addr() as u64);
        let call = HostCall { function: function.address(), data: data.address(), stream: named };
        give(Work::Host(call), stream, default)
    }

    |default| cuLaunchHostFunc / cuLaunchHostFunc_ptsz(stream: CUstream, function: In<u8>, data: Out<c_void>) {
        let session = session::current()?;
        if function.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        session.callbacks.start()?;
        let call = HostCall { function: function.address(), data: data.address(), stream: None };
        give(Work::Host(call), stream, default)
    }

    |default| cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz(
        stream: CUstream,
        address: CUdeviceptr,
        value: u32,
        flags: c_uint,
    ) {
        current::id()?;
        give(wait_value(address, value.into(), false, flags)?, stream, default)
    }

    |default| cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz(
        stream: CUstream,
        address: CUdeviceptr,
        value: u64,
        flags: c_uint,
    ) {
        current::id()?;
        give(wait_value(address, value, true, flags)?, stream, default)
    }

    |default| cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz(
        stream: CUstream,
        address: CUdeviceptr,
        value: u32,
        flags: c_uint,
    ) {
        current::id()?;
        give(write_value(address, value.into(), false, flags)?, stream, default)
    }

    |default| cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz(
        stream: CUstream,
        address: CUdeviceptr,
        value: u64,
        flags: c_uint,
    ) {
        current::id()?;
        give(write_value(address, value, true, flags)?, stream, default)
    }

    |default| cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz(
        stream: CUstream,
        count: c_uint,
        list: In<CUstreamBatchMemOpParams>,
        flags: c_uint,
    ) {
        batch(stream, count, list, flags, default)
    }

    |default| cuStreamGetAttribute / cuStreamGetAttribute_ptsz(
        stream: CUstream,
        attribute: c_uint,
        value: Out<[u64; 8]>,
    ) {
        facts(stream, default)?;
        if !ATTRIBUTES.contains(&attribute) {
            return Err(CUresult::INVALID_VALUE);
        }
        value.set([0; 8])
    }

    |default| cuStreamSetAttribute / cuStreamSetAttribute_ptsz(
        stream: CUstream,
        attribute: c_uint,
        value: In<[u64; 8]>,
    ) {
        facts(stream, default)?;
        // Caching, ways to wait, domains: nothing that the virtual GPU has.
        if value.is_null() || !ATTRIBUTES.contains(&attribute) {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(())
    }

    |default| cuStreamCopyAttributes / cuStreamCopyAttributes_ptsz(target: CUstream, source: CUstream) {
        facts(target, default)?;
        facts(source, default).map(drop)
    }
}
