//! Pinned host memory for what is away.
//!
//! One memfd of a fixed size. Its memory is made ready in the background ([`Arena::prepare`] returns at once), segment
//! by segment, and what is ready can be taken. Whether the bytes in taken space mean anything is the mover's business.
//! Space that is [kept](Arena::keep) counts as free, and is taken from its keeper only when there is no other.

mod cgroup;
mod host_memory;
mod kept;
pub(crate) mod mapping;
mod preparation;
mod space;

pub use kept::Kept;
pub use space::{Extent, Extents};

use crate::BLOCK_BYTES;
use crate::device::Registrar;
use kept::Shelf;
use mapping::Mapping;
use preparation::{News, Preparation};
use space::Space;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The step in which memory is registered with the device. Larger steps hold the driver's lock for too long.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Why there is no arena.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// More than the host can give.
    #[error(
        "an arena of {bytes} bytes does not fit into host memory: {available_bytes} bytes are available here, within \
         the limits of this process's control groups, and {margin_bytes} of them are left to others; ask for less, \
         or raise the limit"
    )]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// What the host has, and this process may use.
        available_bytes: u64,
        /// What is not touched.
        margin_bytes: u64,
    },
    /// Nothing, or not whole blocks.
    #[error("an arena cannot have {bytes} bytes: a multiple of 2 MiB is needed, and not zero")]
    BadSize {
        /// What was asked for.
        bytes: u64,
    },
    /// The host's memory cannot be found out.
    #[error("cannot tell from /proc/meminfo how much memory is available: {why}")]
    HostMemoryUnknown {
        /// What is wrong with it.
        why: String,
    },
    /// The kernel refused the memory or the thread.
    #[error("cannot make an arena of {bytes} bytes: {why}")]
    Refused {
        /// What was asked for.
        bytes: u64,
        /// The kernel's error.
        why: String,
    },
}

/// Pinned host memory, shared by the movers of several GPUs: each has a clone. When the last one is dropped it is
/// unregistered and unmapped: no copy may be under way then.
#[derive(Clone, Debug)]
pub struct Arena {
    books: Arc<Mutex<Books>>,
    mapping: Arc<Mapping>,
}

/// What is ready and what of it is taken.
#[derive(Debug)]
struct Books {
    space: Space,
    kept: Shelf,
    preparation: Preparation,
    growing: bool,
    stopped: Option<String>,
    mapping: Arc<Mapping>,
}

impl Arena {
    /// The size to take when nobody says otherwise: half of the memory that the host has available, and
    /// that this process may use.
    pub fn usual_bytes() -> Result<u64, ArenaError> {
        Ok(host_memory::half_available()? / SEGMENT_BYTES * SEGMENT_BYTES)
    }

    /// Makes an arena of this size, and starts to make it ready with a device's registrar: for all devices of the driver.
    pub fn prepare(bytes: u64, registrar: Box<dyn Registrar>) -> Result<Arena, ArenaError> {
        Arena::prepare_in_segments(bytes, SEGMENT_BYTES, registrar)
    }

    /// The same with segments of another size, which must be whole blocks.
    pub(crate) fn prepare_in_segments(
        bytes: u64,
        segment_bytes: u64,
        registrar: Box<dyn Registrar>,
    ) -> Result<Arena, ArenaError> {
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(ArenaError::BadSize { bytes });
        }
        host_memory::check_fits(bytes)?;
        let refused = |why: String| ArenaError::Refused { bytes, why };
        let mapping = Mapping::new("rota-arena", bytes).map_err(|error| refused(error.to_string()))?;
        let mapping = Arc::new(mapping);
        let preparation = Preparation::start(Arc::clone(&mapping), segment_bytes, registrar)
            .map_err(|error| refused(error.to_string()))?;
        let books = Books {
            space: Space::new(segment_bytes),
            kept: Shelf::default(),
            preparation,
            growing: true,
            stopped: None,
            mapping: Arc::clone(&mapping),
        };
        Ok(Arena { books: Arc::new(Mutex::new(books)), mapping })
    }

    /// The size that it will have when all of it is ready.
    pub fn size_bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    /// How much is ready, taken or not.
    pub fn ready_bytes(&self) -> u64 {
        self.books().space.ready_bytes()
    }

    /// How much can be taken now.
    pub fn free_bytes(&self) -> u64 {
        let books = self.books();
        books.space.free_bytes() + books.kept.bytes()
    }

    /// How much of that is kept.
    pub fn kept_bytes(&self) -> u64 {
        self.books().kept.bytes()
    }

    /// Whether more may become ready.
    pub fn is_growing(&self) -> bool {
        self.books().growing
    }

    /// Whether others have it too, and may give space back at any time.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.books) > 1
    }

    /// Why it stopped to grow before all was ready, if it did.
    pub fn stopped(&self) -> Option<String> {
        self.books().stopped.clone()
    }

    /// Waits until nothing more becomes ready.
    pub fn wait_until_prepared(&self) {
        let mut books = self.books();
        while let Some(news) = books.preparation.wait() {
            books.note(news);
        }
        books.growing = false;
    }

    /// The memfd.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.mapping.file()
    }

    /// Takes space for this many bytes, if there is enough that is ready and free, however scattered it is.
    ///
    /// What is kept gives way, the oldest first.
    pub fn take(&self, bytes: u64) -> Option<Extents> {
        let mut books = self.books();
        let Books { space, kept, .. } = &mut *books;
        kept.make_room(bytes.checked_next_multiple_of(BLOCK_BYTES)?, space);
        space.take(bytes)
    }

    /// Gives space back. Copies from and to it must be done.
    pub fn give_back(&self, extents: Extents) {
        self.books().space.give_back(extents);
    }

    /// Keeps space with the bytes in it, until somebody needs it. Copies from and to it must be done.
    pub fn keep(&self, extents: Extents) -> Kept {
        self.books().kept.keep(extents)
    }

    /// Space that was kept, with its bytes, unless somebody needed it.
    pub fn resume(&self, kept: Kept) -> Option<Extents> {
        self.books().kept.resume(kept)
    }

    /// Where a run lies in this process.
    pub fn address(&self, run: Extent) -> *mut u8 {
        self.mapping.address(run.offset, run.bytes)
    }

    /// The books as of now.
    fn books(&self) -> MutexGuard<'_, Books> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        books.absorb();
        books
    }
}

