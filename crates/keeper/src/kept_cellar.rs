//! The cellar's file and key, held for workers to come. What is in them is nothing to the keeper: it writes to neither, and
//! the key never leaves its page, as it comes and goes in a file of its own.

use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a key may have at most: a page is locked for it.
const KEY_BYTES_MAX: u64 = 4096;
const PAGE_BYTES: usize = 4096;

/// Both files.
#[derive(Debug)]
pub(crate) struct KeptCellar {
    file: OwnedFd,
    key: OwnedFd,
    _page: LockedPage,
}

impl KeptCellar {
    /// Takes the cellar's file and its key's, in this order. None if they are not what they have to be, or the key cannot be
    /// locked: it must not reach a disk.
    pub(crate) fn of(files: Vec<OwnedFd>) -> Option<KeptCellar> {
        let [file, key] = <[OwnedFd; 2]>::try_from(files).ok()?;
        let is_file = |file: &OwnedFd| {
            fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        };
        let key_bytes = fstat(&key).ok().and_then(|stat| u64::try_from(stat.st_size).ok())?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
        let is_sealed = fcntl_get_seals(&key).is_ok_and(|found| found.contains(seals));
        if !is_file(&file) || !is_sealed || !(1..=KEY_BYTES_MAX).contains(&key_bytes) {
            return None;
        }
        let page = LockedPage::of(&key)
            .inspect_err(|cause| tracing::error!(%cause, "the cellar's key cannot be locked in memory"));
        Some(KeptCellar { file, key, _page: page.ok()? })
    }

    /// Are these the same files?
    pub(crate) fn is_same(&self, other: &KeptCellar) -> bool {
        let name = |file: &OwnedFd| fstat(file).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        name(&self.file) == name(&other.file) && name(&self.key) == name(&other.key)
    }

    /// The cellar's file and its key's.
    pub(crate) fn files(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.file.as_fd(), self.key.as_fd()]
    }
}

/// The page of a file that is never swapped, nor in a core dump.
#[derive(Debug)]
struct LockedPage(*mut c_void);

impl LockedPage {
    fn of(file: &OwnedFd) -> rustix::io::Result<LockedPage> {
        // SAFETY: a new mapping at an address the kernel chooses touches no memory that is in use.
        let start =
            unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        let page = LockedPage(start);
        // SAFETY: the page is ours, and neither call changes what is in it.
        unsafe {
            madvise(start, PAGE_BYTES, Advice::LinuxDontDump)?;
            mlock(start, PAGE_BYTES)?;
        }
        Ok(page)
    }
}

impl Drop for LockedPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it.
        let _ = unsafe { munmap(self.0, PAGE_BYTES) };
    }
}

// SAFETY: nobody reads or writes through the address; it is only for the kernel.
unsafe impl Send for LockedPage {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("key", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        ftruncate(&file, bytes).expect("a page");
        fcntl_add_seals(&file, seals).expect("it can be sealed");
        file
    }

    #[test]
    fn only_a_file_and_a_sealed_key_are_kept() {
        let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
        let file = || OwnedFd::from(tempfile::tempfile().expect("a file"));
        let kept = KeptCellar::of(vec![file(), memory(32, all)]).expect("both are right");
        let again = kept.files().iter().map(|file| file.try_clone_to_owned().expect("free")).collect();
        let again = KeptCellar::of(again).expect("both are right");
        assert!(kept.is_same(&again));
        assert!(!kept.is_same(&KeptCellar::of(vec![file(), memory(32, all)]).expect("others")));
        for wrong in [
            vec![],
            vec![file()],
            vec![file(), memory(32, all), file()],
            vec![file(), file()],
            vec![file(), memory(32, SealFlags::SHRINK | SealFlags::GROW)],
            vec![file(), memory(0, all)],
            vec![file(), memory(4097, all)],
            vec![rustix::pipe::pipe().expect("a pipe").0, memory(32, all)],
        ] {
            assert!(KeptCellar::of(wrong).is_none());
        }
    }
}
