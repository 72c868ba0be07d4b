//! Warm-ups: an empty kernel in the program's context, so that the GPU has loaded that before a request needs it.
//!
//! A thread of its own launches it. Loading the kernel may wait for the GPU, and the agent never does: it only rings. What is
//! wanted the page says, and where that is about to change the thread is awake for it ([`watch`]). Whatever fails is counted in
//! the page and otherwise of no consequence. Nothing is launched while the program is frozen, its memory or its context is away,
//! or a stream is captured; and nothing is loaded, which takes the driver 20 ms, once the program has work.

mod watch;

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use cuda::types::{CUcontext, CUdevice, CUfunction, CUmodule, CUstream, CUstreamCaptureMode};
use cuda::{CUresult, CudaError, Driver};
use wire::Page;

use crate::demand::{self, made_once};
use crate::guard::{guarded, lock};
use crate::memory::{captures, physical};
use crate::session::Session;
use crate::settings;
use watch::{Noticed, Watch};

const PTX: &str = concat!(include_str!("../../../../kernels/warm_up.ptx"), "\0");

/// A stream that does not wait for the default stream, nor that for it.
const NON_BLOCKING: c_uint = 1;

/// How often loading is tried in one context.
const TRIES_MAX: u32 = 3;

/// Programs with more contexts than this have no one context that a request needs.
const CONTEXTS_MAX: usize = 4;

/// What is loaded, by context. Held while a kernel is loaded or launched, and by whoever ends a context. Made lazily, so that a
/// child of `fork` finds no lock that was held.
static LOADED: AtomicPtr<Mutex<Loaded>> = AtomicPtr::new(ptr::null_mut());

/// See [`LOADED`].
#[derive(Debug, Default)]
pub(crate) struct Loaded(BTreeMap<usize, Try>);

#[derive(Clone, Copy, Debug)]
enum Try {
    Failed(u32),
    Ready(Kernel),
}

#[derive(Clone, Copy, Debug)]
struct Kernel {
    function: CUfunction,
    stream: CUstream,
}

/// The thread of a session that launches warm-ups, once there is one.
#[derive(Debug, Default)]
pub(crate) struct Warmer {
    state: Mutex<Rung>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    started: bool,
    rung: bool,
}

/// Keeps warm-ups from all contexts while one is ended.
pub(crate) fn keep_off() -> MutexGuard<'static, Loaded> {
    lock(made_once(&LOADED, Mutex::default))
}

impl Loaded {
    /// A context is gone, and what was loaded in it.
    pub(crate) fn forget(&mut self, context: CUcontext) {
        self.0.remove(&(context.0 as usize));
    }
}

/// In a forked child: nothing is loaded.
pub(crate) fn forget() {
    LOADED.store(ptr::null_mut(), SeqCst);
}

/// The daemon wants a warm-up, for a hint, or so that the kernel is loaded when one comes; or it is about to want one.
pub(super) fn ring(session: &'static Session) {
    if crate::sdk::hints_are_off() {
        return;
    }
    let mut state = lock(&session.warmer.state);
    state.rung = true;
    if !state.started {
        // From now on it hears of each hint, and a request is close behind.
        wire::be_prompt_as_guest();
        let work = move || guarded("the warm-up thread", || (), || run(session));
        state.started = super::start_thread("rota-warm-up", work).is_ok();
    }
    if !state.started {
        session.page.count_warm_up(false);
    }
    session.warmer.bell.notify_one();
}

