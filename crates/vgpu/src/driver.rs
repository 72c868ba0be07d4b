//! The driver itself: `cuInit`, its version, the texts of its codes, and `cuGetProcAddress`.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use cuda::CUresult;
use cuda::table::{self, PER_THREAD_DEFAULT_STREAM, TABLE_VERSION};
use cuda::types::CUdriverProcAddressQueryResult as Status;

use crate::argument::{Out, Text};
use crate::exports;
use crate::guard::{Outcome, api};
use crate::session;

/// Versions up to the next that is likely are taken; a program built for one asks for it.
const VERSION_MAX: u32 = TABLE_VERSION + 990;

api! {
    cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        session::open()
    }

    cuDriverGetVersion(version: Out<c_int>) {
        version.set(TABLE_VERSION as c_int)
    }

    cuGetErrorName(code: CUresult, text: Out<*const c_char>) {
        give_text(text, code.name_c())
    }

    cuGetErrorString(code: CUresult, text: Out<*const c_char>) {
        give_text(text, code.description_c())
    }

    cuGetProcAddress(name: Text, address: Out<*mut c_void>, version: c_int, flags: u64) {
        let (found, _) = find(name, address, version, flags)?;
        address.set(found.ok_or(CUresult::NOT_FOUND)?)
    }

    cuGetProcAddress_v2(
        name: Text,
        address: Out<*mut c_void>,
        version: c_int,
        flags: u64,
        status: Out<Status>,
    ) {
        let (found, why) = find(name, address, version, flags)?;
        status.offer(why);
        address.set(found.unwrap_or(ptr::null_mut()))
    }

    cuProfilerStart() {
        session::current().map(drop)
    }

    cuProfilerStop() {
        session::current().map(drop)
    }
}

fn give_text(place: Out<*const c_char>, text: Option<&'static std::ffi::CStr>) -> Outcome {
    place.set(text.map_or(ptr::null(), |text| text.as_ptr()))?;
    text.map(drop).ok_or(CUresult::INVALID_VALUE)
}

/// Finds a function of this library. Works before `cuInit`: the CUDA runtime asks then.
fn find(
    name: Text,
    address: Out<*mut c_void>,
    version: c_int,
    flags: u64,
) -> Result<(Option<*mut c_void>, Status), CUresult> {
    /// Flag: the symbols whose default stream is the legacy one, which is what none says too.
    const LEGACY_STREAM: u64 = 1;
    let name = name.get()?.to_str().unwrap_or("");
    address.check()?;
    if flags & !(LEGACY_STREAM | PER_THREAD_DEFAULT_STREAM) != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    // A version that this driver cannot know is refused, not taken for the newest.
    let version = u32::try_from(version).ok().filter(|version| *version <= VERSION_MAX);
    let version = version.ok_or(CUresult::INVALID_VALUE)?;
    let found = table::lookup(name, version, flags).and_then(|function| exports::address_of(function.symbol));
    let status = match found {
        Some(_) => Status::SUCCESS,
        None if table::named(name).next().is_some() => Status::VERSION_NOT_SUFFICIENT,
        None => Status::SYMBOL_NOT_FOUND,
    };
    Ok((found, status))
}
