//! The lines that the shim writes to the program's standard error. There are few: a program's output is its own.

use std::fmt::Arguments;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::forward::real;

/// Writes one line.
pub(crate) fn notice(text: Arguments<'_>) {
    real::notice(&text.to_string());
}

/// A notice that is given once in a process.
pub(crate) struct OnceNotice(AtomicBool);

impl OnceNotice {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Writes the line the first time, and nothing after that.
    pub(crate) fn notice(&self, text: Arguments<'_>) {
        if !self.0.swap(true, Relaxed) {
            notice(text);
        }
    }
}
