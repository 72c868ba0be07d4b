//! Requests that the program tells rota of, through the library that programs are linked with; here it is loaded, from the file
//! that `ROTA_SDK` names.

use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::OnceLock;
use std::time::Duration;

/// As in `rota.h`.
type Begin = unsafe extern "C" fn(*mut [u64; 4], u64, u64) -> c_int;
type End = unsafe extern "C" fn(*mut [u64; 4]) -> c_int;

/// One that is being served.
pub(super) struct Request([u64; 4]);

impl Request {
    /// Its kernels follow so soon.
    pub(super) fn begin(within: Duration) -> Self {
        let mut request = [0; 4];
        // SAFETY: `rota.h` has it so, and a request is four words.
        let code = unsafe { library().0(&mut request, within.as_nanos() as u64, 0) };
        assert_eq!(code, 0, "rota hears that a request begins");
        Self(request)
    }

    pub(super) fn end(mut self) {
        // SAFETY: it has begun.
        let code = unsafe { library().1(&mut self.0) };
        assert_eq!(code, 0, "rota hears that a request ends");
    }
}

fn library() -> (Begin, End) {
    static FOUND: OnceLock<(Begin, End)> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let file = std::env::var_os("ROTA_SDK").expect("ROTA_SDK names the library");
        let file = CString::new(file.into_vec()).expect("a path");
        // SAFETY: the path ends with a zero, and loading this library does nothing.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{file:?} is not loaded");
        let find = |name: &std::ffi::CStr| {
            // SAFETY: the name ends with a zero, and the library stays.
            let found: *mut c_void = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!found.is_null(), "{file:?} has no {name:?}");
            found
        };
        let (begin, end) = (find(c"rota_request_begin"), find(c"rota_request_end"));
        // SAFETY: these are their types in `rota.h`.
        unsafe {
            (std::mem::transmute::<*mut c_void, Begin>(begin), std::mem::transmute::<*mut c_void, End>(end))
        }
    })
}
