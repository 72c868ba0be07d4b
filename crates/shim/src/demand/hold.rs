//! Holding launches back: how a program is frozen where the driver cannot take its channels off the GPU.
//!
//! The page says that this is how (`holds_launches`). Then every call that hands work to the GPU goes the long way: it counts
//! itself, looks whether the program is frozen, and if so waits here for the thaw; what was handed over before is waited for
//! by the agent (`agent/drain.rs`), which tells the daemon when nothing is left. So a turn ends only when kernels end.
//!
//! Nobody is held while a stream is captured: a capture that cannot go on would never end. One that would begin waits.
//! Nobody is held inside of another such call either: that one would never end.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};

use cuda::types::CUcontext;
use wire::Page;

use super::slots::StreamKey;
use super::{WORK, made_once};
use crate::forward;
use crate::guard::lock;
use crate::memory::captures;
use crate::session::{self, Session};

/// Whether launches are held back at all.
static HOLDS: AtomicBool = AtomicBool::new(false);

/// Threads that are counted as having begun something, and wait here.
static HELD: AtomicU64 = AtomicU64::new(0);

/// A stream was destroyed whose work may go on.
static ORPHANED: AtomicBool = AtomicBool::new(false);

/// Where work was begun. Made lazily, so that a child of `fork` finds no lock that was held.
static SEEN: AtomicPtr<Mutex<Seen>> = AtomicPtr::new(ptr::null_mut());

/// Contexts and streams in which work was begun, and which are there still.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Handles of contexts.
    pub(crate) contexts: BTreeSet<usize>,
    /// Handles of streams; default streams are their context's.
    pub(crate) streams: BTreeSet<usize>,
}

thread_local! {
    /// How many calls that may use the GPU this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// In a forked child: nothing was begun, and nobody waits.
pub(super) fn forget() {
    HOLDS.store(false, SeqCst);
    HELD.store(0, SeqCst);
    ORPHANED.store(false, SeqCst);
    SEEN.store(ptr::null_mut(), SeqCst);
    let _ = DEPTH.try_with(|depth| depth.set(0));
}

/// There is a new session. Whether launches are held back from now on.
pub(super) fn begin() -> bool {
    let holds = session::all().any(|session| session.page.holds_launches());
    HOLDS.store(holds, SeqCst);
    holds
}

/// This thread is in a call that may use the GPU, until it is dropped.
pub(super) struct Within(());

impl Within {
    pub(super) fn enter() -> Self {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
        Self(())
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}

/// This thread never waits here.
pub(crate) fn exempt_this_thread() {
    std::mem::forget(Within::enter());
}

/// For work that was just counted as begun: waits until it may go on.
pub(super) fn pass(key: Option<StreamKey>) {
    if !HOLDS.load(SeqCst) || DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0) {
        return;
    }
    note(key);
    // On any of the GPUs: nobody knows which of them work in another context is for.
    while let Some((page, generation)) = frozen()
        && !captures::any()
    {
        HELD.fetch_add(1, SeqCst);
        page.wait_while_frozen(generation);
        HELD.fetch_sub(1, SeqCst);
    }
}

/// A page that says frozen, and in which generation: should it be thawed before that is waited for, the wait ends at once.
fn frozen() -> Option<(&'static Page, u64)> {
    let generation_of = |session: &'static Session| (&*session.page, session.page.freeze_generation());
    let pages = session::all().filter(|session| session.page.holds_launches()).map(generation_of);
    let mut frozen = pages.filter(|(_, generation)| !generation.is_multiple_of(2));
    frozen.next()
}

/// Is nobody inside of the driver with work, and can nobody be before the thaw? By a look that may be wrong the other way.
pub(crate) fn is_nobody_inside() -> bool {
    if captures::any() {
        return false;
    }
    // In this order: whoever is held was counted before.
    let held = HELD.load(SeqCst);
    let inside = WORK.inside();
    // Whoever begins a capture is inside until it is counted.
    inside <= held && !captures::any()
}

/// Remembers where work is begun.
fn note(key: Option<StreamKey>) {
    let Some(driver) = forward::driver() else { return };
    let mut context = CUcontext::NULL;
    // SAFETY: the driver writes one handle.
    let result = unsafe { (driver.cuCtxGetCurrent)(&mut context) };
    let mut seen = lock(made_once(&SEEN, || Mutex::new(Seen::default())));
    if result.ok().is_ok() && !context.is_null() {
        seen.contexts.insert(context.0 as usize);
    }
    if let Some(key) = key
        && key.is_object()
        && key != StreamKey::of_this_thread()
    {
        seen.streams.insert(key.0 as usize);
    }
}

/// Where work was begun.
pub(crate) fn seen() -> Seen {
    lock(made_once(&SEEN, || Mutex::new(Seen::default()))).clone()
}

/// A context is gone, and its streams with it: those are found gone.
pub(super) fn context_ended(context: CUcontext) {
    if HOLDS.load(SeqCst) {
        lock(made_once(&SEEN, || Mutex::new(Seen::default()))).contexts.remove(&(context.0 as usize));
    }
}

/// A stream is about to be destroyed; its work goes on.
pub(super) fn stream_ends(stream: usize) {
    if HOLDS.load(SeqCst) && lock(made_once(&SEEN, || Mutex::new(Seen::default()))).streams.remove(&stream) {
        ORPHANED.store(true, SeqCst);
    }
}

/// Whether there may be work in streams that are gone. Once it was waited for, there is none.
pub(crate) fn take_orphaned() -> bool {
    ORPHANED.swap(false, SeqCst)
}
