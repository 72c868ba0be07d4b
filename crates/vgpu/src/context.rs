//! Contexts: made and ended, current on threads, primary.
//!
//! - [`table`]: the contexts of this process.
//! - [`current`]: each thread's stack of current contexts.
//! - [`primary`]: the one context a device that all libraries of a process share.
//! - [`settings`]: limits and preferences, which are kept and change nothing.

pub(crate) mod current;
mod primary;
mod settings;
pub(crate) mod table;

use std::ffi::{c_int, c_uint, c_void};

use cuda::CUresult;
use cuda::types::{CUcontext, CUctxCreateParams, CUdevice};
use vgpu_messages::Request;
use vgpu_messages::request::ContextRequest;
use vgpu_messages::stream::{StreamRef, StreamRequest};

use crate::argument::{In, Out};
use crate::guard::{Outcome, api};
use crate::handle::Handle;
use crate::session;
use crate::waits;

pub(crate) use settings::PRIORITY_GREATEST;

/// Every flag of `cuCtxCreate`.
const FLAGS: u32 = 0xff;
/// Flags that say how threads wait; more than one of them is a mistake.
const WAITING: u32 = 7;

/// Refuses flags that are none.
fn check_flags(flags: u32) -> Outcome {
    if flags & !FLAGS != 0 || (flags & WAITING).count_ones() > 1 {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(())
}

fn create(context: Out<CUcontext>, flags: u32, device: CUdevice) -> Outcome {
    session::current()?;
    context.check()?;
    check_flags(flags)?;
    let made = CUcontext::of(table::create(device, flags, false)?);
    current::push(made);
    context.set(made)
}

fn destroy(context: CUcontext) -> Outcome {
    session::current()?;
    if context.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let number = context.id()?;
    if table::with(number, |record| record.primary)? {
        return Err(CUresult::INVALID_CONTEXT);
    }
    table::destroy(number)?;
    current::drop_top(context);
    Ok(())
}

api! {
    cuCtxCreate, cuCtxCreate_v2(context: Out<CUcontext>, flags: c_uint, device: CUdevice) {
        create(context, flags, device)
    }

    cuCtxCreate_v3(
        context: Out<CUcontext>,
        _affinity: In<c_void>,
        affinity_count: c_int,
        flags: c_uint,
        device: CUdevice,
    ) {
        if affinity_count != 0 {
            return Err(CUresult::UNSUPPORTED_EXEC_AFFINITY);
        }
        create(context, flags, device)
    }

    cuCtxCreate_v4(context: Out<CUcontext>, how: In<CUctxCreateParams>, flags: c_uint, device: CUdevice) {
        if !how.is_null() {
            let how = how.get()?;
            if how.affinity_count != 0 || how.interop != 0 {
                return Err(CUresult::NOT_SUPPORTED);
            }
        }
        create(context, flags, device)
    }

    cuCtxDestroy, cuCtxDestroy_v2(context: CUcontext) {
        destroy(context)
    }

    cuCtxAttach(context: Out<CUcontext>, flags: c_uint) {
        let now = current::handle()?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        table::with(now.id()?, |record| record.attached += 1)?;
        context.set(now)
    }

    cuCtxDetach(context: CUcontext) {
        let last = table::with(context.id()?, |record| {
            let last = record.attached == 0;
            record.attached = record.attached.saturating_sub(1);
            last
        })?;
        if last { destroy(context) } else { Ok(()) }
    }

    cuCtxSetCurrent(context: CUcontext) {
        session::current()?;
        if !context.is_null() {
            table::with(context.id()?, |_| ())?;
        }
        current::set(context);
        Ok(())
    }

    cuCtxGetCurrent(context: Out<CUcontext>) {
        session::current()?;
        context.set(current::top())
    }

    cuCtxPushCurrent, cuCtxPushCurrent_v2(context: CUcontext) {
        session::current()?;
        if context.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        table::with(context.id()?, |_| ())?;
        current::push(context);
        Ok(())
    }

    cuCtxPopCurrent, cuCtxPopCurrent_v2(context: Out<CUcontext>) {
        session::current()?;
        let popped = current::pop().ok_or(CUresult::INVALID_CONTEXT)?;
        context.offer(popped);
        Ok(())
    }

    cuCtxGetDevice(device: Out<CUdevice>) {
        let now = current::handle()?;
        device.check()?;
        device.set(table::with(now.id()?, |record| record.device)?)
    }

    cuCtxGetDevice_v2(device: Out<CUdevice>, context: CUcontext) {
        session::current()?;
        let context = if context.is_null() { current::handle()? } else { context };
        device.set(table::with(context.id()?, |record| record.device)?)
    }

    cuCtxGetId(context: CUcontext, id: Out<u64>) {
        session::current()?;
        id.check()?;
        let context = if context.is_null() { current::handle()? } else { context };
        id.set(table::with(context.id()?, |record| record.id)?.map_or(0, |id| id.0))
    }

    cuCtxSynchronize() {
        let context = current::id()?;
        // What other streams have is waited for asleep.
        let look = || Request::Stream(StreamRequest::Query { context, stream: StreamRef::Legacy });
        waits::by(Request::Context(ContextRequest::Synchronize(context)), look)
    }

    cuCtxSynchronize_v2(context: CUcontext) {
        session::current()?;
        let id = if context.is_null() { current::id()? } else { table::id_of(context)? };
        session::tell(Request::Context(ContextRequest::Synchronize(id)))
    }

    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) {
        let context = current::id()?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let peer = table::id_of(peer)?;
        session::tell(Request::Context(ContextRequest::EnablePeer { context, peer }))
    }

    cuCtxDisablePeerAccess(peer: CUcontext) {
        let context = current::id()?;
        let peer = table::id_of(peer)?;
        session::tell(Request::Context(ContextRequest::DisablePeer { context, peer }))
    }
}
