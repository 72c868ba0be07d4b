//! A segment mapped for a moment, to put pages behind it.

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::OwnedFd;

const PAGE_BYTES: usize = 4096;
/// How often the kernel is asked again that was short of something for the moment.
const TRIES_MAX: u32 = 16;

/// Shared memory of a file, mapped as long as this lives.
#[derive(Debug)]
pub(super) struct Mapping {
    start: *mut c_void,
    bytes: usize,
}

impl Mapping {
    /// Maps a file of this size.
    pub(super) fn of(file: &OwnedFd, bytes: u64) -> Result<Mapping, Errno> {
        let bytes = usize::try_from(bytes).map_err(|_| Errno::OVERFLOW)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory that is in use.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Mapping { start, bytes })
    }

    /// Where it starts.
    pub(super) fn start(&self) -> *mut c_void {
        self.start
    }

    /// How long it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asks for large pages where the system gives them to those who ask. It may say no, and small ones do as well.
    pub(super) fn want_huge_pages(&self) {
        // SAFETY: advice on our own mapping that keeps its contents.
        let _ = unsafe { madvise(self.start, self.bytes, Advice::LinuxHugepage) };
    }

    /// Puts pages behind all of it, so that no later access has to wait or to fail for lack of memory.
    pub(super) fn populate(&self, file: &OwnedFd) -> Result<(), Errno> {
        for _ in 0..TRIES_MAX {
            // SAFETY: populating our own mapping keeps its contents.
            match unsafe { madvise(self.start, self.bytes, Advice::LinuxPopulateWrite) } {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::INVAL) => return self.touch(file),
                // What an access would be ended with by a signal.
                Err(Errno::FAULT) => return Err(Errno::NOMEM),
                other => return other,
            }
        }
        Err(Errno::NOMEM)
    }

    /// The same for Linux before 5.14. Space is taken first: without, touching could end this process by a signal.
    fn touch(&self, file: &OwnedFd) -> Result<(), Errno> {
        fallocate(file, FallocateFlags::empty(), 0, self.bytes as u64)?;
        for offset in (0..self.bytes).step_by(PAGE_BYTES) {
            // SAFETY: within our mapping, of a file that nobody else has yet; writing back what was read keeps contents.
            unsafe {
                let byte = self.start.cast::<u8>().add(offset);
                byte.write_volatile(byte.read_volatile());
            }
        }
        Ok(())
    }

    /// Some of its bytes.
    #[cfg(test)]
    pub(super) fn read(&self, offset: u64, bytes: usize) -> Vec<u8> {
        assert!(offset as usize + bytes <= self.bytes);
        // SAFETY: within our mapping, which nobody writes to meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.cast::<u8>().add(offset as usize), bytes).to_vec() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it any more.
        if let Err(error) = unsafe { munmap(self.start, self.bytes) } {
            tracing::warn!(%error, bytes = self.bytes, "cannot unmap memory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};

    #[test]
    fn old_kernels_get_their_pages_by_touching() {
        let file = memfd_create("x", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, 1 << 20).expect("1 MiB");
        let mapping = Mapping::of(&file, 1 << 20).expect("1 MiB");
        rustix::io::pwrite(&file, b"kept", 5000).expect("it can be written");
        mapping.touch(&file).expect("1 MiB is there");
        assert_eq!(fstat(&file).expect("it is a file").st_blocks, 2048);
        assert_eq!(mapping.read(5000, 4), b"kept");
    }
}
