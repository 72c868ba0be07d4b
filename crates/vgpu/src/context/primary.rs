//! Primary contexts: one a device, counted, made at the first use.

use std::ffi::{c_int, c_uint};
use std::sync::Mutex;

use cuda::CUresult;
use cuda::types::{CUcontext, CUdevice};

use super::check_flags;
use super::table::{self, ContextNumber};
use crate::argument::Out;
use crate::guard::{Outcome, api, lock};
use crate::handle::Handle;
use crate::session;

/// The primary context of one device.
#[derive(Clone, Copy, Default)]
pub(crate) struct Primary {
    /// Its number, once it was made for the first time.
    number: Option<ContextNumber>,
    flags: u32,
    count: u32,
}

/// Held while one is made or ended, so that two threads don't both do it.
static CHANGING: Mutex<()> = Mutex::new(());

fn get(device: CUdevice) -> Result<Primary, CUresult> {
    let session = session::current()?;
    session.device(device)?;
    Ok(lock(&session.contexts).primaries.get(&device.0).copied().unwrap_or_default())
}

fn put(device: CUdevice, primary: Primary) -> Outcome {
    lock(&session::current()?.contexts).primaries.insert(device.0, primary);
    Ok(())
}

fn is_active(primary: &Primary) -> bool {
    primary.number.is_some_and(|number| table::with(number, |record| record.id.is_some()) == Ok(true))
}

fn end(device: CUdevice, mut primary: Primary) -> Outcome {
    primary.count = 0;
    put(device, primary)?;
    match primary.number.filter(|_| is_active(&primary)) {
        Some(number) => table::destroy(number),
        None => Ok(()),
    }
}

api! {
    cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice) {
        session::current()?;
        context.check()?;
        let _changing = lock(&CHANGING);
        let mut primary = get(device)?;
        let number = match primary.number {
            Some(number) => {
                if !is_active(&primary) {
                    table::with(number, |record| record.flags = primary.flags)?;
                    table::bring_up(number)?;
                }
                number
            }
            None => table::create(device, primary.flags, true)?,
        };
        primary.number = Some(number);
        primary.count += 1;
        put(device, primary)?;
        context.set(CUcontext::of(number))
    }

    cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        let _changing = lock(&CHANGING);
        let mut primary = get(device)?;
        match primary.count {
            0 => Err(CUresult::INVALID_CONTEXT),
            1 => end(device, primary),
            _ => {
                primary.count -= 1;
                put(device, primary)
            }
        }
    }

    cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2(device: CUdevice) {
        let _changing = lock(&CHANGING);
        end(device, get(device)?)
    }

    cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<c_uint>, active: Out<c_int>) {
        let primary = get(device)?;
        flags.check()?;
        flags.set(primary.flags)?;
        active.set(c_int::from(is_active(&primary)))
    }

    cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) {
        let _changing = lock(&CHANGING);
        let mut primary = get(device)?;
        check_flags(flags)?;
        primary.flags = flags;
        if let Some(number) = primary.number {
            table::with(number, |record| record.flags = flags)?;
        }
        put(device, primary)
    }
}
