//! One after the other, each to its end, in the order in which they came.

/// To the end means to the end.
pub(super) const PREEMPTS: bool = false;

/// All are equals, and those go in the order in which they stand in line.
pub(super) const KEY: u64 = 0;
