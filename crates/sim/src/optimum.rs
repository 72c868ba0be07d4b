//! The least that has to be moved, by somebody who knows the future: what the core's choice of victims is judged by.
//!
//! Nothing here decides anything, and nothing here is the core's: a [`Case`] says which pieces of memory had to be on the
//! device at which steps, and how much room there was; [`least`] says how few bytes could have been moved, out and in
//! added, by whoever had known all of it beforehand. Cases come from a simulation ([`of_scenario`]) or from the timeline
//! of a daemon ([`events`]).
//!
//! **Why intervals.** Between two steps that need it, a piece either stays, and takes room at every step in between, or goes
//! out and comes back. If it goes, it is best gone at once: that costs the same and frees more. So the only question for
//! each such interval is whether it is kept, and the only rule is that at each step what is kept over it fits beside what
//! it needs. A piece that was rewritten costs its bytes twice when it is not kept, one that was not only once, since the
//! arena may still have its copy. After the last step that needs it only the way out is left to be paid.
//!
//! **Why a flow.** Let the free room be a flow from one step to the next, and let each interval be an edge from its first
//! step past its last one, as wide as its bytes and as dear as what keeping them saves (`packing`). All that crosses a step
//! is its free room, so flows and ways to keep (parts of) intervals are the same thing, and the cheapest flow keeps the
//! most. A flow whose widths are whole numbers has a cheapest one of whole numbers. So where all pieces have the same size
//! and are rewritten, counting in pieces makes the answer exact. Where they are not, parts of pieces may be kept: the
//! answer is a bound that nobody can be below, and a ratio to it is too high rather than too low.
//!
//! **Why the furthest next turn should go first.** For equal pieces that cost the same, a simple rule is optimal: go through
//! the steps, and where what is kept does not fit, give up the interval that ends last. Suppose that some best choice keeps
//! none that the rule has given up so far, but keeps `z`, which the rule gives up now. As not all that cross this step fit,
//! the best choice lacks another one of them, `a`, which ends no later. Let it keep `a` in place of `z`: from this step on
//! that takes no more room, before this step all that the rule had not given up fitted together, and it saves as much. So
//! some best choice agrees with the rule on one more, and in the end on all. A step that needs many pieces at once changes
//! nothing in this. The tests hold this rule, the flow and a search through everything against each other.

mod case;
pub mod events;
mod packing;
#[cfg(test)]
mod tests;

pub use case::{Began, Case, PieceId};

use crate::engine;
use crate::record::Record;
use crate::scenario::{Faults, Scenario};
use sched::Bytes;
use thiserror::Error;

/// Steps in one case. Longer ones would take minutes.
pub const STEPS_MAX: usize = 10_000;
/// Pieces in one case.
pub const PIECES_MAX: usize = 1_000_000;

/// Why there is no optimum.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OptimumError {
    /// A step needs more than there is.
    #[error(
        "step {step} needs {needs} on the device, and there is room for {room}: a turn was had that could not be, so the \
         room is not what was given"
    )]
    DoesNotFit {
        /// Counted from 0.
        step: usize,
        /// What it needs.
        needs: Bytes,
        /// What there is.
        room: Bytes,
    },
    /// Too long.
    #[error("there are more than {STEPS_MAX} steps; judge a shorter time")]
    TooManySteps,
    /// Too fine.
    #[error("there are more than {PIECES_MAX} pieces of memory; judge a shorter time or larger handles")]
    TooManyPieces,
}

/// The least that has to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// Out and in, added.
    pub bytes: Bytes,
    /// Could somebody really have moved so little? If not, it is only a bound.
    pub exact: bool,
}

/// What was moved, beside the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Out and in, added.
    pub moved: Bytes,
    /// By somebody who knows the future.
    pub least: Least,
    /// Steps that were looked at.
    pub steps: usize,
}

impl Judged {
    /// How many times the least was moved; nothing where nothing had to be.
    pub fn ratio(&self) -> Option<f64> {
        (self.least.bytes > Bytes::ZERO).then(|| self.moved.0 as f64 / self.least.bytes.0 as f64)
    }
}

/// The least that has to be moved in a case.
pub fn least(case: &Case) -> Result<Least, OptimumError> {
    let unit = case.unit();
    let free = case.free(unit)?;
    let intervals = case.intervals(unit);
    let all: u128 = intervals.iter().map(packing::Interval::worth).sum();
    let saved = packing::most_saved(&free, &intervals);
    let bytes = (all - saved) * u128::from(unit) + case.unavoidable();
    let bytes = Bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
    Ok(Least { bytes, exact: case.is_even(unit) })
}

/// Runs a scenario under the core, and judges what it moved, on all GPUs together.
pub fn of_scenario(scenario: &Scenario) -> Result<(Record, Judged), OptimumError> {
    let (record, cases) = engine::run_noting_needs(scenario);
    let mut judged = Judged {
        moved: record.moved,
        // Moves that fail half way have moved what they have.
        least: Least { bytes: Bytes::ZERO, exact: scenario.faults == Faults::default() },
        steps: 0,
    };
    for case in cases {
        let case = case?;
        let found = least(&case)?;
        judged.steps += case.steps();
        judged.least.bytes += found.bytes;
        judged.least.exact &= found.exact;
    }
    Ok((record, judged))
}
