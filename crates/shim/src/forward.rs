//! Every driver function, exported: most of them by forwarding to the real driver.
//!
//! A forwarder is two instructions, see the crate `forwarders`; its first call [`resolve`]s the real function. `build.rs` writes
//! the functions from the table of driver functions and the lists beside it:
//!
//! | list | what becomes of the function |
//! |---|---|
//! | `overrides.txt` | written by hand elsewhere in this crate |
//! | `gated.txt` | goes through the [gate](crate::gate), counted by [`demand`](crate::demand) |
//! | `launched.txt` | a [launch](crate::demand::launch), counted |
//! | `quiet.txt` | a forwarder |
//! | none | counts as work while it lasts |
//!
//! - [`real`]: the real driver, found at the first use.
//! - [`driverless`]: what is answered where there is no driver, or no such function.
//!
//! Nothing here takes a lock of its own, so a child of `fork` finds everything usable; a panic never leaves this crate.

mod driverless;
pub(crate) mod once {
    pub(crate) use forwarders::Once;
}
pub(crate) mod real;

use std::ffi::{CStr, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda::table;

use crate::gate::Widest;

pub(crate) use driverless::real_init;
pub(crate) use real::driver;

/// The type under which addresses of functions are kept, whatever their arguments.
type Address = unsafe extern "C" fn();

/// One exported driver function.
struct Export {
    symbol: &'static CStr,
    address: Address,
}

macro_rules! forwarder {
    ($symbol:ident, $index:literal) => {
        forwarders::forwarder!($symbol, $index, super::SLOTS);
    };
}

/// Written by `build.rs`.
#[allow(non_snake_case)] // The driver's names.
#[allow(clippy::undocumented_unsafe_blocks)] // Of one kind, and explained there.
mod exports {
    use super::Export;

    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}

pub(crate) use exports::index;
use exports::{COUNT, EXPORTS};

/// Where each forwarder jumps to; by the index in the table.
///
/// A slot changes once, from `first_call` to its final address, and both are right at any time. Forwarders read it without
/// ordering: on x86-64 that is safe, and the code it points to was there before.
static SLOTS: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(first_call as *mut c_void) }; COUNT];

forwarders::first_call!(first_call, resolve);

/// The final address for a slot, kept there from now on. Never unwinds: its caller has no unwinding tables.
extern "C" fn resolve(index: u32) -> *const c_void {
    let found = catch_unwind(|| {
        let index = index as usize;
        let address = target(EXPORTS[index].symbol);
        SLOTS[index].store(address.cast_mut(), Ordering::Release);
        address
    });
    // After a panic the slot is left as it was, so the next call tries again.
    found.unwrap_or(driverless::unknown as *const c_void)
}

/// Where calls of this symbol are to go.
fn target(symbol: &CStr) -> *const c_void {
    match real::library() {
        None => driverless::not_initialized as *const c_void,
        Some(library) => match library.symbol(symbol) {
            Some(address) => address.as_ptr(),
            None => driverless::not_found as *const c_void,
        },
    }
}

/// The real function behind one that this library makes the call of, by its index in the table.
pub(crate) fn target_of(index: usize) -> Widest {
    let slot = SLOTS[index].load(Ordering::Acquire).cast_const();
    let address = if slot == first_call as *const c_void { resolve(index as u32) } else { slot };
    // SAFETY: a function of the driver, or one that ignores its arguments; see `gated!` on those.
    unsafe { std::mem::transmute::<*const c_void, Widest>(address) }
}

/// The address under which this library exports a symbol.
pub(crate) fn own_address(symbol: &str) -> Option<*mut c_void> {
    table::index_of(symbol).map(|index| EXPORTS[index].address as *mut c_void)
}

/// By this symbol one copy of this library recognises another.
#[unsafe(no_mangle)]
static rota_shim_marker: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use cuda::CUresult;

    #[test]
    fn exports_are_the_table() {
        assert_eq!(EXPORTS.len(), table::FUNCTIONS.len());
        for (export, function) in EXPORTS.iter().zip(table::FUNCTIONS) {
            assert_eq!(export.symbol.to_str(), Ok(function.symbol));
        }
    }

    #[test]
    fn every_function_of_the_table_has_an_address_of_its_own() {
        let addresses: std::collections::BTreeSet<_> =
            table::FUNCTIONS.iter().map(|function| own_address(function.symbol).unwrap()).collect();
        assert_eq!(addresses.len(), COUNT);
        assert!(own_address("cuNoSuchFunction").is_none());
    }

    #[test]
    fn a_panic_in_a_first_call_becomes_an_error_code() {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        // An index out of bounds panics inside.
        let address = resolve(u32::MAX);
        std::panic::set_hook(before);
        // SAFETY: the functions of `driverless` take no arguments.
        let answer = unsafe { std::mem::transmute::<*const c_void, extern "C" fn() -> CUresult>(address) };
        assert_eq!(answer(), CUresult::UNKNOWN);
    }

    #[test]
    fn the_marker_has_its_agreed_name() {
        assert_eq!(cuda::library::SHIM_MARKER.to_str(), Ok(stringify!(rota_shim_marker)));
        assert_eq!(rota_shim_marker, 1);
    }
}
