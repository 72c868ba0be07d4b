//! Waiting for errors: a set of devices, and the Xids of contexts that ended by one.

use std::ffi::c_uint;
use std::time::{Duration, Instant};

use crate::session;
use crate::types::{Device, EventData, EventDataV1, Out, Return, nvml};

/// The only kind of event here.
const XID: u64 = 8;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A set, behind the pointer that the program has: devices, and how many of their errors were told.
struct Set(Vec<(Device, usize)>);

/// A set from the program.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct SetHandle(*mut Set);

impl SetHandle {
    fn with<T>(self, work: impl FnOnce(&mut Set) -> T) -> Result<T, Return> {
        // SAFETY: null, or made by nvmlEventSetCreate and not freed yet; a set is used by one thread at a time.
        unsafe { self.0.as_mut() }.map(work).ok_or(Return::INVALID_ARGUMENT)
    }
}

nvml! {
    nvmlEventSetCreate(set: Out<SetHandle>) {
        session::devices()?;
        set.set(SetHandle(Box::into_raw(Box::new(Set(Vec::new())))))
    }

    nvmlEventSetFree(set: SetHandle) {
        if set.0.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        // SAFETY: made by nvmlEventSetCreate, and the program gives it up.
        drop(unsafe { Box::from_raw(set.0) });
        Ok(())
    }

    nvmlDeviceGetSupportedEventTypes(device: Device, kinds: Out<u64>) {
        session::device(device)?;
        kinds.set(XID)
    }

    nvmlDeviceRegisterEvents(device: Device, kinds: u64, set: SetHandle) {
        if kinds & !XID != 0 {
            return Err(Return::NOT_SUPPORTED);
        }
        let told = session::figures(device)?.errors.len();
        set.with(|set| set.0.push((device, told)))
    }

    nvmlEventSetWait(set: SetHandle, event: Out<EventDataV1>, timeout_ms: c_uint) {
        let (device, data) = wait(set, timeout_ms)?;
        event.set(EventDataV1 { device, kind: XID, data })
    }

    nvmlEventSetWait_v2(set: SetHandle, event: Out<EventData>, timeout_ms: c_uint) {
        let (device, data) = wait(set, timeout_ms)?;
        let (gpu_instance, compute_instance) = (c_uint::MAX, c_uint::MAX);
        event.set(EventData { device, kind: XID, data, gpu_instance, compute_instance })
    }
}

/// The next error: where, and which.
fn wait(set: SetHandle, timeout_ms: c_uint) -> Result<(Device, u64), Return> {
    let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
    loop {
        for (device, told) in set.with(|set| set.0.clone())? {
            let errors = session::figures(device)?.errors;
            if let Some(xid) = errors.get(told) {
                set.with(|set| {
                    set.0.iter_mut().filter(|one| one.0 == device).for_each(|one| one.1 = told + 1);
                })?;
                return Ok((device, u64::from(*xid)));
            }
        }
        if Instant::now() >= deadline {
            return Err(Return::TIMEOUT);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
