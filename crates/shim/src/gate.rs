//! The gate: calls that need memory under the program's addresses wait here while there is none.
//!
//! A frozen program's CPU threads go on. A kernel launch is only a note in a queue that the frozen GPU does not read, but
//! copies, memsets and some others look up their addresses when they are called. With the memory away most return
//! CUDA_ERROR_INVALID_VALUE; those that guess the kind of memory take the address for the host's, and hang or crash. So
//! the functions in `gated.txt` come through here: they are counted, and held back while the gate is closed.
//!
//! The agent closes the gate before it unmaps anything and opens it when memory lies under every address again. It
//! cannot wait for every call inside, because some sit in the driver until the program is thawed; those have looked
//! up their addresses long ago. So each call notes when it came in, closing waits a moment for everybody and until none
//! inside is younger than [`SETTLE`], and a call that was caught in between all the same and failed is made again.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Release, SeqCst},
};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use cuda::CUresult;

use crate::demand::{self, Use};
use crate::forward;
use crate::guard::{guarded, lock};
use crate::session;

/// How long after it came in a call is done with its addresses. It is through its look-up in microseconds, unless the
/// system takes its thread off the processor just there; what stays longer waits for the GPU. A tenth of it is for the
/// clock, which is a cheap one and goes by steps of up to 10 ms.
const SETTLE: Duration = Duration::from_millis(110);
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// How long any call inside is waited for, however old: a program that was stopped in the middle of its look-up and now
/// goes on has not had the time that has passed.
const GRACE: Duration = Duration::from_millis(5);

/// The most that one look counts as time spent waiting, for the same reason.
const STEP_NS_MAX: u64 = 1_000_000;

/// How often a call is made again that failed because memory was moved in its middle.
const AGAIN_MAX: usize = 100;

/// How many calls inside note their time. Those beyond are only counted.
const SLOTS: usize = 32;

/// When a call came in, by [`now_ns`]; 0 while it is nobody's. One cache line each: threads don't disturb each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(AtomicU64);

/// A gate. Open at first.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    inside: [Slot; SLOTS],
    /// Calls inside that found no slot.
    crowd: AtomicU32,
    /// How often it was closed.
    closings: AtomicU64,
    lock: Mutex<()>,
    opened: Condvar,
}

impl Gate {
    /// Makes a call while the gate is open.
    pub(crate) fn pass(&self, call: impl Fn() -> CUresult) -> CUresult {
        for _ in 0..AGAIN_MAX {
            // Before the gate is seen open: a closing that comes in between counts as one during the call.
            let before = self.closings.load(SeqCst);
            let inside = self.enter();
            let result = call();
            drop(inside);
            let address_unknown = matches!(result, CUresult::INVALID_VALUE | CUresult::NOT_FOUND);
            if !address_unknown || self.closings.load(SeqCst) == before {
                return result;
            }
        }
        call()
    }

