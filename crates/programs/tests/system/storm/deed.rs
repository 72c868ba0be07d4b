//! What goes wrong in a storm.

use super::told::Phase;

/// What can happen. All of it has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    /// A program is killed in this phase.
    Death(Phase),
    /// A program stands still for a while.
    Standstill,
    /// The worker is killed.
    Kill,
    /// A copy of the worker fails, and with it its context: another worker takes over.
    FailedCopy,
    /// The disk takes no more, before the cellar has all that it may: a write fails.
    FullDisk,
    /// The disk does not give back what it has.
    FailedRead,
    /// The disk gives back something else.
    ChangedBytes,
    /// More programs come than GPU, arena and cellar have room for.
    Crowd,
}

impl Deed {
    pub(super) const ALL: [Deed; 12] = [
        Deed::Death(Phase::Running),
        Deed::Death(Phase::Frozen),
        Deed::Death(Phase::MovingOut),
        Deed::Death(Phase::Away),
        Deed::Death(Phase::MovingIn),
        Deed::Standstill,
        Deed::Kill,
        Deed::FailedCopy,
        Deed::FullDisk,
        Deed::FailedRead,
        Deed::ChangedBytes,
        Deed::Crowd,
    ];
}
