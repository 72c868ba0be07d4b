//! `cuGetProcAddress`: which function it chooses by name, version and flags.

use std::ffi::{CString, c_void};

use cuda::library::SONAME;
use cuda::types::{CU_EVENT_DISABLE_TIMING, CU_STREAM_PER_THREAD, CUfunction, CUstream};
use cuda::{CUresult, Library};

use super::{Check, check};
use crate::bench::Bench;
use crate::bench::gate::Gate;
use crate::bench::words::pointers;
use crate::kernels::FILL;

/// Flags of `cuGetProcAddress`.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// The signature of `cuLaunchKernel`.
type Launch = unsafe extern "C" fn(
    CUfunction,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    CUstream,
    *mut *mut c_void,
    *mut *mut c_void,
) -> CUresult;

/// Asks, and records the code, the status, and whether the function is the one exported under `symbol`.
fn ask(b: &Bench, name: &str, version: i32, flags: u64, symbol: &str) {
    let (code, found, status) = raw(b, name, version, flags);
    b.code(code);
    b.say(status);
    b.value(symbol, found == exported(symbol));
}

/// Asks for what is not there.
fn ask_absent(b: &Bench, name: &str, version: i32, flags: u64) {
    let (code, found, status) = raw(b, name, version, flags);
    b.code(code);
    b.say(status);
    b.value("null", found.is_null());
}

fn raw(b: &Bench, name: &str, version: i32, flags: u64) -> (CUresult, *mut c_void, u32) {
    let name = CString::new(name).unwrap_or_default();
    let (mut found, mut status) = (std::ptr::without_provenance_mut(1), 77);
    let code = b.cu.cuGetProcAddress_v2(name.as_ptr(), &mut found, version, flags, &mut status);
    (code, found, status)
}

/// Where a symbol is; an address that is no function's for one that is not exported.
fn exported(symbol: &str) -> *mut c_void {
    let none = std::ptr::without_provenance_mut(3);
    let Ok(symbol) = CString::new(symbol) else { return none };
    let library = Library::open(SONAME).ok();
    library.and_then(|library| library.symbol(&symbol)).map_or(none, |address| address.as_ptr())
}

