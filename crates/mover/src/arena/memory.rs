//! The keeper's segments in this process: mapped, and registered with the device one by one, on a thread of its own. What
//! somebody waits for comes first, the rest in the order in which the keeper hands it out.
//!
//! **Gently**: registering 64 MiB keeps the driver's lock for 5 to 10 ms, in which nobody is frozen or thawed. While that
//! matters, segments are registered in short steps, with pauses unless a move waits. No copy may cross the end of a step: to
//! the driver each is a memory of its own.
//!
//! **Not while others need the driver**: whoever registers one segment after the other has the driver's lock all the time, and
//! nobody else gets a word in before the last. So while somebody [holds it back](Memory::hold_back), only what a move waits for
//! is registered.
//!
//! **A quick end**: the kernel takes 25 ms for each GiB that a dying process has in its page tables, and nobody is served
//! meanwhile. So what is registered leaves them again: the driver has its pages, and who reads it by address, finds it. Who
//! ends by itself need not [unregister](Memory::stay_registered) either, segment by segment: the kernel does that at once.

use super::ArenaError;
use super::link::Link;
use crate::device::Registrar;
use keeper::client::{View, ViewError};
use keeper::message::SegmentView;
use keeper::{ClientError, Extent, Welcome};
use rustix::mm::{Advice, madvise};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the keeper is asked for more while its arena grows.
const LOOK: Duration = Duration::from_millis(2);

/// A short step: about a millisecond of the driver's lock.
pub(super) const STEP_BYTES: u64 = 8 << 20;
/// Between short steps that nobody waits for.
const PAUSE: Duration = Duration::from_millis(4);

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Registered>>,
}

/// What is registered, and with what.
struct Registered {
    registrar: Box<dyn Registrar>,
    /// Segments, or parts of some.
    steps: Vec<Extent>,
}

#[derive(Debug)]
struct Shared {
    segment_bytes: u64,
    view: RwLock<View>,
    state: Mutex<State>,
    /// Something in `state` has changed.
    news: Condvar,
}

/// Segments are named by their offsets.
#[derive(Debug, Default)]
struct State {
    /// Mapped and not registered: how long each is.
    waiting: BTreeMap<u64, u64>,
    /// Mapped, and registered as far as they ever will be.
    usable: BTreeSet<u64>,
    /// Those of them that were registered in short steps.
    in_steps: BTreeSet<u64>,
    /// A move waits for these.
    wanted: BTreeSet<u64>,
    /// The next one is registered in short steps.
    is_gentle: bool,
    /// How many need the driver for something else.
    holds: usize,
    /// The keeper has handed over all that it will.
    is_complete: bool,
    /// Nothing changes any more.
    ended: bool,
    stop: bool,
    /// At the end nothing is unregistered.
    stays_registered: bool,
    stopped: Option<String>,
}

impl State {
    /// The first reason is the one that explains the others.
    fn explain(&mut self, why: String) {
        tracing::warn!(why, "the arena stays smaller than wanted, or slower");
        self.stopped.get_or_insert(why);
    }

    /// What to register next.
    fn next(&self) -> Option<Extent> {
        let wanted = self.wanted.iter().find_map(|offset| self.waiting.get_key_value(offset));
        let unwanted = || self.waiting.first_key_value().filter(|_| self.holds == 0);
        let (&offset, &bytes) = wanted.or_else(unwanted)?;
        Some(Extent { offset, bytes })
    }
}

impl Memory {
    pub(super) fn open(
        welcome: &Welcome,
        link: Arc<Link>,
        registrar: Box<dyn Registrar>,
    ) -> Result<Memory, ArenaError> {
        let shared = Arc::new(Shared {
            segment_bytes: welcome.segment_bytes,
            view: RwLock::new(View::new(welcome)?),
            state: Mutex::default(),
            news: Condvar::new(),
        });
        let work = Work { shared: Arc::clone(&shared), link, known: 0, grows: true, registers: true };
        let thread = std::thread::Builder::new()
            .name("rota-arena".to_owned())
            .spawn(move || work.run(registrar))
            .map_err(|error| ArenaError::Thread { why: error.to_string() })?;
        Ok(Memory { shared, thread: Some(thread) })
    }

    /// Whether the keeper may hand over more.
    pub(super) fn may_grow(&self) -> bool {
        let state = self.shared.state();
        !state.is_complete && !state.ended
    }

