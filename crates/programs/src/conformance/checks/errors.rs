//! The names of result codes.

use std::ffi::{CStr, c_char};

use cuda::CUresult;

use super::{Check, check};
use crate::bench::Bench;

/// The name the driver has for a code.
fn name(b: &Bench, code: CUresult) -> Option<String> {
    let mut text: *const c_char = std::ptr::null();
    let known = b.cu.cuGetErrorName(code, &mut text) == CUresult::SUCCESS && !text.is_null();
    // SAFETY: the driver gave a C string that lives as long as it does.
    known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

pub(super) const CHECKS: &[Check] = &[
    check("every code has its name", "differ=none", |b| {
        let differ: Vec<String> = CUresult::all()
            .filter(|code| name(b, *code).as_deref() != code.name())
            .map(|code| code.0.to_string())
            .collect();
        b.value("differ", if differ.is_empty() { "none".to_owned() } else { differ.join(",") });
    }),
    check("every code has a text", "without=0", |b| {
        let mut without = 0;
        for code in CUresult::all() {
            let mut text: *const c_char = std::ptr::null();
            if b.cu.cuGetErrorString(code, &mut text) != CUresult::SUCCESS || text.is_null() {
                without += 1;
            }
        }
        b.value("without", without);
    }),
    check("a code that is none", "INVALID_VALUE null=true INVALID_VALUE null=true", |b| {
        let mut text = c"before".as_ptr();
        b.code(b.cu.cuGetErrorName(CUresult(4242), &mut text));
        b.value("null", text.is_null());
        text = c"before".as_ptr();
        b.code(b.cu.cuGetErrorString(CUresult(4242), &mut text));
        b.value("null", text.is_null());
    }),
];
