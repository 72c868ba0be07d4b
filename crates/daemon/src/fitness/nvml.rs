//! The few questions that only NVML answers. A machine without it is none the worse: then they stay open.

use super::Process;
use cuda::Library;
use std::ffi::{CString, c_char, c_uint, c_void};
use std::path::{Path, PathBuf};

/// The name that NVML has everywhere.
const SONAME: &str = "libnvidia-ml.so.1";

/// The virtual GPU's, beside its driver library.
const VIRTUAL: &str = "libvgpu_nvml.so";

const SUCCESS: c_uint = 0;

/// Processes on one GPU that are told at most.
const PROCESSES_MAX: usize = 1024;

/// Memory that cannot be told.
const UNKNOWN_BYTES: u64 = u64::MAX;

/// NVML, begun; ended when dropped.
#[derive(Debug)]
pub struct Nvml(Library);

/// One GPU.
#[derive(Debug)]
pub struct Device<'a>(&'a Nvml, *mut c_void);

/// A process as NVML tells it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Told {
    pid: c_uint,
    bytes: u64,
    _instances: [c_uint; 2],
}

impl Nvml {
    /// Begins with the library that belongs to this driver library; None where there is none, or it does not begin.
    pub fn beside(driver: &Library) -> Option<Self> {
        let is_virtual = driver.path().file_name().is_some_and(|name| name == "libvgpu.so");
        let path = match is_virtual {
            true => driver.path().parent().unwrap_or(Path::new("/")).join(VIRTUAL),
            false => PathBuf::from(SONAME),
        };
        let nvml = Self(Library::open(path).ok()?);
        (nvml.call("nvmlInit_v2", [0; 3]) == Some(SUCCESS)).then_some(nvml)
    }

    /// Is memory kept from other processes and the host? None where it does not say.
    pub fn confidential(&self) -> Option<bool> {
        // Environment, feature, mode for tools.
        let mut state = [0 as c_uint; 3];
        let answer = self.call("nvmlSystemGetConfComputeState", [address(&mut state), 0, 0]);
        (answer == Some(SUCCESS)).then_some(state[1] != 0)
    }

    /// The driver's version.
    pub fn driver_version(&self) -> Option<String> {
        let mut text = [0 as c_char; 96];
        let room = text.len();
        (self.call("nvmlSystemGetDriverVersion", [address(&mut text), room, 0]) == Some(SUCCESS)).then(|| {
            text.iter().take_while(|letter| **letter != 0).map(|&letter| letter as u8 as char).collect()
        })
    }

    /// The GPU of this UUID.
    pub fn device(&self, uuid: &str) -> Option<Device<'_>> {
        let uuid = CString::new(uuid).ok()?;
        let mut handle: *mut c_void = std::ptr::null_mut();
        let arguments = [uuid.as_ptr().expose_provenance(), address(&mut handle), 0];
        (self.call("nvmlDeviceGetHandleByUUID", arguments) == Some(SUCCESS)).then_some(Device(self, handle))
    }

    /// Calls a function of numbers and addresses; None where this NVML has none of that name.
    fn call(&self, name: &str, arguments: [usize; 3]) -> Option<c_uint> {
        type Function = unsafe extern "C" fn(usize, usize, usize) -> c_uint;
        let symbol = self.0.symbol(&CString::new(name).ok()?)?;
        let [first, second, third] = arguments;
        // SAFETY: NVML's functions here take at most three integers or addresses, which are passed in registers, and one
        // too many is not looked at. Every address is of something that the caller has, as large as the function writes.
        Some(unsafe { std::mem::transmute::<*mut c_void, Function>(symbol.as_ptr())(first, second, third) })
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        self.call("nvmlShutdown", [0; 3]);
    }
}

impl Device<'_> {
    /// Is it divided into instances?
    pub fn mig(&self) -> Option<bool> {
        let (mut now, mut later) = (0 as c_uint, 0 as c_uint);
        let arguments = [self.handle(), address(&mut now), address(&mut later)];
        (self.0.call("nvmlDeviceGetMigMode", arguments) == Some(SUCCESS)).then_some(now != 0)
    }

    /// Processes that have contexts on it.
    pub fn processes(&self) -> Vec<Process> {
        let known = |bytes: u64| Some(bytes).filter(|&bytes| bytes != UNKNOWN_BYTES);
        let told = self.listed("nvmlDeviceGetComputeRunningProcesses_v3").into_iter();
        told.map(|told| Process { pid: told.pid, bytes: known(told.bytes) }).collect()
    }

    /// Processes that an MPS server runs on it.
    pub fn mps_pids(&self) -> Vec<u32> {
        let told = self.listed("nvmlDeviceGetMPSComputeRunningProcesses_v3").into_iter();
        told.map(|told| told.pid).collect()
    }

    fn handle(&self) -> usize {
        self.1.expose_provenance()
    }

    fn listed(&self, name: &str) -> Vec<Told> {
        let nobody = Told { pid: 0, bytes: 0, _instances: [0; 2] };
        let mut list = vec![nobody; PROCESSES_MAX];
        let mut count = PROCESSES_MAX as c_uint;
        let arguments = [self.handle(), address(&mut count), list.as_mut_ptr().expose_provenance()];
        match self.0.call(name, arguments) {
            Some(SUCCESS) => list.truncate(count as usize),
            _ => list.clear(),
        }
        list
    }
}

fn address<T>(place: &mut T) -> usize {
    std::ptr::from_mut(place).expose_provenance()
}
