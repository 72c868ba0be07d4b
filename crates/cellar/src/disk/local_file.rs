//! The real disk: a file without a name, which is gone with its last descriptor.
//!
//! Requests go past the page cache where the file system can do that. The host's memory is full when this is used,
//! and nobody reads a block twice. Where it cannot, each request is written out and dropped from the cache at once.

use super::Disk;
use super::file_system::{Kind, kind};
use crate::settings::Accept;
use crate::space::Extent;
use rustix::fs::{
    Advice, FallocateFlags, Mode, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl, fstatfs,
};
use rustix::fs::{CWD, openat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Names that are tried where a file needs one for a moment.
const NAMES_MAX: u32 = 100;

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The folder does not take one.
    #[error("cannot make a file in {folder}: {why}")]
    NotMade {
        /// Where.
        folder: PathBuf,
        /// The kernel's error.
        #[source]
        why: io::Error,
    },
    /// It would be in memory.
    #[error("{folder} is on {name}, which is memory: a cellar needs a disk; name a folder that is on one")]
    Memory {
        /// Where.
        folder: PathBuf,
        /// What it is on.
        name: &'static str,
    },
    /// It would be on another machine, or depend on a program.
    #[error("{folder} is on {name}: a cellar needs a disk of this machine; name a folder that is on one")]
    Remote {
        /// Where.
        folder: PathBuf,
        /// What it is on.
        name: &'static str,
    },
    /// The file does not do what it has to.
    #[error("the file in {folder} cannot be used: {why}")]
    Unusable {
        /// Where.
        folder: PathBuf,
        /// The kernel's error.
        #[source]
        why: io::Error,
    },
}

/// A file without a name.
#[derive(Debug)]
pub struct LocalFile {
    file: File,
    direct: AtomicBool,
}

impl LocalFile {
    /// Makes one in this folder, readable by nobody else.
    pub fn create(folder: &Path, accept: Accept) -> Result<LocalFile, FileError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = match openat(CWD, folder, flags | OFlags::TMPFILE, owner_only()) {
            // A file system that knows no such files, or a kernel that takes the flag for a folder's.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => create_and_unlink(folder, flags),
            other => other,
        };
        let file = file.map_err(|error| FileError::NotMade { folder: folder.into(), why: error.into() })?;
        LocalFile::of_file(file, folder, accept)
    }

    /// Takes over one that another process made. The folder is for messages only.
    pub fn of_file(file: OwnedFd, folder: &Path, accept: Accept) -> Result<LocalFile, FileError> {
        let unusable = |why: io::Error| FileError::Unusable { folder: folder.into(), why };
        // The number is signed on some machines; `kind` looks at its lower half only.
        let magic = fstatfs(&file).map_err(|error| unusable(error.into()))?.f_type as u64;
        if accept == Accept::LocalDisk {
            match kind(magic) {
                Kind::Disk => {}
                Kind::Memory(name) => return Err(FileError::Memory { folder: folder.into(), name }),
                Kind::Remote(name) => return Err(FileError::Remote { folder: folder.into(), name }),
            }
        }
        let file = LocalFile { file: file.into(), direct: AtomicBool::new(true) };
        if file.set_direct(true).is_err() {
            file.fall_back().map_err(unusable)?;
        }
        Ok(file)
    }

    /// Whether requests go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    fn set_direct(&self, direct: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, direct);
        Ok(fcntl_setfl(&self.file, flags)?)
    }

    /// From now on requests go through the page cache.
    fn fall_back(&self) -> io::Result<()> {
        self.direct.store(false, Ordering::Relaxed);
        self.set_direct(false)
    }

    /// Makes a request. Some file systems take the flag and refuse the requests, then or later: it is made once more
    /// without the flag.
    fn request(&self, mut make: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        match make() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && self.is_direct() => {
                self.fall_back()?;
                make()
            }
            other => other,
        }
    }

    /// Writes out what was just written, and drops it from the page cache.
    fn drop_cached(&self, offset: u64, bytes: usize, written: bool) {
        let Some(length) = NonZeroU64::new(bytes as u64) else { return };
        if written {
            let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
            // SAFETY: takes numbers only, and the descriptor is open as long as `file` is.
            unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset as i64, bytes as i64, flags) };
        }
        // Only advice: what stays in the cache is right all the same.
        let _ = fadvise(&self.file, offset, Some(length), Advice::DontNeed);
    }
}

impl Disk for LocalFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.request(|| self.file.write_at(bytes, offset))?;
        if !self.is_direct() {
            self.drop_cached(offset, written, true);
        }
        Ok(written)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.request(|| self.file.read_at(bytes, offset))?;
        if !self.is_direct() {
            self.drop_cached(offset, read, false);
        }
        Ok(read)
    }

    fn allocate(&self, part: Extent) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), part.offset, part.bytes) {
            // Nothing is promised then, and a full disk shows when bytes are written.
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    fn release(&self, part: Extent) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, part.offset, part.bytes) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let about = rustix::fs::fstatvfs(&self.file)?;
        Ok(about.f_bavail.saturating_mul(about.f_frsize))
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }
}

fn owner_only() -> Mode {
    Mode::RUSR | Mode::WUSR
}

/// For file systems without nameless files: it has a name for as long as it takes to remove it.
fn create_and_unlink(folder: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..NAMES_MAX {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".rota-cellar-{}-{number}", std::process::id()));
        match openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, owner_only()) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
            Ok(file) => {
                unlinkat(CWD, &path, rustix::fs::AtFlags::empty())?;
                return Ok(file);
            }
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests;
