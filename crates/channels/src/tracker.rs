//! Which channel groups and channels a tenant has, learnt from its RM calls.
//!
//! Pure: calls go in, [`Change`]s come out, and [`Tracker::groups`] reads the state. It relies on seeing every
//! call of the process in the order in which the driver served them; an object that it missed is never invented.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use crate::control::Micros;
use crate::ioctl::Call;
use crate::rm::{self, Alloc, ControlCall, Free, Operation};

mod group;
pub use group::{Engine, Group, GroupKey};

/// Most clients that are tracked. A CUDA process has a handful.
pub const CLIENTS_MAX: usize = 256;
/// Most subdevices and groups of one client. A context has 4 groups.
pub const OBJECTS_MAX: usize = 1024;
/// Most channels of all clients together. A context has 20.
pub const CHANNELS_MAX: usize = 4096;

/// What a call changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A channel was allocated: whoever freezes this tenant has to learn of it.
    Born {
        /// The group that it belongs to.
        group: GroupKey,
        /// The channel's handle.
        channel: u32,
    },
    /// A group may run from now on: if the tenant is frozen, it has to be frozen at once.
    Scheduled(GroupKey),
    /// The tenant gave a group a time slice of its own: whoever gave it another one before has to do so again.
    Sliced {
        /// The group.
        group: GroupKey,
        /// The slice.
        slice: Micros,
    },
    /// A subdevice became known, so that groups which could not be frozen now can.
    Reachable {
        /// The file of the client.
        file: RawFd,
        /// The client.
        client: u32,
        /// The device whose groups these are.
        device: u32,
    },
    /// Objects went, and [`Tracker::groups`] reads differently.
    Gone {
        /// How many channels went.
        channels: usize,
    },
}

/// The objects of one client. Devices need no entry: they matter only as parents.
#[derive(Debug, Default)]
struct Client {
    /// Subdevice to device.
    subdevices: BTreeMap<u32, u32>,
    /// By handle; a channel outside any group has a group of its own under the channel's handle.
    groups: BTreeMap<u32, Group>,
}

/// The channel groups of a process.
#[derive(Debug, Default)]
pub struct Tracker {
    clients: BTreeMap<(RawFd, u32), Client>,
    channels: usize,
    overlooked: u64,
}

impl Tracker {
    /// Knows nothing yet; constant, so that it may be a static.
    pub const fn new() -> Self {
        Self { clients: BTreeMap::new(), channels: 0, overlooked: 0 }
    }

    /// Takes one call in. Calls that failed, and calls about other objects, change nothing.
    pub fn observe(&mut self, call: &Call) -> Option<Change> {
        let operation = call.operation()?;
        if !operation.is_tracked() {
            return None;
        }
        match operation {
            Operation::Alloc(alloc) => self.allocated(call.file, &alloc, &call.parameters),
            Operation::Free(free) => self.freed(call.file, &free),
            Operation::Control(control) => self.controlled(call.file, &control, &call.parameters),
        }
    }

