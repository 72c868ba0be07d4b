//! Copies one RM call out of the calling program's memory, after the call returned.
//!
//! This runs inside every `ioctl` of the program, so it decides early and never allocates on the heap.
//! It is the only place that reads the program's memory; what it returns is plain bytes for [`crate::rm`].

use std::ffi::c_void;
use std::ops::Deref;
use std::os::fd::RawFd;

use crate::rm::{self, Operation};

/// Most bytes kept of an argument; the arguments that matter have 48 at most.
pub const ARGUMENT_BYTES_MAX: usize = 64;
/// Most bytes kept of the parameters that an argument points to.
pub const PARAMETERS_BYTES_MAX: usize = 64;

/// Up to `MAX` bytes, without heap memory.
#[derive(Clone, Copy)]
pub struct Bytes<const MAX: usize> {
    length: usize,
    bytes: [u8; MAX],
}

impl<const MAX: usize> Bytes<MAX> {
    /// No bytes.
    pub const EMPTY: Self = Self { length: 0, bytes: [0; MAX] };

    /// The first bytes of a slice, as many as fit.
    pub fn first_of(slice: &[u8]) -> Self {
        let mut copy = Self::EMPTY;
        copy.length = slice.len().min(MAX);
        copy.bytes[..copy.length].copy_from_slice(&slice[..copy.length]);
        copy
    }

    /// The first bytes at an address, as many as fit.
    ///
    /// # Safety
    /// `length` bytes at `address` must be readable.
    unsafe fn read(address: *const u8, length: usize) -> Self {
        let mut copy = Self::EMPTY;
        copy.length = length.min(MAX);
        // SAFETY: the caller says that `length` bytes are readable, and at most that many are read; the buffer has
        // MAX bytes of its own, and at most that many are written.
        unsafe { std::ptr::copy_nonoverlapping(address, copy.bytes.as_mut_ptr(), copy.length) };
        copy
    }
}

impl<const MAX: usize> Deref for Bytes<MAX> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl<const MAX: usize> PartialEq for Bytes<MAX> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const MAX: usize> Eq for Bytes<MAX> {}

impl<const MAX: usize> std::fmt::Debug for Bytes<MAX> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&**self, out)
    }
}

/// One RM ioctl after it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The file that it was sent to, by its number in the program.
    pub file: RawFd,
    /// The request number, unwrapped.
    pub request: u32,
    /// The first bytes of the argument.
    pub argument: Bytes<ARGUMENT_BYTES_MAX>,
    /// The first bytes of the parameters, for the few calls where they matter.
    pub parameters: Bytes<PARAMETERS_BYTES_MAX>,
}

impl Call {
    /// The call decoded, if it is one of those that matter.
    pub fn operation(&self) -> Option<Operation> {
        Operation::decode(self.request, &self.argument)
    }
}

/// Copies a call that can change what the [`crate::Tracker`] knows; None for all others, which are most.
///
/// # Safety
/// The ioctl must just have returned 0 with exactly these values, and the argument, with what it points to, must
/// still be there. So the driver has read the argument and, where the status in it is 0, its parameters.
pub unsafe fn capture(file: RawFd, request: u32, argument: *const c_void) -> Option<Call> {
    if !rm::is_rm(request) {
        return None;
    }
    // SAFETY: as this function's own contract.
    let (request, argument) = unsafe { unwrap(request, argument)? };
    if !matches!(rm::number(request), rm::FREE | rm::CONTROL | rm::ALLOC) {
        return None;
    }
    // SAFETY: the driver has read as many bytes as the request says.
    let argument = unsafe { Bytes::read(argument, rm::argument_bytes(request)) };
    let operation = Operation::decode(request, &argument)?;
    if !operation.is_tracked() {
        return None;
    }
    // SAFETY: the call succeeded, as this function's contract and the status say.
    let parameters = unsafe { read_parameters(&operation) };
    Some(Call { file, request, argument, parameters })
}

/// Copies any RM call, for a trace.
///
/// # Safety
/// As for [`capture`].
pub unsafe fn capture_any(file: RawFd, request: u32, argument: *const c_void) -> Option<Call> {
    if !rm::is_rm(request) {
        return None;
    }
    // SAFETY: as this function's own contract.
    let (request, argument) = unsafe { unwrap(request, argument)? };
    // SAFETY: the driver has read as many bytes as the request says.
    let argument = unsafe { Bytes::read(argument, rm::argument_bytes(request)) };
    let parameters = match Operation::decode(request, &argument) {
        // SAFETY: `read_parameters` reads nothing unless the call succeeded.
        Some(operation) => unsafe { read_parameters(&operation) },
        None => Bytes::EMPTY,
    };
    Some(Call { file, request, argument, parameters })
}

