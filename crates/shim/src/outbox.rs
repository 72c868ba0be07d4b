//! Messages that wait to be sent.
//!
//! The agent is the only one that sends, so messages leave in the order in which they were put here; whoever changes
//! the table of allocations puts its message here before it lets the table go, so that order is the table's too.
//!
//! It needs no bound of its own: a thread that asks for bytes waits for the answer before it asks again, and all other
//! messages answer an order or end an allocation that was granted.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use wire::{HANDLES_MAX, HandleId, ToDaemon};

use crate::guard::lock;
use crate::transient::Transient;

/// A message with the files that it carries.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) message: ToDaemon,
    pub(crate) files: Vec<Transient>,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    letters: Mutex<VecDeque<Letter>>,
}

impl Outbox {
    pub(crate) fn put(&self, message: ToDaemon, files: Vec<OwnedFd>) {
        let files = files.into_iter().map(Transient::from).collect();
        lock(&self.letters).push_back(Letter { message, files });
    }

    /// Says that a handle is freed, together with those freed just before.
    pub(crate) fn put_freed(&self, handle: HandleId) {
        let mut letters = lock(&self.letters);
        if let Some(Letter { message: ToDaemon::Freed { handles }, .. }) = letters.back_mut()
            && handles.len() < HANDLES_MAX
        {
            handles.push(handle);
            return;
        }
        let message = ToDaemon::Freed { handles: vec![handle] };
        letters.push_back(Letter { message, files: Vec::new() });
    }

    pub(crate) fn take(&self) -> Option<Letter> {
        lock(&self.letters).pop_front()
    }

    /// It could not be sent for the moment: it is the next one again.
    pub(crate) fn put_back(&self, letter: Letter) {
        lock(&self.letters).push_front(letter);
    }

    /// What was for a daemon that is gone is for nobody.
    pub(crate) fn clear(&self) {
        lock(&self.letters).clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.letters).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::GrantId;

    #[test]
    fn frees_in_a_row_travel_together_and_keep_their_place() {
        let outbox = Outbox::default();
        let total = HANDLES_MAX as u64 + 1;
        for handle in 0..total {
            outbox.put_freed(HandleId(handle));
        }
        outbox.put(ToDaemon::Returned { grant: GrantId(1) }, Vec::new());
        outbox.put_freed(HandleId(total));
        let messages: Vec<ToDaemon> =
            std::iter::from_fn(|| outbox.take()).map(|letter| letter.message).collect();
        let freed = |range: std::ops::Range<u64>| ToDaemon::Freed { handles: range.map(HandleId).collect() };
        let expected = [
            freed(0..total - 1),
            freed(total - 1..total),
            ToDaemon::Returned { grant: GrantId(1) },
            freed(total..total + 1),
        ];
        assert_eq!(messages, expected);
        assert!(outbox.is_empty());
    }
}
