//! The shim's functions, if it is in this process.

use crate::{NO_DAEMON, notice};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The version of the shim's functions that this library knows.
const VERSION: u32 = 1;

/// How things are, by the shim's word: as in the shim, fields are only ever added at the end.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct State {
    pub(crate) tenant: u32,
    pub(crate) critical: u32,
    pub(crate) slo_ns: u64,
    pub(crate) requests_open: u64,
    pub(crate) dropped: u64,
    pub(crate) warm_ups: u64,
    pub(crate) warm_ups_failed: u64,
}

/// The functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shim {
    pub(crate) hint: unsafe extern "C" fn(u64) -> c_int,
    pub(crate) request_begin: unsafe extern "C" fn(u64) -> c_int,
    pub(crate) request_end: unsafe extern "C" fn() -> c_int,
    pub(crate) request_took: unsafe extern "C" fn(u64, u64) -> c_int,
    pub(crate) phase: unsafe extern "C" fn(c_int, *const c_char) -> c_int,
    pub(crate) set: unsafe extern "C" fn(c_int, u32, *mut c_char, usize) -> c_int,
    state: unsafe extern "C" fn(*mut u8, usize) -> usize,
}

impl Shim {
    /// How things are.
    pub(crate) fn state(&self) -> State {
        let mut state = State::default();
        // SAFETY: there is room for as much as is said, and any bytes are numbers.
        unsafe { (self.state)((&raw mut state).cast(), size_of::<State>()) };
        state
    }
}

/// The shim's functions; None if it is not there.
pub(crate) fn find() -> Option<Shim> {
    static FOUND: OnceLock<Option<Shim>> = OnceLock::new();
    *FOUND.get_or_init(look)
}

fn look() -> Option<Shim> {
    // SAFETY: each function of this name has the type that it gets here, in every shim of this version.
    unsafe {
        let version: extern "C" fn() -> u32 = function(c"rota_shim_version")?;
        if version() != VERSION {
            notice::other_shim();
            return None;
        }
        Some(Shim {
            hint: function(c"rota_shim_hint")?,
            request_begin: function(c"rota_shim_request_begin")?,
            request_end: function(c"rota_shim_request_end")?,
            request_took: function(c"rota_shim_request_took")?,
            phase: function(c"rota_shim_phase")?,
            set: function(c"rota_shim_set")?,
            state: function(c"rota_shim_state")?,
        })
    }
}

/// The function of this name, if it is in the process.
///
/// # Safety
/// It has this type, which is one of functions.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the name ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: by the caller's promise; both are an address.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

/// Says something to the shim. Where nobody hears it, that is said once.
pub(crate) fn tell(what: impl FnOnce(&Shim) -> c_int) -> c_int {
    let said = find().map_or(NO_DAEMON, |shim| what(&shim));
    if said == NO_DAEMON {
        notice::nobody();
    }
    said
}