    /// Whether something is to be registered still, or mapped.
    pub(super) fn is_growing(&self) -> bool {
        !self.shared.state().ended
    }

    pub(super) fn stopped(&self) -> Option<String> {
        self.shared.state().stopped.clone()
    }

    pub(super) fn wait_until_prepared(&self) {
        let mut state = self.shared.state();
        while !state.ended {
            state = self.shared.wait(state);
        }
    }

    /// Has what is registered from now on be so in short steps, or not.
    pub(super) fn be_gentle(&self, yes: bool) {
        self.shared.state().is_gentle = yes;
    }

    /// Has nothing be registered that no move waits for.
    pub(super) fn hold_back(&self) -> HeldBack {
        self.shared.state().holds += 1;
        HeldBack(Arc::clone(&self.shared))
    }

    /// A run, in parts that are each registered as one.
    pub(super) fn registered_parts(&self, run: Extent) -> Vec<Extent> {
        let segment = run.offset / self.shared.segment_bytes * self.shared.segment_bytes;
        match self.shared.state().in_steps.contains(&segment) {
            true => steps(run, segment, STEP_BYTES).collect(),
            false => vec![run],
        }
    }

    /// Waits until these runs are mapped, and registered as far as they will be. Says whether it had to wait.
    pub(super) fn make_usable(&self, runs: &[Extent]) -> Result<bool, ArenaError> {
        let segment_bytes = self.shared.segment_bytes;
        let mut state = self.shared.state();
        let mut has_waited = false;
        loop {
            let segments = runs.iter().map(|run| run.offset / segment_bytes * segment_bytes);
            let missing: Vec<u64> = segments.filter(|offset| !state.usable.contains(offset)).collect();
            if missing.is_empty() {
                return Ok(has_waited);
            }
            if state.ended {
                let why =
                    state.stopped.clone().unwrap_or_else(|| "the keeper did not hand it over".to_owned());
                return Err(ArenaError::NotMapped { why });
            }
            has_waited = true;
            state.wanted.extend(missing);
            self.shared.news.notify_all();
            state = self.shared.wait(state);
        }
    }

    pub(super) fn address(&self, run: Extent) -> *mut u8 {
        let view = self.shared.view.read().unwrap_or_else(PoisonError::into_inner);
        view.address(run).expect("only what was made usable is asked for")
    }

    /// The process ends with this: what is registered is left to the kernel.
    pub(super) fn stay_registered(&self) {
        self.shared.state().stays_registered = true;
    }

    /// Stops, and unregisters everything, unless that is left to the kernel. No copy may be under way.
    pub(super) fn undo(&mut self) {
        self.shared.state().stop = true;
        self.shared.news.notify_all();
        let Some(Ok(mut registered)) = self.thread.take().map(JoinHandle::join) else { return };
        if self.shared.state().stays_registered {
            // What is registered has to stay mapped, and its context has to stay.
            std::mem::forget((Arc::clone(&self.shared), registered));
            return;
        }
        for step in registered.steps {
            let start = self.address(step);
            // SAFETY: it was registered by this registrar, and the caller says that no copy is under way.
            if let Err(error) = unsafe { registered.registrar.unregister(start) } {
                tracing::warn!(%error, offset = step.offset, "cannot unregister a part of the arena");
            }
        }
    }
}

/// Until it is dropped, nothing is registered that no move waits for.
#[derive(Debug)]
#[must_use]
pub struct HeldBack(Arc<Shared>);

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.0.state().holds -= 1;
        self.0.news.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.news.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread has.
struct Work {
    shared: Arc<Shared>,
    link: Arc<Link>,
    /// Segments that the keeper has handed over.
    known: u32,
    /// The keeper may have more.
    grows: bool,
    /// The device has refused none yet.
    registers: bool,
}

impl Work {
    fn run(mut self, registrar: Box<dyn Registrar>) -> Registered {
        let mut registered = Registered { registrar, steps: Vec::new() };
        loop {
            if self.grows {
                self.fetch();
            }
            let mut state = self.shared.state();
            if state.stop || (!self.grows && state.waiting.is_empty()) {
                state.ended = true;
                self.shared.news.notify_all();
                return registered;
            }
            match state.next() {
                Some(segment) => {
                    drop(state);
                    self.register(segment, &mut registered);
                }
                None => drop(self.shared.news.wait_timeout(state, LOOK)),
            }
        }
    }

