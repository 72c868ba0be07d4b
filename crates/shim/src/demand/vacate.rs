//! Keeping the program out of the driver while that puts its context away, or brings it back (`rota pause --deep`).
//!
//! The driver's steps need the program's channels to run, and meanwhile none of its memory is under its addresses. So freezing
//! does not help: from the agent's order on, calls that may use the GPU wait here, counted as begun, whether the program is
//! frozen or not. Whoever waits in rota meanwhile, at the gate or for an answer of the daemon, **stands aside**, and passes here
//! before it goes on. The driver is vacant when everybody who is counted stands aside.
//!
//! Only the agent opens it again, by the order of a daemon: one that goes changes nothing. What never hands over work nor
//! uses memory (`quiet.txt`) may be inside all the same; it waits in the driver's own lock, and goes on behind that. Threads of
//! rota's own are not counted as the program's are: they [`enter`], or do something else.
//!
//! A vacant driver may still have what its context cannot be put away with ([`occupant`]): work that was handed over and that
//! nobody has waited for, though no thread waits for it now, and memory of other processes.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use wire::Occupant;

use super::{WORK, aim, hold};
use crate::agent::warm_up;
use crate::foreign;

static DOOR: Door = Door::new();

thread_local! {
    /// How often this thread is counted as begun.
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// In a forked child: it is open, and nobody waits.
pub(super) fn forget() {
    DOOR.closed.store(0, SeqCst);
    DOOR.aside.store(0, SeqCst);
    DOOR.own.store(0, SeqCst);
    DOOR.cleared.store(false, SeqCst);
    let _ = COUNTED.try_with(|counted| counted.set(0));
}

/// This thread was counted as begun.
pub(super) fn count() {
    let _ = COUNTED.try_with(|counted| counted.set(counted.get() + 1));
}

/// That is over, or the driver has it now and says so itself.
pub(super) fn count_off() {
    let _ = COUNTED.try_with(|counted| counted.set(counted.get().saturating_sub(1)));
}

/// Nobody enters from now on.
pub(crate) fn close() {
    DOOR.closed.store(1, SeqCst);
    aim();
}

/// All go on.
pub(crate) fn open() {
    DOOR.open();
    aim();
}

/// Whether nobody may enter.
pub(crate) fn is_closed() -> bool {
    DOOR.is_closed()
}

/// Is nobody inside, and can nobody be before it is opened? By a look that may be wrong the other way.
pub(crate) fn is_vacant() -> bool {
    DOOR.is_vacant(|| WORK.inside()) && warm_up::is_off()
}

/// What the context of a vacant driver has to stay for. Once there is nothing, there is nothing before it is opened, though
/// launches that wait are counted in a way that looks like work.
pub(crate) fn occupant() -> Option<Occupant> {
    match () {
        () if DOOR.cleared.load(SeqCst) => None,
        () if foreign::is_there() => Some(Occupant::Foreign),
        () if WORK.has_unfinished() => Some(Occupant::Work),
        () => None,
    }
}

/// The driver is vacant, and there is nothing that its context has to stay for.
pub(crate) fn clear() {
    DOOR.cleared.store(true, SeqCst);
}

/// For a thread of rota's own, which does not wait: None if it may not enter.
pub(crate) fn enter() -> Option<Entered<'static>> {
    DOOR.enter()
}

/// For what was just counted as begun: waits until it may go on. Not inside of another such call, which would never end.
pub(super) fn pass() {
    if is_closed() && !hold::is_within() {
        aside(|| ());
    }
}

/// For a thread that waits for the GPU by looking: it looks later.
pub(crate) fn rest() {
    if is_closed() {
        aside(|| ());
    }
}

/// Waits for something else than the driver. The calling thread must hold no lock that the agent may need.
pub(crate) fn aside<T>(wait: impl FnOnce() -> T) -> T {
    // At the end of a thread nobody knows: then it counts as inside.
    DOOR.aside(COUNTED.try_with(Cell::get).unwrap_or(0), wait)
}

/// See the module.
struct Door {
    /// 1 while nobody may enter.
    closed: AtomicU32,
    /// How often those who stand aside are counted as begun.
    aside: AtomicU64,
    /// Threads of rota's own that are inside.
    own: AtomicU64,
    /// Since it was closed it was seen vacant, with nothing that its context has to stay for. So it is until it is opened, also
    /// if the program begins to end meanwhile, which is counted and never over.
    cleared: AtomicBool,
}

/// A thread of rota's own is inside of the driver, until this is dropped.
pub(crate) struct Entered<'a>(&'a Door);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.own.fetch_sub(1, SeqCst);
    }
}

impl Door {
    const fn new() -> Self {
        let (aside, own) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { closed: AtomicU32::new(0), aside, own, cleared: AtomicBool::new(false) }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(SeqCst) != 0
    }

