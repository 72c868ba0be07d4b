//! Which way goes first, where both share the bus.
//!
//! Copies in fall behind those out on some machines and at some moments, plain ones too: then the lane out is done first, and the one
//! in needs as much longer. As what goes out makes the room for what comes in, both should end together, and a lane can be held up
//! for the other by the length of its copies ([`crate::pace::Lengths`]).

use super::Run;
use crate::device::Device;

impl<D: Device> Run<'_, D> {
    /// Decides how long the copies out are that start next.
    pub(super) fn balance(&mut self) {
        self.mover.copies_out_short = self.lags_in();
    }

    /// Whether what comes in is what all will wait for: it has memory to go on with and still has more before it than what goes out.
    fn lags_in(&self) -> bool {
        let [left_out, left_in] = [
            self.planned_bytes[0].saturating_sub(self.outcome.bytes_out),
            self.planned_bytes[1].saturating_sub(self.outcome.bytes_in),
        ];
        // One is always a handle behind: the one that fills the room of the last that went out.
        self.copying_in.len() > 1 && left_in > left_out
    }

    /// What is being copied out, started and not ended.
    pub(super) fn bytes_ahead(&self) -> u64 {
        self.copying_out.iter().map(|(key, _)| self.mover.copied_bytes(*key)).sum()
    }
}
