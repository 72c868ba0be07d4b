//! A cellar's disk for tests: a real file, and calls that go wrong when a test wants them to.

use crate::BLOCK_BYTES;
use crate::arena::Arena;
use cellar::disk::{Disk, FileError, LocalFile};
use cellar::{Accept, Extent, Settings};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// What a call to a disk is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum On {
    Write,
    Read,
    Allocate,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Error(i32),
    /// A bit of what is read is another one.
    Flip,
}

/// A cellar's file on the disk of tests, with faults. Clones are the same disk, for one worker after the other.
#[derive(Clone)]
pub(super) struct TestDisk {
    pub(super) settings: Settings,
    faults: Arc<Mutex<Faults>>,
    _folder: Arc<tempfile::TempDir>,
}

#[derive(Default)]
struct Faults {
    calls: BTreeMap<On, u64>,
    planned: BTreeMap<(On, u64), Fault>,
    /// How large the file may become, if the disk has no more room.
    room_bytes: Option<u64>,
}

struct Faulty {
    file: LocalFile,
    faults: Arc<Mutex<Faults>>,
}

impl TestDisk {
    pub(super) fn new(limit_bytes: u64) -> TestDisk {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            leave_bytes: 0,
            workers: 1,
            jobs: 3,
            accept: Accept::Anything,
            ..Settings::new(PathBuf::from(folder.path()), limit_bytes)
        };
        TestDisk { settings, faults: Arc::default(), _folder: Arc::new(folder) }
    }

    /// Opens the cellar in a worker's arena: a new one, or that of the worker before.
    pub(super) fn open(&self, arena: &Arena) {
        let faults = &self.faults;
        let make = |file: OwnedFd, settings: &Settings| -> Result<Box<dyn Disk>, FileError> {
            let file = LocalFile::of_file(file, &settings.folder, settings.accept)?;
            Ok(Box::new(Faulty { file, faults: Arc::clone(faults) }))
        };
        arena.open_test_cellar(Some(self.settings.clone()), &make).expect("a cellar");
    }

    fn faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().expect("no panic")
    }

    /// The n-th call of this kind from now on goes wrong, counted from zero.
    pub(super) fn fail(&self, on: On, nth: u64, fault: Fault) {
        let mut faults = self.faults();
        let at = faults.calls.get(&on).copied().unwrap_or(0) + nth;
        faults.planned.insert((on, at), fault);
    }

    /// The disk has no more room than for a file of this size, to which it grows in steps of one block.
    pub(super) fn with_room_for(mut self, bytes: u64) -> TestDisk {
        self.settings.segment_bytes = BLOCK_BYTES;
        self.faults().room_bytes = Some(bytes);
        self
    }

    /// How much is to go wrong and has not yet.
    pub(super) fn faults_left(&self) -> u64 {
        self.faults().planned.len() as u64
    }

    /// Nothing goes wrong any more.
    pub(super) fn heal(&self) {
        self.faults().planned.clear();
    }
}

impl Faulty {
    fn begin(&self, on: On) -> io::Result<Option<Fault>> {
        let mut faults = self.faults.lock().expect("no panic");
        let calls = faults.calls.entry(on).or_default();
        let nth = *calls;
        *calls += 1;
        match faults.planned.remove(&(on, nth)) {
            Some(Fault::Error(code)) => Err(io::Error::from_raw_os_error(code)),
            other => Ok(other),
        }
    }
}

impl Disk for Faulty {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.begin(On::Write)?;
        self.file.write_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let fault = self.begin(On::Read)?;
        let read = self.file.read_at(bytes, offset)?;
        if matches!(fault, Some(Fault::Flip)) {
            bytes[read / 2] ^= 4;
        }
        Ok(read)
    }

    fn allocate(&self, part: Extent) -> io::Result<()> {
        self.begin(On::Allocate)?;
        let room_bytes = self.faults.lock().expect("no panic").room_bytes;
        if room_bytes.is_some_and(|room| part.offset + part.bytes > room) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.file.allocate(part)
    }

    fn release(&self, part: Extent) -> io::Result<()> {
        self.file.release(part)
    }

    fn available_bytes(&self) -> io::Result<u64> {
        self.file.available_bytes()
    }

    fn length_bytes(&self) -> io::Result<u64> {
        self.file.length_bytes()
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.file.duplicate()
    }
}
