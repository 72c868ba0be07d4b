//! Finding and loading the real NVML, and asking it what rota wants to know.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};

use cuda::library::{LibraryError, Search, Sought};
use thiserror::Error;

use crate::{Memory, MemoryV2, Process, Return, version};

/// The name that programs ask for.
pub const SONAME: &str = "libnvidia-ml.so.1";

/// The environment variable that names the real library's file.
pub const VARIABLE: &str = "ROTA_NVML";

/// A symbol that rota's own `libnvidia-ml.so.1` exports, so that one copy of it never takes another for the real one.
pub const MARKER: &CStr = c"rota_nvml_marker";

/// What is looked for.
pub static SOUGHT: Sought = Sought { soname: SONAME, variable: VARIABLE, marker: MARKER };

/// The most processes on one GPU that are asked for.
const PROCESSES_MAX: usize = 4096;
/// Processes may come between the question how many there are and the one for them.
const TRIES_MAX: usize = 4;

/// Why NVML does not tell.
#[derive(Debug, Error)]
pub enum NvmlError {
    /// There is no such library, or none that can be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// It lacks a function.
    #[error("{path} has no function {symbol}")]
    Symbol {
        /// The library.
        path: String,
        /// What it lacks.
        symbol: &'static str,
    },
    /// It refused.
    #[error("{call} returned {code}")]
    Refused {
        /// What was called.
        call: &'static str,
        /// What it returned.
        code: u32,
    },
    /// There are far too many.
    #[error("NVML tells of more than {PROCESSES_MAX} processes on one GPU")]
    TooMany,
}

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions that rota calls.
        #[derive(Clone, Copy, Debug)]
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> Return,)*
        }

        impl Functions {
            fn load(library: &cuda::Library) -> Result<Self, NvmlError> {
                Ok(Self {
                    $($field: {
                        let name = CString::new($symbol).expect("a symbol has no zero in it");
                        let address = library.symbol(&name).ok_or_else(|| NvmlError::Symbol {
                            path: library.path().display().to_string(),
                            symbol: $symbol,
                        })?;
                        // SAFETY: the symbol is NVML's, with this signature.
                        unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($argument),*) -> Return>(address) }
                    },)*
                })
            }
        }
    };
}

functions! {
    init = "nvmlInit_v2"();
    shutdown = "nvmlShutdown"();
    by_uuid = "nvmlDeviceGetHandleByUUID"(*const i8, *mut *mut c_void);
    memory_by_first = "nvmlDeviceGetMemoryInfo"(*mut c_void, *mut Memory);
    memory = "nvmlDeviceGetMemoryInfo_v2"(*mut c_void, *mut MemoryV2);
    processes = "nvmlDeviceGetComputeRunningProcesses_v3"(*mut c_void, *mut c_uint, *mut Process);
    graphics = "nvmlDeviceGetGraphicsRunningProcesses_v3"(*mut c_void, *mut c_uint, *mut Process);
}

macro_rules! optional {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// Functions that not every version has.
        #[derive(Clone, Copy, Debug)]
        struct Optional {
            $($field: Option<unsafe extern "C" fn($($argument),*) -> Return>,)*
        }

        impl Optional {
            fn load(library: &cuda::Library) -> Self {
                Self {
                    $($field: {
                        let name = CString::new($symbol).expect("a symbol has no zero in it");
                        // SAFETY: the symbol is NVML's, with this signature.
                        library.symbol(&name).map(|address| unsafe {
                            std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($argument),*) -> Return>(address)
                        })
                    },)*
                }
            }
        }
    };
}

optional! {
    driver_version = "nvmlSystemGetDriverVersion"(*mut c_char, c_uint);
    confidential = "nvmlSystemGetConfComputeState"(*mut [c_uint; 3]);
    mig = "nvmlDeviceGetMigMode"(*mut c_void, *mut c_uint, *mut c_uint);
    mps = "nvmlDeviceGetMPSComputeRunningProcesses_v3"(*mut c_void, *mut c_uint, *mut Process);
}

/// The real library, initialised.
#[derive(Debug)]
pub struct Nvml(Functions, Optional);

/// A GPU, by NVML's handle.
#[derive(Clone, Copy, Debug)]
pub struct Device(*mut c_void);

