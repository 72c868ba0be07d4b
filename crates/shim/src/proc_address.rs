//! `cuGetProcAddress`: how runtimes get at almost every driver function.
//!
//! The real resolver is asked first. Where it finds a function that this library exports, its address is replaced by this
//! library's, so that a function has one address however a program gets at it; what the table does not know is the real
//! driver's answer, untouched. Without a driver the answer is this library's own function, so that a runtime can go on to
//! `cuInit` and learn there that there is no device.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use cuda::CUresult;
use cuda::table::{self, TABLE_VERSION};
use cuda::types::CUdriverProcAddressQueryResult as Status;

use crate::demand;
use crate::disabled;
use crate::forward::{own_address, real};
use crate::guard::guarded;

type Resolver = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CUresult;
type ResolverV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut Status) -> CUresult;

/// The address of a driver function, as CUDA 11 programs ask for it.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    let work = || {
        if real::library().is_none() {
            // SAFETY: the caller's arguments, as they came.
            let status = unsafe { answer(name, address, version, flags) };
            return match status {
                None => CUresult::INVALID_VALUE,
                Some(Status::SUCCESS) => CUresult::SUCCESS,
                Some(_) => CUresult::NOT_FOUND,
            };
        }
        // SAFETY: the type is this symbol's.
        let Some(resolver) = (unsafe { real::function::<Resolver>(c"cuGetProcAddress") }) else {
            return CUresult::NOT_FOUND;
        };
        // SAFETY: the caller's arguments, as they came; the version may be any.
        let ask = |version, address, _| unsafe { resolver(name, address, version, flags) };
        // SAFETY: `name` and `address` are the caller's, and `ask` asks the real resolver.
        unsafe { ask_and_substitute(name, address, version, flags, ptr::null_mut(), ask) }
    };
    guarded("cuGetProcAddress", || CUresult::UNKNOWN, work)
}

/// The address of a driver function, as CUDA 12 and later programs ask for it.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut Status,
) -> CUresult {
    let work = || {
        if real::library().is_none() {
            // SAFETY: the caller's arguments, as they came.
            let Some(found) = (unsafe { answer(name, address, version, flags) }) else {
                return CUresult::INVALID_VALUE;
            };
            if !status.is_null() {
                // SAFETY: not null, and the caller promises a place for the status.
                unsafe { status.write(found) };
            }
            return CUresult::SUCCESS;
        }
        // SAFETY: the type is this symbol's.
        let Some(resolver) = (unsafe { real::function::<ResolverV2>(c"cuGetProcAddress_v2") }) else {
            return CUresult::NOT_FOUND;
        };
        // SAFETY: the caller's arguments, as they came; the version may be any.
        let ask = |version, address, status| unsafe { resolver(name, address, version, flags, status) };
        // SAFETY: `name` and `address` are the caller's, and `ask` asks the real resolver.
        unsafe { ask_and_substitute(name, address, version, flags, status, ask) }
    };
    guarded("cuGetProcAddress_v2", || CUresult::UNKNOWN, work)
}

/// Asks the real resolver by `ask(version, address, status)`, and replaces what it found by this library's.
///
/// # Safety
///
/// If `ask` succeeds, `name` is a C string and `address` holds what it found.
unsafe fn ask_and_substitute(
    name: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut Status,
    ask: impl Fn(c_int, *mut *mut c_void, *mut Status) -> CUresult,
) -> CUresult {
    let result = ask(version, address, status);
    if result != CUresult::SUCCESS || name.is_null() || address.is_null() || disabled() {
        return result;
    }
    // SAFETY: the resolver succeeded, so `name` is a C string and `address` was written.
    let (name, found) = unsafe { (CStr::from_ptr(name), address.read()) };
    if found.is_null() {
        return result;
    }
    // A panic in here must not hide that the real resolver succeeded.
    let ours = catch_unwind(AssertUnwindSafe(|| {
        let at = |version| {
            let mut address = ptr::null_mut();
            // The status is the program's, and belongs to its own question.
            (ask(version, &mut address, ptr::null_mut()) == CUresult::SUCCESS).then_some(address)
        };
        substitute(name, found, version, flags, at)
    }));
    match ours {
        // SAFETY: as above.
        Ok(Some(ours)) => unsafe { address.write(ours) },
        // What the program does with it is not seen.
        Ok(None) | Err(_) => demand::blind(),
    }
    result
}

