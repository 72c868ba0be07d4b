//! A value made at its first use and kept for ever, without a lock.
//!
//! A lock held by another thread at the moment of `fork` stays held in the child for ever. Here, threads that arrive at
//! the same time each make a value, and the first to store it wins; so making it must be harmless to repeat.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value made at its first use.
pub struct Once<T: Send + Sync + 'static> {
    value: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> Once<T> {
    /// Nothing made yet.
    pub const fn new() -> Self {
        Once { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value; makes it if this is the first use.
    pub fn get_or_make(&'static self, make: impl FnOnce() -> T) -> &'static T {
        let present = self.value.load(Ordering::Acquire);
        if !present.is_null() {
            // SAFETY: only pointers from `Box::into_raw` are stored below, once, and they are never freed.
            return unsafe { &*present };
        }
        let made = Box::into_raw(Box::new(make()));
        let stored = self.value.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        match stored {
            // SAFETY: `made` comes from a box and is now kept for ever.
            Ok(_) => unsafe { &*made },
            Err(winner) => {
                // SAFETY: `made` comes from a box and nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: as at the top.
                unsafe { &*winner }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_see_one_value() {
        static ONCE: Once<usize> = Once::new();
        let threads: Vec<_> =
            (0..8).map(|number| std::thread::spawn(move || *ONCE.get_or_make(|| number))).collect();
        let seen: Vec<usize> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
        assert_eq!(*ONCE.get_or_make(|| 99), seen[0]);
    }
}
