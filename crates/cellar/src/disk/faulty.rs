//! A disk in memory that fails as it is told, for tests.

use super::Disk;
use crate::buffer::UNIT_BYTES;
use crate::space::Extent;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum On {
    Write,
    Read,
    Allocate,
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The kernel's number of an error.
    Error(i32),
    /// Only so many bytes.
    Short(usize),
    /// The thread panics.
    Panic,
}

/// Shared by its clones: a test keeps one.
#[derive(Clone)]
pub(crate) struct FaultyDisk(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    opened: Condvar,
}

struct State {
    bytes: Vec<u8>,
    calls: HashMap<On, u64>,
    faults: HashMap<(On, u64), Fault>,
    allocated: Vec<Extent>,
    capacity_bytes: u64,
    held: bool,
    delay: Duration,
}

impl FaultyDisk {
    pub(crate) fn new(bytes: u64) -> FaultyDisk {
        let state = State {
            bytes: vec![0; bytes as usize],
            calls: HashMap::new(),
            faults: HashMap::new(),
            allocated: Vec::new(),
            capacity_bytes: u64::MAX / 2,
            held: false,
            delay: Duration::ZERO,
        };
        FaultyDisk(Arc::new(Shared { state: Mutex::new(state), opened: Condvar::new() }))
    }

    /// The n-th call of this kind from now on goes wrong, counted from zero.
    pub(crate) fn fail(&self, on: On, nth: u64, fault: Fault) {
        let mut state = self.state();
        let at = state.calls.get(&on).copied().unwrap_or(0) + nth;
        state.faults.insert((on, at), fault);
    }

    pub(crate) fn calls(&self, on: On) -> u64 {
        self.state().calls.get(&on).copied().unwrap_or(0)
    }

    /// What the file system can give in all.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.state().capacity_bytes = bytes;
    }

    /// Every read and write takes so long.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// What is allocated now.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.state().allocated.iter().map(|part| part.bytes).sum()
    }

    /// Reads and writes wait until what this returns is dropped, also because a test fails.
    pub(crate) fn hold(&self) -> Hold {
        self.state().held = true;
        Hold(self.clone())
    }

    pub(crate) fn bytes(&self, offset: u64, bytes: usize) -> Vec<u8> {
        self.state().bytes[offset as usize..][..bytes].to_vec()
    }

    /// Changes bytes behind everybody's back.
    pub(crate) fn tamper(&self, change: impl FnOnce(&mut [u8])) {
        change(&mut self.state().bytes);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and says what goes wrong with it.
    fn begin(&self, on: On) -> Option<Fault> {
        let mut state = self.state();
        while state.held && on != On::Allocate {
            state = self.0.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let calls = state.calls.entry(on).or_default();
        let nth = *calls;
        *calls += 1;
        let (fault, delay) = (state.faults.remove(&(on, nth)), state.delay);
        drop(state);
        std::thread::sleep(delay);
        fault
    }

    /// How many of these bytes the call is to move.
    fn go(&self, on: On, bytes: usize) -> io::Result<usize> {
        match self.begin(on) {
            None => Ok(bytes),
            Some(Fault::Short(short)) => Ok(short.min(bytes)),
            Some(Fault::Error(code)) => Err(io::Error::from_raw_os_error(code)),
            Some(Fault::Panic) => panic!("the disk was told to"),
        }
    }
}

/// Holds a disk up.
pub(crate) struct Hold(FaultyDisk);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state().held = false;
        self.0.0.opened.notify_all();
    }
}

/// What direct requests need.
fn assert_whole_units(bytes: usize, offset: u64) {
    assert!(bytes.is_multiple_of(UNIT_BYTES) && offset.is_multiple_of(UNIT_BYTES as u64));
}

impl Disk for FaultyDisk {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        assert_whole_units(bytes.len(), offset);
        let count = self.go(On::Write, bytes.len())?;
        self.state().bytes[offset as usize..][..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        assert_whole_units(bytes.len(), offset);
        let left = (self.state().bytes.len() as u64).saturating_sub(offset);
        let count = self.go(On::Read, bytes.len())?.min(left as usize);
        bytes[..count].copy_from_slice(&self.state().bytes[offset as usize..][..count]);
        Ok(count)
    }

    fn allocate(&self, part: Extent) -> io::Result<()> {
        let answer = self.go(On::Allocate, 0);
        let is_full = self.available_bytes()? < part.bytes;
        // As real ones do, it keeps what it has got so far when it fails.
        self.state().allocated.push(part);
        answer?;
        if is_full { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }

    fn release(&self, part: Extent) -> io::Result<()> {
        let is_inside = |other: &Extent| other.offset >= part.offset && other.end() <= part.end();
        self.state().allocated.retain(|other| !is_inside(other));
        Ok(())
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let used = self.allocated_bytes();
        Ok(self.state().capacity_bytes.saturating_sub(used))
    }

    fn length_bytes(&self) -> io::Result<u64> {
        Ok(self.state().bytes.len() as u64)
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
