//! Devices and what can be asked about them.

mod attributes;

use std::ffi::{c_char, c_int, c_uint, c_void};

use cuda::CUresult;
use cuda::types::{CUdevice, CUdevprop, CUmemoryPool, CUuuid};
use vgpu_messages::DeviceDescription;
use vgpu_messages::pool::PoolRequest;
use vgpu_messages::{Answer, Request};

use crate::argument::{Out, Text, write_text};
use crate::guard::api;
use crate::handle::Handle;
use crate::session::{self, ask};

pub(crate) use attributes::{
    REGISTERS_PER_MULTIPROCESSOR, SHARED_BYTES_MAX, THREADS_PER_MULTIPROCESSOR, attribute,
};

fn bus_id(device: &DeviceDescription) -> String {
    let (domain, bus, slot) = device.pci;
    format!("{domain:04x}:{bus:02x}:{slot:02x}.0")
}

api! {
    cuDeviceGet(device: Out<CUdevice>, ordinal: c_int) {
        let session = session::current()?;
        device.check()?;
        session.device(CUdevice(ordinal))?;
        device.set(CUdevice(ordinal))
    }

    cuDeviceGetCount(count: Out<c_int>) {
        count.set(session::current()?.devices.len() as c_int)
    }

    cuDeviceGetName(name: Out<c_char>, length: c_int, device: CUdevice) {
        let session = session::current()?;
        write_text(name, length, session.device(device)?.name.as_bytes())
    }

    cuDeviceGetUuid, cuDeviceGetUuid_v2(uuid: Out<CUuuid>, device: CUdevice) {
        let session = session::current()?;
        uuid.check()?;
        uuid.set(CUuuid { bytes: session.device(device)?.uuid })
    }

    cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice) {
        let session = session::current()?;
        bytes.check()?;
        bytes.set(session.device(device)?.memory_bytes as usize)
    }

    cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: CUdevice) {
        let session = session::current()?;
        let (first, second) = session.device(device)?.compute_capability;
        major.set(first as c_int)?;
        minor.set(second as c_int)
    }

    cuDeviceGetAttribute(value: Out<c_int>, number: c_int, device: CUdevice) {
        let session = session::current()?;
        value.check()?;
        let found = attribute(session.device(device)?, number).ok_or(CUresult::INVALID_VALUE)?;
        value.set(found)
    }

    cuDeviceGetProperties(properties: Out<CUdevprop>, device: CUdevice) {
        let session = session::current()?;
        let device = session.device(device)?;
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        properties.set(CUdevprop { numbers: numbers.map(|number| attribute(device, number).unwrap_or(0)) })
    }

    cuDeviceGetPCIBusId(text: Out<c_char>, length: c_int, device: CUdevice) {
        let session = session::current()?;
        write_text(text, length, bus_id(session.device(device)?).as_bytes())
    }

    cuDeviceGetByPCIBusId(device: Out<CUdevice>, text: Text) {
        let session = session::current()?;
        device.check()?;
        let text = text.get()?.to_string_lossy().to_ascii_lowercase();
        // Domain and function may be left out.
        let parts: Vec<&str> = text.split([':', '.']).collect();
        let numbers: Option<Vec<u32>> =
            parts.iter().map(|part| u32::from_str_radix(part, 16).ok()).collect();
        let numbers = numbers.ok_or(CUresult::INVALID_VALUE)?;
        let (domain, bus, slot) = match numbers[..] {
            [bus, slot] => (0, bus, slot),
            [domain, bus, slot] if !text.contains('.') => (domain, bus, slot),
            [bus, slot, _] => (0, bus, slot),
            [domain, bus, slot, _] => (domain, bus, slot),
            _ => return Err(CUresult::INVALID_VALUE),
        };
        let found = session.devices.iter().find(|device| device.pci == (domain, bus, slot));
        device.set(session.ordinal(found.ok_or(CUresult::INVALID_DEVICE)?.device))
    }

    cuDeviceCanAccessPeer(can: Out<c_int>, device: CUdevice, peer: CUdevice) {
        let session = session::current()?;
        can.check()?;
        let (device, peer) = (session.device(device)?, session.device(peer)?);
        can.set(c_int::from(device.peers.contains(&peer.device)))
    }

    cuDeviceGetP2PAttribute(value: Out<c_int>, number: c_uint, device: CUdevice, peer: CUdevice) {
        let session = session::current()?;
        let (device, peer) = (session.device(device)?, session.device(peer)?);
        if device.device == peer.device {
            return Err(CUresult::INVALID_DEVICE);
        }
        let reaches = c_int::from(device.peers.contains(&peer.device));
        // Rank, access, atomics, arrays.
        let found = match number {
            1 => 0,
            2 => reaches,
            3 | 4 => 0,
            _ => return Err(CUresult::INVALID_VALUE),
        };
        value.set(found)
    }

    cuDeviceGetExecAffinitySupport(value: Out<c_int>, _kind: c_uint, device: CUdevice) {
        session::current()?.device(device)?;
        value.set(0)
    }

    cuDeviceGetTexture1DLinearMaxWidth(width: Out<usize>, _format: c_uint, _channels: c_uint, device: CUdevice) {
        session::current()?.device(device)?;
        width.set(1 << 28)
    }

    cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, device: CUdevice) {
        let session = session::current()?;
        pool.check()?;
        let device = session.device(device)?.device;
        pool.set(ask!(Request::Pool(PoolRequest::Default(device)), Answer::Pool(id) => CUmemoryPool::of(id)))
    }

    cuDeviceGetMemPool(pool: Out<CUmemoryPool>, device: CUdevice) {
        let session = session::current()?;
        pool.check()?;
        let device = session.device(device)?.device;
        pool.set(ask!(Request::Pool(PoolRequest::Current(device)), Answer::Pool(id) => CUmemoryPool::of(id)))
    }

    cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) {
        let session = session::current()?;
        let device = session.device(device)?.device;
        session::tell(Request::Pool(PoolRequest::SetCurrent { device, pool: pool.id()? }))
    }

    cuDeviceGetGraphMemAttribute(device: CUdevice, number: c_uint, value: Out<u64>) {
        session::current()?.device(device)?;
        // Used and reserved, now and at most: graphs have no memory of their own here.
        if number > 3 {
            return Err(CUresult::INVALID_VALUE);
        }
        value.set(0)
    }

    cuDeviceSetGraphMemAttribute(device: CUdevice, number: c_uint, _value: Out<c_void>) {
        session::current()?.device(device)?;
        // Only the high marks can be set.
        if number == 1 || number == 3 { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
    }

    cuDeviceGraphMemTrim(device: CUdevice) {
        session::current()?.device(device).map(drop)
    }
}
