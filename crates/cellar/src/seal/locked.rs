//! Memory for secrets: never in swap, in a core dump or in a child that was forked, overwritten when it goes.
//!
//! What the making of a value leaves on the stack is beyond its reach; whoever makes one overwrites what they can.

use super::SealError;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::Deref;
use std::ptr::NonNull;
use zeroize::Zeroize;

const PAGE_BYTES: usize = 4096;

/// A value in a locked page of its own.
pub(super) struct Locked<T> {
    page: NonNull<T>,
}

// SAFETY: the page belongs to this value alone, as a box would, and its address means the same in every thread.
unsafe impl<T: Send> Send for Locked<T> {}
// SAFETY: shared users get `&T` only.
unsafe impl<T: Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(super) fn new(value: T) -> Result<Locked<T>, SealError> {
        const { assert!(size_of::<T>() <= PAGE_BYTES && align_of::<T>() <= PAGE_BYTES) };
        let failed = |error: rustix::io::Errno| SealError::NotLocked { why: error.to_string() };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory that is in use.
        let page = unsafe {
            mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, protection, MapFlags::PRIVATE).map_err(failed)?
        };
        // SAFETY: the page was just mapped, and nobody else knows it. None of these changes what it holds.
        let kept = unsafe {
            mlock(page, PAGE_BYTES)
                .and_then(|()| madvise(page, PAGE_BYTES, Advice::LinuxDontDump))
                .and_then(|()| madvise(page, PAGE_BYTES, Advice::LinuxDontFork))
        };
        if let Err(error) = kept {
            // SAFETY: as above; nothing was put there yet.
            let _ = unsafe { munmap(page, PAGE_BYTES) };
            return Err(failed(error));
        }
        let page = NonNull::new(page.cast::<T>()).expect("a mapping is never at address zero");
        // SAFETY: the page is large enough and aligned for a T, by the assertion above, and holds nothing yet.
        unsafe { page.write(value) };
        Ok(Locked { page })
    }

    fn wipe(&mut self) {
        // SAFETY: the whole page is mapped, initialised (it began as zeros) and ours; no reference to it is left.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.page.as_ptr().cast::<u8>(), PAGE_BYTES) };
        bytes.zeroize();
    }
}

impl<T> Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` put a T there, which stays until this is dropped.
        unsafe { self.page.as_ref() }
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        // SAFETY: the value is there, and this is its only owner, at its end.
        unsafe { self.page.drop_in_place() };
        self.wipe();
        // SAFETY: the page is ours, and nothing borrows from it any more. That unlocks it, too.
        if let Err(error) = unsafe { munmap(self.page.as_ptr().cast::<c_void>(), PAGE_BYTES) } {
            tracing::warn!(%error, "cannot unmap the page of a key");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of smaps about the mapping that holds this address.
    fn smaps(address: usize) -> String {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
        let mut lines = smaps.lines().skip_while(|line| {
            let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
            let parse = |text| usize::from_str_radix(text, 16).ok();
            let inside = range.and_then(|(from, to)| Some((parse(from)?..parse(to)?).contains(&address)));
            !inside.unwrap_or(false)
        });
        let first = lines.next().expect("the address is mapped");
        let rest: Vec<&str> = lines.take_while(|line| !line.contains(" rw-p ")).collect();
        format!("{first}\n{}", rest.join("\n"))
    }

    #[test]
    fn it_is_locked_and_in_no_core_dump_or_child() {
        let secret = Locked::new([7u8; 32]).expect("a page can be locked");
        let about = smaps(secret.page.as_ptr() as usize);
        let flags = about.lines().find(|line| line.starts_with("VmFlags:")).expect("smaps has flags");
        assert!([" lo", " dd", " dc"].iter().all(|flag| flags.contains(flag)), "{flags}");
    }

    #[test]
    fn nothing_is_left_of_it() {
        let mut secret = Locked::new([7u8; 32]).expect("a page can be locked");
        assert_eq!(*secret, [7; 32]);
        secret.wipe();
        assert_eq!(*secret, [0; 32]);
    }
}
