//! How many contexts there are. With more than one, "the default stream" and "the whole context" say nothing about the
//! others', and then nothing is concluded from them.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};

use cuda::CUresult;
use cuda::types::{CUcontext, CUdevice};

use crate::forward::index;
use crate::gpus;
use crate::guard::{guarded, lock};
use crate::memory::captures;

/// Made lazily, so that a child of `fork` finds no lock that was held.
static KNOWN: AtomicPtr<Mutex<BTreeSet<usize>>> = AtomicPtr::new(ptr::null_mut());
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Is there but one context, whose streams are all there are?
pub(super) fn is_the_only_one() -> bool {
    !SEVERAL.load(SeqCst)
}

/// All there are; none where one may be a green one, whose handle is no context's.
pub(super) fn all() -> Vec<CUcontext> {
    if captures::any_green() {
        return Vec::new();
    }
    let known = lock(super::made_once(&KNOWN, || Mutex::new(BTreeSet::new())));
    known.iter().map(|&context| CUcontext(context as *mut c_void)).collect()
}

/// In a forked child: none.
pub(super) fn forget() {
    KNOWN.store(ptr::null_mut(), SeqCst);
    SEVERAL.store(false, SeqCst);
}

/// A context, or a green one, was made. The same one may come again.
fn made(context: usize) {
    change(|known| known.insert(context));
}

/// A context is gone.
pub(crate) fn ended(context: CUcontext) {
    change(|known| known.remove(&(context.0 as usize)));
}

fn change(change: impl FnOnce(&mut BTreeSet<usize>) -> bool) {
    let mut known = lock(super::made_once(&KNOWN, || Mutex::new(BTreeSet::new())));
    if change(&mut known) {
        SEVERAL.store(known.len() > 1, SeqCst);
    }
}

/// The number is that of the argument that names the device, from 0.
macro_rules! making {
    ($($symbol:ident($device:literal)),*) => {
        $(
            /// Makes or retains a context, whose handle is written to the first argument. Before that, the program becomes a
            /// tenant of the context's GPU.
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol(a: usize, b: usize, c: usize, d: usize, e: usize) -> CUresult {
                // Not as work: others may have the program's other GPUs while it waits at the door.
                let device = CUdevice([a, b, c, d, e][$device] as c_int);
                let joined = guarded(stringify!($symbol), || Ok(None), || gpus::session(device));
                if let Err(refused) = joined {
                    return refused;
                }
                let result = super::briefly(index::$symbol, |real| {
                    // SAFETY: the caller's arguments, as they came.
                    unsafe { real(a, b, c, d, e, 0, 0, 0, 0, 0) }
                });
                if result == CUresult::SUCCESS && a != 0 {
                    // SAFETY: the driver has just written a handle there.
                    let context = unsafe { (a as *const usize).read_unaligned() };
                    guarded(stringify!($symbol), || SEVERAL.store(true, SeqCst), || made(context));
                }
                result
            }
        )*
    };
}

making!(
    cuCtxCreate(2),
    cuCtxCreate_v2(2),
    cuCtxCreate_v3(4),
    cuCtxCreate_v4(3),
    cuDevicePrimaryCtxRetain(1),
    cuGLCtxCreate(2),
    cuGLCtxCreate_v2(2),
    cuGreenCtxCreate(2),
    cuVDPAUCtxCreate(2),
    cuVDPAUCtxCreate_v2(2)
);
