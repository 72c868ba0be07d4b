//! The real driver, found at the first use, and whether rota is switched off.
//!
//! There may be none: then everything answers as a machine without a GPU does. If there is one that cannot be used, the
//! program's user is told so, once, in one line on stderr.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::{MaybeUninit, size_of, transmute_copy};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use cuda::{Driver, Library};

use super::once::Once;
use crate::notice::OnceNotice;

/// The real driver's library, if there is one.
pub(crate) fn library() -> Option<&'static Library> {
    static LIBRARY: Once<Option<Library>> = Once::new();
    static NOTICED: OnceNotice = OnceNotice::new();
    let found = LIBRARY.get_or_make(|| match Library::find(own_path().as_deref()) {
        Ok(library) => Some(library),
        Err(error) => {
            if !error.is_absence() {
                NOTICED.notice(format_args!("no CUDA device for this program: {error}"));
            }
            None
        }
    });
    found.as_ref()
}

/// The real driver's functions that rota calls, if there is a driver that has them all.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: Once<Option<Driver>> = Once::new();
    static NOTICED: OnceNotice = OnceNotice::new();
    let library = library()?;
    let loaded = DRIVER.get_or_make(|| match Driver::load(library.clone()) {
        Ok(driver) => Some(driver),
        Err(error) => {
            NOTICED.notice(format_args!("{error}"));
            None
        }
    });
    loaded.as_ref()
}

/// A function of the real driver, as the function pointer type `F`.
///
/// # Safety
///
/// `F` is a function pointer type with the symbol's signature.
pub(crate) unsafe fn function<F: Copy>(symbol: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = library()?.symbol(symbol)?.as_ptr();
    // SAFETY: the caller promises that `F` is the type of the function at this address.
    Some(unsafe { transmute_copy(&address) })
}

/// Whether `ROTA_DISABLE` makes this library a plain forwarder.
pub(crate) fn disabled() -> bool {
    static DISABLED: Once<bool> = Once::new();
    *DISABLED.get_or_make(|| {
        std::env::var_os("ROTA_DISABLE").is_some_and(|value| !value.is_empty() && value != "0")
    })
}

/// The file this library was loaded from.
fn own_path() -> Option<PathBuf> {
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
