//! The arena's memory, in pieces: each is a memfd that cannot change its size, with a page behind every byte, or behind those that
//! were used ([`Pages`]).
//!
//! Memory of a memfd belongs to whoever holds the file, so it outlives every worker. The keeper maps a segment only while
//! it puts pages behind it: what it does not map is not counted as its own memory when the system looks for a process to
//! end, and no stray write of its own can reach a tenant's bytes.

mod huge;
mod mapping;
mod near;

pub use huge::free_huge_bytes;

use crate::message::{Extent, SegmentView};
use crate::names::Node;
use mapping::Mapping;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Why a segment cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The system gives no file, or too many are open.
    #[error(
        "the system gives no file for {bytes} bytes of memory: {cause}; is the limit of open files too low?"
    )]
    NoFile {
        /// What was wanted.
        bytes: u64,
        /// What the system said.
        cause: Errno,
    },
    /// The system has no memory.
    #[error("the system gives no more memory: {cause} at the next {bytes} bytes")]
    NoMemory {
        /// What was wanted.
        bytes: u64,
        /// What the system said.
        cause: Errno,
    },
}

/// When a segment has pages behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Before anybody has it: no access waits for one, or fails for lack of memory.
    AtOnce,
    /// As they are used: for arenas of virtual GPUs and of tests, of which little is ever used.
    WhenUsed,
}

/// A piece of the arena that is ready.
#[derive(Debug)]
pub struct Segment {
    file: OwnedFd,
    view: SegmentView,
}

impl Segment {
    /// Makes one, near to a node if that is told, and of huge pages if the system has enough set aside; not where few of them
    /// would be used.
    pub fn make(place: Extent, node: Option<Node>, pages: Pages) -> Result<Segment, SegmentError> {
        if pages == Pages::AtOnce && free_huge_bytes() >= place.bytes {
            // Others may be quicker to take them.
            match Segment::make_of(place, node, pages, true) {
                Ok(segment) => return Ok(segment),
                Err(error) => tracing::debug!(%error, "no huge pages for a segment, usual ones instead"),
            }
        }
        Segment::make_of(place, node, pages, false)
    }

    fn make_of(place: Extent, node: Option<Node>, pages: Pages, huge: bool) -> Result<Segment, SegmentError> {
        let bytes = place.bytes;
        let no_file = |cause| SegmentError::NoFile { bytes, cause };
        let no_memory = |cause| SegmentError::NoMemory { bytes, cause };
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if huge {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let file = memfd_create("rota-arena", flags).map_err(no_file)?;
        ftruncate(&file, bytes).map_err(no_memory)?;
        // A worker that made it shorter would take bytes from under others.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(no_file)?;
        let mapping = Mapping::of(&file, bytes).map_err(no_memory)?;
        let node = node.filter(|&node| {
            let bound = near::prefer(&mapping, node);
            if let Err(cause) = bound {
                tracing::warn!(node = node.0, %cause, "memory cannot be put near to a node");
            }
            bound.is_ok()
        });
        if !huge {
            mapping.want_huge_pages();
        }
        if pages == Pages::AtOnce {
            mapping.populate(&file).map_err(no_memory)?;
        }
        Ok(Segment { file, view: SegmentView { offset: place.offset, bytes, node } })
    }

    /// Where it is, and how it was made.
    pub fn view(&self) -> SegmentView {
        self.view
    }

    /// Its memory.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Has a file this size, and keeps it? An access beyond the end of one that was made shorter would end the process.
pub fn is_sealed(file: &OwnedFd, bytes: u64) -> bool {
    fstat(file).is_ok_and(|stat| u64::try_from(stat.st_size) == Ok(bytes))
        && fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    fn make(node: Option<Node>) -> Segment {
        Segment::make(Extent { offset: 0, bytes: 4 * BLOCK_BYTES }, node, Pages::AtOnce)
            .expect("8 MiB are there")
    }

    #[test]
    fn pages_that_come_when_they_are_used_are_not_there_before() {
        let place = Extent { offset: 0, bytes: 4 * BLOCK_BYTES };
        let segment = Segment::make_of(place, None, Pages::WhenUsed, false).expect("a file");
        let has_bytes = || fstat(segment.file()).expect("it is a file").st_blocks as u64 * 512;
        assert_eq!(has_bytes(), 0);
        rustix::io::pwrite(segment.file(), b"kept", BLOCK_BYTES).expect("it can be written");
        assert!((1..=BLOCK_BYTES).contains(&has_bytes()));
        assert!(is_sealed(&segment.file, 4 * BLOCK_BYTES));
    }

    #[test]
    fn it_has_its_pages_and_cannot_change_its_size() {
        let segment = make(None);
        let stat = fstat(segment.file()).expect("it is a file");
        assert_eq!(stat.st_size as u64, 4 * BLOCK_BYTES);
        assert_eq!(stat.st_blocks as u64 * 512, 4 * BLOCK_BYTES, "every page is there");
        let seals = fcntl_get_seals(segment.file()).expect("it can be sealed");
        assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
        assert_eq!(ftruncate(segment.file(), BLOCK_BYTES), Err(Errno::PERM));
        assert_eq!(ftruncate(segment.file(), 8 * BLOCK_BYTES), Err(Errno::PERM));
    }

    #[test]
    fn its_bytes_stay_when_nobody_maps_it() {
        let segment = make(None);
        rustix::io::pwrite(segment.file(), b"kept", BLOCK_BYTES).expect("it can be written");
        let mapping = Mapping::of(&segment.file, 4 * BLOCK_BYTES).expect("it can be mapped");
        assert_eq!(mapping.read(BLOCK_BYTES, 4), b"kept");
        drop(mapping);
        let mapping = Mapping::of(&segment.file, 4 * BLOCK_BYTES).expect("it can be mapped");
        assert_eq!(mapping.read(BLOCK_BYTES, 4), b"kept");
    }

    #[test]
    fn it_is_near_to_a_node_where_there_is_one() {
        // Every machine has node 0; a kernel without NUMA says so by an error.
        let segment = make(Some(Node(0)));
        if let Some(node) = segment.view().node {
            let mapping = Mapping::of(&segment.file, 4 * BLOCK_BYTES).expect("it can be mapped");
            assert_eq!(near::node_of(&mapping, BLOCK_BYTES), Ok(node));
            assert_eq!(near::preferred_by(&mapping), Ok(Some(node)), "whoever maps it finds the same wish");
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_no_reason_to_have_no_memory() {
        for node in [Node(900), Node(u32::MAX)] {
            assert_eq!(make(Some(node)).view().node, None);
        }
    }

    #[test]
    fn too_much_is_an_error() {
        let wrong = Segment::make_of(Extent { offset: 0, bytes: 1 << 62 }, None, Pages::AtOnce, false)
            .expect_err("too much");
        assert!(matches!(wrong, SegmentError::NoMemory { .. }), "{wrong}");
    }

    #[test]
    fn without_huge_pages_a_huge_segment_is_an_error_and_not_a_crash() {
        if free_huge_bytes() == 0 {
            let bytes = 4 * BLOCK_BYTES;
            Segment::make_of(Extent { offset: 0, bytes }, None, Pages::AtOnce, true)
                .expect_err("there are no huge pages");
        }
    }
}
