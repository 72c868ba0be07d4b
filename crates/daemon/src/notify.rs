//! Tells systemd how the daemon is: a datagram to the socket that `NOTIFY_SOCKET` names, if whoever started it wants to know.
//!
//! With `Type=notify` the unit is up when the daemon can be reached, not when its process is there, and what it waits for
//! at its end shows in `systemctl status`.

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

const VARIABLE: &str = "NOTIFY_SOCKET";

/// The daemon can be reached.
pub(crate) fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={}", one_line(status)));
}

/// It ends, as soon as its programs have.
pub(crate) fn stopping() {
    tell("STOPPING=1\nSTATUS=waits for its programs to end");
}

fn tell(message: &str) {
    let Some(socket) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return };
    if let Err(cause) = send(&socket, message) {
        tracing::warn!("cannot tell {}, which {VARIABLE} names: {cause}", socket.display());
    }
}

fn send(socket: &OsStr, message: &str) -> Result<(), rustix::io::Errno> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => SocketAddrUnix::new(socket)?,
    };
    let line = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // Nobody who does not read may hold the daemon up.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendto(&line, message.as_bytes(), flags, &address).map(drop)
}

/// A message is lines.
fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    fn heard(listener: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let bytes = listener.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..bytes]).into_owned()
    }

    #[test]
    fn messages_go_to_sockets_with_and_without_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let file = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        assert_eq!(heard(&file), "READY=1");
        let name = format!("rota-notify-test-{}", std::process::id());
        let hidden = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
        assert_eq!(heard(&hidden), "STOPPING=1");
    }

    #[test]
    fn a_socket_that_nobody_has_is_an_error_and_no_wait() {
        assert!(send(OsStr::new("/nowhere/notify"), "READY=1").is_err());
    }

    #[test]
    fn a_status_is_one_line() {
        assert_eq!(one_line("a\nREADY=0"), "a READY=0");
    }
}
