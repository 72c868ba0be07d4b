//! Freeze, thaw and time slices: the interface, and what it acts on.
//!
//! [`RmControl`] is the driver behind it. Statuses are reported as the driver gives them; whether a control did
//! anything is for [`crate::selftest`] to judge, because some return success and do nothing.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use crate::tracker::{Group, GroupKey};

mod driver;
mod error;

pub use driver::{IoctlFn, RmControl, SYSTEM_IOCTL};
pub use error::{Command, ControlError, Status, Undo};

/// Most channels that one call to the driver takes.
pub const BATCH_CHANNELS_MAX: usize = 64;

/// Channels that are frozen and thawed together: of one client, reached through one subdevice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSet {
    /// The client of all of them.
    pub client: u32,
    /// A subdevice of that client.
    pub subdevice: u32,
    /// The channels; each at most once.
    pub channels: Vec<u32>,
}

/// Where a time slice is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupAddress {
    /// The group's client.
    pub client: u32,
    /// The group.
    pub group: u32,
}

/// A time slice in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// What can be done to a tenant's channels.
pub trait Control {
    /// Takes the channels off the GPU, mid-kernel. A failure leaves none of them frozen, unless it says so.
    fn freeze(&self, set: &ChannelSet) -> Result<(), ControlError>;

    /// Lets the channels go on where they were. On a failure the others of the set are thawed all the same.
    fn thaw(&self, set: &ChannelSet) -> Result<(), ControlError>;

    /// Sets a group's time slice.
    fn set_time_slice(&self, group: GroupAddress, slice: Micros) -> Result<(), ControlError>;

    /// Reads a group's time slice.
    fn time_slice(&self, group: GroupAddress) -> Result<Micros, ControlError>;
}

/// The channels of some groups as the fewest sets, each with the number of its file, and the groups with channels
/// that cannot be frozen, because no subdevice of theirs is known.
pub fn channel_sets<'a>(
    groups: impl IntoIterator<Item = &'a Group>,
) -> (Vec<(RawFd, ChannelSet)>, Vec<GroupKey>) {
    let mut sets: BTreeMap<(RawFd, u32, u32), Vec<u32>> = BTreeMap::new();
    let mut unreachable = Vec::new();
    for group in groups.into_iter().filter(|group| !group.channels.is_empty()) {
        match group.subdevice {
            Some(subdevice) => {
                sets.entry((group.file, group.client, subdevice)).or_default().extend(&group.channels);
            }
            None => unreachable.push(group.key()),
        }
    }
    let sets = sets
        .into_iter()
        .map(|((file, client, subdevice), channels)| (file, ChannelSet { client, subdevice, channels }))
        .collect();
    (sets, unreachable)
}

#[cfg(test)]
mod tests;
