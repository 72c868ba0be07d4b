//! The lines that the shim writes to the program's standard error. There are few: a program's output is its own.

use std::fmt::Arguments;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Writes one line.
///
/// One write, past the standard library's stderr, whose lock may be held for ever in a child of `fork`.
pub(crate) fn notice(text: Arguments<'_>) {
    let line = format!("rota: {text}\n");
    // SAFETY: the pointer and the length are those of `line`. Where stderr is closed there is nobody to tell.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
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
