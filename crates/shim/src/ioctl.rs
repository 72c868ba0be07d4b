//! Overrides `ioctl`, to see the RM calls of the driver library. Nothing is changed and nothing is held up.
//!
//! The driver library calls the C library's `ioctl`, so the definition here, loaded first, comes before it. It hands each
//! call to the next definition, which is not always the C library's: another library may be preloaded behind this one.

use std::ffi::{c_int, c_ulong, c_void};
use std::fs::File;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::forward::once::Once;
use crate::guard::guarded;
use crate::{groups, settings};

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// The program's `ioctl`.
///
/// In C it takes any number of arguments after the request, and every caller passes one or none. On x86-64 and AArch64
/// Linux a caller puts a third integer or pointer into the same register for this signature as for that one, and a
/// register that it did not set is passed on unread.
///
/// # Safety
/// As for `ioctl` of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments, as they are.
    let result = unsafe { next()(file, request, argument) };
    // The kernel looks at the low half of a request only.
    let request = request as u32;
    if result == 0 && channels::rm::is_rm(request) && settings::watches_channels() {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        // SAFETY: the call has just returned 0, and its caller's memory is untouched until this returns.
        guarded("ioctl", || (), || unsafe { look(file, request, argument) });
        // SAFETY: the address of this thread's errno, always valid.
        unsafe { *libc::__errno_location() = errno };
    }
    result
}

/// The `ioctl` behind the override, for calls of rota itself.
pub(crate) fn call_next(file: RawFd, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: `RmControl`, the only user, passes an argument that fits the request.
    unsafe { next()(file, request, argument) }
}

/// Takes in a call that succeeded.
///
/// # Safety
/// As for [`channels::capture`].
unsafe fn look(file: RawFd, request: u32, argument: *const c_void) {
    if let Some(trace) = trace() {
        // SAFETY: as this function's own contract.
        if let Some(call) = unsafe { channels::capture_any(file, request, argument) } {
            // A trace that cannot be written is no reason to disturb the program.
            let _ = channels::trace::write(&mut &*trace, &call);
        }
    }
    // SAFETY: as this function's own contract.
    if let Some(call) = unsafe { channels::capture(file, request, argument) } {
        groups::observe(&call);
    }
}

/// The file that calls are recorded in, if they are. It appends, so that threads and processes don't mix lines.
fn trace() -> Option<&'static File> {
    static TRACE: Once<Option<File>> = Once::new();
    let open = || File::options().create(true).append(true).open(settings::ioctl_trace()?).ok();
    TRACE.get_or_make(open).as_ref()
}

fn next() -> Ioctl {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut address = NEXT.load(Relaxed);
    if address.is_null() {
        // SAFETY: a C string; the linker looks behind the library that this code is in.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ioctl".as_ptr()) };
        if address.is_null() {
            return system_call;
        }
        NEXT.store(address, Relaxed);
    }
    // SAFETY: any definition of `ioctl` can be called like this, as said at the override.
    unsafe { std::mem::transmute::<*mut c_void, Ioctl>(address) }
}

/// For a program without a C library to be found.
unsafe extern "C" fn system_call(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments, as they are.
    unsafe { libc::syscall(libc::SYS_ioctl, file, request, argument) as c_int }
}
