//! Files that are open for a moment: on their way to the daemon, or a connection that is not a session's yet. And those of memory
//! that another program made, as long as it is here.
//!
//! A forked child would keep them, and with them memory that the daemon has moved away. So their numbers are noted where the
//! child finds them without a lock. One that is forked in the instant between the making of a file and its note, or between the
//! end of the note and the close, keeps that one.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// More than the agents of all sessions have open at a time, and memory has files. What is beyond is not noted.
const PLACES: usize = 2048;
const NONE: RawFd = -1;

static NUMBERS: [AtomicI32; PLACES] = [const { AtomicI32::new(NONE) }; PLACES];

/// In a forked child: closes all of them. Only stores and closes.
pub(crate) fn forget() {
    close_all(&NUMBERS);
}

fn close_all(numbers: &[AtomicI32]) {
    for place in numbers {
        let number = place.swap(NONE, SeqCst);
        if number != NONE {
            // SAFETY: noted by a thread that the child does not have, and that alone would have closed it.
            unsafe { libc::close(number) };
        }
    }
}

/// The number of a file is noted until this is dropped, which has to be before the file is closed: its number may be another's
/// from then on.
#[derive(Debug)]
pub(crate) struct Noted(Option<usize>);

impl Noted {
    pub(crate) fn of(file: &impl AsFd) -> Self {
        let number = file.as_fd().as_raw_fd();
        let is_taken = |place: &AtomicI32| place.compare_exchange(NONE, number, SeqCst, SeqCst).is_ok();
        Self(NUMBERS.iter().position(is_taken))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            NUMBERS[place].store(NONE, SeqCst);
        }
    }
}

/// A file that is noted as long as it is open.
#[derive(Debug)]
pub(crate) struct Transient {
    // In this order: they are dropped in it.
    noted: Noted,
    file: OwnedFd,
}

impl From<OwnedFd> for Transient {
    fn from(file: OwnedFd) -> Self {
        Self { noted: Noted::of(&file), file }
    }
}

impl Transient {
    /// Whether a forked child closes it.
    pub(crate) fn is_noted(&self) -> bool {
        self.noted.0.is_some()
    }
}

impl AsFd for Transient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_known_until_it_is_closed() {
        let file = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let number = file.as_raw_fd();
        let is_noted = || NUMBERS.iter().any(|place| place.load(SeqCst) == number);
        let transient = Transient::from(file);
        assert!(is_noted());
        drop(transient);
        assert!(!is_noted());
    }

    #[test]
    fn a_child_closes_what_wasnoted_and_nothing_twice() {
        let file = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let copy = file.try_clone().unwrap();
        let numbers = [AtomicI32::new(NONE), AtomicI32::new(std::os::fd::IntoRawFd::into_raw_fd(file))];
        close_all(&numbers);
        assert!(numbers.iter().all(|place| place.load(SeqCst) == NONE));
        drop(copy);
    }
}
