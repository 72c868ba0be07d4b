//! The memory of programs, as the device reaches it: through the kernel, by process id.

use std::fmt::Debug;

/// Why host memory could not be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The process is gone.
    #[error("the process is gone")]
    Gone,
    /// The process has nothing there, or the kernel forbids it.
    #[error("nothing can be read or written there: {0}")]
    Refused(rustix::io::Errno),
}

/// Host memory. A trait, so that the device can be tested without processes.
pub trait HostMemory: Debug {
    /// Reads all of `into`, or fails.
    fn read(&mut self, pid: i32, address: u64, into: &mut [u8]) -> Result<(), HostError>;
    /// Writes all of `from`, or fails.
    fn write(&mut self, pid: i32, address: u64, from: &[u8]) -> Result<(), HostError>;
}

/// The memory of real processes.
#[derive(Debug, Default)]
pub struct ProcessMemory;

impl HostMemory for ProcessMemory {
    fn read(&mut self, pid: i32, address: u64, into: &mut [u8]) -> Result<(), HostError> {
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
        // SAFETY: `local` names `into`, which is ours to write; the other side is checked by the kernel.
        let done = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        checked(done, into.len())
    }

    fn write(&mut self, pid: i32, address: u64, from: &[u8]) -> Result<(), HostError> {
        let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: from.len() };
        // SAFETY: `local` names `from`, which is only read; the other side is checked by the kernel.
        let done = unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) };
        checked(done, from.len())
    }
}

fn checked(done: isize, wanted: usize) -> Result<(), HostError> {
    if done >= 0 && done as usize == wanted {
        return Ok(());
    }
    if done >= 0 {
        return Err(HostError::Refused(rustix::io::Errno::FAULT));
    }
    let error = std::io::Error::last_os_error();
    match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::SRCH) => Err(HostError::Gone),
        Some(other) => Err(HostError::Refused(other)),
        None => Err(HostError::Refused(rustix::io::Errno::FAULT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reaches_itself_and_nothing_at_null() {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let mut word = 7u64;
        let address = (&raw mut word).expose_provenance() as u64;
        ProcessMemory.write(pid, address, &9u64.to_ne_bytes()).unwrap();
        // SAFETY: the word is alive; the kernel wrote to it behind the compiler's back.
        assert_eq!(unsafe { std::ptr::read_volatile(&word) }, 9);
        let mut bytes = [0; 8];
        ProcessMemory.read(pid, address, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 9);
        assert!(matches!(ProcessMemory.read(pid, 8, &mut bytes), Err(HostError::Refused(_))));
        assert_eq!(ProcessMemory.read(i32::MAX, address, &mut bytes), Err(HostError::Gone));
    }
}
