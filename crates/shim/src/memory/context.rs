//! The end of a context, which ends its allocations.
//!
//! The driver frees what was made by `cuMemAlloc` together with its context, but not mapped physical memory, so that is
//! done here, after the context is gone: nothing can use the memory then. Every call that ends a context is overridden,
//! also in its oldest version.
//!
//! A green context only divides its device: what is allocated in one belongs to the primary context and goes over to it.
//! Not covered: green contexts that end without a call of their own, by a reset of their primary context.

use std::ffi::c_void;

use cuda::CUresult;
use cuda::types::{CUcontext, CUdevice};

use super::table::HeapId;
use super::{cache, captures, kept, native, probe};
use crate::agent::warm_up;
use crate::demand;
use crate::guard::guarded;
use crate::ipc;
use crate::session::{self, Session};

macro_rules! ending {
    ($(#[$doc:meta])* $symbol:ident($argument:ident: $type:ty), $context:expr, $heir:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol($argument: $type) -> CUresult {
            // SAFETY: the caller's argument, as it came.
            let end = || unsafe { native::$symbol($argument) };
            ending(stringify!($symbol), || $context, end, $heir)
        }
    };
}

ending!(
    /// Destroys a context.
    cuCtxDestroy_v2(context: CUcontext), Some(context), |_| None
);
ending!(
    /// Destroys a context.
    cuCtxDestroy(context: CUcontext), Some(context), |_| None
);
ending!(
    /// Lets go of the current context; whoever is last destroys it, and then it is no longer current.
    cuCtxDetach(context: CUcontext), Some(context), |ended| (current() == Some(ended.context)).then_some(ended.context)
);
ending!(
    /// Destroys everything in a device's primary context.
    cuDevicePrimaryCtxReset_v2(device: CUdevice), primary(device), |_| None
);
ending!(
    /// Destroys everything in a device's primary context.
    cuDevicePrimaryCtxReset(device: CUdevice), primary(device), |_| None
);
ending!(
    /// Lets go of a device's primary context; whoever is last destroys it.
    cuDevicePrimaryCtxRelease_v2(device: CUdevice), primary(device), |ended| is_active(device).then_some(ended.context)
);
ending!(
    /// Lets go of a device's primary context; whoever is last destroys it.
    cuDevicePrimaryCtxRelease(device: CUdevice), primary(device), |ended| is_active(device).then_some(ended.context)
);
ending!(
    /// Destroys a green context. Its memory is the primary context's, and lives on with that.
    cuGreenCtxDestroy(green: *mut c_void), of_green(green), |ended| primary(ended.device()?)
);

/// The allocations of a context that is being ended.
struct Ended {
    session: &'static Session,
    context: CUcontext,
    heaps: Vec<HeapId>,
}

impl Ended {
    /// The device of the allocations; None if there are none.
    fn device(&self) -> Option<CUdevice> {
        let table = self.session.table();
        self.heaps.iter().find_map(|heap| table.owner(*heap)).map(|(_, device)| device)
    }
}

/// Ends a context by the driver's function. Its allocations go to its heir, which is itself if it lives on; without one
/// they are freed.
fn ending(
    name: &str,
    context: impl FnOnce() -> Option<CUcontext>,
    end: impl FnOnce() -> CUresult,
    heir: impl FnOnce(&Ended) -> Option<CUcontext>,
) -> CUresult {
    // It waits for the GPU: a program that is frozen must have turns for it.
    let _inside = demand::Inside::enter();
    // The agent must not enter a context while it is destroyed.
    let ended = guarded(
        name,
        || None,
        || {
            let first = session::first()?;
            let context = context().filter(|context| !context.is_null())?;
            let session = session::all().find(|session| session.table().knows(context)).unwrap_or(first);
            let heaps = session.table().detach(context);
            Some(Ended { session, context, heaps })
        },
    );
    // Nor any other thread of rota's own. It may have to wait for one that waits for the GPU, as this call does anyway.
    let mut loaded = guarded(name, || None, || Some(warm_up::keep_off()));
    let result = end();
    if let Some(ended) = ended {
        guarded(
            name,
            || (),
            || {
                let heir = if result == CUresult::SUCCESS { heir(&ended) } else { Some(ended.context) };
                if let Some(loaded) = loaded.as_mut().filter(|_| heir != Some(ended.context)) {
                    loaded.forget(ended.context);
                }
                drop(loaded.take());
                settle(&ended, heir);
            },
        );
    }
    result
}

fn settle(ended: &Ended, heir: Option<CUcontext>) {
    let (session, context) = (ended.session, ended.context);
    if heir == Some(context) {
        return session.table().attach(&ended.heaps, context);
    }
    demand::context_ended(context, heir);
    if let Some(heir) = heir {
        return session.table().attach(&ended.heaps, heir);
    }
    let mut table = session.table();
    let dropped = table.end(context, &ended.heaps);
    cache::let_go(session, &mut table, dropped);
    drop(table);
    probe::forget(context);
    captures::forget(context);
    session.wake_agent();
    // Of all sessions: one that has no heap for the context may know other things that were made in it.
    for session in session::all() {
        ipc::context_ended(session, context);
        kept::context_ended(session, context);
    }
}

/// The context that a green context is for calls that take a context.
fn of_green(green: *mut c_void) -> Option<CUcontext> {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes one handle; the green context is the caller's, who promises that it lives.
    let result = unsafe { native::cuCtxFromGreenCtx(&mut context, green) };
    (result == CUresult::SUCCESS).then_some(context)
}

/// The calling thread's current context.
fn current() -> Option<CUcontext> {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes one handle.
    let result = unsafe { (session::first()?.driver.cuCtxGetCurrent)(&mut context) };
    (result == CUresult::SUCCESS).then_some(context)
}

/// The primary context of a device, if it is active.
fn primary(device: CUdevice) -> Option<CUcontext> {
    let session = session::first()?;
    if !is_active(device) {
        return None;
    }
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes one handle. The context is active, so this only counts one up and down again.
    unsafe {
        (session.driver.cuDevicePrimaryCtxRetain)(&mut context, device).ok().ok()?;
        let _ = (session.driver.cuDevicePrimaryCtxRelease_v2)(device);
    }
    Some(context)
}

fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the driver writes two numbers.
    let result = unsafe { native::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) };
    result == CUresult::SUCCESS && active != 0
}
