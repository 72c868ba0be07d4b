//! What an exchange asks of tenants: to unmap what is copied out, and to create memory for what comes in.

use super::{Asked, Run};
use crate::HandleKey;
use crate::device::Device;
use crate::exchange::requests::requests;

impl<D: Device> Run<'_, D> {
    /// Asks tenants to unmap what is copied out.
    pub(super) fn ask_unmaps(&mut self) -> bool {
        let keys = std::mem::take(&mut self.to_unmap);
        for &key in &keys {
            self.asked.entry(key).or_insert(Asked::Unmap);
        }
        for (owner, handles) in requests(&keys, self.mover.request_bytes, |key| self.mover.bytes_of(key)) {
            if self.tenants.unmap(owner, &handles).is_err() {
                self.lose(owner);
            }
        }
        !keys.is_empty()
    }

    /// Asks tenants to create memory for what comes in, in order, as far as there is room. What is in the cellar waits until it
    /// is in the arena, and lets others by.
    pub(super) fn ask_creates(&mut self) -> bool {
        let mut keys = Vec::new();
        while let Some(index) = self.waiting_in.iter().position(|&key| !self.is_below(key))
            && let Some(&key) = self.waiting_in.get(index)
            && self.mover.bytes_of(key) <= self.room_bytes
        {
            self.waiting_in.remove(index);
            self.reserve(key, &mut keys);
        }
        // Nothing comes in, and the next has no room yet: the largest that has some is better than a lane that waits.
        if keys.is_empty()
            && self.copying_in.is_empty()
            && !self.is_asked(|asked| matches!(asked, Asked::Create))
        {
            let fits = |(_, key): &(usize, &HandleKey)| {
                !self.is_below(**key) && self.mover.bytes_of(**key) <= self.room_bytes
            };
            let waiting = self.waiting_in.iter().enumerate().filter(fits);
            // The first of several.
            let largest =
                waiting.rev().max_by_key(|(_, key)| self.mover.bytes_of(**key)).map(|(index, _)| index);
            if let Some(key) = largest.and_then(|index| self.waiting_in.remove(index)) {
                self.reserve(key, &mut keys);
            }
        }
        self.request_creates(&keys);
        !keys.is_empty()
    }

    /// Asks for any one handle for which there is room.
    pub(super) fn ask_any_create(&mut self) -> bool {
        let fits = |key: &HandleKey| !self.is_below(*key) && self.mover.bytes_of(*key) <= self.room_bytes;
        let Some(index) = self.waiting_in.iter().position(fits) else { return false };
        let mut keys = Vec::new();
        if let Some(key) = self.waiting_in.remove(index) {
            self.reserve(key, &mut keys);
        }
        self.request_creates(&keys);
        true
    }

    /// Takes room for a handle that is to be created.
    fn reserve(&mut self, key: HandleKey, keys: &mut Vec<HandleKey>) {
        match self.mover.creating(key) {
            Ok(()) => {
                self.room_bytes -= self.mover.bytes_of(key);
                self.asked.insert(key, Asked::Create);
                keys.push(key);
            }
            Err(error) => self.outcome.failed.push((key, error)),
        }
    }

    pub(super) fn note_first_in(&mut self) {
        if self.outcome.into.end.is_zero() {
            self.outcome.into.start = self.elapsed();
            self.outcome.into.end = self.outcome.into.start;
        }
    }

    pub(super) fn request_creates(&mut self, keys: &[HandleKey]) {
        if !keys.is_empty() {
            self.note_first_in();
        }
        for (owner, handles) in requests(keys, self.mover.request_bytes, |key| self.mover.bytes_of(key)) {
            if self.tenants.create(owner, &handles).is_err() {
                self.lose(owner);
            }
        }
    }
}
