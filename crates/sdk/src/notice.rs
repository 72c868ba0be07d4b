//! The line that is said once, on standard error, where nobody hears what the program says; not with `ROTA_QUIET=1`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static SAID: AtomicBool = AtomicBool::new(false);

/// There is no daemon.
pub(crate) fn nobody() {
    say(
        "rota: no daemon shares the GPU of this program (start it with `rota run`), so requests are only timed\n",
    );
}

/// The shim is of another version.
pub(crate) fn other_shim() {
    say(
        "rota: librota and the shim are of different versions, so requests are only timed: install both anew\n",
    );
}

fn say(line: &str) {
    if SAID.swap(true, Relaxed) || is_quiet() {
        return;
    }
    // SAFETY: pointer and length are the line's. Where standard error is closed there is nobody to tell.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

fn is_quiet() -> bool {
    std::env::var_os("ROTA_QUIET").is_some_and(|value| !value.is_empty() && value != "0")
}
