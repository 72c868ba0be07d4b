//! `cuInit`: what is asked of the daemon first.
//!
//! The real driver comes first; only where that succeeds, the daemon is asked. A program that sees one GPU, or one that is
//! shared, becomes a tenant here. One that sees several becomes a tenant on each when it first uses it, see [`crate::gpus`].
//! If there is a daemon to be asked and it does not take the program in, one line says so and the program runs natively;
//! or, where `rota run` started it and nobody expects it beside rota, gets an error.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::Duration;

use cuda::CUresult;

use crate::guard::{guarded, silence_panics};
use crate::{fork, forward, gpus, join, settings};

/// How long another thread waits between looks at the one that is connecting.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How far this process is. Not a lock, because a child of `fork` must be able to begin anew.
static STAGE: AtomicU8 = AtomicU8::new(NOT_ASKED);
const NOT_ASKED: u8 = 0;
const ASKING: u8 = 1;
const ASKED: u8 = 2;
const TURNED_AWAY: u8 = 3;

/// Initialises the driver, and makes this process a tenant.
#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> CUresult {
    let result = guarded("cuInit", || CUresult::UNKNOWN, || forward::real_init(flags));
    if result != CUresult::SUCCESS {
        return result;
    }
    guarded("cuInit", || (), join_once);
    match STAGE.load(SeqCst) {
        TURNED_AWAY => CUresult::SYSTEM_NOT_READY,
        _ => result,
    }
}

/// Whether this process has come here to begin: whoever uses the GPU and has not, found another way to the driver.
pub(crate) fn has_begun() -> bool {
    STAGE.load(SeqCst) != NOT_ASKED
}

/// In a forked child: nobody has asked yet.
pub(crate) fn forget() {
    STAGE.store(NOT_ASKED, SeqCst);
}

fn join_once() {
    let Some(socket) = settings::socket() else { return };
    if let Err(stage) = STAGE.compare_exchange(NOT_ASKED, ASKING, SeqCst, SeqCst) {
        // A thread that went ahead would allocate memory that rota cannot move. The wait is bounded by the asking.
        let mut stage = stage;
        while stage == ASKING {
            std::thread::sleep(LOOK_AGAIN);
            stage = STAGE.load(SeqCst);
        }
        return;
    }
    // Reached on every way out, also by a panic.
    struct Asked(u8);
    impl Drop for Asked {
        fn drop(&mut self) {
            STAGE.store(self.0, SeqCst);
        }
    }
    let mut asked = Asked(if settings::required() { TURNED_AWAY } else { ASKED });
    silence_panics();
    fork::watch();
    // A driver that lacks functions has been complained about where it was loaded.
    let Some(driver) = forward::driver() else { return };
    match gpus::begin(driver, &socket) {
        Ok(()) => asked.0 = ASKED,
        Err(error) => join::complain(&error),
    }
}