// SAFETY: the handle means the same on every thread, and NVML locks for itself.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Nvml {
    /// Finds, loads and initialises it. `own` is the calling library's file, if it is one of the same name.
    pub fn find(own: Option<&Path>) -> Result<Self, NvmlError> {
        Self::of(&Search::from_environment(&SOUGHT, own).run()?)
    }

    /// Initialises a library that was found otherwise.
    pub fn of(library: &cuda::Library) -> Result<Self, NvmlError> {
        let functions = Functions::load(library)?;
        // SAFETY: it takes nothing.
        done("nvmlInit_v2", unsafe { (functions.init)() })?;
        Ok(Self(functions, Optional::load(library)))
    }

    /// The driver's version.
    pub fn driver_version(&self) -> Option<String> {
        let mut text = [0 as c_char; 96];
        // SAFETY: a place for so many letters.
        let told = unsafe { (self.1.driver_version?)(text.as_mut_ptr(), text.len() as c_uint) };
        let letters = text.iter().take_while(|letter| **letter != 0);
        (told == Return::SUCCESS).then(|| letters.map(|&letter| letter.cast_unsigned() as char).collect())
    }

    /// Is memory kept from other processes and the host? None where it does not say.
    pub fn confidential(&self) -> Option<bool> {
        // Environment, feature, mode for tools.
        let mut state = [0; 3];
        // SAFETY: a place for three numbers.
        let told = unsafe { (self.1.confidential?)(&mut state) };
        (told == Return::SUCCESS).then_some(state[1] != 0)
    }

    /// Is a GPU divided into instances? None where it does not say.
    pub fn mig(&self, device: Device) -> Option<bool> {
        let (mut now, mut later) = (0, 0);
        // SAFETY: a handle of NVML's, and places for two numbers.
        let told = unsafe { (self.1.mig?)(device.0, &mut now, &mut later) };
        (told == Return::SUCCESS).then_some(now != 0)
    }

    /// Processes that an MPS server runs on a GPU; none where it does not say.
    pub fn mps_pids(&self, device: Device) -> Vec<u32> {
        let listed =
            self.1.mps.map(|mps| self.list(device, "nvmlDeviceGetMPSComputeRunningProcesses_v3", mps));
        let listed = listed.and_then(Result::ok).unwrap_or_default();
        listed.into_iter().map(|process| process.pid).collect()
    }

    /// The GPU with this UUID.
    pub fn device(&self, uuid: &str) -> Result<Device, NvmlError> {
        let mut device = ptr::null_mut();
        let call = "nvmlDeviceGetHandleByUUID";
        let refused = NvmlError::Refused { call, code: Return::INVALID_ARGUMENT.0 };
        let uuid = CString::new(uuid).map_err(|_| refused)?;
        // SAFETY: a text, and a place for one handle.
        done(call, unsafe { (self.0.by_uuid)(uuid.as_ptr(), &mut device) })?;
        Ok(Device(device))
    }

    /// Its memory.
    pub fn memory(&self, device: Device) -> Result<MemoryV2, NvmlError> {
        let mut memory = MemoryV2 { version: version::<MemoryV2>(2), ..MemoryV2::default() };
        // SAFETY: a handle of NVML's, and a structure that says its version.
        done("nvmlDeviceGetMemoryInfo_v2", unsafe { (self.0.memory)(device.0, &mut memory) })?;
        Ok(memory)
    }

    /// Its memory, by the first version: the driver's own is in what is used.
    pub fn memory_by_first(&self, device: Device) -> Result<Memory, NvmlError> {
        let mut memory = Memory::default();
        // SAFETY: a handle of NVML's, and a structure of this version.
        done("nvmlDeviceGetMemoryInfo", unsafe { (self.0.memory_by_first)(device.0, &mut memory) })?;
        Ok(memory)
    }

    /// Every process that has something on it, with its bytes, each once. Those whose memory is not told are left out.
    pub fn processes(&self, device: Device) -> Result<Vec<(u32, u64)>, NvmlError> {
        let computing = self.list(device, "nvmlDeviceGetComputeRunningProcesses_v3", self.0.processes)?;
        let drawing = self.list(device, "nvmlDeviceGetGraphicsRunningProcesses_v3", self.0.graphics)?;
        let mut all: Vec<(u32, u64)> = Vec::new();
        for process in computing.into_iter().chain(drawing).filter(|process| process.memory != u64::MAX) {
            // One that does both is told twice, with the same figure.
            match all.iter_mut().find(|(pid, _)| *pid == process.pid) {
                Some((_, bytes)) => *bytes = process.memory.max(*bytes),
                None => all.push((process.pid, process.memory)),
            }
        }
        Ok(all)
    }

    fn list(
        &self,
        device: Device,
        call: &'static str,
        ask: unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut Process) -> Return,
    ) -> Result<Vec<Process>, NvmlError> {
        let mut places = vec![Process::default(); 64];
        for _ in 0..TRIES_MAX {
            let mut count = places.len() as c_uint;
            // SAFETY: a handle of NVML's, and as many places as are told.
            let code = unsafe { ask(device.0, &mut count, places.as_mut_ptr()) };
            let count = count as usize;
            if code != Return::INSUFFICIENT_SIZE {
                done(call, code)?;
                places.truncate(count);
                return Ok(places);
            }
            if count > PROCESSES_MAX {
                return Err(NvmlError::TooMany);
            }
            places.resize(count.max(places.len()) * 2, Process::default());
        }
        Err(NvmlError::Refused { call, code: Return::INSUFFICIENT_SIZE.0 })
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: it takes nothing, and was initialised once by this.
        let _ = unsafe { (self.0.shutdown)() };
    }
}

fn done(call: &'static str, code: Return) -> Result<(), NvmlError> {
    match code {
        Return::SUCCESS => Ok(()),
        Return(code) => Err(NvmlError::Refused { call, code }),
    }
}
