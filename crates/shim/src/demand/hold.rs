//! Holding launches back: how a program is frozen where the driver cannot take its channels off the GPU.
//!
//! The page says that this is how (`holds_launches`). Then every call that hands work to the GPU goes the long way: it counts
//! itself, looks whether the program is frozen, and if so waits here for the thaw; what was handed over before is waited for
//! by the agent (`agent/drain.rs`), which tells the daemon when nothing is left. So a turn ends only when kernels end.
//!
//! Nobody is held while a stream is captured: a capture that cannot go on would never end. One that would begin waits.
//! Nobody is held inside of another such call either: that one would never end.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use cuda::CUresult;
use cuda::types::CUcontext;
use wire::Page;

use super::slots::StreamKey;
use super::{WORK, made_once};
use crate::forward::{self, index};
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
    /// Handles of streams, each with that of its context, with which it goes; default streams are their context's.
    pub(crate) streams: BTreeMap<usize, usize>,
}

impl Seen {
    /// Work is begun while this context is current, in this stream, if it is one, of this context, if that is known.
    fn note(&mut self, current: Option<usize>, stream: Option<usize>, owner: Option<usize>) {
        self.contexts.extend(current);
        // Nobody would say when a stream of no context is gone; the driver takes no work for it.
        if let (Some(stream), Some(owner)) = (stream, owner.or(current)) {
            self.streams.entry(stream).or_insert(owner);
        }
    }

    /// A context is gone, and its streams with it. Whether its heir has to be waited for in its place.
    fn context_ended(&mut self, context: usize, heir: Option<usize>) -> bool {
        let was_there = self.contexts.remove(&context);
        let streams = self.streams.len();
        self.streams.retain(|_, owner| *owner != context);
        let left = heir.filter(|_| was_there || self.streams.len() < streams);
        self.contexts.extend(left);
        left.is_some()
    }
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

/// There is a new session, which says whether launches are held back from now on.
pub(super) fn begin() {
    HOLDS.store(session::all().any(|session| session.page.holds_launches()), SeqCst);
}

/// Whether launches are held back while the program is frozen.
pub(super) fn holds() -> bool {
    HOLDS.load(SeqCst)
}

/// Whether this thread is in a call that may use the GPU, or never waits.
pub(super) fn is_within() -> bool {
    DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0)
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
    if !HOLDS.load(SeqCst) || is_within() {
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
    let current = (result.ok().is_ok() && !context.is_null()).then_some(context.0 as usize);
    let is_named = |key: &StreamKey| key.is_object() && *key != StreamKey::of_this_thread();
    let stream = key.filter(is_named).map(|key| key.0 as usize);
    let is_new = |stream: &usize| !seen_so_far().streams.contains_key(stream);
    // Asked while no lock is held.
    let owner = stream.filter(is_new).and_then(context_of);
    seen_so_far().note(current, stream, owner);
}

/// The context of a stream, which need not be the current one; None where the driver does not say.
fn context_of(stream: usize) -> Option<usize> {
    let mut context = CUcontext::NULL;
    let place = (&raw mut context).expose_provenance();
    // SAFETY: the driver writes one handle; the stream is the caller's, who is about to use it.
    let result = unsafe { forward::target_of(index::cuStreamGetCtx)(stream, place, 0, 0, 0, 0, 0, 0, 0, 0) };
    (result == CUresult::SUCCESS && !context.is_null()).then_some(context.0 as usize)
}

fn seen_so_far() -> MutexGuard<'static, Seen> {
    lock(made_once(&SEEN, || Mutex::new(Seen::default())))
}

/// Where work was begun.
pub(crate) fn seen() -> Seen {
    seen_so_far().clone()
}

/// A context is gone, and its streams with it. Without an heir it was waited for; with one its work may go on.
pub(super) fn context_ended(context: CUcontext, heir: Option<CUcontext>) {
    let heir = heir.map(|heir| heir.0 as usize);
    if HOLDS.load(SeqCst) && seen_so_far().context_ended(context.0 as usize, heir) {
        ORPHANED.store(true, SeqCst);
    }
}

/// A stream is about to be destroyed; its work goes on.
pub(super) fn stream_ends(stream: usize) {
    if HOLDS.load(SeqCst) && seen_so_far().streams.remove(&stream).is_some() {
        ORPHANED.store(true, SeqCst);
    }
}

/// Whether there may be work in streams that are gone. Once it was waited for, there is none.
pub(crate) fn take_orphaned() -> bool {
    ORPHANED.swap(false, SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_go_with_their_own_context() {
        let mut seen = Seen::default();
        seen.note(Some(1), Some(100), Some(1));
        // Copies are taken in streams of other contexts than the current one.
        seen.note(Some(1), Some(200), Some(2));
        seen.note(Some(3), Some(300), None);
        seen.note(Some(3), None, None);
        seen.note(Some(9), Some(100), None);
        assert!(!seen.context_ended(2, None));
        assert_eq!(seen.streams.keys().copied().collect::<Vec<_>>(), [100, 300]);
        assert!(!seen.context_ended(3, None));
        assert_eq!(seen.streams.keys().copied().collect::<Vec<_>>(), [100]);
        assert_eq!(seen.contexts.iter().copied().collect::<Vec<_>>(), [1, 9]);
    }

    #[test]
    fn a_stream_of_no_context_that_is_known_is_not_noted() {
        let mut seen = Seen::default();
        seen.note(None, Some(100), None);
        assert!(seen.streams.is_empty() && seen.contexts.is_empty());
    }

    #[test]
    fn the_heir_of_a_context_is_waited_for_in_its_place() {
        let mut seen = Seen::default();
        seen.note(Some(1), Some(100), Some(1));
        assert!(seen.context_ended(1, Some(2)));
        assert!(seen.streams.is_empty());
        assert_eq!(seen.contexts.iter().copied().collect::<Vec<_>>(), [2]);
        assert!(!seen.context_ended(1, Some(3)), "it left nothing behind");
    }
}