fn run(session: &'static Session) {
    let mut mode = CUstreamCaptureMode::RELAXED;
    // SAFETY: the driver reads and writes one number.
    let _ = unsafe { (session.driver.cuThreadExchangeStreamCaptureMode)(&mut mode) };
    demand::hold::exempt_this_thread();
    wire::be_prompt_as_guest();
    let stays_awake = settings::stays_awake();
    if stays_awake {
        session.page.await_warm_ups();
    }
    let mut watch = Watch::new(stays_awake);
    loop {
        let mut state = lock(&session.warmer.state);
        while !std::mem::take(&mut state.rung) {
            state = session.warmer.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let load = || {
            in_contexts(session, |loaded, context| kernel_of(session, loaded, context).is_some());
        };
        let Some(noticed) = watch.rung(&session.page, load, || session.has_ended()) else { continue };
        let launched = in_contexts(session, |loaded, context| launch_in(session, loaded, context));
        session.page.count_warm_up(launched);
        if launched && noticed == Noticed::Awake {
            session.page.count_awaited_warm_up();
        }
    }
}

/// Does something in all contexts of the session's GPU, where that may be. False where it was done in none.
fn in_contexts(session: &Session, mut act: impl FnMut(&mut Loaded, CUcontext) -> bool) -> bool {
    let mut loaded = keep_off();
    let contexts = demand::contexts();
    if contexts.len() > CONTEXTS_MAX {
        return false;
    }
    let mut done = false;
    for context in contexts {
        done |= may_launch(session)
            && physical::within(session.driver, context, || {
                is_on(session.driver, session.device) && act(&mut loaded, context)
            });
    }
    done
}

/// Whether none is loaded or launched just now. Whoever closes the way to the driver first sees it so, or is seen.
pub(crate) fn is_off() -> bool {
    made_once(&LOADED, Mutex::default).try_lock().is_ok()
}

fn may_launch(session: &Session) -> bool {
    !demand::vacate::is_closed() && !session.has_ended() && page_allows(&session.page)
}

/// Whatever was ordered when: what stands in the page at the instant of the launch counts.
fn page_allows(page: &Page) -> bool {
    !page.frozen() && page.resident() && !page.holds_launches()
}

/// Has a request begun, or anything else that needs the driver, since whoever ordered this looked?
fn has_request(page: &Page) -> bool {
    page.requests_open() > 0 || page.idle_since_ns().is_none()
}

/// Is the current context on this device?
fn is_on(driver: &Driver, device: CUdevice) -> bool {
    let mut found = CUdevice(0);
    // SAFETY: the driver writes one number.
    let asked = unsafe { (driver.cuCtxGetDevice)(&mut found) };
    asked == CUresult::SUCCESS && found == device
}

/// The kernel in the current context, loaded if it is not.
fn kernel_of(session: &Session, loaded: &mut Loaded, context: CUcontext) -> Option<Kernel> {
    let place = loaded.0.entry(context.0 as usize).or_insert(Try::Failed(0));
    match *place {
        Try::Ready(kernel) => Some(kernel),
        Try::Failed(tries) if tries >= TRIES_MAX => None,
        // Its first work would wait for the driver, for longer than a warm-up spares it. There is another order in the next pause.
        Try::Failed(_) if has_request(&session.page) => None,
        // Not tried while there is a capture.
        Try::Failed(tries) => match captures::unless_any(|| load(session.driver))? {
            Err(_) => {
                *place = Try::Failed(tries + 1);
                None
            }
            Ok(kernel) => {
                *place = Try::Ready(kernel);
                Some(kernel)
            }
        },
    }
}

fn launch_in(session: &Session, loaded: &mut Loaded, context: CUcontext) -> bool {
    let driver = session.driver;
    let Some(kernel) = kernel_of(session, loaded, context) else { return false };
    // It may have been frozen while the kernel was loaded: then this would wait in its queue for no use.
    if !may_launch(session) {
        return false;
    }
    let Kernel { function, stream } = kernel;
    let (none, no_words) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: function and stream are of this context, which is there: whoever ends it waits for this. It takes no parameters.
    let call = || unsafe { (driver.cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, none, no_words) };
    captures::look_unless_any(call) == Some(CUresult::SUCCESS)
}

fn load(driver: &Driver) -> Result<Kernel, CudaError> {
    let mut module = CUmodule::NULL;
    let mut function = CUfunction::NULL;
    let mut stream = CUstream::NULL;
    // SAFETY: the text ends with a zero, and so does the name; the driver writes one handle each.
    unsafe {
        (driver.cuModuleLoadData)(&mut module, PTX.as_ptr().cast()).ok()?;
        (driver.cuModuleGetFunction)(&mut function, module, c"warm_up".as_ptr()).ok()?;
        (driver.cuStreamCreate)(&mut stream, NON_BLOCKING).ok()?;
    }
    Ok(Kernel { function, stream })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::SharedPage;

    #[test]
    fn nothing_is_launched_while_the_program_is_frozen_or_away_whatever_is_ordered() {
        let page = SharedPage::create(1).unwrap();
        page.order_warm_up();
        assert!(page_allows(&page));
        page.set_frozen(true);
        assert!(!page_allows(&page));
        page.set_frozen(false);
        page.revoke_residency();
        assert!(!page_allows(&page));
        page.commit_residency(2);
        assert!(page_allows(&page));
        page.set_holds_launches();
        assert!(!page_allows(&page));
    }

    #[test]
    fn nothing_is_loaded_once_a_request_has_begun() {
        let page = SharedPage::create(1).unwrap();
        assert!(has_request(&page), "nobody knows");
        assert!(page.rest(1));
        assert!(!has_request(&page));
        page.set_requests_open(1);
        assert!(has_request(&page), "its first work is to come");
        page.set_requests_open(0);
        assert!(!has_request(&page));
        assert!(!page.wake(2), "nobody watches");
        assert!(has_request(&page), "nobody told of it");
    }
}
