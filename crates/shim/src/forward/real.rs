//! The real driver, found at the first use, and whether rota is switched off.
//!
//! There may be none: then everything answers as a machine without a GPU does. If there is one that cannot be used, the
//! program's user is told so, once, in one line on stderr.

use std::ffi::{CStr, c_void};
use std::mem::{size_of, transmute_copy};

use cuda::{Driver, Library};
use forwarders::own_path;

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
