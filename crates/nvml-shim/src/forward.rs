//! Every function of NVML, exported: most of them by forwarding to the real one, see the crate `forwarders`.

use std::ffi::{CStr, c_char, c_void};
use std::mem::{size_of, transmute_copy};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda::Library;
use cuda::library::Search;
use forwarders::{Once, own_path};
use nvml::Return;

/// Written by `build.rs`.
mod exports {
    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}

use exports::{COUNT, SYMBOLS};

/// Where each forwarder jumps to; by the index in the list of symbols.
///
/// A slot changes once, from `first_call` to its final address, and both are right at any time. Forwarders read it without
/// ordering: on x86-64 that is safe, and the code it points to was there before.
static SLOTS: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(first_call as *mut c_void) }; COUNT];

forwarders::first_call!(first_call, resolve);

/// The final address for a slot, kept there from now on. Never unwinds: its caller has no unwinding tables.
extern "C" fn resolve(index: u32) -> *const c_void {
    let found = catch_unwind(|| {
        let index = index as usize;
        let address = match library() {
            None => no_library as *const c_void,
            Some(library) => {
                library.symbol(SYMBOLS[index]).map_or(no_function as *const c_void, |found| found.as_ptr())
            }
        };
        SLOTS[index].store(address.cast_mut(), Ordering::Release);
        address
    });
    // After a panic the slot is left as it was, so the next call tries again.
    found.unwrap_or(unknown as *const c_void)
}

/// The answer on a machine without NVML.
extern "C" fn no_library() -> Return {
    Return::LIBRARY_NOT_FOUND
}

/// The answer where the real one does not have the function.
extern "C" fn no_function() -> Return {
    Return::FUNCTION_NOT_FOUND
}

/// The answer when this library itself failed.
extern "C" fn unknown() -> Return {
    Return::UNKNOWN
}

/// The real library, if there is one.
pub(crate) fn library() -> Option<&'static Library> {
    static LIBRARY: Once<Option<Library>> = Once::new();
    let found =
        LIBRARY.get_or_make(|| Search::from_environment(&nvml::SOUGHT, own_path().as_deref()).run().ok());
    found.as_ref()
}

/// A function of the real library, as the function pointer type `F`.
///
/// # Safety
///
/// `F` is a function pointer type with the symbol's signature.
pub(crate) unsafe fn real<F: Copy>(symbol: &CStr) -> Result<F, Return> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let library = library().ok_or(Return::LIBRARY_NOT_FOUND)?;
    let address = library.symbol(symbol).ok_or(Return::FUNCTION_NOT_FOUND)?.as_ptr();
    // SAFETY: the caller promises that `F` is the type of the function at this address.
    Ok(unsafe { transmute_copy(&address) })
}

/// Runs the work of a function that is answered here. A panic in it is an error code.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Return>) -> Return {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Return::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Return::UNKNOWN,
    }
}

/// The text of a code. The one function that returns an address: where there is no library it must not return a code.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlErrorString(code: Return) -> *const c_char {
    type ErrorString = unsafe extern "C" fn(Return) -> *const c_char;
    // SAFETY: the type is this symbol's.
    let real = catch_unwind(|| unsafe { real::<ErrorString>(c"nvmlErrorString") });
    match real {
        // SAFETY: any code may be asked for.
        Ok(Ok(real)) => unsafe { real(code) },
        _ if code == Return::SUCCESS => c"success".as_ptr(),
        _ if code == Return::LIBRARY_NOT_FOUND => c"NVML was not found on this machine".as_ptr(),
        _ => c"unknown error".as_ptr(),
    }
}

/// By this symbol one copy of this library recognises another.
#[unsafe(no_mangle)]
static rota_nvml_marker: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_has_its_agreed_name() {
        assert_eq!(nvml::MARKER.to_str(), Ok(stringify!(rota_nvml_marker)));
        assert_eq!(rota_nvml_marker, 1);
    }

    #[test]
    fn a_panic_is_an_error_code() {
        assert_eq!(guarded(|| Ok(())), Return::SUCCESS);
        assert_eq!(guarded(|| Err(Return::NOT_FOUND)), Return::NOT_FOUND);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let code = guarded(|| panic!("on purpose"));
        // An index out of bounds panics inside.
        let address = resolve(u32::MAX);
        std::panic::set_hook(before);
        assert_eq!(code, Return::UNKNOWN);
        // SAFETY: these answers take no arguments.
        let answer = unsafe { std::mem::transmute::<*const c_void, extern "C" fn() -> Return>(address) };
        assert_eq!(answer(), Return::UNKNOWN);
    }
}
