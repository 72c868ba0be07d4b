//! Phases in which the program gives way to others as soon as it has no work: a checkpoint, say.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use wire::{PHASE_NAME_BYTES, ToDaemon};

use super::{Said, present, take_one, unheard};
use crate::guard::guarded;

/// Phases that this process is in: several threads may be in one each.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// So many phases within each other have names of their own.
const NAMES: usize = 8;
const WORDS: usize = PHASE_NAME_BYTES / size_of::<u64>();
/// What they are called, the outermost first. Of two threads that are in phases at the same time, one may be called by the
/// other's.
static CALLED: [[AtomicU64; WORDS]; NAMES] = [const { [const { AtomicU64::new(0) }; WORDS] }; NAMES];

/// A phase begins (not 0), with a name or null, or ends (0).
///
/// # Safety
/// `name` is null, or ends with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn rota_shim_phase(begins: c_int, name: *const c_char) -> c_int {
    // SAFETY: by the caller's promise.
    let name = if name.is_null() { &[] } else { unsafe { CStr::from_ptr(name) }.to_bytes() };
    guarded("rota_shim_phase", || Said::NoDaemon, || change(begins != 0, name)).into()
}

fn change(begins: bool, name: &[u8]) -> Said {
    if begins {
        let depth = OPEN.fetch_add(1, SeqCst);
        call(depth, name);
    } else if !take_one(&OPEN) {
        return Said::Invalid;
    }
    publish();
    let mut said = None;
    for session in present() {
        let heard = session.connection.send_at_once(&ToDaemon::Phase);
        said = Some(if heard { Said::Heard } else { Said::Dropped });
    }
    said.unwrap_or_else(unheard)
}

/// The phase at this depth is called so.
fn call(depth: u64, name: &[u8]) {
    let Some(called) = usize::try_from(depth).ok().and_then(|depth| CALLED.get(depth)) else { return };
    let mut bytes = [0; PHASE_NAME_BYTES];
    let length = name.len().min(PHASE_NAME_BYTES);
    bytes[..length].copy_from_slice(&name[..length]);
    for (word, bytes) in called.iter().zip(bytes.as_chunks().0) {
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
}

/// What the innermost of so many phases is called.
fn name_of(open: u64) -> [u8; PHASE_NAME_BYTES] {
    let depth = usize::try_from(open.saturating_sub(1)).unwrap_or(NAMES).min(NAMES - 1);
    let mut bytes = [0; PHASE_NAME_BYTES];
    for (word, bytes) in CALLED[depth].iter().zip(bytes.as_chunks_mut().0) {
        *bytes = word.load(Relaxed).to_le_bytes();
    }
    bytes
}

/// Says in all pages in how many phases it is, and what the innermost is called.
pub(super) fn publish() {
    super::publish(&OPEN, |page, open| page.set_phase_name(&name_of(open)));
    super::publish(&OPEN, |page, open| page.set_phases_open(open));
}

pub(super) fn forget() {
    OPEN.store(0, SeqCst);
}
