//! The real disk: a file without a name, which is gone with its last descriptor.
//!
//! Requests go past the page cache where the file system can do that. The host's memory is full when this is used,
//! and nobody reads a block twice. Where it cannot, each request waits until the disk has taken its bytes, and they are
//! dropped from the cache.
//!
//! The kernel tells whoever asks first that bytes in the cache were not taken, and only once for a descriptor: that may be
//! another thread than the one whose bytes they were. So from the beginning of a write to its end nobody may have
//! been told, or the write has failed. Several may fail for one: a put that fails can be tried again, and one that
//! is said to have gone well cannot.

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
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// How often the disk has not taken what was in the page cache. Locked by whoever asks the kernel.
    losses: Mutex<Losses>,
}

/// A count of failures to write out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Losses(u64);

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
        let file = LocalFile { file: file.into(), direct: AtomicBool::new(true), losses: Mutex::default() };
        if file.set_direct(true).is_err() {
            file.fall_back().map_err(unusable)?;
        }
        Ok(file)
    }

    /// Whether requests go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Acquire)
    }

    fn set_direct(&self, direct: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, direct);
        Ok(fcntl_setfl(&self.file, flags)?)
    }

    /// From now on requests go through the page cache. For good: whoever sees that a request went directly is right.
    fn fall_back(&self) -> io::Result<()> {
        self.direct.store(false, Ordering::Release);
        self.set_direct(false)
    }

    /// Makes a request. Some file systems take the flag and refuse the requests, then or later: it is made once more
    /// without the flag. What counts is how it was when the request began: another one may fall back meanwhile.
    fn request(&self, mut make: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let was_direct = self.is_direct();
        match make() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && was_direct => {
                self.fall_back()?;
                make()
            }
            other => other,
        }
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the disk has taken what was just written into the page cache, `since` which nobody may have been told
    /// of a loss.
    fn write_out(&self, offset: u64, bytes: usize, since: Losses) -> io::Result<()> {
        use libc::{SYNC_FILE_RANGE_WAIT_AFTER, SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE};
        // Several set out at once, and wait one after the other.
        let set_out = self.sync_range(offset, bytes, SYNC_FILE_RANGE_WRITE);
        let mut losses = self.losses();
        // With all three nothing is left out, whether it was on its way before or not.
        let all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        if let Err(error) = set_out.and_then(|()| self.sync_range(offset, bytes, all)) {
            losses.0 += 1;
            return Err(error);
        }
        if *losses == since { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
    }

    fn sync_range(&self, offset: u64, bytes: usize, flags: u32) -> io::Result<()> {
        // SAFETY: takes numbers only, and the descriptor is open as long as `file` is.
        let answer =
            unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset as i64, bytes as i64, flags) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Drops bytes from the page cache. Only advice: what stays there is right all the same.
    fn drop_cached(&self, offset: u64, bytes: usize) {
        if let Some(length) = NonZeroU64::new(bytes as u64) {
            let _ = fadvise(&self.file, offset, Some(length), Advice::DontNeed);
        }
    }
}

impl Disk for LocalFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let since = *self.losses();
        let written = self.request(|| self.file.write_at(bytes, offset))?;
        // For sync_file_range no bytes are all to the end of the file.
        if !self.is_direct() && written > 0 {
            self.write_out(offset, written, since)?;
            self.drop_cached(offset, written);
        }
        Ok(written)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.request(|| self.file.read_at(bytes, offset))?;
        if !self.is_direct() {
            self.drop_cached(offset, read);
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

    fn length_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
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
