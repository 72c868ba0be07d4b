//! Memory that another program made, and the daemon handed on: its file is kept, because imported memory cannot be exported again.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::process::Resource;

use crate::transient::Transient;

/// The most of such files in a process. A forked child finds each of them.
const FILES_MAX: u64 = 1024;

/// Of the files that the program may have open, so much of them may be such: one in so many.
const SHARE: u64 = 4;

/// Files below this number are left to the program: `select` knows no others.
const NUMBER_MIN: u64 = 1024;

/// How many files of memory are set aside in this process, on all of its GPUs.
static SET_ASIDE: AtomicUsize = AtomicUsize::new(0);

/// How many files the program may have open.
fn open_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many parts of memory may be taken, each of which has a file then. The program has the rest of its files.
fn files_max(open_max: u64) -> usize {
    (open_max / SHARE).min(FILES_MAX) as usize
}

/// In a forked child: it has none of the parent's.
pub(crate) fn forget() {
    SET_ASIDE.store(0, Relaxed);
}

/// What is set aside for the files of memory that may be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files(&'static AtomicUsize);

impl Default for Files {
    /// The process's: its limit is one for all GPUs.
    fn default() -> Self {
        Self(&SET_ASIDE)
    }
}

impl Files {
    /// Others than the process's.
    #[cfg(test)]
    pub(crate) fn of(set_aside: &'static AtomicUsize) -> Self {
        Self(set_aside)
    }

    /// Sets one more aside, if there is one left.
    pub(crate) fn set_aside(self) -> bool {
        self.set_aside_of(files_max(open_max()))
    }

    fn set_aside_of(self, most: usize) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |count| (count < most).then_some(count + 1)).is_ok()
    }

    /// So many are not needed any more.
    pub(crate) fn give_back(self, files: usize) {
        let _ = self.0.fetch_update(Relaxed, Relaxed, |count| Some(count.saturating_sub(files)));
    }
}

/// The file of memory that was taken, as long as that is there.
#[derive(Clone, Debug)]
pub(crate) struct TakenFile(Arc<Transient>);

impl TakenFile {
    /// None if a forked child could not find it: it would keep the memory.
    pub(crate) fn keep(file: OwnedFd) -> Option<Self> {
        let file = Transient::from(out_of_the_way(file, open_max()));
        file.is_noted().then(|| Self(Arc::new(file)))
    }

    /// The file itself, to import the memory.
    pub(crate) fn file(&self) -> &Transient {
        &self.0
    }

    /// Another one for the same memory, to be sent.
    pub(crate) fn copy(&self) -> Result<OwnedFd, std::io::Error> {
        self.0.as_fd().try_clone_to_owned()
    }
}

/// With a number that no program minds, where it may have so many files.
fn out_of_the_way(file: OwnedFd, open_max: u64) -> OwnedFd {
    if open_max <= NUMBER_MIN {
        return file;
    }
    rustix::io::fcntl_dupfd_cloexec(&file, NUMBER_MIN as i32).unwrap_or(file)
}

impl PartialEq for TakenFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TakenFile {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn files_are_set_aside_for_all_gpus_together() {
        static ASIDE: AtomicUsize = AtomicUsize::new(0);
        let [first, second] = [Files(&ASIDE); 2];
        assert!((0..3).all(|_| first.set_aside_of(5)));
        assert_eq!((0..3).filter(|_| second.set_aside_of(5)).count(), 2);
        first.give_back(1);
        assert!(second.set_aside_of(5) && !first.set_aside_of(5));
        // In a forked child, whose count begins anew.
        ASIDE.store(0, Relaxed);
        second.give_back(3);
        assert_eq!((0..9).filter(|_| first.set_aside_of(5)).count(), 5);
        assert_eq!([64, 1024, 1 << 20].map(files_max), [16, 256, 1024]);
    }

    #[test]
    fn the_low_numbers_are_left_to_the_program() {
        let mut limit = rustix::process::getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
        let file = || rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let low = file();
        let number = low.as_raw_fd();
        let low = out_of_the_way(low, NUMBER_MIN);
        assert_eq!(low.as_raw_fd(), number, "there are no others");
        if open_max() > NUMBER_MIN {
            let taken = TakenFile::keep(low).unwrap();
            assert!(taken.file().as_fd().as_raw_fd() >= NUMBER_MIN as i32);
            let flags = rustix::io::fcntl_getfd(taken.file()).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn a_copy_stands_for_the_same_file_and_closes_by_itself() {
        let file = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, b"x").unwrap();
        let taken = TakenFile::keep(file).unwrap();
        let number = taken.file().as_fd().as_raw_fd();
        let copy = taken.copy().unwrap();
        assert!(rustix::io::fcntl_getfd(&copy).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_ne!(copy.as_raw_fd(), number);
        drop(taken.clone());
        assert_eq!(rustix::fs::fstat(taken.file()).unwrap().st_size, 1, "the last one closes it");
        drop(taken);
        assert_eq!(rustix::fs::fstat(&copy).unwrap().st_size, 1);
    }
}
