//! The end of a context, which ends its allocations.
//!
//! The driver frees what was made by `cuMemAlloc` together with its context, but not mapped physical memory, so that is
//! done here, after the context is gone: nothing can use the memory then.

use cuda::CUresult;
use cuda::types::{CUcontext, CUdevice};

use super::allocation::release;
use super::native;
use crate::guard::guarded;
use crate::session::{self, Session};

/// Destroys a context.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxDestroy_v2(context: CUcontext) -> CUresult {
    // SAFETY: the caller's argument, as it came.
    ending("cuCtxDestroy", || Some(context), || unsafe { native::cuCtxDestroy_v2(context) }, || true)
}

/// Destroys everything in a device's primary context.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult {
    // SAFETY: the caller's argument, as it came.
    let end = || unsafe { native::cuDevicePrimaryCtxReset_v2(device) };
    ending("cuDevicePrimaryCtxReset", || primary(device), end, || true)
}

/// Lets go of a device's primary context; whoever is last destroys it.
///
/// # Safety
/// As for the driver's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult {
    // SAFETY: the caller's argument, as it came.
    let end = || unsafe { native::cuDevicePrimaryCtxRelease_v2(device) };
    ending("cuDevicePrimaryCtxRelease", || primary(device), end, || !is_active(device))
}

/// Ends a context by the driver's function, and frees its allocations if it is gone.
fn ending(
    name: &str,
    context: impl FnOnce() -> Option<CUcontext>,
    end: impl Fn() -> CUresult,
    is_gone: impl FnOnce() -> bool,
) -> CUresult {
    // The agent must not enter a context while it is destroyed.
    let detached = guarded(
        name,
        || None,
        || {
            let session = session::current()?;
            let context = context().filter(|context| !context.is_null())?;
            let addresses = session.table().detach(context);
            Some((session, context, addresses))
        },
    );
    let result = end();
    if let Some((session, context, addresses)) = detached {
        guarded(
            name,
            || (),
            || settle(session, context, &addresses, result == CUresult::SUCCESS && is_gone()),
        );
    }
    result
}

fn settle(session: &Session, context: CUcontext, addresses: &[u64], gone: bool) {
    if !gone {
        session.table().attach(addresses, context);
        return;
    }
    for address in addresses {
        release(session, *address);
    }
}

/// The primary context of a device, if it is active.
fn primary(device: CUdevice) -> Option<CUcontext> {
    let session = session::current()?;
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
