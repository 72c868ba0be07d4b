//! What goes out: which copy starts when, as far as there is arena space.

use super::Run;
use crate::HandleKey;
use crate::device::{Device, HASHES_MAX};
use crate::mover::Started;

/// Pieces of copies out that are started ahead. A driver's queue has a limit, and waits when it is full.
const PIECES_AHEAD_MAX: usize = 256;

impl<D: Device> Run<'_, D> {
    /// Starts copies out, in order, as far as there is arena space.
    pub(super) fn start_copies_out(&mut self) -> bool {
        let mut progress = false;
        // Beside somebody latency-critical one at a time, so that its kernels wait for short ones only.
        let hashes_max = if self.mover.pace().is_gentle() { 1 } else { HASHES_MAX };
        self.balance();
        let mut pieces: usize = self.copying_out.iter().map(|(_, pieces)| pieces).sum();
        while pieces < PIECES_AHEAD_MAX
            && self.bytes_ahead() < self.mover.lengths.ahead_bytes
            && self.hashing.len() < hashes_max
            && let Some(&key) = self.waiting_out.front()
            && self.leaves_passage(key)
        {
            match self.start_out(key) {
                Some(started) => pieces += started,
                None => break,
            }
            self.waiting_out.pop_front();
            if self.may_reserve_ahead() {
                // There was space for this one, so there may be for the next.
                self.has_space = self.has_space && self.mover.reserve_ahead(self.waiting_out.iter().copied());
            }
            progress = true;
            // Memory had to be registered first, which took its time: others may be done.
            if self.mover.has_waited() {
                break;
            }
        }
        progress
    }

    /// Starts any one of these copies out for which there is arena space.
    pub(super) fn start_any_out(&mut self, may_go: impl Fn(&Self, HandleKey) -> bool) -> bool {
        let started = (0..self.waiting_out.len()).find(|&index| {
            let key = self.waiting_out[index];
            may_go(self, key) && self.start_out(key).is_some()
        });
        started.and_then(|index| self.waiting_out.remove(index)).is_some()
    }

    /// Starts a copy out, or notes why it failed. None: there is no arena space for it. Else the number of pieces.
    fn start_out(&mut self, key: HandleKey) -> Option<usize> {
        match self.mover.start_out(key) {
            Ok(Started::NoSpace) => None,
            Ok(Started::Pieces(pieces)) => {
                self.note_first_out();
                self.copying_out.push_back((key, pieces));
                Some(pieces)
            }
            Ok(Started::Hashing) => {
                self.note_first_out();
                self.hashing.push_back(key);
                Some(0)
            }
            Err(error) => {
                self.outcome.failed.push((key, error));
                Some(0)
            }
        }
    }

    fn note_first_out(&mut self) {
        if self.copying_out.is_empty() && self.hashing.is_empty() && self.outcome.out.end.is_zero() {
            self.outcome.out.start = self.elapsed();
            self.outcome.out.end = self.outcome.out.start;
        }
    }
}
