//! Memory that tests use again and again: new pages of a file cost the kernel far more than the tests, which make thousands of
//! small worlds.
//!
//! A file whose bytes are here has none of its own: it is only a name that can be sent about, and everyone in this process
//! who maps it shares the same pages. They are given to the next one as soon as nobody has them mapped.

use super::Pages;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

struct All {
    /// The pages of each file, by its inode.
    mapped: BTreeMap<u64, Weak<Pages>>,
    /// Where pages are that nobody uses, by their size.
    free: BTreeMap<usize, Vec<usize>>,
}

static ALL: Mutex<All> = Mutex::new(All { mapped: BTreeMap::new(), free: BTreeMap::new() });

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inode(file: &OwnedFd) -> Result<u64, Errno> {
    Ok(rustix::fs::fstat(file)?.st_ino)
}

/// Pages of zeros for a new file.
pub(super) fn take(file: &OwnedFd, bytes: usize) -> Result<Arc<Pages>, Errno> {
    let inode = inode(file)?;
    let free = all().free.get_mut(&bytes).and_then(Vec::pop);
    let start = match free {
        Some(address) => {
            let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
            // SAFETY: a mapping of this size that nobody uses.
            unsafe { start.write_bytes(0, bytes) };
            start
        }
        None => new(bytes)?,
    };
    let pages = Pages { start: NonNull::new(start).ok_or(Errno::NOMEM)?, bytes, inode: Some(inode) };
    let pages = Arc::new(pages);
    all().mapped.insert(inode, Arc::downgrade(&pages));
    Ok(pages)
}

fn new(bytes: usize) -> Result<*mut u8, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address the kernel chooses touches no memory that is in use.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
    // SAFETY: all of the new mapping. Where that does not work, its pages are small.
    let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
    Ok(start.cast::<u8>())
}

/// The pages of a file that is mapped already.
pub(super) fn find(file: &OwnedFd, bytes: usize) -> Result<Option<Arc<Pages>>, Errno> {
    let found = all().mapped.get(&inode(file)?).and_then(Weak::upgrade);
    Ok(found.filter(|pages| pages.bytes == bytes))
}

/// Nobody has these mapped any more.
pub(super) fn put_back(pages: &Pages, inode: u64) {
    let mut all = all();
    // Another file may have the number by now.
    if all.mapped.get(&inode).is_some_and(|of| of.strong_count() == 0) {
        all.mapped.remove(&inode);
    }
    all.free.entry(pages.bytes).or_default().push(pages.start.as_ptr().expose_provenance());
}

#[cfg(test)]
mod tests {
    use super::super::Mapping;

    #[test]
    fn a_file_has_the_same_bytes_for_all_and_new_ones_are_zero() {
        const BYTES: u64 = 12 << 10;
        let whole = |mapping: &Mapping| {
            // SAFETY: all of a mapping that is alive, and no other thread knows of it.
            unsafe { std::slice::from_raw_parts(mapping.address(0, BYTES), BYTES as usize) }.to_vec()
        };
        for round in 1..4 {
            let one = Mapping::new("one", BYTES).expect("a small memfd");
            let two = Mapping::new("two", BYTES).expect("a small memfd");
            assert_eq!((whole(&one), whole(&two)), (vec![0; BYTES as usize], vec![0; BYTES as usize]));
            let again = Mapping::of_file(one.file().try_clone_to_owned().expect("a file"), BYTES);
            let again = again.expect("it is mapped");
            // SAFETY: as above.
            unsafe { again.address(0, BYTES).write_bytes(round, BYTES as usize) };
            drop(again);
            assert_eq!(whole(&one), vec![round; BYTES as usize]);
            assert_eq!(whole(&two), vec![0; BYTES as usize]);
        }
    }
}
