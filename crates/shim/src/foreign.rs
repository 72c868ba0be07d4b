//! Memory of other processes that this one has taken in: by rota's names, the driver's names, files, and other interfaces.
//!
//! What the driver does with such memory when it puts a context away is not known: should it bring an import back as memory of its
//! own, both processes would go on with different copies. So whether there is any is known at every instant at which nobody may
//! enter the driver. What was taken in past rota's names is not followed any further: the program counts as one that has it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use cuda::CUresult;

use crate::demand::vacate;
use crate::forward::index;
use crate::guard::guarded;
use crate::{demand, session};

/// Threads that are taking some in, or let it go.
static TAKING: AtomicU64 = AtomicU64::new(0);

/// Some was taken in that is not followed.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// In a forked child: nothing was.
pub(crate) fn forget() {
    TAKING.store(0, SeqCst);
    TAKEN.store(false, SeqCst);
}

/// Whether this process has any, or is just taking some in or letting it go.
pub(crate) fn is_there() -> bool {
    TAKEN.load(SeqCst)
        || TAKING.load(SeqCst) > 0
        || session::all().any(|session| session.names().has_opened())
}

/// This thread is taking some in, or lets it go, until it is dropped.
pub(crate) struct Taking(());

impl Taking {
    /// Waits until it may. The calling thread must hold no lock.
    pub(crate) fn begin() -> Self {
        loop {
            TAKING.fetch_add(1, SeqCst);
            let taking = Self(());
            // Either this is seen closed, or whoever closed it sees this thread.
            if !vacate::is_closed() {
                return taking;
            }
            // Nothing is taken in while this waits.
            drop(taking);
            vacate::rest();
        }
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        TAKING.fetch_sub(1, SeqCst);
    }
}

/// A call has taken some in that is not followed, if it was successful.
fn note(result: CUresult) -> CUresult {
    if result == CUresult::SUCCESS {
        TAKEN.store(true, SeqCst);
    }
    result
}

/// Makes a call that is not counted, and takes some in which is not followed.
pub(crate) fn taken_by(name: &str, call: impl FnOnce() -> CUresult) -> CUresult {
    let _taking = guarded(name, || None, || Some(Taking::begin()));
    note(call())
}

macro_rules! taking {
    ($($(#[$doc:meta])* $symbol:ident($($argument:ident),*; $($rest:literal),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the driver's function.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol($($argument: usize),*) -> CUresult {
            demand::briefly(index::$symbol, |real| {
                // SAFETY: the caller's arguments, as they came.
                note(unsafe { real($($argument,)* $($rest),*) })
            })
        }
    )*};
}

// Counted until they return, so nobody takes the driver for vacant before it is noted.
taking! {
    /// Memory by a file.
    cuMemImportFromShareableHandle(handle, shared, kind; 0, 0, 0, 0, 0, 0, 0);
    /// A pool by a file.
    cuMemPoolImportFromShareableHandle(pool, shared, kind, flags; 0, 0, 0, 0, 0, 0);
    /// Memory of another interface, as of Vulkan.
    cuImportExternalMemory(memory, description; 0, 0, 0, 0, 0, 0, 0, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_takes_nothing_in() {
        assert_eq!(note(CUresult::INVALID_VALUE), CUresult::INVALID_VALUE);
        assert!(!TAKEN.load(SeqCst));
    }
}
