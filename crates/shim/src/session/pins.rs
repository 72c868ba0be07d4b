//! Handles that must stay on the device, because others have their memory.

use std::collections::HashMap;

use wire::{HANDLES_MAX, HandleId, ToDaemon};

use super::Session;
use crate::demand;
use crate::grants::Answer;
use crate::guard::lock;

/// How many daemons are asked one after the other, because each goes before it has answered.
const DAEMONS_MAX: usize = 3;

/// Why handles do not stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotPinned {
    /// The daemon refused, and why. Nothing has changed.
    Denied(String),
    /// One daemon after the other went before it answered.
    Ended,
}

impl Session {
    /// Has handles stay on the device, and waits until they are there for good. The daemon must know them. They stay until
    /// they are freed, or [`Session::unpin`]. Without a daemon nothing moves, and the next one does not get to know them. The
    /// calling thread must hold no lock.
    pub(crate) fn pin(&self, handles: &[HandleId]) -> Result<(), NotPinned> {
        // Before anybody else can have them.
        self.table().never_pass(handles);
        // It may have to be brought back, and only who has work is.
        let _inside = demand::Inside::enter();
        for (number, batch) in handles.chunks(HANDLES_MAX).enumerate() {
            if let Err(refused) = self.pin_batch(batch) {
                self.unpin(&handles[..number * HANDLES_MAX]);
                return Err(refused);
            }
        }
        Ok(())
    }

    fn pin_batch(&self, handles: &[HandleId]) -> Result<(), NotPinned> {
        for _ in 0..DAEMONS_MAX {
            let request = self.grants.open();
            self.say(ToDaemon::Pin { request, handles: handles.to_vec() });
            self.wake_agent();
            let answer = demand::vacate::aside(|| self.grants.wait(request));
            let mut pins = lock(&self.pins);
            match answer {
                // By one that is gone: the next one was not told, and may move them.
                Answer::Granted | Answer::GrantedHost(_) if !self.knows_grant(request) => continue,
                Answer::Granted | Answer::GrantedHost(_) => {}
                Answer::Denied(reason) => return Err(NotPinned::Denied(reason)),
                Answer::Ended if self.has_ended() => {}
                // There is another one already, which may know them.
                Answer::Ended => continue,
            }
            handles.iter().for_each(|handle| *pins.entry(*handle).or_default() += 1);
            return Ok(());
        }
        Err(NotPinned::Ended)
    }

    /// Has a new daemon know what is pinned, as often as it is.
    pub(super) fn pin_again(&self, pins: &HashMap<HandleId, u32>, handles: &[HandleId]) {
        let times = |handle: &HandleId| pins.get(handle).copied().unwrap_or(0);
        for time in 1..=handles.iter().map(times).max().unwrap_or(0) {
            let again: Vec<_> = handles.iter().copied().filter(|handle| times(handle) >= time).collect();
            for batch in again.chunks(HANDLES_MAX) {
                // Nobody waits for the answer: whatever it is, the daemon cannot move what it has no file of.
                let request = self.grants.number();
                self.outbox.put(ToDaemon::Pin { request, handles: batch.to_vec() }, Vec::new());
            }
        }
    }

    /// Whether all of these are to stay where they are.
    pub(crate) fn are_pinned(&self, handles: &[HandleId]) -> bool {
        let pins = lock(&self.pins);
        handles.iter().all(|handle| pins.contains_key(handle))
    }

    /// Gives the daemon files of what is not pinned any more, should it have none. Only the agent may call this.
    pub(crate) fn show_unpinned(&self) {
        let unpinned = std::mem::take(&mut *lock(&self.unpinned));
        if !unpinned.is_empty() {
            let mut table = self.table();
            unpinned.into_iter().for_each(|handle| table.show_later(handle));
        }
    }

    /// Whether a handle is to stay where it is.
    pub(crate) fn is_pinned(&self, handle: HandleId) -> bool {
        lock(&self.pins).contains_key(&handle)
    }

    /// Takes back a [`Session::pin`].
    pub(crate) fn unpin(&self, handles: &[HandleId]) {
        let mut pins = lock(&self.pins);
        for handle in handles {
            if let Some(times) = pins.get_mut(handle).filter(|times| **times > 1) {
                *times -= 1;
            } else {
                pins.remove(handle);
                lock(&self.unpinned).push(*handle);
            }
        }
        drop(pins);
        for batch in handles.chunks(HANDLES_MAX) {
            self.say(ToDaemon::Unpin { handles: batch.to_vec() });
        }
        self.wake_agent();
    }
}