    /// Makes a call while all of these gates are open.
    fn pass_several<'a>(
        gates: impl Iterator<Item = &'a Self> + Clone,
        call: impl Fn() -> CUresult,
    ) -> CUresult {
        let closings = || gates.clone().map(|gate| gate.closings.load(SeqCst)).sum::<u64>();
        for _ in 0..AGAIN_MAX {
            let before = closings();
            let inside = Self::enter_several(gates.clone());
            let result = call();
            drop(inside);
            let address_unknown = matches!(result, CUresult::INVALID_VALUE | CUresult::NOT_FOUND);
            if !address_unknown || closings() == before {
                return result;
            }
        }
        call()
    }

    /// Notes a call as inside all of them once they are open. Who waits at one is inside none: the others would take it for
    /// a call that is done with its addresses.
    fn enter_several<'a>(gates: impl Iterator<Item = &'a Self> + Clone) -> Vec<Inside<'a>> {
        loop {
            let inside = gates.clone().map(Self::note).collect();
            let Some(closed) = gates.clone().find(|gate| gate.closed.load(SeqCst)) else { return inside };
            drop(inside);
            closed.wait();
        }
    }

    /// No call may begin from here on. Returns when those inside are done, or have had time enough. Where it is closed
    /// already, whoever closed it has waited.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, SeqCst) {
            return;
        }
        self.closings.fetch_add(1, SeqCst);
        let (mut spent, mut last) = (0, wire::monotonic_ns());
        while self.is_anyone_busy(spent, now_ns()) {
            std::thread::sleep(LOOK_AGAIN);
            let now = wire::monotonic_ns();
            spent += (now - last).min(STEP_NS_MAX);
            last = now;
        }
    }

    /// Whether a call inside may still look at its addresses, for a closing that has spent so long waiting.
    fn is_anyone_busy(&self, spent: u64, now: u64) -> bool {
        let settle = SETTLE.as_nanos() as u64;
        let is_young = |since: u64| now.saturating_sub(since) < settle;
        let mut since =
            self.inside.iter().map(|slot| slot.0.load(SeqCst)).filter(|since| *since != 0).peekable();
        let is_anyone_inside = self.crowd.load(SeqCst) != 0 || since.peek().is_some();
        if spent < GRACE.as_nanos() as u64 {
            return is_anyone_inside;
        }
        // Whoever comes in after the gate was closed goes straight out again.
        spent < settle && (self.crowd.load(SeqCst) != 0 || since.any(is_young))
    }

    /// Calls may begin again.
    pub(crate) fn open(&self) {
        // Under the lock, so that no thread misses it between its look and its wait.
        let _held = lock(&self.lock);
        self.closed.store(false, SeqCst);
        self.opened.notify_all();
    }

    /// Notes a call as inside once the gate is open.
    fn enter(&self) -> Inside<'_> {
        loop {
            let inside = self.note();
            // Either `close` sees this call inside, or this call sees the gate closed.
            if !self.closed.load(SeqCst) {
                return inside;
            }
            drop(inside);
            self.wait();
        }
    }

    /// Waits until it is open.
    fn wait(&self) {
        // It opens only if this program gets a turn.
        let _waiting = demand::Inside::enter();
        demand::vacate::aside(|| {
            let mut held = lock(&self.lock);
            while self.closed.load(SeqCst) {
                held = self.opened.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
        });
    }

    fn note(&self) -> Inside<'_> {
        let (first, now) = (first_slot(), now_ns());
        for index in 0..SLOTS {
            let slot = &self.inside[(first + index) % SLOTS].0;
            if slot.compare_exchange(0, now, SeqCst, SeqCst).is_ok() {
                return Inside::Slot(slot);
            }
        }
        self.crowd.fetch_add(1, SeqCst);
        Inside::Crowd(&self.crowd)
    }
}

/// One call inside a gate, until it is dropped.
enum Inside<'a> {
    Slot(&'a AtomicU64),
    Crowd(&'a AtomicU32),
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        match self {
            // Seen late, it only makes a closing wait for longer.
            Self::Slot(slot) => slot.store(0, Release),
            Self::Crowd(crowd) => drop(crowd.fetch_sub(1, SeqCst)),
        }
    }
}

/// Where this thread looks for a free slot first: by where its stack is.
fn first_slot() -> usize {
    let here = 0u8;
    let page = (&raw const here).addr() >> 12;
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SLOTS.ilog2())
}

/// Nanoseconds on a clock that only goes forward, by steps of a few milliseconds; never 0.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes one time. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).max(1)
}

/// A driver function with all the arguments that any gated one has, in registers and on the stack.
pub(crate) type Widest =
    unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize, usize, usize) -> CUresult;

/// Makes a gated driver function's call, by its index in the table.
pub(crate) fn through(
    index: usize,
    use_: Use,
    arguments: &[usize],
    call: impl Fn(Widest) -> CUresult,
) -> CUresult {
    let real = forward::target_of(index);
    let pass = || pass_all(|| call(real));
    // Demand comes first: who waits at the gate needs a turn for it to open.
    guarded("the gate", || CUresult::UNKNOWN, || demand::using(use_, arguments, pass))
}

/// Makes a call while memory lies under all addresses of the program, on whichever GPU: nobody knows which the call is about.
pub(crate) fn pass_all(call: impl Fn() -> CUresult) -> CUresult {
    let mut sessions = session::all();
    match (sessions.next(), sessions.next()) {
        (None, _) => call(),
        (Some(one), None) => one.gate.pass(call),
        _ => Gate::pass_several(session::all().map(|session| &session.gate), call),
    }
}

/// One gated function: `build.rs` writes these from `gated.txt`.
///
/// Whatever its arguments are, they are passed on as they came: all of them are integers and pointers, and there are ten
/// at most, of which a call leaves the first six in registers and the others on the stack. With fewer, what is read
/// instead is the caller's own, and the driver's function does not look at it.
#[macro_export]
macro_rules! gated {
    ($symbol:ident, $index:literal, $use:expr) => {
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
            let call = |real: $crate::gate::Widest| {
                // SAFETY: the caller's arguments, as they came.
                unsafe { real(a, b, c, d, e, f, g, h, i, j) }
            };
            $crate::gate::through($index, $use, &[a, b, c, d, e, f, g, h, i, j], call)
        }
    };
}

#[cfg(test)]
mod tests;
