//! How many contexts there are. With more than one, "the default stream" and "the whole context" say nothing about the
//! others', and then nothing is concluded from them.

use std::collections::BTreeSet;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};

use cuda::CUresult;
use cuda::types::CUcontext;

use crate::forward::index;
use crate::guard::{guarded, lock};

/// Made lazily, so that a child of `fork` finds no lock that was held.
static KNOWN: AtomicPtr<Mutex<BTreeSet<usize>>> = AtomicPtr::new(ptr::null_mut());
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Is there but one context, whose streams are all there are?
pub(super) fn is_the_only_one() -> bool {
    !SEVERAL.load(SeqCst)
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

macro_rules! making {
    ($($symbol:ident),*) => {
        $(
            /// Makes or retains a context, whose handle is written to the first argument.
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol(a: usize, b: usize, c: usize, d: usize, e: usize) -> CUresult {
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
    cuCtxCreate,
    cuCtxCreate_v2,
    cuCtxCreate_v3,
    cuCtxCreate_v4,
    cuDevicePrimaryCtxRetain,
    cuGLCtxCreate,
    cuGLCtxCreate_v2,
    cuGreenCtxCreate,
    cuVDPAUCtxCreate,
    cuVDPAUCtxCreate_v2
);
