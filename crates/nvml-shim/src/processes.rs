//! Who is on a GPU: for a program of a job, the job's own processes. All of them compute; none draws, and none is MPS's.

use std::ffi::{CStr, c_uint};

use nvml::{Process, ProcessV1, Return};

use crate::forward::{guarded, real};
use crate::job::{self, Device};

/// A structure that tells of a process.
trait Told {
    fn of(pid: u32, bytes: u64) -> Self;
}

impl Told for ProcessV1 {
    fn of(pid: u32, memory: u64) -> Self {
        Self { pid, memory }
    }
}

impl Told for Process {
    fn of(pid: u32, memory: u64) -> Self {
        Self { pid, memory, gpu_instance: c_uint::MAX, compute_instance: c_uint::MAX }
    }
}

fn processes<T: Told>(
    symbol: &CStr,
    device: Device,
    count: *mut c_uint,
    places: *mut T,
    computing: bool,
) -> Return {
    guarded(|| {
        type Get<T> = unsafe extern "C" fn(Device, *mut c_uint, *mut T) -> Return;
        let Some(seen) = job::seen(device).filter(|_| !count.is_null()) else {
            // SAFETY: all symbols that come here have this type.
            let get = unsafe { real::<Get<T>>(symbol) }?;
            // SAFETY: the caller's arguments, as they came.
            return match unsafe { get(device, count, places) } {
                Return::SUCCESS => Ok(()),
                refused => Err(refused),
            };
        };
        let told = if computing { seen.processes } else { Vec::new() };
        // SAFETY: not null, and the caller promises the number of its places.
        let room = unsafe { count.read_unaligned() } as usize;
        // SAFETY: as above.
        unsafe { count.write_unaligned(told.len() as c_uint) };
        if room < told.len() {
            return Err(Return::INSUFFICIENT_SIZE);
        }
        if places.is_null() && !told.is_empty() {
            return Err(Return::INVALID_ARGUMENT);
        }
        for (index, (pid, bytes)) in told.into_iter().enumerate() {
            // SAFETY: the caller promises as many places as it said, and this is one of them.
            unsafe { places.add(index).write_unaligned(T::of(pid, bytes)) };
        }
        Ok(())
    })
}

macro_rules! lists {
    ($($symbol:ident: $told:ty, $computing:literal;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol(device: Device, count: *mut c_uint, places: *mut $told) -> Return {
                const SYMBOL: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                    Ok(symbol) => symbol,
                    Err(_) => panic!("a symbol has no zero in it"),
                };
                processes(SYMBOL, device, count, places, $computing)
            }
        )*
    };
}

lists! {
    nvmlDeviceGetComputeRunningProcesses: ProcessV1, true;
    nvmlDeviceGetComputeRunningProcesses_v2: Process, true;
    nvmlDeviceGetComputeRunningProcesses_v3: Process, true;
    nvmlDeviceGetGraphicsRunningProcesses: ProcessV1, false;
    nvmlDeviceGetGraphicsRunningProcesses_v2: Process, false;
    nvmlDeviceGetGraphicsRunningProcesses_v3: Process, false;
    nvmlDeviceGetMPSComputeRunningProcesses: ProcessV1, false;
    nvmlDeviceGetMPSComputeRunningProcesses_v2: Process, false;
    nvmlDeviceGetMPSComputeRunningProcesses_v3: Process, false;
}
