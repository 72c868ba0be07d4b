//! Reaches the device, and starts it where nobody listens: `vgpud`, detached from this program in every way.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use thiserror::Error;
use wire::{Connection, WireError};

use crate::place::{Directory, EXECUTABLE_VARIABLE};
use crate::spec::{Spec, SpecError};

const EXECUTABLE: &str = "vgpud";
/// How long the device may take until it listens.
const START_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How many devices may end one after the other while they are greeted.
const GREETINGS_MAX: u32 = 3;

/// Why the device was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The directory cannot be used.
    #[error("cannot use the directory {0}: {1}; make it, or set ROTA_VGPU to another")]
    Directory(PathBuf, io::Error),
    /// The machine's description cannot be used.
    #[error("the virtual machine's description cannot be used: {0}")]
    Spec(#[from] SpecError),
    /// There is no executable.
    #[error("{EXECUTABLE} was not found beside {0}; put it there, or name it in {EXECUTABLE_VARIABLE}")]
    NotFound(PathBuf),
    /// The executable does not start.
    #[error("cannot start {0}: {1}")]
    Spawn(PathBuf, io::Error),
    /// Nobody can listen there, or not for this program.
    #[error("{0}; choose another directory, with a short path, that is this user's own")]
    Unreachable(WireError),
    /// It started and does not answer.
    #[error("{0} was started and does not listen after {START_WITHIN:?} ({1}); its log is {2}")]
    Silent(PathBuf, WireError, PathBuf),
}

/// Connects to the device of a directory; starts it if nobody listens there.
fn reach(directory: &Directory) -> Result<Connection, StartError> {
    match Connection::connect(&directory.socket()) {
        Ok(connection) => Ok(connection),
        // Starting a device would not help.
        Err(
            error @ WireError::Unreachable { cause: Errno::NAMETOOLONG | Errno::ACCESS | Errno::PERM, .. },
        ) => Err(StartError::Unreachable(error)),
        Err(_) => start(directory),
    }
}

/// Connects to the device of a directory and greets it. A device that ends just then, because nobody was there, may have
/// connections in its queue that it never looks at: `is_gone` tells, and the next one is greeted instead.
pub fn reach_and_greet<T, E: From<StartError>>(
    directory: &Directory,
    greet: impl Fn(&Connection) -> Result<T, E>,
    is_gone: impl Fn(&E) -> bool,
) -> Result<(Connection, T), E> {
    let mut tries = 0;
    loop {
        tries += 1;
        let connection = reach(directory)?;
        match greet(&connection) {
            Ok(greeted) => return Ok((connection, greeted)),
            Err(error) if tries < GREETINGS_MAX && is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Starts the device, unless another program did meanwhile.
fn start(directory: &Directory) -> Result<Connection, StartError> {
    let unusable = |error| StartError::Directory(directory.path().into(), error);
    let path = std::path::absolute(directory.path()).map_err(unusable)?;
    let lock = File::create(directory.start_lock()).map_err(unusable)?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive))
        .map_err(|error| unusable(error.into()))?;
    if let Ok(connection) = Connection::connect(&directory.socket()) {
        return Ok(connection);
    }
    // The device would say so in its log only.
    Spec::load(directory, |name| std::env::var(name).ok())?;
    let executable = executable_of(&own_path().unwrap_or_default())?;
    let deadline = Instant::now() + START_WITHIN;
    let mut spawned = Instant::now();
    spawn(&executable, &path)?;
    loop {
        match Connection::connect(&directory.socket()) {
            Ok(connection) => return Ok(connection),
            Err(error) if Instant::now() > deadline => {
                return Err(StartError::Silent(executable, error, directory.log()));
            }
            Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
        // One that is just ending may have held the device's lock when the new one asked for it.
        if spawned.elapsed() > Duration::from_secs(1) {
            spawned = Instant::now();
            spawn(&executable, &path)?;
        }
    }
}

fn spawn(executable: &Path, directory: &Path) -> Result<(), StartError> {
    let failed = |error| StartError::Spawn(executable.into(), error);
    let mut command = Command::new(executable);
    command.arg(directory).current_dir("/").env_remove("LD_PRELOAD");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(detach) };
    // What is spawned ends at once, and its child is the device: no child of this program's own. Where the program
    // ignores its children, there is nothing to wait for.
    let mut child = command.spawn().map_err(failed)?;
    let _ = child.wait();
    Ok(())
}

/// In the new process: leaves the session and the files of the program, and becomes nobody's child.
fn detach() -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: system calls on this process alone; the one that goes on has a copy of everything it needs.
    unsafe {
        libc::setsid();
        libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC);
        match libc::fork() {
            0 => Ok(()),
            -1 => Err(io::Error::last_os_error()),
            _ => libc::_exit(0),
        }
    }
}