/// This library's function for what the real resolver found, if it is exactly that.
///
/// `at(version)` is what the real resolver finds for the same name and flags at another version.
fn substitute(
    name: &CStr,
    found: *mut c_void,
    version: c_int,
    flags: u64,
    at: impl Fn(c_int) -> Option<*mut c_void>,
) -> Option<*mut c_void> {
    let name = name.to_str().ok()?;
    let version = u32::try_from(version).ok()?;
    // A resolver that takes a symbol for a name can only mean that symbol.
    let function = table::lookup(name, version, flags).or_else(|| table::by_symbol(name))?;
    let ours = own_address(function.symbol)?;
    // A driver newer than the table may have a newer function of this name, with other arguments. It has not if it finds
    // the same function for the version that the table knows.
    if version > TABLE_VERSION && at(c_int::try_from(TABLE_VERSION).ok()?) != Some(found) {
        return None;
    }
    Some(ours)
}

/// The resolver's answer where there is no driver: this library's own function. None for arguments that are not valid.
///
/// # Safety
///
/// `name` is null or a C string, `address` null or a place for a pointer.
unsafe fn answer(
    name: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Option<Status> {
    if name.is_null() || address.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller promises a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("");
    let version = u32::try_from(version).unwrap_or(0);
    let own = table::lookup(name, version, flags).and_then(|function| own_address(function.symbol));
    // SAFETY: not null, and the caller promises a place for a pointer.
    unsafe { address.write(own.unwrap_or(ptr::null_mut())) };
    Some(match own {
        Some(_) => Status::SUCCESS,
        None if table::named(name).next().is_some() => Status::VERSION_NOT_SUFFICIENT,
        None => Status::SYMBOL_NOT_FOUND,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: *mut c_void = 0x1000 as *mut c_void;
    const OTHER: *mut c_void = 0x2000 as *mut c_void;

    fn never(_: c_int) -> Option<*mut c_void> {
        panic!("no second question for a version in the table")
    }

    #[test]
    fn exactly_the_symbol_that_was_meant_is_substituted() {
        let v1 = own_address("cuGetProcAddress");
        let v2 = own_address("cuGetProcAddress_v2");
        assert!(v1.is_some() && v2.is_some() && v1 != v2);
        assert_eq!(substitute(c"cuGetProcAddress", FOUND, 11030, 0, never), v1);
        assert_eq!(substitute(c"cuGetProcAddress", FOUND, 12000, 0, never), v2);
        assert_eq!(substitute(c"cuGetProcAddress_v2", FOUND, 12000, 0, never), v2);
        assert_eq!(substitute(c"cuLaunchKernel", FOUND, 12000, 0, never), own_address("cuLaunchKernel"));
        assert_eq!(substitute(c"cuLaunchKernel", FOUND, 12000, 2, never), own_address("cuLaunchKernel_ptsz"));
        assert_eq!(substitute(c"cuNoSuchFunction", FOUND, 12000, 0, never), None);
        assert_eq!(substitute(c"cuGetProcAddress", FOUND, -1, 0, never), None);
    }

    #[test]
    fn a_newer_version_is_substituted_only_if_the_driver_has_no_newer_function() {
        let ours = own_address("cuInit");
        assert_eq!(substitute(c"cuInit", FOUND, 13020, 0, |_| Some(FOUND)), ours);
        assert_eq!(substitute(c"cuInit", FOUND, 13020, 0, |_| Some(OTHER)), None);
        assert_eq!(substitute(c"cuInit", FOUND, 13020, 0, |_| None), None);
    }
}
