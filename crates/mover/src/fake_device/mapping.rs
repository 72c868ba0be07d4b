//! A memfd, mapped shared: what stands for physical memory of a device.

#[cfg(test)]
mod reused;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that lives as long as this does.
#[derive(Debug)]
pub(crate) struct Mapping {
    #[cfg(test)]
    file: OwnedFd,
    pages: Arc<Pages>,
}

/// The memory itself.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    bytes: usize,
    /// The file that they stand for, if that has no bytes of its own.
    #[cfg(test)]
    inode: Option<u64>,
}

// SAFETY: the memory belongs to nobody else, and its address means the same in every thread.
unsafe impl Send for Pages {}
// SAFETY: shared users get the address only; whoever reads or writes there says why that is sound.
unsafe impl Sync for Pages {}

impl Mapping {
    /// Maps new memory, all zero.
    #[cfg(test)]
    pub(crate) fn new(name: &str, bytes: u64) -> Result<Mapping, Errno> {
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, bytes)?;
        let pages = reused::take(&file, length(bytes)?)?;
        Ok(Mapping { file, pages })
    }

    /// Maps a memfd of this size.
    pub(crate) fn of_file(file: OwnedFd, bytes: u64) -> Result<Mapping, Errno> {
        let bytes = length(bytes)?;
        #[cfg(test)]
        if let Some(pages) = reused::find(&file, bytes)? {
            return Ok(Mapping { file, pages });
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory that is in use.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let pages = Pages {
            start,
            bytes,
            #[cfg(test)]
            inode: None,
        };
        Ok(Mapping {
            #[cfg(test)]
            file,
            pages: Arc::new(pages),
        })
    }

    #[cfg(test)]
    pub(crate) fn file(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.file)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pages.bytes as u64
    }

    /// The address of a range, which must lie within the mapping.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> *mut u8 {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes());
        assert!(inside, "{bytes} bytes at {offset} leave a mapping of {} bytes", self.bytes());
        // SAFETY: `offset` is within the mapping, as just checked.
        unsafe { self.pages.start.as_ptr().add(offset as usize) }
    }
}

fn length(bytes: u64) -> Result<usize, Errno> {
    usize::try_from(bytes).map_err(|_| Errno::OVERFLOW)
}

impl Drop for Pages {
    fn drop(&mut self) {
        #[cfg(test)]
        if let Some(inode) = self.inode {
            return reused::put_back(self, inode);
        }
        // SAFETY: the mapping is ours, and nothing borrows from it any more.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.bytes) } {
            tracing::warn!(%error, bytes = self.bytes, "cannot unmap memory");
        }
    }
}
