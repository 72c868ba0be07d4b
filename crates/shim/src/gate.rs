//! The gate: calls that need memory under the program's addresses wait here while there is none.
//!
//! A frozen program's CPU threads go on. A kernel launch is only a note in a queue that the frozen GPU does not read, but
//! copies, memsets and some others look up their addresses when they are called. With the memory away most return
//! CUDA_ERROR_INVALID_VALUE; those that guess the kind of memory take the address for the host's, and hang or crash. So
//! the functions in `gated.txt` come through here: they are counted, and held back while the gate is closed.
//!
//! The agent closes the gate before it unmaps anything and opens it when memory lies under every address again. It
//! cannot wait for every call inside, because some sit in the driver until the program is thawed; those have looked
//! up their addresses long ago. It waits for a while, and a call that was caught in between all the same and failed is
//! made again.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cuda::CUresult;

use crate::forward;
use crate::guard::{guarded, lock};
use crate::session;

/// How long closing waits for calls inside. A call that waits for the GPU stays longer; one that does not is through its
/// look-up in microseconds, unless the system takes its thread off the processor just there.
const SETTLE: Duration = Duration::from_millis(10);
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// How often a call is made again that failed because memory was moved in its middle.
const AGAIN_MAX: usize = 100;

/// A gate. Open at first.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    inside: AtomicU32,
    /// How often it was closed.
    closings: AtomicU64,
    lock: Mutex<()>,
    opened: Condvar,
}

impl Gate {
    /// Makes a call while the gate is open.
    pub(crate) fn pass(&self, call: impl Fn() -> CUresult) -> CUresult {
        for _ in 0..AGAIN_MAX {
            let before = self.enter();
            let result = call();
            self.inside.fetch_sub(1, SeqCst);
            let address_unknown = matches!(result, CUresult::INVALID_VALUE | CUresult::NOT_FOUND);
            if !address_unknown || self.closings.load(SeqCst) == before {
                return result;
            }
        }
        call()
    }

    /// No call may begin from here on. Returns when those inside are done, or have had time enough.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, SeqCst) {
            return;
        }
        self.closings.fetch_add(1, SeqCst);
        let deadline = Instant::now() + SETTLE;
        while self.inside.load(SeqCst) != 0 && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Calls may begin again.
    pub(crate) fn open(&self) {
        // Under the lock, so that no thread misses it between its look and its wait.
        let _held = lock(&self.lock);
        self.closed.store(false, SeqCst);
        self.opened.notify_all();
    }

    /// Counts a call in once the gate is open. Returns how often it had been closed by then.
    fn enter(&self) -> u64 {
        loop {
            self.inside.fetch_add(1, SeqCst);
            // Either `close` sees this call inside, or this call sees the gate closed.
            if !self.closed.load(SeqCst) {
                return self.closings.load(SeqCst);
            }
            self.inside.fetch_sub(1, SeqCst);
            let mut held = lock(&self.lock);
            while self.closed.load(SeqCst) {
                held = self.opened.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// A driver function with all the arguments that any gated one has, in registers and on the stack.
pub(crate) type Widest =
    unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize, usize, usize) -> CUresult;

/// Makes a gated driver function's call, by its index in the table.
pub(crate) fn through(index: usize, call: impl Fn(Widest) -> CUresult) -> CUresult {
    let real = forward::target_of(index);
    match session::current() {
        Some(session) => guarded("the gate", || CUresult::UNKNOWN, || session.gate.pass(|| call(real))),
        None => call(real),
    }
}

/// One gated function: `build.rs` writes these from `gated.txt`.
///
/// Whatever its arguments are, they are passed on as they came: all of them are integers and pointers, and there are ten
/// at most, of which a call leaves the first six in registers and the others on the stack. With fewer, what is read
/// instead is the caller's own, and the driver's function does not look at it.
#[macro_export]
macro_rules! gated {
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
            $crate::gate::through($index, |real| unsafe { real(a, b, c, d, e, f, g, h, i, j) })
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn calls_wait_while_it_is_closed() {
        let gate = Gate::default();
        gate.close();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass(|| CUresult::SUCCESS));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            gate.open();
            assert_eq!(waiting.join().unwrap(), CUresult::SUCCESS);
        });
    }

    #[test]
    fn closing_waits_for_a_call_but_not_for_ever() {
        let gate = Gate::default();
        let inside = AtomicBool::new(false);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.pass(|| {
                    inside.store(true, SeqCst);
                    while !done.load(SeqCst) {
                        std::thread::yield_now();
                    }
                    CUresult::SUCCESS
                })
            });
            while !inside.load(SeqCst) {
                std::thread::yield_now();
            }
            let begin = Instant::now();
            gate.close();
            assert!(begin.elapsed() >= SETTLE, "closed over a call that had only begun");
            done.store(true, SeqCst);
        });
        gate.open();
        let begin = Instant::now();
        gate.close();
        assert!(begin.elapsed() < SETTLE, "nobody was inside");
    }

    #[test]
    fn a_call_that_was_caught_in_between_is_made_again_and_no_other() {
        let gate = Gate::default();
        let calls = Cell::new(0);
        let caught = gate.pass(|| {
            calls.set(calls.get() + 1);
            if calls.get() == 1 {
                gate.close();
                gate.open();
                return CUresult::INVALID_VALUE;
            }
            CUresult::SUCCESS
        });
        assert_eq!((caught, calls.get()), (CUresult::SUCCESS, 2));

        calls.set(0);
        let wrong = gate.pass(|| {
            calls.set(calls.get() + 1);
            CUresult::INVALID_VALUE
        });
        assert_eq!((wrong, calls.get()), (CUresult::INVALID_VALUE, 1), "a mistake of the program's own");
    }
}
