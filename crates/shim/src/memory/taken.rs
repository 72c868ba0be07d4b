//! Memory that another program made, and the daemon handed on: its file is kept, because imported memory cannot be exported again.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::process::Resource;

use crate::transient::Transient;

/// The most of such files in a process. A forked child finds each of them.
const FILES_MAX: u64 = 1024;

/// Of the files that the program may have open, so much of them may be such: one in so many.
const SHARE: u64 = 4;

/// How many parts of memory may be taken, each of which has a file then. The program has the rest of its files.
pub(crate) fn files_max() -> usize {
    let open_max = rustix::process::getrlimit(Resource::Nofile).current;
    (open_max.unwrap_or(u64::MAX) / SHARE).min(FILES_MAX) as usize
}

/// The file of memory that was taken, as long as that is there.
#[derive(Clone, Debug)]
pub(crate) struct TakenFile(Arc<Transient>);

impl TakenFile {
    /// None if a forked child could not find it: it would keep the memory.
    pub(crate) fn keep(file: OwnedFd) -> Option<Self> {
        let file = Transient::from(file);
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
