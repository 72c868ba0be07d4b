//! Limits and preferences of a context: checked and kept, without effect on the virtual GPU.

use std::ffi::{c_int, c_uint, c_void};

use cuda::CUresult;
use cuda::types::CUcontext;

use super::{current, table};
use crate::argument::Out;
use crate::guard::{Outcome, api};
use crate::handle::Handle;

/// The version of the interface that contexts are made by.
const API_VERSION: c_uint = 3020;
/// The priority of streams that matters most; the least is 0.
pub(crate) const PRIORITY_GREATEST: c_int = -5;

/// The limits in the order of their numbers: stack, printf, heap, depth of synchronisation, pending launches, fetch
/// granularity, persisting cache.
const LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 128, 0];

/// What a context keeps.
#[derive(Clone)]
pub(crate) struct Settings {
    limits: [usize; LIMITS.len()],
    cache: c_uint,
    banks: c_uint,
}

impl Default for Settings {
    fn default() -> Self {
        // Banks of four bytes.
        Self { limits: LIMITS, cache: 0, banks: 1 }
    }
}

fn of_current<T>(work: impl FnOnce(&mut Settings) -> T) -> Result<T, CUresult> {
    table::with(current::handle()?.id()?, |record| work(&mut record.settings))
}

api! {
    cuCtxGetLimit(value: Out<usize>, limit: c_uint) {
        current::id()?;
        value.check()?;
        let found = of_current(|settings| settings.limits.get(limit as usize).copied())?;
        value.set(found.ok_or_else(|| no_limit(limit))?)
    }

    cuCtxSetLimit(limit: c_uint, value: usize) {
        current::id()?;
        of_current(|settings| match settings.limits.get_mut(limit as usize) {
            Some(place) => {
                *place = value;
                Ok(())
            }
            None => Err(no_limit(limit)),
        })?
    }

    cuCtxGetFlags(flags: Out<c_uint>) {
        let context = current::handle()?;
        flags.check()?;
        /// Host memory can be mapped: always, whatever was asked for.
        const MAP_HOST: c_uint = 8;
        flags.set(table::with(context.id()?, |record| record.flags)? | MAP_HOST)
    }

    cuCtxSetFlags(flags: c_uint) {
        let context = current::handle()?;
        super::check_flags(flags)?;
        table::with(context.id()?, |record| record.flags = flags)
    }

    cuCtxGetApiVersion(context: CUcontext, version: Out<c_uint>) {
        crate::session::current()?;
        version.check()?;
        let context = if context.is_null() { current::handle()? } else { context };
        table::with(context.id()?, |_| ())?;
        version.set(API_VERSION)
    }

    cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        current::id()?;
        least.offer(0);
        greatest.offer(PRIORITY_GREATEST);
        Ok(())
    }

    cuCtxGetCacheConfig(config: Out<c_uint>) {
        current::id()?;
        config.set(of_current(|settings| settings.cache)?)
    }

    cuCtxSetCacheConfig(config: c_uint) {
        current::id()?;
        kept(config, 3, |settings| &mut settings.cache)
    }

    cuCtxGetSharedMemConfig(config: Out<c_uint>) {
        current::id()?;
        config.set(of_current(|settings| settings.banks)?)
    }

    cuCtxSetSharedMemConfig(config: c_uint) {
        current::id()?;
        kept(config, 2, |settings| &mut settings.banks)
    }

    cuCtxResetPersistingL2Cache() {
        current::id().map(drop)
    }

    cuCtxGetExecAffinity(affinity: Out<c_void>, _kind: c_uint) {
        current::id()?;
        affinity.check()?;
        Err(CUresult::UNSUPPORTED_EXEC_AFFINITY)
    }
}

/// A limit of other devices, or a number that is none.
fn no_limit(limit: c_uint) -> CUresult {
    const LIMITS_KNOWN: c_uint = 10;
    if limit < LIMITS_KNOWN { CUresult::UNSUPPORTED_LIMIT } else { CUresult::INVALID_VALUE }
}

fn kept(value: c_uint, most: c_uint, place: impl FnOnce(&mut Settings) -> &mut c_uint) -> Outcome {
    if value > most {
        return Err(CUresult::INVALID_VALUE);
    }
    of_current(|settings| *place(settings) = value)
}
