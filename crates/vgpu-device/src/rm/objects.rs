//! Clients and their objects.

use std::collections::{BTreeMap, BTreeSet};

use vgpu_messages::quantity::Nanos;
use vgpu_messages::{DeviceId, SessionId};

use super::{Effect, FileKey, Grip};
use crate::engine::GroupKey;

/// An object of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A GPU.
    Device(DeviceId),
    /// A part of a GPU: all of it.
    Subdevice(DeviceId),
    /// A channel group.
    Group(Group),
    /// A channel of a group.
    Channel(Channel),
    /// Anything else.
    Other,
}

/// A channel group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// On which GPU.
    pub device: DeviceId,
    /// On which engine.
    pub engine: u32,
    /// Its time slice.
    pub slice: Nanos,
    /// It may run.
    pub scheduled: bool,
    /// It is off.
    pub frozen: bool,
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its group.
    pub group: u32,
    /// How often it was taken off and not put back: the driver counts.
    pub disabled: u32,
    /// It will not be scheduled again, but goes on where it runs, until its group is preempted.
    pub unscheduled: bool,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) file: FileKey,
    /// With its parent.
    pub(super) objects: BTreeMap<u32, (u32, Object)>,
}

/// All control files, clients and objects.
#[derive(Debug, Default)]
pub struct Rm {
    pub(super) files: BTreeMap<FileKey, SessionId>,
    pub(super) clients: BTreeMap<u32, Client>,
    pub(super) handles: u32,
    /// The driver's one lock: calls wait for each other.
    pub locked_until: Nanos,
}

impl Rm {
    /// A new control file of a session.
    pub fn open(&mut self, file: FileKey, session: SessionId) {
        self.files.insert(file, session);
    }

    /// Whose control file it is.
    pub fn session(&self, file: FileKey) -> Option<SessionId> {
        self.files.get(&file).copied()
    }

    /// Every copy of a control file is closed: its clients go. Says which groups are gone.
    pub fn close(&mut self, file: FileKey) -> Vec<Effect> {
        self.files.remove(&file);
        let clients: Vec<u32> = self
            .clients
            .iter()
            .filter(|(_, client)| client.file == file)
            .map(|(&handle, _)| handle)
            .collect();
        clients.into_iter().flat_map(|client| self.free(client, client)).collect()
    }

    /// An object goes with all under it. Says which groups are gone.
    pub(super) fn free(&mut self, client: u32, handle: u32) -> Vec<Effect> {
        let Some(its) = self.clients.get_mut(&client) else { return Vec::new() };
        let mut going = BTreeSet::from([handle]);
        loop {
            let more: Vec<u32> = its
                .objects
                .iter()
                .filter(|(handle, (parent, _))| going.contains(parent) && !going.contains(handle))
                .map(|(&handle, _)| handle)
                .collect();
            if more.is_empty() {
                break;
            }
            going.extend(more);
        }
        let mut effects = Vec::new();
        for handle in going {
            if let Some((_, Object::Group(group))) = its.objects.remove(&handle) {
                effects.push(Effect::Gone { group: GroupKey { client, handle }, device: group.device });
            }
        }
        if handle == client {
            self.clients.remove(&client);
        }
        effects
    }

    /// A group.
    pub fn group(&self, key: GroupKey) -> Option<&Group> {
        match self.clients.get(&key.client)?.objects.get(&key.handle)? {
            (_, Object::Group(group)) => Some(group),
            _ => None,
        }
    }

    pub(super) fn group_mut(&mut self, key: GroupKey) -> Option<&mut Group> {
        match self.clients.get_mut(&key.client)?.objects.get_mut(&key.handle)? {
            (_, Object::Group(group)) => Some(group),
            _ => None,
        }
    }

    /// A channel.
    pub(super) fn channel_mut(&mut self, client: u32, channel: u32) -> Option<&mut Channel> {
        match self.clients.get_mut(&client)?.objects.get_mut(&channel)? {
            (_, Object::Channel(channel)) => Some(channel),
            _ => None,
        }
    }

    /// Whose client it is.
    pub fn owner(&self, client: u32) -> Option<SessionId> {
        self.session(self.clients.get(&client)?.file)
    }

    /// Takes channels off, or puts them back; says which groups are off now, and which are not any more. A channel is back
    /// when it was put back as often as it was taken off; once more changes nothing. A group is off once all its channels are,
    /// and back with the first of them: a channel that is born meanwhile brings nobody back.
    pub fn grip(&mut self, grip: &Grip) -> Vec<(GroupKey, bool)> {
        let mut changed = BTreeSet::new();
        for &(client, handle) in &grip.channels {
            if let Some(channel) = self.channel_mut(client, handle) {
                channel.disabled = match grip.off {
                    true => channel.disabled + 1,
                    false => channel.disabled.saturating_sub(1),
                };
                channel.unscheduled = channel.disabled > 0;
                if grip.off || channel.disabled == 0 {
                    changed.insert(GroupKey { client, handle: channel.group });
                }
            }
        }
        changed.into_iter().filter_map(|key| self.regrip(key, grip.off)).collect()
    }

    /// The groups of some channels.
    pub fn groups_of(&self, channels: &[(u32, u32)]) -> BTreeSet<GroupKey> {
        let group = |&(client, handle): &(u32, u32)| match self.clients.get(&client)?.objects.get(&handle)? {
            (_, Object::Channel(channel)) => Some(GroupKey { client, handle: channel.group }),
            _ => None,
        };
        channels.iter().filter_map(group).collect()
    }

    fn regrip(&mut self, key: GroupKey, off: bool) -> Option<(GroupKey, bool)> {
        let all_off = self.channels(key).all(|channel| channel.disabled > 0);
        let group = self.group_mut(key)?;
        let frozen = off && (group.frozen || all_off);
        let changed = group.frozen != frozen;
        group.frozen = frozen;
        changed.then_some((key, frozen))
    }

    fn channels(&self, key: GroupKey) -> impl Iterator<Item = &Channel> {
        let objects = self.clients.get(&key.client).map(|client| client.objects.values());
        objects.into_iter().flatten().filter_map(move |(_, object)| match object {
            Object::Channel(channel) if channel.group == key.handle => Some(channel),
            _ => None,
        })
    }

    /// A group's channels by handle, if all of them are unscheduled.
    pub(super) fn preemptible(&self, key: GroupKey) -> Option<Vec<(u32, u32)>> {
        let objects = &self.clients.get(&key.client)?.objects;
        let mut channels = Vec::new();
        for (&handle, (_, object)) in objects {
            if let Object::Channel(channel) = object
                && channel.group == key.handle
            {
                if !channel.unscheduled {
                    return None;
                }
                channels.push((key.client, handle));
            }
        }
        (!channels.is_empty()).then_some(channels)
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }
}
