//! Controls: schedules, slices, freeze and thaw.

use channels::rm::{self as layout, ControlCall};
use vgpu_messages::quantity::Nanos;
use vgpu_messages::spec::Costs;

use super::{Called, ENGINE_COMPUTE, Effect, Grip, Object, Rm, Surroundings, status};
use crate::engine::GroupKey;

/// Group control: stop what runs.
const GROUP_PREEMPT: u32 = 0xa06c_0105;
/// Group control: only for root.
const GROUP_SET_INTERLEAVE: u32 = 0xa06c_0107;
/// Channel control: only for root.
const CHANNEL_RESTART_RUNLIST: u32 = 0xa06f_0111;

const DISABLE_BYTES: usize = 536;
const DISABLE_CHANNELS_MAX: usize = 64;

/// Does a control on an object of a client that the caller may reach.
pub(super) fn control(
    rm: &mut Rm,
    call: &ControlCall,
    parameters: &mut [u8],
    machine: &Surroundings<'_>,
    called: &mut Called,
) -> Result<(), u32> {
    let costs = machine.costs;
    let key = GroupKey { client: call.client, handle: call.object };
    let sized = |bytes: &[usize]| {
        let right = bytes.contains(&parameters.len()) && call.parameters_bytes as usize == parameters.len();
        if right { Ok(()) } else { Err(status::INVALID_ARGUMENT) }
    };
    match call.command {
        layout::GROUP_SCHEDULE => {
            sized(&[2, 3])?;
            // Disabling answers success and does nothing, as it does on the real one.
            let enable = parameters[0] != 0;
            let group = rm.group_mut(key).ok_or(status::OBJECT_NOT_FOUND)?;
            group.scheduled |= enable;
        }
        layout::GROUP_SET_TIMESLICE => {
            sized(&[8])?;
            let micros = layout::long(parameters, 0).ok_or(status::INVALID_ARGUMENT)?;
            let slice = Nanos(micros.saturating_mul(1000));
            let group = rm.group_mut(key).ok_or(status::OBJECT_NOT_FOUND)?;
            if micros == 0 {
                return Err(status::INVALID_ARGUMENT);
            }
            group.slice = slice;
            called.effects.push(Effect::Slice { group: key, device: group.device, slice });
        }
        layout::GROUP_GET_TIMESLICE => {
            sized(&[8])?;
            let group = rm.group(key).ok_or(status::OBJECT_NOT_FOUND)?;
            parameters.copy_from_slice(&(group.slice.0 / 1000).to_le_bytes());
        }
        GROUP_PREEMPT => {
            sized(&[8])?;
            rm.group(key).ok_or(status::OBJECT_NOT_FOUND)?;
            // What was only kept from being scheduled again is off now.
            called.grip = rm.preemptible(key).map(|channels| Grip { off: true, channels });
            called.takes = costs.freeze_compute;
        }
        layout::FIFO_DISABLE_CHANNELS => {
            sized(&[DISABLE_BYTES])?;
            disable(rm, call, parameters, costs, called)?;
        }
        layout::GPU_GET_GID_INFO => {
            sized(&[layout::GID_BYTES])?;
            identify(rm, call, parameters, machine)?;
        }
        GROUP_SET_INTERLEAVE | CHANNEL_RESTART_RUNLIST => return Err(status::INSUFFICIENT_PERMISSIONS),
        _ => return Err(status::NOT_SUPPORTED),
    }
    Ok(())
}

/// Says which GPU a subdevice is on, as bytes; as text it is not needed here.
fn identify(
    rm: &Rm,
    call: &ControlCall,
    parameters: &mut [u8],
    machine: &Surroundings<'_>,
) -> Result<(), u32> {
    let client = rm.clients.get(&call.client).ok_or(status::INVALID_CLIENT)?;
    let Some((_, Object::Subdevice(device))) = client.objects.get(&call.object) else {
        return Err(status::OBJECT_NOT_FOUND);
    };
    if layout::word(parameters, layout::GID_FLAGS_OFFSET) != Some(layout::GID_BINARY) {
        return Err(status::NOT_SUPPORTED);
    }
    let uuid = machine.uuids.get(device.0 as usize).ok_or(status::INVALID_ARGUMENT)?;
    let length = (uuid.len() as u32).to_le_bytes();
    parameters[layout::GID_LENGTH_OFFSET..layout::GID_LENGTH_OFFSET + 4].copy_from_slice(&length);
    parameters[layout::GID_DATA_OFFSET..layout::GID_DATA_OFFSET + uuid.len()].copy_from_slice(uuid);
    Ok(())
}

fn disable(
    rm: &mut Rm,
    call: &ControlCall,
    parameters: &[u8],
    costs: &Costs,
    called: &mut Called,
) -> Result<(), u32> {
    let invalid = status::INVALID_ARGUMENT;
    let client = rm.clients.get(&call.client).ok_or(status::INVALID_CLIENT)?;
    let file = client.file;
    let Some((_, Object::Subdevice(device))) = client.objects.get(&call.object) else {
        return Err(status::OBJECT_NOT_FOUND);
    };
    let device = *device;
    let off = parameters[0] != 0;
    let count = layout::word(parameters, 4).ok_or(invalid)? as usize;
    let only_scheduling = parameters[8] != 0;
    if count == 0 || count > DISABLE_CHANNELS_MAX {
        return Err(invalid);
    }
    let mut channels = Vec::new();
    let mut compute_only = true;
    for place in 0..count {
        let client = layout::word(parameters, 24 + 4 * place).ok_or(invalid)?;
        let channel = layout::word(parameters, 280 + 4 * place).ok_or(invalid)?;
        if rm.clients.get(&client).is_none_or(|its| its.file != file) {
            return Err(status::INVALID_CLIENT);
        }
        let group = rm.channel_mut(client, channel).ok_or(status::OBJECT_NOT_FOUND)?.group;
        let group = rm.group(GroupKey { client, handle: group }).ok_or(status::OBJECT_NOT_FOUND)?;
        if group.device != device {
            return Err(invalid);
        }
        compute_only &= group.engine == ENGINE_COMPUTE;
        channels.push((client, channel));
    }
    if off && only_scheduling {
        for &(client, channel) in &channels {
            rm.channel_mut(client, channel).ok_or(status::OBJECT_NOT_FOUND)?.unscheduled = true;
        }
        return Ok(());
    }
    called.takes = match (off, compute_only) {
        (true, true) => costs.freeze_compute,
        (true, false) => costs.freeze_all,
        (false, _) => costs.thaw,
    };
    called.grip = Some(Grip { off, channels });
    Ok(())
}
