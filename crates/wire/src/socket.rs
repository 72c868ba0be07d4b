//! The socket: one packet per message, with the files that belong to it.
//!
//! `SOCK_SEQPACKET` keeps the borders of messages, so a broken peer can spoil its own connection only. Whatever is
//! too long, malformed or carries files that were not announced ends the connection with a [`WireError`].

use crate::WatchedPeer;
use crate::page::replace_file;
use crate::{FILES_MAX, MESSAGE_BYTES_MAX};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, UCred,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// The most bytes of a message that is sent at once.
const SHORT_BYTES_MAX: usize = 32;

/// Why a conversation ended or never began.
#[derive(Debug, Error)]
pub enum WireError {
    /// Nobody listens there.
    #[error("cannot reach {path}: {cause}")]
    Unreachable {
        /// The socket that was tried.
        path: PathBuf,
        /// What the system said.
        cause: rustix::io::Errno,
    },
    /// The socket could not be made.
    #[error("cannot listen at {path}: {cause}")]
    NotListening {
        /// The socket that was tried.
        path: PathBuf,
        /// What the system said.
        cause: rustix::io::Errno,
    },
    /// Sending or receiving failed.
    #[error("the connection failed: {0}")]
    System(#[from] rustix::io::Errno),
    /// The peer closed the connection.
    #[error("the other side closed the connection")]
    Closed,
    /// The message is longer than allowed.
    #[error("a message of more than {MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    /// More files than allowed came with a message.
    #[error("a message with more than {FILES_MAX} files")]
    TooManyFiles,
    /// The other side is where this process cannot see it.
    #[error(
        "the daemon cannot see this process, because it runs in another container: start `rotad` on the host, or share its \
         process numbers (--pid=host)"
    )]
    Unseen,
    /// The system does not let us watch the other side.
    #[error("cannot watch process {pid}: {cause}")]
    Unwatched {
        /// Its process.
        pid: i32,
        /// What the system said; no such process if it has ended.
        cause: rustix::io::Errno,
    },
    /// The bytes are not a message.
    #[error("a malformed message: {0}")]
    Malformed(#[from] postcard::Error),
}

