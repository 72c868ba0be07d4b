//! What a fake device does, and so what can fail.

#[allow(unused_imports)] // For the links in what follows.
use crate::device::{Device, Registrar};

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Device::import`]
    Import,
    /// [`Device::release`]
    Release,
    /// [`Device::copy_out`]
    CopyOut,
    /// [`Device::copy_in`]
    CopyIn,
    /// [`Device::mark`]
    Mark,
    /// [`Device::passed`]
    Passed,
    /// [`Registrar::register`]
    Register,
    /// [`Device::prepare_hashing`]
    PrepareHashing,
    /// [`Device::hash`]
    Hash,
    /// [`Device::sums`]
    Sums,
    /// [`Device::zero`]
    Zero,
    /// [`Device::copy_between`]
    CopyBetween,
}

impl Operation {
    /// Those that only happen where copies are kept.
    pub const OF_HASHING: [Operation; 3] = [Operation::Hash, Operation::Sums, Operation::Zero];

    /// All others.
    pub const ALL: [Operation; 7] = [
        Operation::Import,
        Operation::Release,
        Operation::CopyOut,
        Operation::CopyIn,
        Operation::Mark,
        Operation::Passed,
        Operation::Register,
    ];
}