    fn open(&self) {
        self.cleared.store(false, SeqCst);
        self.closed.store(0, SeqCst);
        // SAFETY: the word is there as long as self is; the kernel wakes who waits for it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.closed.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                libc::c_int::MAX,
            );
        }
    }

    /// Whether so many as are counted as begun stand aside.
    fn is_vacant(&self, counted: impl FnOnce() -> u64) -> bool {
        // In this order: whoever stands aside was counted before.
        let aside = self.aside.load(SeqCst);
        let is_empty = || self.own.load(SeqCst) == 0 && counted() <= aside;
        self.is_closed() && (self.cleared.load(SeqCst) || is_empty())
    }

    fn enter(&self) -> Option<Entered<'_>> {
        self.own.fetch_add(1, SeqCst);
        let entered = Entered(self);
        // Either this is seen closed, or `is_vacant` sees this thread inside.
        (!self.is_closed()).then_some(entered)
    }

    /// Waits by a thread that is counted so often as begun.
    fn aside<T>(&self, counted: u64, wait: impl FnOnce() -> T) -> T {
        self.aside.fetch_add(counted, SeqCst);
        let waited = wait();
        loop {
            self.aside.fetch_sub(counted, SeqCst);
            // Either this is seen closed, or `is_vacant` sees this thread inside.
            if !self.is_closed() {
                return waited;
            }
            self.aside.fetch_add(counted, SeqCst);
            while self.is_closed() {
                // SAFETY: the word is there as long as self is; the kernel compares it with the value, and waits for no time.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        self.closed.as_ptr(),
                        libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                        1,
                        ptr::null::<libc::timespec>(),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn until(what: &str, holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn nobody_is_inside_while_it_is_vacant() {
        let (door, counted, vacant, ends) =
            (Door::new(), AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let entered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for nested in 1..=3 {
                let (door, counted, vacant, ends, entered) = (&door, &counted, &vacant, &ends, &entered);
                scope.spawn(move || {
                    while !ends.load(SeqCst) {
                        counted.fetch_add(nested, SeqCst);
                        if door.is_closed() {
                            door.aside(nested, || ());
                        }
                        assert!(!vacant.load(SeqCst), "somebody is inside");
                        entered.fetch_add(1, SeqCst);
                        counted.fetch_sub(nested, SeqCst);
                    }
                });
            }
            for _ in 0..500 {
                let before = entered.load(SeqCst);
                until("somebody enters", || entered.load(SeqCst) > before);
                door.closed.store(1, SeqCst);
                until("all stand aside", || door.is_vacant(|| counted.load(SeqCst)));
                vacant.store(true, SeqCst);
                std::thread::yield_now();
                vacant.store(false, SeqCst);
                door.open();
            }
            ends.store(true, SeqCst);
        });
        assert_eq!(door.aside.load(SeqCst), 0);
    }

    #[test]
    fn threads_of_rotas_own_are_not_inside_while_it_is_vacant() {
        let (door, vacant, ends, entered) =
            (Door::new(), AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ends.load(SeqCst) {
                        let Some(_inside) = door.enter() else { continue };
                        assert!(!vacant.load(SeqCst), "it is inside");
                        entered.fetch_add(1, SeqCst);
                    }
                });
            }
            for _ in 0..500 {
                let before = entered.load(SeqCst);
                until("one enters", || entered.load(SeqCst) > before);
                door.closed.store(1, SeqCst);
                until("all are out", || door.is_vacant(|| 0));
                vacant.store(true, SeqCst);
                std::thread::yield_now();
                vacant.store(false, SeqCst);
                door.open();
            }
            ends.store(true, SeqCst);
        });
        assert_eq!(door.own.load(SeqCst), 0);
    }

    #[test]
    fn whoever_waits_for_something_else_stands_aside_and_does_not_go_on() {
        let (door, there, done) = (Door::new(), AtomicBool::new(false), AtomicBool::new(false));
        let inside = || 2;
        door.closed.store(1, SeqCst);
        assert!(!door.is_vacant(inside), "it is inside of the driver");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                door.aside(2, || until("it is there", || there.load(SeqCst)));
                done.store(true, SeqCst);
            });
            until("it stands aside", || door.is_vacant(inside));
            assert!(!door.is_vacant(|| 3), "another one is inside");
            there.store(true, SeqCst);
            std::thread::sleep(Duration::from_millis(50));
            assert!(!done.load(SeqCst) && door.is_vacant(inside), "it went on");
            door.open();
            until("it goes on", || done.load(SeqCst));
        });
        assert!(!door.is_vacant(|| 0), "it is open");
        door.closed.store(1, SeqCst);
        door.cleared.store(true, SeqCst);
        assert!(door.is_vacant(|| 1), "one that begins to end is counted, and cannot enter");
        door.open();
        door.closed.store(1, SeqCst);
        assert!(!door.is_vacant(|| 1), "it may have entered when it was open");
    }
}
