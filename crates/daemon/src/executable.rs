//! Which file a process runs, by the kernel's word, and whether that file can be relied upon to be what its path says.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What the kernel puts behind the path of a file that is there no more.
const DELETED: &[u8] = b" (deleted)";

/// The file that a process runs, or why that cannot be told.
pub type Seen = Result<Executable, String>;

/// The file that a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Where it lies, as the daemon sees it.
    pub path: PathBuf,
    /// Only root and whoever runs the daemon can change it, or put another in its place: so it is what the path says.
    pub guarded: bool,
}

impl Executable {
    /// Of whoever has this number. Whose that was is for whoever asks to see: by a watch that has not ended afterwards.
    pub fn of(pid: u32) -> Seen {
        let folder = format!("/proc/{pid}");
        find(&folder).map_err(|cause| format!("{folder}/exe: {cause}"))
    }
}

fn find(folder: &str) -> Result<Executable, Errno> {
    // This folder stays that of the process, whoever has its number later.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = openat(rustix::fs::CWD, folder, flags, Mode::empty())?;
    let said = readlinkat(&process, "exe", Vec::new())?.into_bytes();
    let file = statat(&process, "exe", AtFlags::empty())?;
    let path = PathBuf::from(OsStr::from_bytes(said.strip_suffix(DELETED).unwrap_or(&said)).to_owned());
    let guarded = is_guarded(&path, &file);
    Ok(Executable { path, guarded })
}

/// Is it this very file that lies there, and can nobody but the trusted change that? In a container, where paths are of
/// another's making, it is not.
fn is_guarded(path: &Path, file: &Stat) -> bool {
    let there = rustix::fs::lstat(path);
    let same = there.is_ok_and(|there| (there.st_dev, there.st_ino) == (file.st_dev, file.st_ino));
    let folders = path.ancestors().skip(1);
    let mut folders = folders.map(|folder| rustix::fs::lstat(folder).is_ok_and(|folder| is_trusted(&folder)));
    same && is_trusted(file) && path.is_absolute() && folders.all(|trusted| trusted)
}

/// What an access list adds shows in the group's bits.
fn is_trusted(file: &Stat) -> bool {
    let others = Mode::WGRP | Mode::WOTH;
    let owners = [0, rustix::process::geteuid().as_raw()];
    let known = [FileType::RegularFile, FileType::Directory].contains(&FileType::from_raw_mode(file.st_mode));
    known && owners.contains(&file.st_uid) && !Mode::from_raw_mode(file.st_mode).intersects(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Child, Command, Stdio};

    /// `sleep` under another name, while it runs.
    struct Asleep(Child, PathBuf);

    impl Asleep {
        fn under(path: &Path) -> Self {
            std::fs::copy("/bin/sleep", path).unwrap();
            let child = Command::new(path).arg("1000").stdin(Stdio::null()).spawn().unwrap();
            Self(child, path.to_owned())
        }

        fn seen(&self) -> Executable {
            Executable::of(self.0.id()).unwrap()
        }
    }

    impl Drop for Asleep {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_is_known_by_the_file_it_runs_and_not_by_what_it_calls_itself() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let asleep = Asleep::under(&folder.join("trainer"));
        assert_eq!(asleep.seen().path, asleep.1);
        std::fs::remove_file(&asleep.1).unwrap();
        let gone = Executable { path: asleep.1.clone(), guarded: false };
        assert_eq!(asleep.seen(), gone, "what lies there now is another, or nothing");
        std::fs::copy("/bin/sleep", &asleep.1).unwrap();
        assert_eq!(asleep.seen(), gone);
    }

    #[test]
    fn a_file_that_others_can_change_or_replace_is_not_guarded() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let file = folder.join("serve");
        std::fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let trusted = |path: &Path| is_trusted(&rustix::fs::lstat(path).unwrap());
        mode(&file, 0o755);
        assert!(trusted(&file) && trusted(&folder));
        for open in [0o775, 0o757] {
            mode(&file, open);
            assert!(!trusted(&file), "{open:o}");
        }
        mode(&folder, 0o777);
        assert!(!trusted(&folder));
        // All may write to the folder of temporary files.
        mode(&file, 0o755);
        mode(&folder, 0o755);
        let above = folder.ancestors().skip(1).all(trusted);
        assert_eq!(is_guarded(&file, &rustix::fs::lstat(&file).unwrap()), above);
        assert!(!is_guarded(&folder.join("other"), &rustix::fs::lstat(&file).unwrap()));
        let link = folder.join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(!is_guarded(&link, &rustix::fs::stat(&file).unwrap()), "another could be put behind it");
    }

    #[test]
    fn the_shell_of_the_system_is_guarded() {
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        assert!(is_guarded(&shell, &rustix::fs::lstat(&shell).unwrap()), "{}", shell.display());
    }

    #[test]
    fn nobody_is_told_of_where_there_is_no_process() {
        assert!(Executable::of(u32::MAX).unwrap_err().starts_with("/proc/4294967295/exe: "));
    }
}
