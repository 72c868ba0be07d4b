//! The part of a GPU that freezes: each fake tenant's control file leads to an [`Engine`], and [`ioctl`] switches it.
//!
//! The control file is a page of the wire's layout, because that is memory that two processes share: its frozen word
//! is the engine's switch, and its slice word holds the process whose kernel is in the middle of a step. As on the real
//! thing, a freeze is complete only when no kernel runs any more.

use channels::rm::GROUP_SET_TIMESLICE;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::SharedPage;

/// What the resource manager answers when a control is not supported.
const NOT_SUPPORTED: u32 = 0x56;

/// The control that freezes and thaws. Others are not supported, but time slices of whom [`heed_slices`] names.
const DISABLE_CHANNELS: u32 = 0x2080_110b;

/// One freeze or thaw that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    /// The resource manager's client, by which tests know a tenant.
    pub(crate) client: u32,
    /// Was it frozen, or thawed?
    pub(crate) frozen: bool,
}

static SWITCHES: Mutex<Vec<Switch>> = Mutex::new(Vec::new());
static REFUSED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// The last slice of each client that has slices, in microseconds.
static SLICES: Mutex<BTreeMap<u32, Option<u64>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client that no other tenant of this test program has.
pub(crate) fn new_client() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0xc1d0_0001);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What was done to these clients, in order.
pub(crate) fn switches(clients: &[u32]) -> Vec<Switch> {
    lock(&SWITCHES).iter().filter(|switch| clients.contains(&switch.client)).copied().collect()
}

/// Was this client frozen last, and not thawed since?
pub(crate) fn is_off(client: u32) -> bool {
    switches(&[client]).last().is_some_and(|switch| switch.frozen)
}

/// From now on, freezing this client is refused, or no longer.
pub(crate) fn refuse_freezing(client: u32, refuse: bool) {
    match refuse {
        true => lock(&REFUSED).insert(client),
        false => lock(&REFUSED).remove(&client),
    };
}

/// From now on this client's time slice can be set.
pub(crate) fn heed_slices(client: u32) {
    lock(&SLICES).insert(client, None);
}

/// The time slice that a client was given last, in microseconds.
pub(crate) fn slice_of(client: u32) -> Option<u64> {
    lock(&SLICES).get(&client).copied().flatten()
}

/// Takes the place of the C library's `ioctl` in the daemon.
pub(crate) fn ioctl(file: RawFd, _: c_ulong, argument: *mut c_void) -> c_int {
    let words = argument.cast::<u32>();
    // SAFETY: the argument of a control has 32 bytes: the client first, the parameters' address at byte 16. The
    // parameters begin with the word that says whether to freeze.
    let (client, frozen) = unsafe { (words.read(), *argument.cast::<*const u32>().add(2).read() != 0) };
    // SAFETY: the command is the third word.
    let command = unsafe { words.add(2).read() };
    let is_switch = command == DISABLE_CHANNELS && !(frozen && lock(&REFUSED).contains(&client));
    let mut slices = lock(&SLICES);
    let slice = slices.get_mut(&client).filter(|_| command == GROUP_SET_TIMESLICE);
    let status = if is_switch || slice.is_some() { 0 } else { NOT_SUPPORTED };
    if let Some(slice) = slice {
        // SAFETY: the parameters of this control begin with the slice, of eight bytes.
        *slice = Some(unsafe { argument.cast::<*const u64>().add(2).read().read() });
    }
    drop(slices);
    if is_switch {
        // SAFETY: the daemon holds the file open during the call.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let copy = file.try_clone_to_owned().expect("there are files left");
        let engine = Engine(SharedPage::open(copy).expect("the control file is an engine"));
        switch(&engine, client, frozen);
    }
    // SAFETY: the status is the word at byte 28.
    unsafe { words.add(7).write(status) };
    0
}

/// Noted such that two who ran at the same time are seen to: a freeze after it, a thaw before it.
fn switch(engine: &Engine, client: u32, frozen: bool) {
    if frozen {
        engine.0.set_frozen(true);
        engine.await_end_of_step();
        lock(&SWITCHES).push(Switch { client, frozen });
    } else {
        lock(&SWITCHES).push(Switch { client, frozen });
        engine.0.set_frozen(false);
    }
}

/// One tenant's share of the GPU.
#[derive(Debug)]
pub(crate) struct Engine(SharedPage);

impl Engine {
    /// One that runs.
    pub(crate) fn new() -> Self {
        Self(SharedPage::create(0).expect("a page"))
    }

    /// The control file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    /// Switched off by the program itself: a channel that is born while the page says that it is frozen.
    pub(crate) fn begin_frozen(&self) {
        self.0.set_frozen(true);
    }

    /// Is it switched off?
    pub(crate) fn frozen(&self) -> bool {
        self.0.frozen()
    }

    /// Runs one step of a kernel, if it may run now.
    pub(crate) fn run<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        self.0.set_slice_us(u64::from(std::process::id()));
        let result = (!self.0.frozen()).then(step);
        self.0.set_slice_us(0);
        result
    }

    fn await_end_of_step(&self) {
        while let Some(pid) = self.0.slice_us() {
            if is_dead(pid) {
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn is_dead(pid: u64) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    let Ok(watch) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let mut one = [PollFd::new(&watch, PollFlags::IN)];
    rustix::event::poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
}
