//! How much memory there is. The real library is asked first: what is wrong with a call, it says.

use std::ffi::CStr;

use nvml::{Memory, MemoryV2, Return};

use crate::forward::{guarded, real};
use crate::job::{self, Device, Seen};

/// A structure that tells of memory.
trait Told: Copy {
    /// The same with what the job sees.
    fn as_seen(self, seen: &Seen) -> Self;
}

impl Told for Memory {
    fn as_seen(self, seen: &Seen) -> Self {
        Self { total: seen.total, free: seen.total.saturating_sub(seen.used), used: seen.used }
    }
}

impl Told for MemoryV2 {
    fn as_seen(self, seen: &Seen) -> Self {
        let free = seen.total.saturating_sub(seen.used);
        Self { version: self.version, total: seen.total, reserved: 0, free, used: seen.used }
    }
}

fn memory<T: Told>(symbol: &CStr, device: Device, info: *mut T) -> Return {
    guarded(|| {
        type Get<T> = unsafe extern "C" fn(Device, *mut T) -> Return;
        // SAFETY: both symbols that come here have this type.
        let get = unsafe { real::<Get<T>>(symbol) }?;
        // SAFETY: the caller's arguments, as they came.
        match unsafe { get(device, info) } {
            Return::SUCCESS => {}
            refused => return Err(refused),
        }
        if let Some(seen) = job::seen(device) {
            // SAFETY: the real library has just written there, so it is a place for it.
            unsafe { info.write_unaligned(info.read_unaligned().as_seen(&seen)) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, info: *mut Memory) -> Return {
    memory(c"nvmlDeviceGetMemoryInfo", device, info)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, info: *mut MemoryV2) -> Return {
    memory(c"nvmlDeviceGetMemoryInfo_v2", device, info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_never_less_than_nothing() {
        let seen = Seen { total: 8, used: 9, processes: Vec::new() };
        assert_eq!(Memory::default().as_seen(&seen), Memory { total: 8, free: 0, used: 9 });
        let version = nvml::version::<MemoryV2>(2);
        let told = MemoryV2 { version, reserved: 3, ..MemoryV2::default() };
        let expected = MemoryV2 { version, total: 8, reserved: 0, free: 0, used: 9 };
        assert_eq!(told.as_seen(&seen), expected);
    }
}
