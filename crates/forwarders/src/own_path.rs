//! Where a library was loaded from.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The file of the library that this code is part of.
pub fn own_path() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills `info` if it does not return 0; the address is in this library.
    let info = unsafe {
        let own = own_path as fn() -> Option<PathBuf>;
        if libc::dladdr(own as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    let name: *const c_char = info.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a C string that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
