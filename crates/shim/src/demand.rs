//! Demand: has this program work for the GPU?
//!
//! The page says since when it has none, and the daemon gives its turns to others then. What it must not say is "none"
//! while there is some: whoever is taken for idle stays frozen until it asks. So a program has work from the moment
//! before it hands some to the driver until somebody has waited for it, or seen that it is done; what is not understood
//! counts as work.
//!
//! | a driver function | counts as |
//! |---|---|
//! | in `launched.txt`, and the copies and memsets of `gated.txt` | work in a stream, until that stream, an event behind the work, or the context was waited for |
//! | waits, queries, events (`streams`, `events`) | what ends work |
//! | in `quiet.txt`, and those of `memory` that never wait for the GPU | nothing: it does not use the GPU |
//! | any other | work until it returns |
//! | one that the table does not have | work for ever, once the program was given its address |
//!
//! Not seen are functions behind `cuGetExportTable`, which runtimes take for other things than launches, and libraries for
//! video, ray tracing and graphics for their work: where one of those is loaded, or a video engine is in use, the program
//! counts as one that has work.
//!
//! - [`slots`]: how much was begun and is done, by stream. [`recorded`]: what events say about that.
//! - [`launch`]: the code of a launch, a few instructions. [`streams`], [`events`]: waits and queries.
//! - [`contexts`]: with more than one, the default stream and "the context" could be any of several.
//! - [`patience`]: whoever waits for the GPU sleeps while the program is frozen. [`mark`], [`awaited`]: for what.
//! - [`hold`]: where a program is frozen by holding its launches back, they wait there. [`vacate`]: while the driver puts its
//!   context away, all calls do.
//!
//! **Two threads.** One hands over work while another finds everything done. The first counts, then looks at the page;
//! the other says in the page that nothing is left, then counts again, and takes it back if there is more. All of it is
//! sequentially consistent, so one of them sees the other. The page has the same between this process and the daemon.
//!
//! Nothing here waits but those, and nothing but the events takes a lock.

mod awaited;
mod contexts;
mod events;
pub(crate) mod hold;
pub(crate) mod launch;
mod mark;
mod patience;
mod recorded;
mod slots;
mod streams;
#[cfg(test)]
mod tests;
mod unseen;
pub(crate) mod vacate;

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};

use cuda::CUresult;
use cuda::types::CUcontext;
use wire::{Page, ToDaemon, monotonic_ns};

use crate::forward;
use crate::gate::Widest;
use crate::guard::guarded;
use crate::sdk::{sight, stretches};
use crate::session::{self, Session};
use slots::{Slot, Slots};

pub(crate) use slots::StreamKey;

pub(crate) static WORK: Slots = Slots::new();

static NOBODY: Page = Page::of_nobody();
static HOLDING: Page = Page::of_nobody_idle();
/// The page of the first session, or one that nobody reads. With several sessions their pages say the same, because demand is
/// the whole process's.
static OWN: AtomicPtr<Page> = AtomicPtr::new((&raw const NOBODY).cast_mut());
/// All that a launch looks at: [`OWN`], or a page that sends every launch the long way.
pub(crate) static PAGE: AtomicPtr<Page> = AtomicPtr::new((&raw const NOBODY).cast_mut());

/// Launches go the long way until one was seen, for the shim's own hints.
static SIGHT: AtomicBool = AtomicBool::new(false);

/// It counts as one that has work, for ever.
static NEVER_IDLE: AtomicBool = AtomicBool::new(false);
/// See [`blind`].
static BLIND: AtomicBool = AtomicBool::new(false);

fn page() -> &'static Page {
    // SAFETY: what is stored here is never freed.
    unsafe { &*OWN.load(SeqCst) }
}

/// There is a new session: says in its page whether there is work.
pub(crate) fn begin() {
    if let Some(first) = session::first() {
        let page: &'static Page = &first.page;
        OWN.store(ptr::from_ref(page).cast_mut(), SeqCst);
        hold::begin();
        aim();
    }
    settle();
}

/// Has launches look at the page that is right for now.
fn aim() {
    let is_long = || hold::holds() || SIGHT.load(SeqCst) || vacate::is_closed();
    loop {
        let long = is_long();
        PAGE.store(if long { (&raw const HOLDING).cast_mut() } else { OWN.load(SeqCst) }, SeqCst);
        // Whoever has changed it meanwhile may have stored before.
        if is_long() == long {
            return;
        }
    }
}

/// In a forked child: there is no session and no work.
pub(crate) fn forget() {
    OWN.store((&raw const NOBODY).cast_mut(), SeqCst);
    PAGE.store((&raw const NOBODY).cast_mut(), SeqCst);
    WORK.forget();
    hold::forget();
    vacate::forget();
    if NEVER_IDLE.load(SeqCst) {
        // The child has the function too.
        WORK.enter();
    }
    events::forget();
    patience::forget();
    contexts::forget();
    SIGHT.store(false, SeqCst);
}