/// One end of a conversation. Sending and receiving may happen on different threads.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Reaches the daemon at `path`.
    pub fn connect(path: &Path) -> Result<Self, WireError> {
        let unreachable = |cause| WireError::Unreachable { path: path.into(), cause };
        let socket = packet_socket().map_err(unreachable)?;
        let address = SocketAddrUnix::new(path).map_err(unreachable)?;
        rustix::net::connect(&socket, &address).map_err(unreachable)?;
        Ok(Self { socket })
    }

    /// Two ends, for tests and for children.
    pub fn pair() -> Result<(Self, Self), WireError> {
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { socket: a }, Self { socket: b }))
    }

    /// Another connection takes the place of this one, under the same number of a file.
    pub fn renew(&self, by: Connection) -> Result<(), WireError> {
        Ok(replace_file(&by.socket, &self.socket)?)
    }

    /// Sends one message. Blocks while the other side's queue is full.
    pub fn send<T: Serialize>(&self, message: &T, files: &[BorrowedFd<'_>]) -> Result<(), WireError> {
        let bytes = postcard::to_stdvec(message)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(WireError::TooLong);
        }
        if files.len() > FILES_MAX {
            return Err(WireError::TooManyFiles);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(WireError::TooManyFiles);
        }
        let data = [IoSlice::new(&bytes)];
        // NOSIGNAL: a daemon that goes away must not kill the tenant by SIGPIPE.
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.socket, &data, &mut ancillary, SendFlags::NOSIGNAL)
        });
        match sent {
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Err(WireError::Closed),
            Err(other) => Err(other.into()),
        }
    }

    /// Sends one short message at once, or not at all: false if the other side's queue is full, or nobody is there. Takes no
    /// memory and no lock, so that it may be called anywhere in a program.
    pub fn send_at_once<T: Serialize>(&self, message: &T) -> bool {
        let mut bytes = [0; SHORT_BYTES_MAX];
        let Ok(bytes) = postcard::to_slice(message, &mut bytes) else { return false };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, bytes, flags)).is_ok()
    }

    /// Waits for one message and its files.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), WireError> {
        match self.receive_what_fits()? {
            (message, files, true) => Ok((message, files)),
            (_, _, false) => Err(WireError::TooManyFiles),
        }
    }

    /// The same; but where this process can have no more files, the last ones are missing, and it is false.
    pub fn receive_what_fits<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>, bool), WireError> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let mut data = [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&self.socket, &mut data, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        });
        let received = match received {
            Ok(received) => received,
            Err(rustix::io::Errno::CONNRESET) => return Err(WireError::Closed),
            Err(other) => return Err(other.into()),
        };
        // Taken before any early return, so that files of a refused message are closed.
        let mut files = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                files.extend(fds);
            }
        }
        if received.bytes == 0 {
            return Err(WireError::Closed);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(WireError::TooLong);
        }
        let has_all = !received.flags.contains(ReturnFlags::CTRUNC);
        let (message, rest) = postcard::take_from_bytes(&bytes[..received.bytes])?;
        if !rest.is_empty() {
            return Err(WireError::Malformed(postcard::Error::DeserializeBadEncoding));
        }
        Ok((message, files, has_all))
    }

    /// Asks one question of the daemon at `path`, and waits for its answer, but not for ever.
    pub fn ask<Q: Serialize, A: DeserializeOwned>(
        path: &Path,
        question: &Q,
        within: Duration,
    ) -> Result<A, WireError> {
        let connection = Self::connect(path)?;
        connection.send(question, &[])?;
        let mut wait = [PollFd::new(&connection, PollFlags::IN)];
        let limit = Timespec::try_from(within).map_err(|_| rustix::io::Errno::INVAL)?;
        let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut wait, Some(&limit)))?;
        if ready == 0 {
            return Err(rustix::io::Errno::TIMEDOUT.into());
        }
        Ok(connection.receive()?.0)
    }

    /// Who is on the other side, by the kernel's word.
    pub fn peer(&self) -> Result<UCred, WireError> {
        crate::peer::of(self.socket.as_fd())
    }

    /// The same, watched. To be asked for before anything that the other side may delay: see [`WatchedPeer::is_certain`].
    pub fn watch_peer(&self) -> Result<WatchedPeer, WireError> {
        crate::peer::watched(self.socket.as_fd())
    }

    /// Ends the conversation for both sides; a blocked [`Connection::receive`] returns.
    pub fn shut_down(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

impl From<OwnedFd> for Connection {
    /// One that another process has made, and left to this one.
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where the daemon waits for tenants.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
}

impl Listener {
    /// Listens at `path`. A socket file that nobody listens at any more is replaced; one that answers is an error.
    pub fn bind(path: &Path) -> Result<Self, WireError> {
        let listener = Self::prepare()?;
        listener.open(path)?;
        Ok(listener)
    }

    /// A socket that does not listen yet: whoever has it, by inheritance too, can open it for all.
    pub fn prepare() -> Result<Self, WireError> {
        Ok(Self { socket: packet_socket()? })
    }

    /// Does it listen already?
    pub fn is_open(&self) -> bool {
        rustix::net::sockopt::socket_acceptconn(&self.socket).unwrap_or(false)
    }

    /// Listens at `path`, as [`Listener::bind`] does.
    pub fn open(&self, path: &Path) -> Result<(), WireError> {
        let failed = |cause| WireError::NotListening { path: path.into(), cause };
        if Connection::connect(path).is_ok() {
            return Err(failed(rustix::io::Errno::ADDRINUSE));
        }
        match rustix::fs::unlink(path) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(cause) => return Err(failed(cause)),
        }
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        rustix::net::bind(&self.socket, &address).map_err(failed)?;
        rustix::net::listen(&self.socket, 128).map_err(failed)
    }

    /// Waits for the next one.
    pub fn accept(&self) -> Result<Connection, WireError> {
        let socket =
            rustix::io::retry_on_intr(|| rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC))?;
        Ok(Connection { socket })
    }
}

