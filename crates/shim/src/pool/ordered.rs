//! Allocating and freeing in the order of a stream.
//!
//! No lock is held during a call that can wait for the GPU, and recording an event can: the queue of a frozen program may be
//! full.

use std::ffi::c_int;

use cuda::CUresult;
use cuda::types::{
    CU_EVENT_DISABLE_TIMING, CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemoryPool, CUstream,
};

use super::reuse::{Mark, Point, Stream};
use crate::demand::Inside;
use crate::guard::guarded;
use crate::memory::kept::watched;
use crate::memory::table::Wanted;
use crate::memory::{Short, allocation, cache, captures, native, physical};
use crate::session::{self, Session};
use crate::settings;

/// The default stream that all threads share, as the driver names it.
const LEGACY: u64 = 1;
/// The calling thread's own, as the driver names it.
const PER_THREAD: u64 = 2;
/// What `cuStreamIsCapturing` says of a stream that is not captured.
const NOT_CAPTURED: c_int = 0;
/// How many events are looked at when memory is short in the heap.
const LOOKS_MAX: usize = 16;

/// A stream as a call names it.
#[derive(Clone, Copy)]
pub(super) struct Named {
    pub(super) stream: CUstream,
    /// Whether the null handle is the thread's own default stream.
    pub(super) per_thread: bool,
}

impl Named {
    /// Which stream it is, with its context; None if there is no such stream.
    pub(super) fn stream(self) -> Option<Stream> {
        let mut context = CUcontext::NULL;
        // SAFETY: the driver writes one handle; the stream is the caller's.
        let result = unsafe {
            match self.per_thread {
                true => native::cuStreamGetCtx_ptsz(self.stream, &mut context),
                false => native::cuStreamGetCtx(self.stream, &mut context),
            }
        };
        result.ok().ok()?;
        let own = |context| Stream { context, handle: PER_THREAD, thread: Some(std::thread::current().id()) };
        Some(match self.stream.0.addr() as u64 {
            0 if self.per_thread => own(context),
            PER_THREAD => own(context),
            0 => Stream { context, handle: LEGACY, thread: None },
            handle => Stream { context, handle, thread: None },
        })
    }

    /// Whether the driver says that this stream can be used, and is not being captured.
    fn is_usable(self) -> bool {
        let mut status = NOT_CAPTURED;
        // SAFETY: the driver writes one number; the stream is the caller's.
        let result = unsafe {
            match self.per_thread {
                true => native::cuStreamIsCapturing_ptsz(self.stream, &mut status),
                false => native::cuStreamIsCapturing(self.stream, &mut status),
            }
        };
        result == CUresult::SUCCESS && status == NOT_CAPTURED
    }
}

macro_rules! allocating {
    ($($symbol:ident($($pool:ident)?), $per_thread:literal;)*) => {$(
        /// Allocates device memory in the order of a stream.
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            address: *mut CUdeviceptr,
            bytes: usize,
            $($pool: CUmemoryPool,)?
            stream: CUstream,
        ) -> CUresult {
            #[allow(unused_mut, unused_assignments)] // Not every one of them names a pool.
            let mut asked_pool = None;
            $(asked_pool = Some($pool);)?
            let allocated = guarded(stringify!($symbol), || Some(CUresult::UNKNOWN), || {
                if address.is_null() {
                    return None;
                }
                Some(match allocate(bytes as u64, asked_pool, Named { stream, per_thread: $per_thread })? {
                    Ok(start) => {
                        // SAFETY: not null, and the caller promises a place for an address.
                        unsafe { address.write(CUdeviceptr(start)) };
                        CUresult::SUCCESS
                    }
                    Err(code) => code,
                })
            });
            allocated.unwrap_or_else(|| {
                // SAFETY: the caller's arguments, as they came.
                let result = unsafe { native::$symbol(address, bytes, $($pool,)? stream) };
                if result == CUresult::SUCCESS {
                    guarded(stringify!($symbol), || (), || watched::watch(asked_pool));
                }
                result
            })
        }
    )*};
}

