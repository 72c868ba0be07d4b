//! What an exchange does with memory that goes from one tenant to the next: it is filled at once, and taken when it is.

use super::{Asked, Run};
use crate::HandleKey;
use crate::device::Device;
use crate::exchange::MoveError;
use crate::exchange::requests::requests;
use crate::mover::Passed;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl<D: Device> Run<'_, D> {
    /// Memory that tenants have unmapped becomes that of handles which wait to come in, the first that it can be. What nobody can
    /// have is dropped: each is looked at once, as there may be thousands of both.
    pub(super) fn pass_unmapped(&mut self) -> bool {
        let mut progress = false;
        while let Some(from) = self.to_pass.pop_front() {
            progress = true;
            let to = self.waiting_in.iter().position(|&to| self.mover.can_pass(from, to));
            let Some(to) = to.and_then(|index| self.waiting_in.remove(index)) else {
                self.to_release.push_back(from);
                continue;
            };
            self.note_out(from);
            self.note_first_in();
            match self.mover.pass(from, to) {
                Some(Passed::Filling) => self.copying_in.push_back(to),
                Some(Passed::Failed(error, freed_bytes)) => self.not_passed(to, error, freed_bytes),
                None => self.waiting_in.push_front(to),
            }
        }
        progress
    }

    /// Memory could not be filled for a handle, whose tenant knows nothing of it.
    pub(super) fn not_passed(&mut self, key: HandleKey, error: MoveError, freed_bytes: u64) {
        self.room_bytes += freed_bytes;
        self.outcome.failed.push((key, error));
    }

    /// Whether what is unmapped is dropped later: nobody waits for its room, and a driver clears what is released with the engine
    /// that copies in.
    pub(super) fn holds_back(&self) -> bool {
        let comes = |asked: &Asked| matches!(asked, Asked::Create);
        self.waiting_in.is_empty() && (!self.copying_in.is_empty() || self.is_asked(comes))
    }

    /// Asks tenants to take what is filled.
    pub(super) fn ask_takes(&mut self) -> bool {
        let mut files: BTreeMap<HandleKey, Arc<OwnedFd>> = BTreeMap::new();
        for key in std::mem::take(&mut self.to_take) {
            match self.mover.frame_file(key) {
                Some(file) => {
                    self.asked.insert(key, Asked::Take);
                    files.insert(key, file);
                }
                None => self.make_instead(key),
            }
        }
        let keys: Vec<HandleKey> = files.keys().copied().collect();
        for (owner, handles) in requests(&keys, self.mover.request_bytes, |key| self.mover.bytes_of(key)) {
            let with_file =
                |handle| files.get(&HandleKey { owner, handle }).map(|file| (handle, file.clone()));
            let handles: Vec<_> = handles.into_iter().filter_map(with_file).collect();
            if self.tenants.take(owner, &handles).is_err() {
                self.lose(owner);
            }
        }
        !keys.is_empty()
    }

    /// Tenants have taken their memory, which is whole.
    pub(super) fn taken(&mut self, keys: &[HandleKey]) {
        let mut taken = Vec::new();
        for &key in keys {
            match self.asked.get(&key) {
                Some(Asked::Take) => {
                    self.asked.remove(&key);
                    if self.mover.taken(key) {
                        self.outcome.passed_bytes += self.mover.bytes_of(key);
                        taken.push(key);
                    }
                }
                Some(asked) => tracing::warn!(%key, ?asked, "taken, which nobody asked for"),
                None => {
                    let (owner, handles) = (key.owner, vec![key.handle]);
                    self.mover.settle(crate::Reply::Taken { owner, handles }, self.tenants);
                }
            }
        }
        self.record(&[], &taken);
    }

    /// A tenant cannot take memory for a handle, because it has too many files, say: it creates some as ever, from now on.
    pub(super) fn make_instead(&mut self, key: HandleKey) {
        self.room_bytes += self.mover.take_failed(key).unwrap_or(0);
        self.mover.never_pass(key);
        self.waiting_in.push_front(key);
    }
}