impl From<OwnedFd> for Listener {
    /// One that was inherited.
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn packet_socket() -> Result<OwnedFd, rustix::io::Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HandleId, ToDaemon};
    use rustix::fs::MemfdFlags;

    #[test]
    fn a_message_arrives_with_its_files() {
        let (a, b) = Connection::pair().unwrap();
        let file = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, b"hello").unwrap();
        let message = ToDaemon::Created { handles: vec![HandleId(3), HandleId(4)] };
        a.send(&message, &[file.as_fd(), file.as_fd()]).unwrap();
        let (received, files) = b.receive::<ToDaemon>().unwrap();
        assert_eq!(received, message);
        assert_eq!(files.len(), 2);
        let mut text = [0; 5];
        rustix::io::pread(&files[1], &mut text, 0).unwrap();
        assert_eq!(&text, b"hello");
    }

    #[test]
    fn messages_keep_their_borders() {
        let (a, b) = Connection::pair().unwrap();
        for number in 0..10 {
            a.send(&ToDaemon::Freed { handles: vec![HandleId(number)] }, &[]).unwrap();
        }
        for number in 0..10 {
            let (message, _) = b.receive::<ToDaemon>().unwrap();
            assert_eq!(message, ToDaemon::Freed { handles: vec![HandleId(number)] });
        }
    }

    #[test]
    fn what_is_sent_at_once_never_waits_for_a_reader() {
        let (a, b) = Connection::pair().unwrap();
        let message = ToDaemon::Hint { at_ns: u64::MAX, source: crate::HintSource::Shim };
        let taken = (0..1_000_000).take_while(|_| a.send_at_once(&message)).count();
        assert!((1..1_000_000).contains(&taken), "{taken} fitted");
        assert_eq!(b.receive::<ToDaemon>().unwrap().0, message);
        assert!(a.send_at_once(&message), "there is room again");
        let long = ToDaemon::Freed { handles: vec![HandleId(u64::MAX); 8] };
        assert!(!a.send_at_once(&long), "too long to be sent so");
        drop(b);
        assert!(!a.send_at_once(&message), "nobody is there");
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_by_both_sides() {
        let (a, b) = Connection::pair().unwrap();
        let (job, program) = ("x".repeat(MESSAGE_BYTES_MAX), String::new());
        let long = ToDaemon::Hello { version: 1, job, program, gpus: Vec::new() };
        assert!(matches!(a.send(&long, &[]), Err(WireError::TooLong)));
        let raw = vec![0; MESSAGE_BYTES_MAX + 1];
        rustix::net::send(a.as_fd(), &raw, SendFlags::empty()).unwrap();
        assert!(matches!(b.receive::<ToDaemon>(), Err(WireError::TooLong)));
    }

    #[test]
    fn garbage_and_trailing_bytes_are_malformed() {
        let (a, b) = Connection::pair().unwrap();
        rustix::net::send(a.as_fd(), &[0xff; 40], SendFlags::empty()).unwrap();
        assert!(matches!(b.receive::<ToDaemon>(), Err(WireError::Malformed(_))));
        let mut bytes = postcard::to_stdvec(&ToDaemon::List { version: 1 }).unwrap();
        bytes.push(0);
        rustix::net::send(a.as_fd(), &bytes, SendFlags::empty()).unwrap();
        assert!(matches!(b.receive::<ToDaemon>(), Err(WireError::Malformed(_))));
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error_and_no_signal() {
        let (a, b) = Connection::pair().unwrap();
        drop(b);
        assert!(matches!(a.send(&ToDaemon::List { version: 1 }, &[]), Err(WireError::Closed)));
        assert!(matches!(a.receive::<ToDaemon>(), Err(WireError::Closed)));
    }

    #[test]
    fn a_question_gets_its_answer_or_none_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rotad.sock");
        let listener = Listener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            let connection = listener.accept().unwrap();
            let (question, _) = connection.receive::<ToDaemon>().unwrap();
            connection.send(&question, &[]).unwrap();
            listener
        });
        let question = ToDaemon::List { version: 1 };
        let answer: ToDaemon = Connection::ask(&path, &question, Duration::from_secs(60)).unwrap();
        assert_eq!(answer, question);
        let _deaf = served.join().unwrap();
        let none = Connection::ask::<_, ToDaemon>(&path, &question, Duration::from_millis(1));
        assert!(matches!(none, Err(WireError::System(rustix::io::Errno::TIMEDOUT))), "{none:?}");
    }

    #[test]
    fn whoever_comes_between_two_owners_waits_for_the_second() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rotad.sock");
        let held = Listener::prepare().unwrap();
        let first = Listener::from(held.as_fd().try_clone_to_owned().unwrap());
        assert!(!held.is_open());
        first.open(&path).unwrap();
        assert!(held.is_open());
        drop(first);
        let waiting = Connection::connect(&path).unwrap();
        waiting.send(&ToDaemon::List { version: 1 }, &[]).unwrap();
        let second = Listener::from(held.as_fd().try_clone_to_owned().unwrap());
        let (heard, _) = second.accept().unwrap().receive::<ToDaemon>().unwrap();
        assert_eq!(heard, ToDaemon::List { version: 1 });
    }

    #[test]
    fn a_dead_socket_file_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rotad.sock");
        drop(Listener::bind(&path).unwrap());
        assert!(path.exists());
        let _live = Listener::bind(&path).unwrap();
        assert!(matches!(Listener::bind(&path), Err(WireError::NotListening { .. })));
    }
}
