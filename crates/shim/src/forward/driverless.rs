//! Answers where the real driver has none: no driver on this machine, or a driver without the function.
//!
//! The functions that programs call to find out whether there is a GPU are here too: they ask the driver, and answer for it
//! where there is none.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

use cuda::CUresult;

use super::real;
use crate::guard::guarded;

/// The answer of a driver function on a machine without a driver.
pub(super) extern "C" fn not_initialized() -> CUresult {
    CUresult::NOT_INITIALIZED
}

/// The answer of a driver function that the real driver does not have.
pub(super) extern "C" fn not_found() -> CUresult {
    CUresult::NOT_FOUND
}

/// The answer when this library itself failed.
pub(super) extern "C" fn unknown() -> CUresult {
    CUresult::UNKNOWN
}

/// The real driver's `cuInit`; without a driver there is no device.
pub(crate) fn real_init(flags: c_uint) -> CUresult {
    type Init = unsafe extern "C" fn(c_uint) -> CUresult;
    // SAFETY: the type is this symbol's.
    match unsafe { real::function::<Init>(c"cuInit") } {
        // SAFETY: any flags may be given.
        Some(init) => unsafe { init(flags) },
        None => CUresult::NO_DEVICE,
    }
}

/// The version of CUDA that the driver supports; 0 without a driver.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> CUresult;
    let work = || {
        // SAFETY: the type is this symbol's.
        if let Some(get) = unsafe { real::function::<GetVersion>(c"cuDriverGetVersion") } {
            // SAFETY: the caller's argument, as it came.
            return unsafe { get(version) };
        }
        if version.is_null() {
            return CUresult::INVALID_VALUE;
        }
        // SAFETY: not null, and the caller promises a place for the version.
        unsafe { version.write(0) };
        CUresult::SUCCESS
    };
    guarded("cuDriverGetVersion", || CUresult::UNKNOWN, work)
}

/// The name of a result code.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let work = || unsafe { describe(c"cuGetErrorName", code, text, code.name_c()) };
    guarded("cuGetErrorName", || CUresult::UNKNOWN, work)
}

/// What a result code means.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller's arguments, as they came.
    let work = || unsafe { describe(c"cuGetErrorString", code, text, code.description_c()) };
    guarded("cuGetErrorString", || CUresult::UNKNOWN, work)
}

/// Asks the real driver for a code's text; without one, the text is `ours`.
///
/// # Safety
///
/// `text` is null or a place for a pointer.
unsafe fn describe(
    symbol: &CStr,
    code: CUresult,
    text: *mut *const c_char,
    ours: Option<&'static CStr>,
) -> CUresult {
    type Describe = unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult;
    // SAFETY: both symbols this is called with have this type.
    if let Some(describe) = unsafe { real::function::<Describe>(symbol) } {
        // SAFETY: the caller's arguments, as they came.
        return unsafe { describe(code, text) };
    }
    if text.is_null() {
        return CUresult::INVALID_VALUE;
    }
    // SAFETY: not null, and the caller promises a place for a pointer.
    unsafe { text.write(ours.map_or(ptr::null(), CStr::as_ptr)) };
    if ours.is_some() { CUresult::SUCCESS } else { CUresult::INVALID_VALUE }
}
