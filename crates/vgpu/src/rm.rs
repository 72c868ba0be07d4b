//! What a context is made of, in the driver's resource manager: allocated as the real driver library does it, by RM calls
//! on the control file through the process's own `ioctl`, so that whoever watches there sees them.
//!
//! One client a process, one device and subdevice a GPU; a context has a compute group of eight channels and a copy group
//! of four each way.

use std::collections::BTreeMap;
use std::ffi::{c_ulong, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;

use channels::rm;
use cuda::CUresult;
use vgpu_messages::DeviceId;

use crate::guard::{Outcome, lock};
use crate::ioctl::{self, Ioctl};
use crate::notice::notice_once;

const CLASS_CLIENT: u32 = 0x41;
/// GPFIFO channels, as Hopper has them.
const CLASS_CHANNEL: u32 = 0xc86f;
const ENGINE_COMPUTE: u32 = 1;
const ENGINES_COPY: [u32; 2] = [9, 10];
const COMPUTE_CHANNELS: usize = 8;
const COPY_CHANNELS: usize = 4;
/// The slice that the driver library gives a new compute group, in microseconds.
const SLICE: u64 = 2048;
/// Bytes of a channel's parameters.
const CHANNEL_PARAMETERS_BYTES: usize = 32;

/// The control file, and what was allocated through it.
pub(crate) struct ResourceManager {
    control: OwnedFd,
    objects: Mutex<Objects>,
}

#[derive(Default)]
struct Objects {
    client: Option<u32>,
    devices: BTreeMap<DeviceId, u32>,
}

/// The groups of a context.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// The client that they belong to.
    pub(crate) client: u32,
    /// Their device.
    device: u32,
    /// The compute group.
    pub(crate) compute: u32,
    /// The copy groups: in, out.
    pub(crate) copy: Vec<u32>,
}

/// The long form of an allocation's argument.
#[repr(C)]
#[derive(Default)]
struct Alloc {
    client: u32,
    parent: u32,
    handle: u32,
    class: u32,
    parameters: u64,
    rights: u64,
    parameters_bytes: u32,
    flags: u32,
    status: u32,
    padding: u32,
}

#[repr(C)]
struct Control {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    parameters: u64,
    parameters_bytes: u32,
    status: u32,
}

#[repr(C)]
struct Free {
    client: u32,
    parent: u32,
    handle: u32,
    status: u32,
}

impl ResourceManager {
    /// Through this control file, which stays open for the life of the process.
    pub(crate) fn new(control: OwnedFd) -> Self {
        Self { control, objects: Mutex::default() }
    }

    /// Allocates and starts what a context runs on.
    pub(crate) fn allocate(&self, device: DeviceId) -> Result<Groups, CUresult> {
        let (client, parent) = self.device(device)?;
        let compute = self.group(client, parent, ENGINE_COMPUTE, COMPUTE_CHANNELS)?;
        let mut copy = Vec::new();
        for engine in ENGINES_COPY {
            copy.push(self.group(client, parent, engine, COPY_CHANNELS)?);
        }
        let mut slice = SLICE.to_le_bytes();
        self.control(client, compute, rm::GROUP_SET_TIMESLICE, &mut slice)?;
        Ok(Groups { client, device: parent, compute, copy })
    }

    /// Frees them, with their channels.
    pub(crate) fn free(&self, groups: &Groups) {
        for group in groups.copy.iter().chain([&groups.compute]) {
            let mut argument =
                Free { client: groups.client, parent: groups.device, handle: *group, status: 0 };
            // A group that is gone already needs no freeing.
            let _ = self.call(rm::FREE, &mut argument, |argument| argument.status);
        }
    }

    fn device(&self, device: DeviceId) -> Result<(u32, u32), CUresult> {
        let mut objects = lock(&self.objects);
        let client = match objects.client {
            Some(client) => client,
            None => self.alloc(0, 0, CLASS_CLIENT, &mut [])?,
        };
        objects.client = Some(client);
        if let Some(handle) = objects.devices.get(&device) {
            return Ok((client, *handle));
        }
        let handle = self.alloc(client, client, rm::CLASS_DEVICE, &mut words([device.0]))?;
        self.alloc(client, handle, rm::CLASS_SUBDEVICE, &mut words([0]))?;
        objects.devices.insert(device, handle);
        Ok((client, handle))
    }

    fn group(&self, client: u32, device: u32, engine: u32, channels: usize) -> Result<u32, CUresult> {
        let group = self.alloc(client, device, rm::CLASS_GROUP, &mut words([0, 0, 0, engine, 0]))?;
        for _ in 0..channels {
            self.alloc(client, group, CLASS_CHANNEL, &mut [0; CHANNEL_PARAMETERS_BYTES])?;
        }
        self.control(client, group, rm::GROUP_SCHEDULE, &mut [1, 0, 0])?;
        Ok(group)
    }

    fn alloc(&self, client: u32, parent: u32, class: u32, parameters: &mut [u8]) -> Result<u32, CUresult> {
        let mut argument = Alloc { client, parent, class, ..Alloc::default() };
        if !parameters.is_empty() {
            argument.parameters = parameters.as_mut_ptr().expose_provenance() as u64;
            argument.parameters_bytes = parameters.len() as u32;
        }
        self.call(rm::ALLOC, &mut argument, |argument| argument.status)?;
        Ok(argument.handle)
    }

    fn control(&self, client: u32, object: u32, command: u32, parameters: &mut [u8]) -> Outcome {
        let mut argument = Control {
            client,
            object,
            command,
            flags: 0,
            parameters: parameters.as_mut_ptr().expose_provenance() as u64,
            parameters_bytes: parameters.len() as u32,
            status: 0,
        };
        self.call(rm::CONTROL, &mut argument, |argument| argument.status)
    }

    fn call<T>(&self, number: u8, argument: &mut T, status: impl Fn(&T) -> u32) -> Outcome {
        let request = c_ulong::from(rm::request(number, size_of::<T>()));
        let file = self.control.as_raw_fd();
        let place: *mut c_void = std::ptr::from_mut(argument).cast();
        // SAFETY: the argument has the size that the request says, and names parameters of the size that it says.
        let mut result = unsafe { in_front()(file, request, place) };
        if result != 0 {
            // Nobody in front knows our file: this library was loaded, not preloaded.
            // SAFETY: as above.
            result = unsafe { ioctl::ioctl(file, request, place) };
        }
        match (result, status(argument)) {
            (0, 0) => Ok(()),
            (0, 0x51 | 0x1a) => Err(CUresult::OUT_OF_MEMORY),
            (result, status) => {
                notice_once(&format!(
                    "a resource manager call {number:#x} failed: {result}, status {status:#x}"
                ));
                Err(CUresult::UNKNOWN)
            }
        }
    }
}

/// The definition of `ioctl` that the process's other libraries reach.
fn in_front() -> Ioctl {
    // SAFETY: a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ioctl".as_ptr()) };
    if address.is_null() {
        return ioctl::ioctl;
    }
    // SAFETY: any definition of `ioctl` can be called with one argument.
    unsafe { std::mem::transmute::<*mut c_void, Ioctl>(address) }
}

fn words<const COUNT: usize>(words: [u32; COUNT]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