/// The device's executable: `$ROTA_VGPUD`, or beside `library`: in its folder, the folder above (as the build leaves it), or
/// `bin`.
pub(crate) fn executable_of(library: &Path) -> Result<PathBuf, StartError> {
    if let Some(chosen) = std::env::var_os(EXECUTABLE_VARIABLE).filter(|path| !path.is_empty()) {
        return std::path::absolute(&chosen).map_err(|error| StartError::Spawn(chosen.into(), error));
    }
    let folders = library.ancestors().skip(1).take(3);
    let mut places =
        folders.flat_map(|folder| [folder.join(EXECUTABLE), folder.join("bin").join(EXECUTABLE)]);
    places.find(|place| place.is_file()).ok_or_else(|| StartError::NotFound(library.into()))
}

/// The file this library was loaded from, behind all links.
fn own_path() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    let own = own_path as fn() -> Option<PathBuf>;
    // SAFETY: dladdr fills `info` if it does not return 0, with a text that lives as long as the library.
    let name = unsafe {
        if libc::dladdr(own as *const libc::c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        let name = info.assume_init().dli_fname;
        if name.is_null() {
            return None;
        }
        CStr::from_ptr(name)
    };
    Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong, if no device was started to find it out.
    fn refusal(directory: &Directory) -> String {
        let error = reach(directory).unwrap_err();
        assert!(!directory.log().exists(), "the device was started");
        error.to_string()
    }

    #[test]
    fn a_description_that_cannot_be_used_is_refused_before_the_device_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::new(folder.path());
        for (text, wrong) in [("gpus = 99", "gpus = 99: "), ("memry = '1GiB'", "unknown field `memry`")] {
            std::fs::write(directory.spec(), text).unwrap();
            let said = refusal(&directory);
            assert!(said.contains(wrong), "{said}");
        }
    }

    #[test]
    fn a_device_that_ends_while_it_is_greeted_is_not_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::new(folder.path());
        let listener = wire::Listener::bind(&directory.socket()).unwrap();
        let device = |ends: u32| {
            for _ in 0..ends {
                drop(listener.accept().unwrap());
            }
            listener.accept()
        };
        let greet = || {
            let greet = |connection: &Connection| -> Result<u32, StartError> {
                connection.send(&1_u32, &[]).map_err(StartError::Unreachable)?;
                Ok(connection.receive::<u32>().map_err(StartError::Unreachable)?.0)
            };
            let is_gone = |error: &_| matches!(error, StartError::Unreachable(WireError::Closed));
            reach_and_greet(&directory, greet, is_gone).map(|(_, answer)| answer)
        };
        std::thread::scope(|scope| {
            let answers = scope.spawn(|| {
                let connection = device(GREETINGS_MAX - 1).unwrap();
                connection.send(&2_u32, &[]).unwrap();
                connection.receive::<u32>().unwrap();
            });
            assert_eq!(greet().unwrap(), 2);
            answers.join().unwrap();
            let ends = scope.spawn(|| device(GREETINGS_MAX - 1).unwrap());
            let refused = scope.spawn(greet);
            drop(ends.join().unwrap());
            assert!(refused.join().unwrap().is_err(), "it does not go on for ever");
        });
    }

    #[test]
    fn a_directory_where_nobody_can_listen_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let said = refusal(&Directory::new(deep));
        assert!(said.contains("File name too long") && said.contains("short path"), "{said}");
        let said = refusal(&Directory::new(folder.path().join("missing")));
        assert!(said.contains("cannot use the directory"), "{said}");
    }
}