impl Books {
    fn absorb(&mut self) {
        while self.growing {
            match self.preparation.next() {
                Ok(Some(news)) => self.note(news),
                Ok(None) => return,
                Err(preparation::Ended) => self.growing = false,
            }
        }
    }

    fn note(&mut self, news: News) {
        match news {
            News::Ready(segment) => self.space.add_segment(segment),
            News::Stopped(why) => self.stopped = Some(why),
        }
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        self.preparation.undo(&self.mapping);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::fake_device::{FakeDevice, Operation};

    const SEGMENT: u64 = 2 * BLOCK_BYTES;

    #[test]
    fn all_of_it_becomes_ready_and_is_undone() {
        let device = FakeDevice::new(1 << 30);
        let arena = Arena::prepare_in_segments(5 * BLOCK_BYTES, SEGMENT, device.registrar()).expect("small");
        arena.wait_until_prepared();
        assert_eq!(arena.ready_bytes(), 5 * BLOCK_BYTES);
        assert_eq!(device.registered_bytes(), 5 * BLOCK_BYTES);
        assert!(!arena.is_growing());
        assert_eq!(arena.stopped(), None);
        let all = arena.take(5 * BLOCK_BYTES).expect("all is free");
        assert_eq!(all.runs().len(), 3, "a run ends where its segment ends");
        for &run in all.runs() {
            // SAFETY: the run was just taken, so it is mapped and nobody else uses it.
            unsafe { arena.address(run).write_bytes(7, run.bytes as usize) };
        }
        arena.give_back(all);
        drop(arena);
        assert_eq!(device.registered_bytes(), 0);
    }

    #[test]
    fn it_stays_smaller_when_pinning_fails() {
        let mut device = FakeDevice::new(1 << 30);
        device.fail(Operation::Register, 3);
        let arena = Arena::prepare_in_segments(8 * BLOCK_BYTES, SEGMENT, device.registrar()).expect("small");
        arena.wait_until_prepared();
        assert_eq!(arena.ready_bytes(), 4 * BLOCK_BYTES);
        assert!(arena.stopped().expect("it stopped").contains("cannot pin"));
        assert!(arena.take(5 * BLOCK_BYTES).is_none());
        assert!(arena.take(4 * BLOCK_BYTES).is_some());
        drop(arena);
        assert_eq!(device.registered_bytes(), 0);
    }

    #[test]
    fn clones_share_the_space_and_the_last_one_ends_it() {
        let device = FakeDevice::new(1 << 30);
        let arena = Arena::prepare_in_segments(4 * BLOCK_BYTES, SEGMENT, device.registrar()).expect("small");
        assert!(!arena.is_shared());
        let other = arena.clone();
        assert!(arena.is_shared() && other.is_shared());
        arena.wait_until_prepared();
        let taken = arena.take(3 * BLOCK_BYTES).expect("it is free");
        assert_eq!(other.free_bytes(), BLOCK_BYTES);
        assert!(other.take(2 * BLOCK_BYTES).is_none());
        other.give_back(taken);
        assert_eq!(arena.free_bytes(), 4 * BLOCK_BYTES);
        drop(arena);
        assert!(!other.is_shared());
        assert_eq!(device.registered_bytes(), 4 * BLOCK_BYTES);
        drop(other);
        assert_eq!(device.registered_bytes(), 0);
    }

    #[test]
    fn dropping_it_while_it_grows_is_fine() {
        let device = FakeDevice::new(1 << 30);
        drop(Arena::prepare_in_segments(16 * BLOCK_BYTES, SEGMENT, device.registrar()).expect("small"));
        assert_eq!(device.registered_bytes(), 0);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let device = FakeDevice::new(1 << 30);
        let refused = |bytes| Arena::prepare(bytes, device.registrar()).expect_err("refused");
        assert_eq!(refused(0), ArenaError::BadSize { bytes: 0 });
        assert_eq!(refused(BLOCK_BYTES + 1), ArenaError::BadSize { bytes: BLOCK_BYTES + 1 });
        assert!(matches!(refused(1 << 60), ArenaError::TooLarge { .. }));
    }
}
