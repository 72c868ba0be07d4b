//! A channel group: what is frozen, thawed and given a time slice.

use std::fmt;
use std::os::fd::RawFd;

use crate::control::{ChannelSet, GroupAddress};
use crate::rm::{self, Alloc};

/// The engine that a group's channels feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// The compute engine (engine type 1).
    Compute,
    /// A copy engine, counted from 0 (engine types from 9).
    Copy(u32),
    /// Another engine, by its engine type.
    Other(u32),
    /// The calls did not say.
    Unknown,
}

/// Engine type of the compute engine.
const ENGINE_COMPUTE: u32 = 1;
/// Engine type of the first copy engine.
const ENGINE_COPY_FIRST: u32 = 9;
/// Engine type of the last one; video engines follow.
const ENGINE_COPY_LAST: u32 = 18;

impl Engine {
    /// From an engine type.
    pub const fn from_type(engine: u32) -> Self {
        match engine {
            0 => Self::Unknown,
            ENGINE_COMPUTE => Self::Compute,
            ENGINE_COPY_FIRST..=ENGINE_COPY_LAST => Self::Copy(engine - ENGINE_COPY_FIRST),
            other => Self::Other(other),
        }
    }

    /// The engine type; 0 when unknown.
    pub const fn engine_type(self) -> u32 {
        match self {
            Self::Compute => ENGINE_COMPUTE,
            Self::Copy(index) => ENGINE_COPY_FIRST + index,
            Self::Other(engine) => engine,
            Self::Unknown => 0,
        }
    }

    /// From the parameters of a group's allocation.
    pub(super) fn from_parameters(parameters: &[u8]) -> Self {
        rm::word(parameters, rm::GROUP_ENGINE_OFFSET).map_or(Self::Unknown, Self::from_type)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute => write!(out, "compute"),
            Self::Copy(index) => write!(out, "copy {index}"),
            Self::Other(engine) => write!(out, "engine {engine}"),
            Self::Unknown => write!(out, "unknown"),
        }
    }
}

/// Names a group within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// The file of its client.
    pub file: RawFd,
    /// Its client.
    pub client: u32,
    /// The group; for a channel outside any group, the channel.
    pub handle: u32,
}

/// A channel group with its channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The file of its client.
    pub file: RawFd,
    /// Its client.
    pub client: u32,
    /// The device that it was made under.
    pub device: u32,
    /// A subdevice of that device, to which freeze and thaw are sent; without it the group cannot be frozen.
    pub subdevice: Option<u32>,
    /// The group; for a lone channel, the channel.
    pub handle: u32,
    /// What it feeds.
    pub engine: Engine,
    /// Its channels, in the order of their birth.
    pub channels: Vec<u32>,
    /// Whether it may run; a channel born into such a group may run as soon as it is scheduled too.
    pub scheduled: bool,
    /// Whether this stands for one channel outside any group, which has no time slice of its own to set.
    pub lone: bool,
}

impl Group {
    pub(super) fn new(file: RawFd, alloc: &Alloc, engine: Engine) -> Self {
        Self {
            file,
            client: alloc.client,
            device: alloc.parent,
            subdevice: None,
            handle: alloc.handle,
            engine,
            channels: Vec::new(),
            scheduled: false,
            lone: false,
        }
    }

    pub(super) fn lone(file: RawFd, alloc: &Alloc) -> Self {
        Self { channels: vec![alloc.handle], lone: true, ..Self::new(file, alloc, Engine::Unknown) }
    }

    /// Its name.
    pub fn key(&self) -> GroupKey {
        GroupKey { file: self.file, client: self.client, handle: self.handle }
    }

    /// Where to send its time slice; None for a lone channel.
    pub fn address(&self) -> Option<GroupAddress> {
        (!self.lone).then_some(GroupAddress { client: self.client, group: self.handle })
    }

    /// Its channels as a set to freeze; None while no subdevice is known.
    pub fn channel_set(&self) -> Option<ChannelSet> {
        let subdevice = self.subdevice?;
        Some(ChannelSet { client: self.client, subdevice, channels: self.channels.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_types_go_both_ways() {
        assert_eq!(Engine::from_type(1), Engine::Compute);
        assert_eq!(Engine::from_type(11), Engine::Copy(2));
        assert_eq!(Engine::from_type(19), Engine::Other(19));
        for engine in 0..100 {
            assert_eq!(Engine::from_type(engine).engine_type(), engine);
        }
    }
}
