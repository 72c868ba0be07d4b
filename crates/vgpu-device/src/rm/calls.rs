//! One RM call: allocations and frees of objects; controls are passed on.

use std::collections::BTreeMap;

use channels::rm::{self as layout, Alloc, Operation};
use vgpu_messages::DeviceId;
use vgpu_messages::quantity::Nanos;
use vgpu_messages::spec::Costs;

use super::objects::Client;
use super::{Channel, ENGINE_COMPUTE, Effect, FileKey, Grip, Group, Object, Rm, controls, status};
use crate::engine::GroupKey;

/// The slice of a new copy group.
const COPY_SLICE: Nanos = Nanos(1_024_000);
/// The most objects of one client.
const OBJECTS_MAX: usize = 4096;
/// The first client that is chosen here.
const FIRST_CLIENT: u32 = 0xc1d0_0000;
/// The first other object that is chosen here.
const FIRST_OBJECT: u32 = 0x5c00_0000;

/// What a call did.
#[derive(Debug, PartialEq, Eq)]
pub struct Called {
    /// What it means for the engines, at once.
    pub effects: Vec<Effect>,
    /// What it means for them when it has taken its time.
    pub grip: Option<Grip>,
    /// How long it takes.
    pub takes: Nanos,
}

/// Makes a call on a control file. The argument gets its status and what else the driver fills in; None when the bytes are
/// no call at all (the system's answer is EINVAL).
pub fn call(
    rm: &mut Rm,
    file: FileKey,
    request: u32,
    argument: &mut [u8],
    parameters: &mut [u8],
    machine: &Surroundings<'_>,
) -> Option<Called> {
    let operation = Operation::decode(request, argument)?;
    let mut called = Called { effects: Vec::new(), grip: None, takes: machine.costs.control };
    let status = match operation {
        Operation::Alloc(alloc) => {
            allocate(rm, file, &alloc, parameters, machine, &mut called).map(|handle| {
                argument[8..12].copy_from_slice(&handle.to_le_bytes());
            })
        }
        Operation::Free(free) => own(rm, file, free.client).and_then(|()| {
            if free.handle != free.client && !rm.clients[&free.client].objects.contains_key(&free.handle) {
                return Err(status::OBJECT_NOT_FOUND);
            }
            called.effects = rm.free(free.client, free.handle);
            Ok(())
        }),
        Operation::Control(control) => own(rm, file, control.client)
            .and_then(|()| controls::control(rm, &control, parameters, machine, &mut called)),
    };
    let at = match (operation, argument.len()) {
        (Operation::Free(_), _) => 12,
        (Operation::Alloc(_), layout::ALLOC_LONG_BYTES) => 40,
        _ => 28,
    };
    argument[at..at + 4].copy_from_slice(&status.err().unwrap_or(status::OK).to_le_bytes());
    Some(called)
}

/// What a call needs to know of the machine.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// What calls cost.
    pub costs: &'a Costs,
    /// The UUIDs of the GPUs, by number.
    pub uuids: &'a [[u8; 16]],
}

/// Only the file that a client was made with reaches it.
fn own(rm: &Rm, file: FileKey, client: u32) -> Result<(), u32> {
    match rm.clients.get(&client) {
        Some(its) if its.file == file => Ok(()),
        _ => Err(status::INVALID_CLIENT),
    }
}

fn allocate(
    rm: &mut Rm,
    file: FileKey,
    alloc: &Alloc,
    parameters: &[u8],
    machine: &Surroundings<'_>,
    called: &mut Called,
) -> Result<u32, u32> {
    rm.handles += 1;
    let number = rm.handles;
    if layout::is_client_class(alloc.class) {
        let handle = if alloc.handle == 0 { FIRST_CLIENT + number } else { alloc.handle };
        if rm.clients.contains_key(&handle) {
            return Err(status::INVALID_ARGUMENT);
        }
        rm.clients.insert(handle, Client { file, objects: BTreeMap::new() });
        return Ok(handle);
    }
    own(rm, file, alloc.client)?;
    let objects = &mut rm.clients.get_mut(&alloc.client).ok_or(status::INVALID_CLIENT)?.objects;
    let handle = if alloc.handle == 0 { FIRST_OBJECT + number } else { alloc.handle };
    if objects.contains_key(&handle) || handle == alloc.client || objects.len() >= OBJECTS_MAX {
        return Err(status::INVALID_ARGUMENT);
    }
    let parent = objects.get(&alloc.parent).map(|(_, object)| object.clone());
    if parent.is_none() && alloc.parent != alloc.client {
        return Err(status::OBJECT_NOT_FOUND);
    }
    let object = match (alloc.class, parent) {
        (layout::CLASS_DEVICE, None) => {
            let device = layout::word(parameters, 0).unwrap_or_default();
            if device as usize >= machine.uuids.len() {
                return Err(status::INVALID_ARGUMENT);
            }
            Object::Device(DeviceId(device))
        }
        (layout::CLASS_SUBDEVICE, Some(Object::Device(device))) => Object::Subdevice(device),
        (layout::CLASS_GROUP, Some(Object::Device(device))) => {
            let engine =
                layout::word(parameters, layout::GROUP_ENGINE_OFFSET).ok_or(status::INVALID_ARGUMENT)?;
            let slice = if engine == ENGINE_COMPUTE { machine.costs.slice } else { COPY_SLICE };
            let group = GroupKey { client: alloc.client, handle };
            called.effects.push(Effect::Born { group, device, engine, slice });
            Object::Group(Group { device, engine, slice, scheduled: false, frozen: false })
        }
        (class, Some(Object::Group(_))) if layout::is_channel_class(class) => {
            Object::Channel(Channel { group: alloc.parent, disabled: 0, unscheduled: false })
        }
        (layout::CLASS_DEVICE | layout::CLASS_SUBDEVICE | layout::CLASS_GROUP, _) => {
            return Err(status::INVALID_ARGUMENT);
        }
        (class, _) if layout::is_channel_class(class) => return Err(status::INVALID_ARGUMENT),
        _ => Object::Other,
    };
    objects.insert(handle, (alloc.parent, object));
    Ok(handle)
}
