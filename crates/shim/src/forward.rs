//! Every driver function, exported: most of them by forwarding to the real driver.
//!
//! ```text
//! program ── cuXyz: r11 = index, jump to SLOTS[index] ──┬─ first call: first_call ── resolve(index) ── real cuXyz
//!                                                       └─ afterwards: real cuXyz
//! ```
//!
//! A forwarder is two instructions and knows nothing about its function's arguments: it jumps with all of them in place.
//! `first_call` keeps the argument registers while [`resolve`] finds the real function. `build.rs` writes the functions from
//! the table of driver functions and the lists beside it:
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
//! - [`once`]: a value made at its first use, without a lock.
//!
//! Nothing here takes a lock of its own, so a child of `fork` finds everything usable; a panic never leaves this crate.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "rota's libcuda.so.1 forwards calls in x86-64 machine code for Linux; other systems are not supported yet"
);

mod driverless;
pub(crate) mod once;
pub(crate) mod real;

use std::arch::naked_asm;
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
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $symbol() {
            std::arch::naked_asm!(
                "mov r11d, {index}",
                "jmp qword ptr [rip + {slots} + 8*{index}]",
                index = const $index,
                slots = sym super::SLOTS,
            )
        }
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

/// The first call of any forwarder: finds the real function and jumps there, with all arguments as they came.
///
/// Arguments travel in rdi, rsi, rdx, rcx, r8, r9 and xmm0 to xmm7, with the number of the latter in al, and on the
/// stack, which is left alone. r11, the index, belongs to nobody across a call.
#[unsafe(naked)]
extern "C" fn first_call() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 192", // A multiple of 16: the stack is aligned for the call.
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov [rsp + 48], rax",
        "movaps [rsp + 64], xmm0",
        "movaps [rsp + 80], xmm1",
        "movaps [rsp + 96], xmm2",
        "movaps [rsp + 112], xmm3",
        "movaps [rsp + 128], xmm4",
        "movaps [rsp + 144], xmm5",
        "movaps [rsp + 160], xmm6",
        "movaps [rsp + 176], xmm7",
        "mov edi, r11d",
        "call {resolve}",
        "mov r11, rax",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "mov rax, [rsp + 48]",
        "movaps xmm0, [rsp + 64]",
        "movaps xmm1, [rsp + 80]",
        "movaps xmm2, [rsp + 96]",
        "movaps xmm3, [rsp + 112]",
        "movaps xmm4, [rsp + 128]",
        "movaps xmm5, [rsp + 144]",
        "movaps xmm6, [rsp + 160]",
        "movaps xmm7, [rsp + 176]",
        "leave",
        "jmp r11",
        resolve = sym resolve,
    )
}

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