/// The program was given a function of the driver's that is not known here: from now on it may have work at any time.
pub(crate) fn blind() {
    BLIND.store(true, SeqCst);
    never_be_idle();
}

/// Whether the program may have work that is not seen. Nobody can hold that back.
pub(crate) fn is_blind() -> bool {
    BLIND.load(SeqCst)
}

fn never_be_idle() {
    if !NEVER_IDLE.swap(true, SeqCst) {
        // It never leaves. So where launches are held back nothing of the program is moved: nobody knows whether all of its
        // work is over.
        WORK.enter();
        stir();
    }
}

/// A program with these channel groups may have work that is not seen: then it has work from now on.
pub(crate) fn mind_groups(groups: &[channels::Group]) {
    if !BLIND.load(SeqCst) && unseen::is_likely(groups) {
        blind();
    }
}

/// At the end of the program the driver library waits for the GPU without a call that is seen.
pub(crate) fn mind_the_end() {
    extern "C" fn end() {
        guarded("the end of the program", || (), never_be_idle);
    }
    // Registered after the driver library's own, so it is called before that. Where it cannot be registered, the program
    // gets its turn for its end when nobody else wants one.
    // SAFETY: the function is there for as long as the process is: this library is never unloaded.
    let _ = unsafe { libc::atexit(end) };
}

/// A context is gone. Its heir, if it has one, waits for what it left behind.
pub(crate) fn context_ended(context: CUcontext, heir: Option<CUcontext>) {
    contexts::ended(context);
    hold::context_ended(context, heir);
}

/// The contexts of this process, but for programs that divide them.
pub(crate) fn contexts() -> Vec<CUcontext> {
    contexts::all()
}

/// The next launch goes the long way, so that it is seen.
fn watch_for_launch() {
    if !hold::holds() && !SIGHT.swap(true, SeqCst) {
        aim();
    }
}

/// A launch that went the long way, perhaps for that.
fn launch_seen() {
    if SIGHT.load(SeqCst) && SIGHT.swap(false, SeqCst) {
        aim();
        sight::launches();
    }
}

/// There is work, or may be: the page says so, and the daemon is told if it waits for that.
fn stir() {
    let page = page();
    if page.idle_since_ns().is_some() {
        stretches::begins(page);
        wake_all();
    }
}

thread_local! {
    /// Since when there is work of which the daemon is told once the driver has this thread's launch; 0 if it is told.
    static UNTOLD: Cell<u64> = const { Cell::new(0) };
}

/// The same before a launch. Somebody's request is not to wait until another thread is woken for word of it, which is why that may
/// go after the launch: where the program is latency-critical, and can be neither frozen nor kept out of the driver without being
/// found to have work. The daemon freezes it, then looks at the page ([`Page::wake`] has said that there is work); here it is the
/// other way round, so one of them sees the other, however long the driver keeps the launch.
fn stir_before_launch() {
    let mut sessions = session::all();
    let (Some(session), None) = (sessions.next(), sessions.next()) else { return stir() };
    let page: &Page = &session.page;
    if !page.critical() || hold::holds() || vacate::is_closed() {
        return stir();
    }
    if page.idle_since_ns().is_none() {
        return;
    }
    stretches::begins(page);
    let now = monotonic_ns();
    if !page.wake(now) {
        return;
    }
    let runs = !page.frozen() && page.resident();
    if !runs || UNTOLD.try_with(|untold| untold.set(now)).is_err() {
        tell(session, now);
    }
}

/// The driver has this thread's launch.
fn launched() {
    if let Ok(since @ 1..) = UNTOLD.try_with(Cell::take) {
        session::first().into_iter().for_each(|session| tell(session, since));
    }
}

/// The same where one page may say something else than the others.
fn wake_all() {
    let now = monotonic_ns();
    for session in session::all() {
        if session.page.wake(now) {
            tell(session, now);
        }
    }
}

fn tell(session: &Session, since_ns: u64) {
    session.say(ToDaemon::Wants { since_ns });
    session.wake_agent();
}

/// A new page says that there is work, which need not be so.
pub(crate) fn begin_again() {
    settle();
}

/// Some work is done. If nothing is left, the page says so.
fn settle() {
    if session::all().all(|session| session.page.idle_since_ns().is_some()) {
        return;
    }
    let Some(begun) = WORK.at_rest() else { return };
    let now = monotonic_ns();
    let mut rested = false;
    for session in session::all() {
        rested |= session.page.rest(now);
    }
    if !rested {
        return;
    }
    if WORK.at_rest() == Some(begun) {
        stretches::rests(page(), now, || WORK.handed_over());
    } else {
        // Something was begun meanwhile, and it may have looked at the first page before, or have woken only some.
        wake_all();
    }
}

