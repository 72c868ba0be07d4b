//! Which devices there are, and what they are.

use std::ffi::{CStr, c_char, c_int, c_uint};

use cuda::types::CUuuid;
use vgpu_messages::DeviceDescription;

use crate::session;
use crate::types::{Device, Out, PciInfo, Return, nvml, text_array, write_text};

fn uuid(device: &DeviceDescription) -> String {
    CUuuid { bytes: device.uuid }.to_string()
}

fn bus_id(device: &DeviceDescription) -> String {
    let (domain, bus, slot) = device.pci;
    format!("{domain:08X}:{bus:02X}:{slot:02X}.0")
}

/// A text that the program passes.
fn text(address: *const c_char) -> Result<String, Return> {
    if address.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    // SAFETY: not null, so a text that ends with a zero and lives during the call.
    Ok(unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned())
}

fn find(place: Out<Device>, found: impl Fn(&DeviceDescription) -> bool) -> Result<(), Return> {
    let index = session::devices()?.iter().position(found).ok_or(Return::NOT_FOUND)?;
    place.set(Device::of(index))
}

nvml! {
    nvmlDeviceGetCount, nvmlDeviceGetCount_v2(count: Out<c_uint>) {
        count.set(session::devices()?.len() as c_uint)
    }

    nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<Device>) {
        if index as usize >= session::devices()?.len() {
            return Err(Return::INVALID_ARGUMENT);
        }
        device.set(Device::of(index as usize))
    }

    nvmlDeviceGetHandleByUUID(wanted: *const c_char, device: Out<Device>) {
        let wanted = text(wanted)?;
        find(device, |known| uuid(known) == wanted)
    }

    nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2(wanted: *const c_char, device: Out<Device>) {
        let wanted = text(wanted)?.to_uppercase();
        // The domain has four digits or eight.
        find(device, |known| bus_id(known) == wanted || bus_id(known)[4..] == wanted)
    }

    nvmlDeviceGetIndex, nvmlDeviceGetMinorNumber(device: Device, index: Out<c_uint>) {
        session::device(device)?;
        index.set(device.index()? as c_uint)
    }

    nvmlDeviceGetName(device: Device, name: Out<c_char>, room: c_uint) {
        write_text(name, room, &session::device(device)?.name)
    }

    nvmlDeviceGetUUID(device: Device, place: Out<c_char>, room: c_uint) {
        write_text(place, room, &uuid(&session::device(device)?))
    }

    nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3(device: Device, info: Out<PciInfo>) {
        let known = session::device(device)?;
        let (domain, bus, slot) = known.pci;
        let id = bus_id(&known);
        info.set(PciInfo {
            bus_id_legacy: text_array(&id[4..]),
            domain,
            bus,
            device: slot,
            device_id: 0,
            subsystem_id: 0,
            bus_id: text_array(&id),
        })
    }

    nvmlDeviceGetCudaComputeCapability(device: Device, major: Out<c_int>, minor: Out<c_int>) {
        let (first, second) = session::device(device)?.compute_capability;
        major.set(first as c_int)?;
        minor.set(second as c_int)
    }

    nvmlDeviceGetNumGpuCores(device: Device, count: Out<c_uint>) {
        const CORES_PER_MULTIPROCESSOR: c_uint = 128;
        count.set(session::device(device)?.multiprocessors * CORES_PER_MULTIPROCESSOR)
    }

    nvmlDeviceGetArchitecture(device: Device, architecture: Out<c_uint>) {
        const HOPPER: c_uint = 9;
        session::device(device)?;
        architecture.set(HOPPER)
    }

    nvmlDeviceGetNumaNodeId(device: Device, node: Out<c_uint>) {
        node.set(session::device(device)?.numa_node)
    }

    nvmlDeviceGetComputeMode(device: Device, mode: Out<c_uint>) {
        mode.set(session::device(device)?.compute_mode as c_uint)
    }

    nvmlDeviceGetPersistenceMode(device: Device, mode: Out<c_uint>) {
        session::device(device)?;
        mode.set(1)
    }

    nvmlDeviceGetMigMode(device: Device, _current: Out<c_uint>, _pending: Out<c_uint>) {
        session::device(device)?;
        Err(Return::NOT_SUPPORTED)
    }

    nvmlDeviceGetP2PStatus(device: Device, peer: Device, _index: c_uint, status: Out<c_uint>) {
        /// Reachable; not, because of the topology.
        const STATUS: [c_uint; 2] = [5, 0];
        let (device, peer) = (session::device(device)?, session::device(peer)?);
        status.set(STATUS[usize::from(device.peers.contains(&peer.device))])
    }
}
