//! Keeps rota's own faults out of the program: no panic leaves the shim, and none leaves a lock unusable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::notice::notice;

/// Runs the work of one override. If it panics, says so on one line and answers with `fallback`: the real driver's
/// function where nothing was done yet, else an error code.
pub(crate) fn guarded<T>(name: &str, fallback: impl FnOnce() -> T, work: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            notice(format_args!("internal error in {name}: {}", text.unwrap_or("no message")));
            fallback()
        }
    }
}

/// Makes a panic print nothing by itself, so that [`guarded`] has the only line. The shim has its own copy of the
/// standard library, so this says nothing about the program's panics.
pub(crate) fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// Takes a lock. One that was held during a panic is taken all the same: each change under a lock of the shim is
/// complete before anything in it can panic, and a program must not stop because rota has a fault.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_the_fallback() {
        assert_eq!(guarded("test", || 2, || 1), 1);
        assert_eq!(guarded("test", || 2, || panic!("on purpose")), 2);
    }

    #[test]
    fn a_lock_survives_a_panic() {
        let value = Mutex::new(1);
        guarded(
            "test",
            || (),
            || {
                let _held = lock(&value);
                panic!("on purpose");
            },
        );
        assert_eq!(*lock(&value), 1);
    }
}