    /// Maps what has become ready.
    fn fetch(&mut self) {
        let Work { shared, link, known, .. } = self;
        let mut failed = None;
        let fetched = link.ask(|client| {
            // First, so that all is there of what has stopped to grow.
            let progress = client.progress()?;
            client.segments(*known, |segment: SegmentView, file: OwnedFd| -> Result<(), ClientError> {
                *known += 1;
                if let Err(error) = shared.map(segment, &file) {
                    failed = Some(error.to_string());
                }
                Ok(())
            })?;
            Ok(progress)
        });
        let mut state = shared.state();
        if let Some(why) = failed {
            state.explain(why);
        }
        match fetched {
            Ok(progress) => {
                self.grows = progress.growing;
                if let Some(why) = progress.stopped.filter(|_| !progress.growing) {
                    state.explain(why);
                }
            }
            Err(error) => {
                self.grows = false;
                state.explain(error.to_string());
            }
        }
        state.is_complete = !self.grows;
    }

    /// Registers a segment. Once the device has refused one, the others are not tried: what hinders it will again.
    fn register(&mut self, segment: Extent, registered: &mut Registered) {
        let is_gentle = self.shared.state().is_gentle;
        let step_bytes = if is_gentle { STEP_BYTES } else { segment.bytes };
        for step in steps(segment, segment.offset, step_bytes) {
            if self.registers {
                self.register_step(step, registered);
            }
            if is_gentle {
                self.pause();
            }
        }
        let mut state = self.shared.state();
        if is_gentle {
            state.in_steps.insert(segment.offset);
        }
        state.waiting.remove(&segment.offset);
        state.wanted.remove(&segment.offset);
        state.usable.insert(segment.offset);
        self.shared.news.notify_all();
    }

    fn register_step(&mut self, step: Extent, registered: &mut Registered) {
        let view = self.shared.view.read().unwrap_or_else(PoisonError::into_inner);
        let start = view.address(step).expect("what waits is mapped");
        drop(view);
        // SAFETY: the segment is mapped; the view outlives the registration, which `undo` ends first.
        match unsafe { registered.registrar.register(start, step.bytes) } {
            Ok(()) => {
                registered.steps.push(step);
                // SAFETY: a shared mapping of a file: what leaves the page tables is in the file. Where that fails, it is not.
                let _ = unsafe { madvise(start.cast(), step.bytes as usize, Advice::LinuxDontNeed) };
            }
            Err(error) => {
                self.registers = false;
                let why = format!("cannot pin {} bytes: {error}; copies there are slow", step.bytes);
                self.shared.state().explain(why);
            }
        }
    }

    /// Leaves the driver to others for a moment, unless somebody waits, or it ends.
    fn pause(&self) {
        let state = self.shared.state();
        let nobody_waits = |state: &mut State| state.wanted.is_empty() && !state.stop;
        drop(self.shared.news.wait_timeout_while(state, PAUSE, nobody_waits));
    }
}

/// A run, cut at every so many bytes from an origin at or before it.
fn steps(run: Extent, origin: u64, step_bytes: u64) -> impl Iterator<Item = Extent> {
    let end = run.offset + run.bytes;
    let next = move |start: u64| (start - origin) / step_bytes * step_bytes + step_bytes + origin;
    let starts = std::iter::successors(Some(run.offset), move |&start| Some(next(start)));
    let step = move |start: u64| Extent { offset: start, bytes: next(start).min(end) - start };
    starts.take_while(move |&start| start < end).map(step)
}

impl Shared {
    fn map(&self, segment: SegmentView, file: &OwnedFd) -> Result<(), ViewError> {
        self.view.write().unwrap_or_else(PoisonError::into_inner).map(segment, file)?;
        self.state().waiting.insert(segment.offset, segment.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_cut_where_steps_end_and_nowhere_else() {
        let cut = |offset, bytes| {
            let steps = steps(Extent { offset, bytes }, 100, 10);
            steps.map(|step| (step.offset, step.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(cut(100, 25), [(100, 10), (110, 10), (120, 5)]);
        assert_eq!(cut(113, 9), [(113, 7), (120, 2)]);
        assert_eq!(cut(113, 7), [(113, 7)]);
        assert_eq!(cut(119, 1), [(119, 1)]);
        assert_eq!(cut(100, 0), []);
    }
}
