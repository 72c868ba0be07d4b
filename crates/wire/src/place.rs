//! Where the daemon's socket is when nobody says otherwise. The daemon, the shim and the command line all ask here,
//! so that they meet.
//!
//! This module names paths and nothing more: whoever listens there makes the folder, and makes it its own.

use crate::Connection;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const SOCKET_NAME: &str = "rotad.sock";

/// Where a daemon listens that root runs for everybody.
const SYSTEM_SOCKET: &str = "/run/rota/rotad.sock";

/// The socket to use without a flag: `$ROTA_SOCKET`; else, for root, `/run/rota/rotad.sock`; else
/// `$XDG_RUNTIME_DIR/rota/rotad.sock`; else `/tmp/rota-UID/rotad.sock`.
pub fn default_socket() -> PathBuf {
    socket_for(
        std::env::var_os("ROTA_SOCKET"),
        std::env::var_os("XDG_RUNTIME_DIR"),
        rustix::process::geteuid().as_raw(),
    )
}

/// The socket to ask without a flag: `$ROTA_SOCKET`; else that of the user's own daemon, if one answers there; else that of
/// the system's, if one answers; else the user's own, where one may be started.
pub fn find_socket() -> PathBuf {
    let own = default_socket();
    let chosen = std::env::var_os("ROTA_SOCKET").is_some_and(|path| !path.is_empty());
    let answers = |path: &Path| Connection::connect(path).is_ok();
    let systems = Path::new(SYSTEM_SOCKET);
    match !chosen && own != systems && !answers(&own) && answers(systems) {
        true => systems.into(),
        false => own,
    }
}

fn socket_for(chosen: Option<OsString>, runtime_folder: Option<OsString>, user: u32) -> PathBuf {
    if let Some(path) = chosen.filter(|path| !path.is_empty()) {
        return path.into();
    }
    // Root is asked first: `sudo` may leave the calling user's folder in the environment.
    if user == 0 {
        return SYSTEM_SOCKET.into();
    }
    // A relative folder would mean another socket in every working folder.
    match runtime_folder.map(PathBuf::from).filter(|folder| folder.is_absolute()) {
        Some(folder) => folder.join("rota").join(SOCKET_NAME),
        None => Path::new("/tmp").join(format!("rota-{user}")).join(SOCKET_NAME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(chosen: Option<&str>, runtime_folder: Option<&str>, user: u32) -> String {
        socket_for(chosen.map(Into::into), runtime_folder.map(Into::into), user).to_str().unwrap().to_owned()
    }

    #[test]
    fn what_the_user_says_comes_first() {
        assert_eq!(place(Some("here.sock"), Some("/run/user/7"), 7), "here.sock");
        assert_eq!(place(Some("/a/b.sock"), None, 0), "/a/b.sock");
        assert_eq!(place(Some(""), None, 0), "/run/rota/rotad.sock");
    }

    #[test]
    fn root_has_one_place_whatever_its_environment() {
        assert_eq!(place(None, None, 0), "/run/rota/rotad.sock");
        assert_eq!(place(None, Some("/run/user/1000"), 0), "/run/rota/rotad.sock");
    }

    #[test]
    fn a_user_has_a_place_of_its_own() {
        assert_eq!(place(None, Some("/run/user/1000"), 1000), "/run/user/1000/rota/rotad.sock");
        assert_eq!(place(None, None, 1000), "/tmp/rota-1000/rotad.sock");
        assert_eq!(place(None, Some(""), 1000), "/tmp/rota-1000/rotad.sock");
        assert_eq!(place(None, Some("run"), 1000), "/tmp/rota-1000/rotad.sock");
    }
}
