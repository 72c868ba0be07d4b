//! Who is on the other side of a connection, by the kernel's word.
//!
//! Numbers are as this process sees them: a program in a container has the number here that it has on this machine, and
//! the user that its container's is mapped to.

use crate::WireError;
use rustix::fs::{Gid, Uid};
use rustix::net::UCred;
use rustix::process::Pid;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// The process that made the connection.
pub(crate) fn of(socket: BorrowedFd<'_>) -> Result<UCred, WireError> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the place has as many bytes as are named, and the kernel writes no more.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &mut bytes,
        )
    };
    if done != 0 {
        let cause = std::io::Error::last_os_error();
        return Err(rustix::io::Errno::from_io_error(&cause).unwrap_or(rustix::io::Errno::INVAL).into());
    }
    named(&found)
}

/// 0 is nobody's number: the process is one that has none where we are.
fn named(found: &libc::ucred) -> Result<UCred, WireError> {
    let pid = Pid::from_raw(found.pid).ok_or(WireError::Unseen)?;
    Ok(UCred { pid, uid: Uid::from_raw(found.uid), gid: Gid::from_raw(found.gid) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_number_and_one_without_is_refused() {
        let (_, other) = crate::Connection::pair().unwrap();
        let me = other.peer().unwrap();
        assert_eq!(me.pid, rustix::process::getpid());
        assert_eq!(me.uid, rustix::process::getuid());
        let nobody = libc::ucred { pid: 0, uid: 1000, gid: 1000 };
        assert!(matches!(named(&nobody), Err(WireError::Unseen)));
    }
}
