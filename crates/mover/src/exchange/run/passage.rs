//! The way through the arena for what is in the cellar.
//!
//! What comes from there needs arena space, and where the cellar is nearly full, or its disk is, what has gone out could be put
//! nowhere else to make it: nothing would ever come from there again. So what goes out leaves a **passage** then, space for the
//! largest handle that is still to be fetched. Where that alone lets nothing go on, something is fetched before it has room, once,
//! since that makes room in the cellar; and else what goes out goes.
//!
//! Where the cellar has room nothing of this applies: it would move more through the disk.

use super::Run;
use crate::HandleKey;
use crate::device::Device;
use crate::mover::Fetch;

impl<D: Device> Run<'_, D> {
    /// Looks what is still to be fetched.
    pub(super) fn note_passage(&mut self) {
        let below = self.waiting_in.iter().filter(|&&key| self.mover.is_in_cellar(key));
        self.passage_bytes = below.map(|&key| self.mover.bytes_of(key)).max().unwrap_or(0);
    }

    /// What is to stay free in the arena if so much goes out. Nothing where the cellar takes enough to make the space again.
    pub(super) fn passage_beside(&self, bytes: u64) -> u64 {
        let takes_enough = || !self.mover.cellar_refuses && !self.is_cellar_nearly_full(bytes);
        if self.passage_bytes > 0 && !takes_enough() { self.passage_bytes } else { 0 }
    }

    /// Whether the cellar could not take so much any more, and beside it any two handles, which may be what has to go there next. One
    /// that is switched off takes nothing.
    fn is_cellar_nearly_full(&self, bytes: u64) -> bool {
        let arena = self.mover.arena();
        let cellar = arena.cellar_statistics().filter(|_| arena.has_cellar());
        cellar.is_none_or(|cellar| cellar.ready_bytes < bytes + 2 * self.largest_bytes)
    }

    /// Whether a handle may go out and leave the passage that is needed.
    pub(super) fn leaves_passage(&self, key: HandleKey) -> bool {
        let bytes = self.mover.bytes_of(key);
        let passage = self.passage_beside(bytes);
        passage == 0 || self.mover.has_reserved(key) || self.mover.arena().free_bytes() >= passage + bytes
    }

    /// Whether space may be taken for several at a time: the passage is kept by looking at each.
    pub(super) fn may_reserve_ahead(&self) -> bool {
        self.passage_beside(self.largest_bytes) == 0
    }

    /// Fetches something before it has room on the device, as nothing else goes on and the cellar is nearly full: that makes room
    /// there. Each handle once: should it have to go back, nothing was won.
    pub(super) fn fetch_early(&mut self) -> bool {
        let Some(&next) = self.waiting_out.front() else { return false };
        // One that fails, or is switched off, takes nothing in its place.
        if !self.mover.arena().has_cellar() || !self.is_cellar_nearly_full(self.mover.bytes_of(next)) {
            return false;
        }
        let below = |key: &&HandleKey| self.mover.is_in_cellar(**key) && !self.fetched_early.contains(*key);
        let wanted: Vec<HandleKey> = self.waiting_in.iter().filter(below).copied().collect();
        for key in wanted {
            match self.mover.start_fetch(key) {
                Ok(Fetch::Begun) => {
                    self.fetched_early.insert(key);
                    self.fetching.push(key);
                    return true;
                }
                Ok(Fetch::NoSpace) => {}
                Err(error) => {
                    self.not_fetched(key, error);
                    return true;
                }
            }
        }
        false
    }
}