pub(super) const CHECKS: &[Check] = &[
    check("newest", "ok 0 cuMemAlloc_v2=true ok 0 cuCtxCreate_v4=true ok 0 cuGetProcAddress_v2=true", |b| {
        ask(b, "cuMemAlloc", 12_000, 0, "cuMemAlloc_v2");
        ask(b, "cuCtxCreate", 13_000, 0, "cuCtxCreate_v4");
        ask(b, "cuGetProcAddress", 12_000, 0, "cuGetProcAddress_v2");
    }),
    check(
        "of a version",
        "ok 0 cuMemAlloc=true ok 0 cuMemAlloc_v2=true ok 0 cuCtxCreate_v2=true ok 0 cuCtxCreate_v3=true",
        |b| {
            ask(b, "cuMemAlloc", 3_010, 0, "cuMemAlloc");
            ask(b, "cuMemAlloc", 3_020, 0, "cuMemAlloc_v2");
            ask(b, "cuCtxCreate", 10_000, 0, "cuCtxCreate_v2");
            ask(b, "cuCtxCreate", 11_040, 0, "cuCtxCreate_v3");
        },
    ),
    // The second version of the function succeeds with no function: only the status tells why.
    check("before its version", "ok 2 null=true ok 2 null=true", |b| {
        ask_absent(b, "cuMemCreate", 10_010, 0);
        ask_absent(b, "cuGraphLaunch", 9_000, 0);
    }),
    check("of no name", "ok 1 null=true ok 1 null=true ok 1 null=true ok 1 null=true", |b| {
        ask_absent(b, "cuNoSuchFunction", 12_000, 0);
        ask_absent(b, "cuMemAlloc_v2", 12_000, 0);
        ask_absent(b, "CUMEMALLOC", 12_000, 0);
        ask_absent(b, "", 12_000, 0);
    }),
    check(
        "default stream of the thread",
        "ok 0 cuLaunchKernel_ptsz=true ok 0 cuMemcpyHtoD_v2_ptds=true ok 0 cuMemAlloc_v2=true",
        |b| {
            ask(b, "cuLaunchKernel", 12_000, PER_THREAD, "cuLaunchKernel_ptsz");
            ask(b, "cuMemcpyHtoD", 12_000, PER_THREAD, "cuMemcpyHtoD_v2_ptds");
            ask(b, "cuMemAlloc", 12_000, PER_THREAD, "cuMemAlloc_v2");
        },
    ),
    check("default stream of all", "ok 0 cuLaunchKernel=true ok 0 cuLaunchKernel=true", |b| {
        ask(b, "cuLaunchKernel", 12_000, LEGACY, "cuLaunchKernel");
        ask(b, "cuLaunchKernel", 12_000, 0, "cuLaunchKernel");
    }),
    check("flags that are none", "ok 0 null=false INVALID_VALUE 77 null=false", |b| {
        ask_absent(b, "cuMemAlloc", 12_000, 3);
        ask_absent(b, "cuMemAlloc", 12_000, 64);
    }),
    check("versions that are none", "ok 2 null=true INVALID_VALUE 77 cuMemAlloc_v2=false", |b| {
        ask_absent(b, "cuMemAlloc", 0, 0);
        ask(b, "cuMemAlloc", 99_000, 0, "cuMemAlloc_v2");
    }),
    check("nobody asks for the status", "ok null=false", |b| {
        let mut found = std::ptr::null_mut();
        b.code(b.cu.cuGetProcAddress_v2(c"cuInit".as_ptr(), &mut found, 12_000, 0, std::ptr::null_mut()));
        b.value("null", found.is_null());
    }),
    // The first version has no status: it fails, and leaves the place as it was.
    check("as it was first", "ok null=false NOT_FOUND NOT_FOUND null=false", |b| {
        let mut found = std::ptr::null_mut();
        b.code(b.cu.cuGetProcAddress(c"cuInit".as_ptr(), &mut found, 11_030, 0));
        b.value("null", found.is_null());
        b.code(b.cu.cuGetProcAddress(c"cuNoSuchFunction".as_ptr(), &mut found, 11_030, 0));
        b.code(b.cu.cuGetProcAddress(c"cuGraphLaunch".as_ptr(), &mut found, 9_000, 0));
        b.value("null", found.is_null());
    }),
    check("a launch in the thread's stream", "ok ok word=9", |b| {
        let (memory, stream, function) = (b.alloc(8), b.stream(0), b.function(FILL));
        let (_, found, _) = raw(b, "cuLaunchKernel", 12_000, PER_THREAD);
        if found.is_null() {
            b.say("null");
            return;
        }
        // SAFETY: the driver says that this is a variant of cuLaunchKernel, which has this signature.
        let launch: Launch = unsafe { std::mem::transmute(found) };
        let event = b.event(CU_EVENT_DISABLE_TIMING);
        let gate = Gate::close(b, stream);
        let values = [memory.0, 1, 9];
        let (mut parameters, none) = (pointers(&values), std::ptr::null_mut());
        // The default stream of all would wait for the gate; that of the thread does not.
        // SAFETY: as above, and the parameters live.
        b.code(unsafe {
            launch(function, 1, 1, 1, 1, 1, 1, 0, CUstream::NULL, parameters.as_mut_ptr(), none)
        });
        b.expect("record", b.cu.cuEventRecord(event, CU_STREAM_PER_THREAD));
        b.code(b.cu.cuEventSynchronize(event));
        drop(gate);
        b.value("word", b.read_words(memory, 1)[0]);
        b.end_event(event);
        b.end_stream(stream);
        b.free(memory);
    }),
    check("what it gives can be called", "ok some=true", |b| {
        let (_, found, _) = raw(b, "cuDriverGetVersion", 12_000, 0);
        if found.is_null() {
            b.say("null");
            return;
        }
        // SAFETY: the driver says that this is cuDriverGetVersion, which has this signature.
        let call: unsafe extern "C" fn(*mut i32) -> CUresult = unsafe { std::mem::transmute(found) };
        let mut version = 0;
        // SAFETY: as above, and `version` lives.
        b.code(unsafe { call(&mut version) });
        b.value("some", version >= 12_000);
    }),
];
