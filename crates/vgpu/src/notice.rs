//! The lines that the library writes to the program's standard error. There are few: a program's output is its own.

use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::sync::Mutex;

use crate::guard::lock;

/// Writes one line.
///
/// One write, past the standard library's stderr, whose lock may be held for ever in a child of `fork`.
pub(crate) fn notice(text: Arguments<'_>) {
    let line = format!("vgpu: {text}\n");
    // SAFETY: the pointer and the length are those of `line`. Where stderr is closed there is nobody to tell.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Writes a line the first time that it is to be written in this process.
pub(crate) fn notice_once(text: &str) {
    /// No more different lines than this are remembered; more are not written either.
    const LINES_MAX: usize = 64;
    static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let new = {
        let mut seen = lock(&SEEN);
        seen.len() < LINES_MAX && seen.insert(text.to_owned())
    };
    if new {
        notice(format_args!("{text}"));
    }
}