/// Work in a stream that is being handed to the driver, until it is dropped.
pub(crate) struct Handover(&'static Slot);

impl Handover {
    pub(crate) fn begin(key: StreamKey) -> Self {
        Self::begin_with(key, stir)
    }

    fn begin_with(key: StreamKey, stir: fn()) -> Self {
        let known = key != StreamKey::of_this_thread() || streams::minds_this_thread();
        let slot = WORK.claim(if known { key } else { StreamKey::UNKNOWN });
        slot.begin();
        vacate::count();
        stir();
        vacate::pass();
        hold::pass(known.then_some(key));
        Self(slot)
    }

    fn slot(&self) -> &'static Slot {
        self.0
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.0.take();
        vacate::count_off();
    }
}

/// A call that may use the GPU, until it is dropped.
pub(crate) struct Inside(hold::Within);

impl Inside {
    pub(crate) fn enter() -> Self {
        WORK.enter();
        vacate::count();
        stir();
        vacate::pass();
        hold::pass(None);
        Self(hold::Within::enter())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        WORK.leave();
        vacate::count_off();
        settle();
    }
}

/// What a function does with the GPU, by the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Perhaps something, until it returns.
    UntilItReturns,
    /// Work in the stream that is this argument.
    Stream { argument: usize, per_thread: bool },
    /// Work in the default stream.
    Default { per_thread: bool },
    /// Work in the default stream, done when it returns with success.
    DefaultAndWaits { per_thread: bool },
}

/// Makes a call that uses the GPU in this way, with these arguments.
pub(crate) fn using(use_: Use, arguments: &[usize], call: impl FnOnce() -> CUresult) -> CUresult {
    let (stream, per_thread) = match use_ {
        Use::UntilItReturns => {
            let _inside = Inside::enter();
            return call();
        }
        Use::Stream { argument, per_thread } => (arguments[argument], per_thread),
        Use::Default { per_thread } | Use::DefaultAndWaits { per_thread } => (0, per_thread),
    };
    let input = sight::takes_input(page());
    let handover = Handover::begin(StreamKey::of(stream, per_thread));
    let within = hold::Within::enter();
    // Once it is counted: nobody takes the driver for vacant while this changes where launches look.
    if let Some(input) = input {
        input.tell();
        watch_for_launch();
    }
    // Copies of nothing need not wait.
    let waits = matches!(use_, Use::DefaultAndWaits { .. }) && arguments[BYTES_AT] != 0;
    let before = if waits { streams::point(stream, per_thread) } else { None };
    let result = call();
    drop(within);
    drop(handover);
    if result == CUresult::SUCCESS
        && let Some(before) = before
    {
        events::finish(streams::with_own(before));
    }
    result
}

/// The argument that says how much is copied, in functions that wait.
const BYTES_AT: usize = 2;

/// One function that may use the GPU until it returns: `build.rs` writes these.
///
/// About the arguments see [`gated!`](crate::gated).
#[macro_export]
macro_rules! brief {
    ($symbol:ident, $index:literal) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            e: usize,
            f: usize,
            g: usize,
            h: usize,
            i: usize,
            j: usize,
        ) -> cuda::CUresult {
            // SAFETY: the caller's arguments, as they came.
            $crate::demand::briefly($index, |real| unsafe { real(a, b, c, d, e, f, g, h, i, j) })
        }
    };
}

/// Makes a call that may use the GPU until it returns, by its index in the table.
pub(crate) fn briefly(index: usize, call: impl FnOnce(Widest) -> CUresult) -> CUresult {
    let real = forward::target_of(index);
    // A panic in the driver's own code is none of ours: only the counting is guarded.
    let inside = guarded("counting a call", || None, || Some(Inside::enter()));
    let result = call(real);
    guarded("counting a call", || (), || drop(inside));
    result
}

/// A function that ends an object: what is known of it is forgotten before it is gone, because its handle may be another's
/// at once.
#[macro_export]
macro_rules! forgetting {
    ($($(#[$doc:meta])* $symbol:ident: $forget:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As for the driver's function.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol(object: usize) -> CUresult {
                let forget: fn(usize) = $forget;
                guarded(stringify!($symbol), || (), || forget(object));
                $crate::demand::briefly(index::$symbol, |real| {
                    // SAFETY: the caller's argument, as it came.
                    unsafe { real(object, 0, 0, 0, 0, 0, 0, 0, 0, 0) }
                })
            }
        )*
    };
}

/// What is there, made if it is not.
pub(crate) fn made_once<T>(place: &'static AtomicPtr<T>, make: impl FnOnce() -> T) -> &'static T {
    let mut current = place.load(SeqCst);
    if current.is_null() {
        let fresh = Box::into_raw(Box::new(make()));
        current = match place.compare_exchange(ptr::null_mut(), fresh, SeqCst, SeqCst) {
            Ok(_) => fresh,
            Err(theirs) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                theirs
            }
        };
    }
    // SAFETY: what is stored is never freed.
    unsafe { &*current }
}
