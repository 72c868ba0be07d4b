//! Answers `ioctl` on control files of the virtual machine, in whatever process they are; all other calls go on to the
//! next definition, as if this one were not there.
//!
//! A control file is recognised by the device, which is shown the file itself: to have it is the right to use it.

use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use channels::rm::{self, Operation};
use rustix::fs::FileType;
use vgpu_messages::{Answer, Directory, Request};

use crate::session::line;

pub(crate) type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// The most parameter bytes that travel with a call.
const PARAMETERS_BYTES_MAX: usize = 4096;

/// The process's `ioctl`.
///
/// In C it takes any number of arguments after the request, and every caller passes one or none, in the register in
/// which this signature has it.
///
/// # Safety
/// As for `ioctl` of the C library.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // The kernel looks at the low half of a request only.
    let short = request as u32;
    if rm::is_rm(short) && may_be_control(file) && !argument.is_null() {
        // SAFETY: the caller passes an argument that fits the request.
        let work = || unsafe { answer(file, short, argument.cast()) };
        // No panic leaves the library.
        if let Ok(Some(result)) = catch_unwind(AssertUnwindSafe(work)) {
            return result;
        }
    }
    // SAFETY: the caller's arguments, as they are.
    unsafe { next()(file, request, argument) }
}

/// Control files are sockets, and only where there is a virtual machine.
fn may_be_control(file: RawFd) -> bool {
    if Directory::from_environment().is_none() {
        return false;
    }
    // SAFETY: only looked at; a number without a file gives an error.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    rustix::fs::fstat(file).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket)
}

/// None if the file is no control file.
///
/// # Safety
/// The argument has as many bytes as the request says, and points to parameters as long as it says.
unsafe fn answer(file: RawFd, request: u32, argument: *mut u8) -> Option<c_int> {
    // SAFETY: as this function's own contract.
    let (request, argument) = unsafe { unwrap(request, argument)? };
    let bytes = rm::argument_bytes(request);
    // SAFETY: as this function's own contract.
    let copy = unsafe { std::slice::from_raw_parts(argument, bytes) }.to_vec();
    let (parameters, parameters_bytes) = parameters(request, &copy);
    let place: *mut u8 = ptr::with_exposed_provenance_mut(parameters as usize);
    let sent = match parameters_bytes {
        0 => Vec::new(),
        // SAFETY: as this function's own contract.
        bytes => unsafe { std::slice::from_raw_parts(place, bytes) }.to_vec(),
    };
    // SAFETY: the number is the caller's, and its file stays open during the call.
    let shown = unsafe { BorrowedFd::borrow_raw(file) };
    match line::ask_with(Request::Ioctl { request, argument: copy, parameters: sent }, &[shown]) {
        Ok((Answer::Ioctl { argument: from, parameters: left }, _)) => {
            // SAFETY: no more than was read there before.
            unsafe {
                ptr::copy_nonoverlapping(from.as_ptr(), argument, from.len().min(bytes));
                ptr::copy_nonoverlapping(left.as_ptr(), place, left.len().min(parameters_bytes));
            }
            Some(0)
        }
        Ok(_) => None,
        Err(_) => {
            // SAFETY: this thread's errno.
            unsafe { *libc::__errno_location() = libc::EIO };
            Some(-1)
        }
    }
}

/// The call inside a wrapper.
///
/// # Safety
/// As for [`answer`].
unsafe fn unwrap(request: u32, argument: *mut u8) -> Option<(u32, *mut u8)> {
    if rm::number(request) != rm::XFER {
        return Some((request, argument));
    }
    if rm::argument_bytes(request) != rm::XFER_BYTES {
        return None;
    }
    // SAFETY: as this function's own contract.
    let wrapper = unsafe { std::slice::from_raw_parts(argument, rm::XFER_BYTES) };
    let number = u8::try_from(rm::word(wrapper, 0)?).ok()?;
    let bytes = rm::word(wrapper, 4)? as usize;
    let inner = ptr::with_exposed_provenance_mut(rm::long(wrapper, 8)? as usize);
    Some((rm::request(number, bytes), inner))
}

/// Where a call's parameters are, and how long they are.
fn parameters(request: u32, argument: &[u8]) -> (u64, usize) {
    let (address, bytes) = match Operation::decode(request, argument) {
        Some(Operation::Alloc(alloc)) => (alloc.parameters, alloc.parameters_bytes),
        Some(Operation::Control(control)) => (control.parameters, control.parameters_bytes),
        _ => (0, 0),
    };
    if address == 0 { (0, 0) } else { (address, (bytes as usize).min(PARAMETERS_BYTES_MAX)) }
}

/// The definition behind this one.
fn next() -> Ioctl {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut address = NEXT.load(Relaxed);
    if address.is_null() {
        // SAFETY: a C string; the linker looks behind the library that this code is in.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ioctl".as_ptr()) };
        NEXT.store(address, Relaxed);
    }
    if address.is_null() {
        return system_call;
    }
    // SAFETY: any definition of `ioctl` can be called like this, as said at the override.
    unsafe { std::mem::transmute::<*mut c_void, Ioctl>(address) }
}

unsafe extern "C" fn system_call(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments, as they are.
    unsafe { libc::syscall(libc::SYS_ioctl, file, request, argument) as c_int }
}