allocating! {
    cuMemAllocAsync(), false;
    cuMemAllocAsync_ptsz(), true;
    cuMemAllocFromPoolAsync(pool), false;
    cuMemAllocFromPoolAsync_ptsz(pool), true;
}

macro_rules! freeing {
    ($($symbol:ident, $per_thread:literal;)*) => {$(
        /// Frees device memory in the order of a stream.
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(address: CUdeviceptr, stream: CUstream) -> CUresult {
            let work = || free(session::around(address.0)?, address.0, Named { stream, per_thread: $per_thread });
            let freed = guarded(stringify!($symbol), || Some(CUresult::UNKNOWN), work);
            // SAFETY: the caller's arguments, as they came.
            freed.unwrap_or_else(|| unsafe { native::$symbol(address, stream) })
        }
    )*};
}

freeing! {
    cuMemFreeAsync, false;
    cuMemFreeAsync_ptsz, true;
}

/// The start of a new allocation; None if the real driver is to make it, or to say what is wrong.
fn allocate(
    asked_bytes: u64,
    asked_pool: Option<CUmemoryPool>,
    named: Named,
) -> Option<Result<u64, CUresult>> {
    if asked_bytes == 0 || settings::native_pools() || !named.is_usable() {
        return None;
    }
    let stream = named.stream()?;
    let session = match session::of(stream.context) {
        Ok(session) => session?,
        Err(refused) => return Some(Err(refused)),
    };
    // Nearly always all is known, and there.
    if let Some(found) = session.table().take_in_stream(stream, asked_bytes, asked_pool) {
        return Some(Ok(found.block.address));
    }
    let context = stream.context;
    let within = |work: &dyn Fn() -> Option<CUmemoryPool>| physical::within(session.driver, context, work);
    let pool = within(&|| {
        let serves = allocation::serves(session, context);
        serves.then(|| pool(session, asked_pool)).flatten()
    })?;
    let wanted = Wanted { context, asked_bytes, pool };
    look_at_events(session, context);
    let found = physical::within(session.driver, context, || {
        allocation::take(session, wanted).or_else(|short| match short {
            Short::Refused(CUresult::OUT_OF_MEMORY) if wait_for_frees(session, context) => {
                allocation::take(session, wanted)
            }
            _ => Err(short),
        })
    });
    match found {
        Ok(allocation) => Some(Ok(allocation.block.address)),
        Err(Short::Refused(code)) => Some(Err(code)),
        Err(Short::NotHere) => None,
    }
}

/// The pool that an allocation in the current context is from; None if its memory is the driver's.
fn pool(session: &Session, asked: Option<CUmemoryPool>) -> Option<CUmemoryPool> {
    let device = || {
        let mut device = CUdevice(0);
        // SAFETY: the driver writes one number.
        unsafe { (session.driver.cuCtxGetDevice)(&mut device) }.ok().ok().map(|()| device)
    };
    let pool = match asked {
        Some(pool) => {
            let known = session.table().pools.get(pool).is_some();
            if !known {
                // Perhaps the default one, which is made by nobody.
                current(session, device()?)?;
            }
            pool
        }
        None => {
            let device = device()?;
            let known = session.table().pools.current(device);
            match known {
                Some(pool) => pool,
                None => current(session, device)?,
            }
        }
    };
    session.table().pools.get(pool).is_some_and(|account| !account.is_native).then_some(pool)
}

/// Asks the driver which pool a device allocates from. Its default one is rota's.
fn current(session: &Session, device: CUdevice) -> Option<CUmemoryPool> {
    let (mut pool, mut default) = (CUmemoryPool::NULL, CUmemoryPool::NULL);
    // SAFETY: the driver writes one handle each.
    unsafe {
        native::cuDeviceGetMemPool(&mut pool, device).ok().ok()?;
        native::cuDeviceGetDefaultMemPool(&mut default, device).ok().ok()?;
    }
    let mut table = session.table();
    if table.pools.get(default).is_none() {
        table.pools.add(default, false);
    }
    table.pools.set_current(device, pool);
    Some(pool)
}