/// The request and argument inside a wrapper, or those given when there is no wrapper.
///
/// # Safety
/// As for [`capture`].
unsafe fn unwrap(request: u32, argument: *const c_void) -> Option<(u32, *const u8)> {
    let argument = argument.cast::<u8>();
    if argument.is_null() {
        return None;
    }
    if rm::number(request) != rm::XFER {
        return Some((request, argument));
    }
    if rm::argument_bytes(request) != rm::XFER_BYTES {
        return None;
    }
    // SAFETY: the driver has read the wrapper, whose size the request says.
    let wrapper: Bytes<{ rm::XFER_BYTES }> = unsafe { Bytes::read(argument, rm::XFER_BYTES) };
    let number = u8::try_from(rm::word(&wrapper, 0)?).ok()?;
    let bytes = rm::word(&wrapper, 4)? as usize;
    let address = pointer(rm::long(&wrapper, 8)?);
    // A size that a request cannot hold belongs to none of the calls that matter.
    if number == rm::XFER || bytes > 0x3fff || address.is_null() {
        return None;
    }
    Some((rm::request(number, bytes), address))
}

/// The parameters of a call, if they matter.
///
/// # Safety
/// The call must have returned 0 and its caller's memory must still be there.
unsafe fn read_parameters(operation: &Operation) -> Bytes<PARAMETERS_BYTES_MAX> {
    match operation.parameters() {
        // SAFETY: the status is 0, so the driver has read these bytes of the caller's memory.
        Some((address, bytes)) => unsafe { Bytes::read(pointer(address), bytes) },
        None => Bytes::EMPTY,
    }
}

fn pointer(address: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(address as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn address_of<T>(values: &[T]) -> [u32; 2] {
        let address = values.as_ptr().expose_provenance() as u64;
        [address as u32, (address >> 32) as u32]
    }

    fn group_alloc(parameters: &[u32], status: u32) -> Vec<u8> {
        let [low, high] = address_of(parameters);
        bytes(&[1, 2, 3, rm::CLASS_GROUP, low, high, 4 * parameters.len() as u32, status])
    }

    fn capture_bytes(request: u32, argument: &[u8]) -> Option<Call> {
        // SAFETY: the tests build arguments of the size that the request says, with live parameters.
        unsafe { capture(7, request, argument.as_ptr().cast()) }
    }

    #[test]
    fn a_group_comes_with_its_parameters() {
        let parameters = [0, 0, 9, 11, 0];
        let argument = group_alloc(&parameters, 0);
        let call = capture_bytes(0xc020_462b, &argument).expect("a group allocation matters");
        assert_eq!((call.file, call.request), (7, 0xc020_462b));
        assert_eq!(&*call.argument, &argument[..]);
        assert_eq!(&*call.parameters, &bytes(&parameters)[..]);
    }

    #[test]
    fn parameters_are_cut_at_the_bound() {
        let parameters = [5u32; 40];
        let call = capture_bytes(0xc020_462b, &group_alloc(&parameters, 0)).unwrap();
        assert_eq!(call.parameters.len(), PARAMETERS_BYTES_MAX);
    }

    #[test]
    fn uninteresting_calls_are_left_out() {
        assert_eq!(capture_bytes(0xc020_462b, &group_alloc(&[0, 0, 9, 11], 0x1b)), None, "failed");
        let control = bytes(&[1, 2, 0x2080_0101, 0, 0, 0, 0, 0]);
        assert_eq!(capture_bytes(0xc020_462a, &control), None, "some other control");
        assert_eq!(capture_bytes(0xc020_542a, &control), None, "another driver's ioctl");
        // SAFETY: a null argument is not read.
        assert_eq!(unsafe { capture(7, 0xc020_462b, std::ptr::null()) }, None);
    }

    #[test]
    fn a_wrapper_is_unwrapped() {
        let parameters = [0, 0, 9, 1];
        let inner = group_alloc(&parameters, 0);
        let [low, high] = address_of(&inner);
        let outer = bytes(&[u32::from(rm::ALLOC), inner.len() as u32, low, high]);
        let wrapped = capture_bytes(rm::request(rm::XFER, rm::XFER_BYTES), &outer);
        assert_eq!(wrapped, capture_bytes(0xc020_462b, &inner));
        assert!(wrapped.is_some());

        let nested = bytes(&[u32::from(rm::XFER), 16, low, high]);
        // SAFETY: the wrapper has the size that the request says, and points to more bytes than it names.
        let call = unsafe { capture_any(7, rm::request(rm::XFER, rm::XFER_BYTES), nested.as_ptr().cast()) };
        assert_eq!(call, None, "a wrapper in a wrapper");
    }

    #[test]
    fn a_trace_takes_every_rm_call() {
        let argument = [0xabu8; 200];
        let request = rm::request(200, argument.len());
        assert_eq!(capture_bytes(request, &argument), None);
        // SAFETY: the argument has the size that the request says.
        let call = unsafe { capture_any(3, request, argument.as_ptr().cast()) }.unwrap();
        assert_eq!(&*call.argument, &argument[..ARGUMENT_BYTES_MAX]);

        let failed = group_alloc(&[0, 0, 9, 11], 0x1b);
        // SAFETY: as above.
        let call = unsafe { capture_any(3, 0xc020_462b, failed.as_ptr().cast()) }.unwrap();
        assert_eq!(&*call.argument, &failed[..]);
        assert!(call.parameters.is_empty());
    }
}
