//! The arena as a worker sees it: all segments in one range of addresses, so that an offset is an address.

use crate::message::{Extent, SegmentView, Welcome};
use crate::segment::is_sealed;
use crate::{BLOCK_BYTES, SEGMENTS_MAX};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::os::fd::OwnedFd;

/// Why a segment cannot be mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The system gives no addresses.
    #[error("cannot map {bytes} bytes of the arena: {cause}")]
    NotMapped {
        /// How many.
        bytes: u64,
        /// What the system said.
        cause: Errno,
    },
    /// It lies outside of what the keeper announced, or on another one.
    #[error("a segment of {bytes} bytes at {offset} has no place in the arena")]
    NoPlace {
        /// Where.
        offset: u64,
        /// How long.
        bytes: u64,
    },
    /// Its file is not as long as it says, or could become shorter.
    #[error("the file of the segment at {offset} is not what it should be")]
    WrongFile {
        /// Where.
        offset: u64,
    },
}

/// See the module. Dropped, it is unmapped: nothing may use it then, and no device may have it registered.
#[derive(Debug)]
pub struct View {
    /// What was reserved.
    reserved: *mut c_void,
    reserved_bytes: usize,
    /// Where the arena starts in it: huge pages need aligned addresses.
    start: *mut u8,
    segments_bytes: u64,
    segment_bytes: u64,
    mapped: BTreeMap<u64, u64>,
    /// Places where mapping failed. The kernel may have taken the reservation away first, and somebody else's memory may be
    /// there by now: they are not ours any more.
    given_up: BTreeSet<u64>,
}

// SAFETY: the mapping belongs to nobody else, and its address means the same in every thread.
unsafe impl Send for View {}
// SAFETY: shared users get addresses only; whoever reads or writes there says why that is sound.
unsafe impl Sync for View {}

impl View {
    /// Addresses for an arena as large as the keeper said. Nothing is there yet.
    pub fn new(welcome: &Welcome) -> Result<View, ViewError> {
        let Welcome { segments, segment_bytes, .. } = *welcome;
        let wrong = ViewError::NoPlace { offset: 0, bytes: segment_bytes };
        if segments > SEGMENTS_MAX || segment_bytes == 0 || !segment_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(wrong);
        }
        let segments_bytes = u64::from(segments).checked_mul(segment_bytes).ok_or(wrong.clone())?;
        let reserved_bytes = segments_bytes.checked_add(BLOCK_BYTES).ok_or(wrong.clone())?;
        let length = usize::try_from(reserved_bytes).map_err(|_| wrong)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory that is in use.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), flags) }
            .map_err(|cause| ViewError::NotMapped { bytes: reserved_bytes, cause })?;
        let aligned_by = reserved.cast::<u8>().align_offset(BLOCK_BYTES as usize);
        // SAFETY: a block more than the arena was reserved, and this is less than a block.
        let start = unsafe { reserved.cast::<u8>().add(aligned_by) };
        let (mapped, given_up) = (BTreeMap::new(), BTreeSet::new());
        Ok(View { reserved, reserved_bytes: length, start, segments_bytes, segment_bytes, mapped, given_up })
    }

    /// Maps a segment at its place. Says where it is. A place where that fails once is given up.
    pub fn map(&mut self, segment: SegmentView, file: &OwnedFd) -> Result<*mut u8, ViewError> {
        let SegmentView { offset, bytes, .. } = segment;
        let fits = offset.is_multiple_of(self.segment_bytes)
            && bytes > 0
            && bytes <= self.segment_bytes
            && offset.checked_add(self.segment_bytes).is_some_and(|end| end <= self.segments_bytes);
        if !fits || self.mapped.contains_key(&offset) || self.given_up.contains(&offset) {
            return Err(ViewError::NoPlace { offset, bytes });
        }
        if !is_sealed(file, bytes) {
            return Err(ViewError::WrongFile { offset });
        }
        let at = self.at(offset);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is in what `new` reserved and was not given up, and no segment is mapped there yet.
        if let Err(cause) = unsafe { mmap(at.cast(), bytes as usize, protection, flags, file, 0) } {
            self.given_up.insert(offset);
            return Err(ViewError::NotMapped { bytes, cause });
        }
        self.mapped.insert(offset, bytes);
        Ok(at)
    }

    /// How many segments are mapped: those that [`crate::Client::segments`] need not bring again.
    pub fn segments(&self) -> u32 {
        u32::try_from(self.mapped.len()).unwrap_or(u32::MAX)
    }

    /// Where a run lies in this process. None if it is not within a mapped segment.
    pub fn address(&self, run: Extent) -> Option<*mut u8> {
        let (&offset, &bytes) = self.mapped.range(..=run.offset).next_back()?;
        let end = run.offset.checked_add(run.bytes)?;
        (end <= offset.saturating_add(bytes)).then(|| self.at(run.offset))
    }

    /// The address of an offset, which must be below the arena's end.
    fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < self.segments_bytes);
        // SAFETY: within what was reserved, as its callers have checked.
        unsafe { self.start.add(offset as usize) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let end = self.reserved.addr().saturating_add(self.reserved_bytes);
        let mut from = self.reserved;
        // Up to each place that is not ours, and from its end on.
        for &offset in &self.given_up {
            let at = self.at(offset);
            unmap(from, at.addr().saturating_sub(from.addr()));
            from = at.wrapping_add(self.segment_bytes as usize).cast();
        }
        unmap(from, end.saturating_sub(from.addr()));
    }
}