/// Frees what starts at an address in a stream; None if that is the driver's matter.
fn free(session: &Session, address: u64, named: Named) -> Option<CUresult> {
    if !named.is_usable() {
        return None;
    }
    let stream = named.stream()?;
    let mut table = session.table();
    table.claim(address)?;
    let freed = table.forget(address)?;
    let wants_event = table.reuse.free(stream, freed);
    let point = if wants_event { table.reuse.point(stream) } else { None };
    drop(table);
    if let Some(point) = point {
        mark(session, point);
    }
    Some(CUresult::SUCCESS)
}

/// Records an event behind all that was freed up to a point. The calling thread must hold no lock.
pub(super) fn mark(session: &Session, point: Point) {
    let stream = point.stream;
    // A capture forbids it, or would have it as its own; another thread's own stream has no name here.
    let is_anothers = stream.thread.is_some_and(|thread| thread != std::thread::current().id());
    if captures::any() || is_anothers || stream.is_gone() {
        return;
    }
    let handle = CUstream(std::ptr::without_provenance_mut(stream.handle as usize));
    // It may wait for room in the queue.
    let _inside = Inside::enter();
    let spare = session.table().take_event(stream.context);
    physical::within(session.driver, stream.context, || {
        let event = spare.or_else(|| {
            let mut event = CUevent::NULL;
            // SAFETY: the driver writes one handle.
            let result = unsafe { (session.driver.cuEventCreate)(&mut event, CU_EVENT_DISABLE_TIMING) };
            (result == CUresult::SUCCESS).then_some(event)
        });
        let Some(event) = event else { return };
        // SAFETY: both are of this context. A stream that the program destroys meanwhile is its own mistake.
        let result = unsafe { (session.driver.cuEventRecord)(event, handle) };
        let mut table = session.table();
        match result {
            CUresult::SUCCESS => table.reuse.recorded(Mark { point, event }),
            _ => table.keep_events(stream.context, &[event]),
        }
    });
}

/// A stream has got to a point: what was freed up to there is free for all.
pub(crate) fn finished(session: &Session, point: Point) {
    let mut table = session.table();
    let (free, events) = table.reuse.finished(point);
    table.keep_events(point.stream.context, &events);
    for freed in free {
        cache::give(session, &mut table, &freed);
    }
}

/// Looks which events of a context have passed.
fn look_at_events(session: &Session, context: CUcontext) {
    let marks = session.table().reuse.marks(context);
    for mark in marks.into_iter().take(LOOKS_MAX) {
        // A capture forbids such a look in its mode.
        // SAFETY: the event is rota's; one of a context that ended meanwhile is an error, and passed over.
        let looked = captures::unless_any(|| unsafe { (session.driver.cuEventQuery)(mark.event) });
        if looked == Some(CUresult::SUCCESS) {
            finished(session, mark.point);
        }
    }
}

/// The last resort: waits until all that was freed in streams of the current context is free. False if nothing was, or a
/// capture forbids it. The calling thread must hold no lock.
pub(crate) fn wait_for_frees(session: &Session, context: CUcontext) -> bool {
    let points = session.table().reuse.points(context);
    if points.is_empty() {
        return false;
    }
    let _inside = Inside::enter();
    // Not by events: streams that are gone, and those of other threads, have none.
    // SAFETY: no conditions.
    let waited = captures::unless_any(|| unsafe { (session.driver.cuCtxSynchronize)() });
    if waited != Some(CUresult::SUCCESS) {
        return false;
    }
    points.into_iter().for_each(|point| finished(session, point));
    true
}

/// A stream is about to be captured: after that no event can be recorded behind what was freed in it.
pub(crate) fn begins_capture(session: &Session, stream: CUstream, per_thread: bool) {
    mark_if_needed(session, Named { stream, per_thread });
}

/// Records an event behind what was freed in a stream, if there is none. Returns the stream, if anything was freed at all.
pub(super) fn mark_if_needed(session: &Session, named: Named) -> Option<Stream> {
    if session.table().reuse.is_empty() {
        return None;
    }
    let stream = named.stream()?;
    let table = session.table();
    let point = if table.reuse.is_unmarked(stream) { table.reuse.point(stream) } else { None };
    drop(table);
    if let Some(point) = point
        && named.is_usable()
    {
        mark(session, point);
    }
    Some(stream)
}
