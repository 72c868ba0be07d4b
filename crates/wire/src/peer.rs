//! Who is on the other side of a connection, by the kernel's word.
//!
//! Numbers are as this process sees them: a program in a container has the number here that it has on this machine, and
//! the user that its container's is mapped to.

use crate::WireError;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::net::UCred;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// The process that made a connection, watched.
#[derive(Debug)]
pub struct WatchedPeer {
    /// Its number, which nobody else has before it has ended.
    pub pid: Pid,
    /// Whose it was when it connected.
    pub uid: Uid,
    /// Becomes readable when it has ended.
    pub watch: OwnedFd,
    /// The kernel says that the watched process is the one that connected. Kernels before 6.5 know its number only: should it
    /// have ended before it was watched, the number may have been another's by then.
    pub is_certain: bool,
}

/// The process that made the connection.
pub(crate) fn of(socket: BorrowedFd<'_>) -> Result<UCred, WireError> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    ask(socket, libc::SO_PEERCRED, &mut found)?;
    named(&found)
}

/// The same, watched.
pub(crate) fn watched(socket: BorrowedFd<'_>) -> Result<WatchedPeer, WireError> {
    watched_by(socket, pidfd_of_peer)
}

/// `pidfd_of` is how the kernel is asked for it.
fn watched_by(
    socket: BorrowedFd<'_>,
    pidfd_of: impl Fn(BorrowedFd<'_>) -> Result<OwnedFd, Errno>,
) -> Result<WatchedPeer, WireError> {
    let UCred { pid, uid, .. } = of(socket)?;
    let (watch, is_certain) = match pidfd_of(socket) {
        Err(Errno::NOPROTOOPT) => (pidfd_open(pid, PidfdFlags::empty()), false),
        // So say some kernels of a process that is no more.
        Err(Errno::INVAL | Errno::NODATA) => (Err(Errno::SRCH), true),
        asked => (asked, true),
    };
    let watch = watch.map_err(|cause| WireError::Unwatched { pid: pid.as_raw_nonzero().get(), cause })?;
    Ok(WatchedPeer { pid, uid, watch, is_certain })
}

fn pidfd_of_peer(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut found: libc::c_int = -1;
    ask(socket, libc::SO_PEERPIDFD, &mut found)?;
    // SAFETY: the kernel has just opened it for this process, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

/// Has the kernel fill in `found`, which is made of numbers: so whatever is written there is one.
fn ask<T: Number>(socket: BorrowedFd<'_>, what: libc::c_int, found: &mut T) -> Result<(), Errno> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    let place: *mut T = found;
    // SAFETY: the place has as many bytes as are named, the kernel writes no more, and any bytes are a value of it.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, what, place.cast(), &mut bytes) };
    if done != 0 {
        let cause = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&cause).unwrap_or(Errno::INVAL));
    }
    Ok(())
}

/// Any bytes are a value of it.
trait Number {}
impl Number for libc::c_int {}
impl Number for libc::ucred {}

/// 0 is nobody's number: the process is one that has none where we are.
fn named(found: &libc::ucred) -> Result<UCred, WireError> {
    let pid = Pid::from_raw(found.pid).ok_or(WireError::Unseen)?;
    Ok(UCred { pid, uid: Uid::from_raw(found.uid), gid: Gid::from_raw(found.gid) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Connection;
    use rustix::event::{PollFd, PollFlags, Timespec};
    use std::os::fd::AsFd as _;

    /// A kernel before 6.5.
    fn unknown(_: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        Err(Errno::NOPROTOOPT)
    }

    fn has_ended(peer: &WatchedPeer) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::new(&peer.watch, PollFlags::IN)], Some(&at_once)).unwrap() > 0
    }

    #[test]
    fn a_process_has_its_number_and_one_without_is_refused() {
        let (_, other) = Connection::pair().unwrap();
        let me = other.peer().unwrap();
        assert_eq!(me.pid, rustix::process::getpid());
        assert_eq!(me.uid, rustix::process::getuid());
        let nobody = libc::ucred { pid: 0, uid: 1000, gid: 1000 };
        assert!(matches!(named(&nobody), Err(WireError::Unseen)));
    }

    #[test]
    fn a_peer_is_watched_with_an_old_kernel_too_which_is_not_certain() {
        let (_, other) = Connection::pair().unwrap();
        let old = watched_by(other.as_fd(), unknown).unwrap();
        assert_eq!((old.pid, old.is_certain), (rustix::process::getpid(), false));
        assert!(!has_ended(&old));
        let now = other.watch_peer().unwrap();
        let knows = pidfd_of_peer(other.as_fd()).is_ok();
        assert_eq!((now.pid, now.uid), (old.pid, rustix::process::getuid()));
        assert_eq!(now.is_certain, knows);
        assert!(!has_ended(&now));
    }

    #[test]
    fn a_peer_that_is_no_more_is_no_error_of_the_connection() {
        let (_, other) = Connection::pair().unwrap();
        for gone in [Errno::SRCH, Errno::INVAL, Errno::NODATA] {
            let watched = watched_by(other.as_fd(), |_| Err(gone));
            assert!(
                matches!(watched, Err(WireError::Unwatched { cause: Errno::SRCH, .. })),
                "{gone}: {watched:?}"
            );
        }
        let files = watched_by(other.as_fd(), |_| Err(Errno::MFILE));
        assert!(matches!(files, Err(WireError::Unwatched { cause: Errno::MFILE, .. })), "{files:?}");
    }
}