/// Unmaps so many bytes of a reservation that is not used any more, and is still ours there.
fn unmap(from: *mut c_void, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: all of it is ours, segments too, and nothing uses it any more.
    if let Err(error) = unsafe { munmap(from, bytes) } {
        tracing::warn!(%error, "cannot unmap the arena");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Process;
    use crate::segment::{Pages, Segment};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use std::os::fd::AsFd;

    const SEGMENT: u64 = 2 * BLOCK_BYTES;

    fn view(segments: u32, segment_bytes: u64) -> Result<View, ViewError> {
        let keeper = Process { pid: 1, start_ticks: 1 };
        View::new(&Welcome { version: 1, keeper, segments, segment_bytes, highest_tenant: None, seed: None })
    }

    fn segment(number: u64, bytes: u64) -> (SegmentView, OwnedFd) {
        let made = Segment::make(Extent { offset: number * SEGMENT, bytes }, None, Pages::AtOnce)
            .expect("a few MiB");
        (made.view(), made.file().try_clone_to_owned().expect("a file"))
    }

    #[test]
    fn an_offset_is_an_address_in_the_same_memory() {
        let mut view = view(3, SEGMENT).expect("addresses");
        let (second, file) = segment(1, SEGMENT);
        let at = view.map(second, &file).expect("it has a place");
        assert!(at.addr().is_multiple_of(BLOCK_BYTES as usize), "huge pages fit");
        let run = Extent { offset: SEGMENT + 4096, bytes: 8 };
        let address = view.address(run).expect("it is mapped");
        // SAFETY: the run is mapped, and nobody else uses it.
        unsafe { address.copy_from(b"recorded".as_ptr(), 8) };
        let mut bytes = [0; 8];
        rustix::io::pread(file.as_fd(), &mut bytes, 4096).expect("it can be read");
        assert_eq!(&bytes, b"recorded");
        assert_eq!(view.segments(), 1);
    }

    #[test]
    fn what_is_not_mapped_has_no_address() {
        let mut view = view(3, SEGMENT).expect("addresses");
        let (second, file) = segment(1, BLOCK_BYTES);
        view.map(second, &file).expect("it has a place");
        for (offset, bytes) in
            [(0, 8), (SEGMENT, BLOCK_BYTES + 1), (SEGMENT + BLOCK_BYTES, 8), (2 * SEGMENT, 8)]
        {
            assert_eq!(view.address(Extent { offset, bytes }), None, "{offset} {bytes}");
        }
        assert_eq!(view.address(Extent { offset: SEGMENT, bytes: u64::MAX }), None);
        assert!(view.address(Extent { offset: SEGMENT, bytes: BLOCK_BYTES }).is_some());
    }

    #[test]
    fn segments_that_cannot_be_are_not_mapped() {
        let mut view = view(2, SEGMENT).expect("addresses");
        let (first, file) = segment(0, SEGMENT);
        view.map(first, &file).expect("it has a place");
        let at = |offset, bytes| SegmentView { offset, bytes, ..first };
        for strange in
            [first, at(2 * SEGMENT, SEGMENT), at(4096, SEGMENT), at(SEGMENT, 0), at(u64::MAX, SEGMENT)]
        {
            assert!(matches!(view.map(strange, &file), Err(ViewError::NoPlace { .. })), "{strange:?}");
        }
        let short = view.map(at(SEGMENT, BLOCK_BYTES), &file);
        assert_eq!(short, Err(ViewError::WrongFile { offset: SEGMENT }));
        let unsealed = memfd_create("x", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&unsealed, SEGMENT).expect("4 MiB");
        assert_eq!(view.map(at(SEGMENT, SEGMENT), &unsealed), Err(ViewError::WrongFile { offset: SEGMENT }));
    }

    #[test]
    fn a_place_where_mapping_failed_is_somebody_elses() {
        let mut view = view(3, SEGMENT).expect("addresses");
        let (second, file) = segment(1, SEGMENT);
        // It cannot be written to, which the kernel may find out only after it has taken the reservation away.
        let closed = memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        ftruncate(&closed, SEGMENT).expect("4 MiB");
        fcntl_add_seals(&closed, SealFlags::SHRINK | SealFlags::FUTURE_WRITE).expect("it can be sealed");
        assert!(matches!(view.map(second, &closed), Err(ViewError::NotMapped { .. })));
        assert!(matches!(view.map(second, &file), Err(ViewError::NoPlace { .. })), "not even a right one");
        let at = view.at(SEGMENT);
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the place is the view's, or nobody's, and nothing uses it: this is who took it meanwhile.
        unsafe { mmap_anonymous(at.cast(), SEGMENT as usize, protection, flags) }.expect("4 MiB");
        // SAFETY: just mapped.
        unsafe { at.write_bytes(7, SEGMENT as usize) };
        let (first, file) = segment(0, SEGMENT);
        view.map(first, &file).expect("the others have their places");
        drop(view);
        // SAFETY: mapped above, and only the view could have unmapped it.
        let bytes = unsafe { std::slice::from_raw_parts(at, SEGMENT as usize) };
        assert!(bytes.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn an_arena_that_cannot_be_has_no_addresses() {
        for (segments, segment_bytes) in
            [(1, 0), (1, 5), (SEGMENTS_MAX + 1, SEGMENT), (SEGMENTS_MAX, 1 << 62)]
        {
            assert!(matches!(view(segments, segment_bytes), Err(ViewError::NoPlace { .. })));
        }
        assert!(matches!(view(SEGMENTS_MAX, 1 << 40), Err(ViewError::NotMapped { .. })));
    }
}