    /// All groups, ordered by file, client and handle.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.clients.values().flat_map(|client| client.groups.values())
    }

    /// One group.
    pub fn group(&self, key: GroupKey) -> Option<&Group> {
        self.clients.get(&(key.file, key.client))?.groups.get(&key.handle)
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// How many objects were left out because a bound was reached. When it is not 0, a freeze may miss channels.
    pub fn overlooked(&self) -> u64 {
        self.overlooked
    }

    /// Drops all clients of a file that the process has closed, which frees them with no further call.
    pub fn forget_file(&mut self, file: RawFd) -> Option<Change> {
        let clients: Vec<u32> =
            self.clients.range((file, 0)..=(file, u32::MAX)).map(|(key, _)| key.1).collect();
        let mut gone = Gone::default();
        for client in clients {
            gone.add(self.remove_client(file, client));
        }
        self.settle(gone)
    }

    fn allocated(&mut self, file: RawFd, alloc: &Alloc, parameters: &[u8]) -> Option<Change> {
        if rm::is_client_class(alloc.class) {
            // The driver gives a handle out again only after the old client went with its file.
            let gone = self.remove_client(file, alloc.handle);
            return self.settle(gone);
        }
        let key = (file, alloc.client);
        // A handle that is given out again was freed unseen, with all that it held.
        let gone = self.remove_object(key, alloc.handle);
        let replaced = self.settle(gone);
        if alloc.class == rm::CLASS_DEVICE {
            return replaced;
        }
        if !self.has_room(key, alloc) {
            self.overlooked += 1;
            return replaced;
        }
        let client = self.clients.entry(key).or_default();
        match alloc.class {
            rm::CLASS_SUBDEVICE => {
                client.subdevices.insert(alloc.handle, alloc.parent);
                let reachable = client.link_subdevices();
                let change = Change::Reachable { file, client: alloc.client, device: alloc.parent };
                if reachable { Some(change) } else { replaced }
            }
            rm::CLASS_GROUP => {
                let engine = Engine::from_parameters(parameters);
                client.add_group(Group::new(file, alloc, engine));
                replaced
            }
            _ => {
                self.channels += 1;
                let group = client.add_channel(file, alloc);
                Some(Change::Born { group, channel: alloc.handle })
            }
        }
    }

    fn freed(&mut self, file: RawFd, free: &Free) -> Option<Change> {
        let gone = if free.handle == free.client {
            self.remove_client(file, free.client)
        } else {
            self.remove_object((file, free.client), free.handle)
        };
        self.settle(gone)
    }

    fn controlled(&mut self, file: RawFd, control: &ControlCall, parameters: &[u8]) -> Option<Change> {
        if control.command == rm::GROUP_SET_TIMESLICE {
            let group = self.clients.get(&(file, control.client))?.groups.get(&control.object)?;
            return Some(Change::Sliced { group: group.key(), slice: Micros(rm::long(parameters, 0)?) });
        }
        // Taking a group off its schedule returns success and does nothing, so it changes nothing here either.
        if parameters.first().is_none_or(|enable| *enable == 0) {
            return None;
        }
        let client = self.clients.get_mut(&(file, control.client))?;
        let group = match control.command {
            rm::GROUP_SCHEDULE => client.groups.get_mut(&control.object).filter(|group| !group.lone)?,
            _ => client.groups.values_mut().find(|group| group.channels.contains(&control.object))?,
        };
        group.scheduled = true;
        Some(Change::Scheduled(group.key()))
    }

    fn has_room(&self, key: (RawFd, u32), alloc: &Alloc) -> bool {
        if rm::is_channel_class(alloc.class) && self.channels >= CHANNELS_MAX {
            return false;
        }
        match self.clients.get(&key) {
            // A channel that joins a group is no object of its own.
            Some(client)
                if rm::is_channel_class(alloc.class) && client.groups.contains_key(&alloc.parent) =>
            {
                true
            }
            Some(client) => client.objects() < OBJECTS_MAX,
            None => self.clients.len() < CLIENTS_MAX,
        }
    }

    fn remove_client(&mut self, file: RawFd, client: u32) -> Gone {
        let Some(client) = self.clients.remove(&(file, client)) else { return Gone::default() };
        let channels = client.groups.values().map(|group| group.channels.len()).sum();
        Gone { any: !client.groups.is_empty(), channels }
    }

    fn remove_object(&mut self, key: (RawFd, u32), handle: u32) -> Gone {
        let Some(client) = self.clients.get_mut(&key) else { return Gone::default() };
        let gone = client.remove(handle);
        if client.objects() == 0 {
            self.clients.remove(&key);
        }
        gone
    }

    fn settle(&mut self, gone: Gone) -> Option<Change> {
        self.channels -= gone.channels;
        gone.any.then_some(Change::Gone { channels: gone.channels })
    }
}

/// What a removal took away.
#[derive(Clone, Copy, Debug, Default)]
struct Gone {
    /// Whether `groups()` reads differently.
    any: bool,
    channels: usize,
}

impl Gone {
    fn add(&mut self, other: Self) {
        self.any |= other.any;
        self.channels += other.channels;
    }
}

impl Client {
    fn objects(&self) -> usize {
        self.subdevices.len() + self.groups.len()
    }

    fn add_group(&mut self, group: Group) {
        self.groups.insert(group.handle, group);
        self.link_subdevices();
    }

    /// Puts a channel into its group, or into a new one of its own.
    fn add_channel(&mut self, file: RawFd, alloc: &Alloc) -> GroupKey {
        if let Some(group) = self.groups.get_mut(&alloc.parent)
            && !group.lone
        {
            group.channels.push(alloc.handle);
            return group.key();
        }
        let group = Group::lone(file, alloc);
        let key = group.key();
        self.add_group(group);
        key
    }

    /// Gives every group a subdevice of its device, and keeps the one it has while that exists.
    /// Says whether a group that had none has one now.
    fn link_subdevices(&mut self) -> bool {
        let mut found = false;
        for group in self.groups.values_mut() {
            let of_device = |subdevice: &u32| self.subdevices.get(subdevice) == Some(&group.device);
            let kept = group.subdevice.filter(of_device);
            let linked =
                kept.or_else(|| self.subdevices.keys().copied().find(|subdevice| of_device(subdevice)));
            found |= group.subdevice.is_none() && linked.is_some();
            group.subdevice = linked;
        }
        found
    }

    /// Removes an object, whatever it is, and everything under it.
    fn remove(&mut self, handle: u32) -> Gone {
        let mut gone = Gone::default();
        self.groups.retain(|_, group| {
            let before = group.channels.len();
            let stays = group.handle != handle && group.device != handle;
            if stays {
                group.channels.retain(|channel| *channel != handle);
            } else {
                group.channels.clear();
            }
            let went = before - group.channels.len();
            gone.add(Gone { any: !stays || went > 0, channels: went });
            stays
        });
        self.subdevices.retain(|subdevice, device| *subdevice != handle && *device != handle);
        gone.any |= self.groups.values().any(|group| group.subdevice == Some(handle));
        self.link_subdevices();
        gone
    }
}

#[cfg(test)]
mod tests;
