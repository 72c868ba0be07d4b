//! Will the loader put the shim into a program? Looked at before it starts, so that nobody finds out by its neighbours'
//! complaints.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// Program headers looked at; real programs have about a dozen.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES: usize = 56;
const PT_INTERP: u32 = 3;

/// Why a program will run past rota, and what to do, if it will.
pub(super) fn obstacle(program: &OsStr) -> Option<String> {
    let path = find(program, std::env::var_os("PATH").as_deref())?;
    let shown = path.display();
    if has_privileges(&path) {
        let hint = match path.file_name().is_some_and(|name| name == "sudo") {
            true => "hint: sudo rota run -- CMD",
            false => "hint: start rota with these privileges instead",
        };
        return Some(format!(
            "{shown} runs with raised privileges, so the loader leaves out the shim: it uses the GPU as if rota were not there; {hint}"
        ));
    }
    is_static(&path).then(|| {
        format!(
            "{shown} is linked statically, so there is no loader to put the shim in: it uses the GPU as if rota were not there"
        )
    })
}

/// Where `exec` finds it.
fn find(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let is_program = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    std::env::split_paths(path?).map(|folder| folder.join(program)).find(is_program)
}

/// Does it run as somebody else, or with capabilities of its own?
fn has_privileges(path: &Path) -> bool {
    let Ok(found) = std::fs::metadata(path) else { return false };
    let as_user = found.mode() & SET_USER != 0 && found.uid() != rustix::process::geteuid().as_raw();
    let as_group = found.mode() & SET_GROUP != 0 && found.gid() != rustix::process::getegid().as_raw();
    let mut none = [0_u8; 0];
    let capabilities =
        rustix::fs::getxattr(path, "security.capability", &mut none).is_ok_and(|bytes| bytes > 0);
    // For root these change nothing.
    as_user || as_group || (capabilities && !rustix::process::geteuid().is_root())
}

/// Is it an executable of this machine that names no loader?
fn is_static(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let mut head = [0; 64];
    if file.read_exact(&mut head).is_err() || head[..5] != *b"\x7fELF\x02" {
        return false;
    }
    let number = |at: usize, bytes: usize| {
        head[at..at + bytes].iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let (begin, count) = (number(32, 8), number(56, 2) as usize);
    if number(54, 2) as usize != HEADER_BYTES || count == 0 || count > HEADERS_MAX {
        return false;
    }
    let mut headers = vec![0; count * HEADER_BYTES];
    if file.read_exact_at(&mut headers, begin).is_err() {
        return false;
    }
    let names_loader = |header: &[u8]| header.starts_with(&PT_INTERP.to_le_bytes());
    !headers.chunks(HEADER_BYTES).any(names_loader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn usual_programs_are_fine() {
        assert_eq!(obstacle(OsStr::new("sh")), None);
        assert_eq!(obstacle(OsStr::new("/nowhere/program")), None, "exec will say so");
        assert_eq!(obstacle(OsStr::new("rota-no-such-program")), None);
    }

    #[test]
    fn a_program_is_found_as_exec_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        std::fs::write(&file, "").unwrap();
        let path = std::env::join_paths([Path::new("/nowhere"), folder.path()]).unwrap();
        assert_eq!(find(OsStr::new("tool"), Some(&path)), None, "not executable");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(OsStr::new("tool"), Some(&path)), Some(file));
        assert_eq!(find(OsStr::new("./tool"), Some(&path)), Some("./tool".into()));
    }

    #[test]
    fn a_program_that_becomes_somebody_else_is_seen() {
        // Only root can make one; others find one that is there.
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("sudo");
        std::fs::copy("/bin/sh", &made).unwrap();
        let found = match std::os::unix::fs::chown(&made, Some(65534), None) {
            Ok(()) => {
                std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o4755)).unwrap();
                made
            }
            Err(_) => Path::new("/bin/su").into(),
        };
        if std::fs::metadata(&found).is_ok_and(|file| file.mode() & SET_USER != 0) {
            let said = obstacle(found.as_os_str()).unwrap();
            assert!(said.contains("runs with raised privileges") && said.contains("hint: "), "{said}");
            assert_eq!(said.contains("hint: sudo rota run -- CMD"), found.ends_with("sudo"), "{said}");
        }
    }

    #[test]
    fn a_program_without_a_loader_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("p.c");
        std::fs::write(&source, "void _start(void) { for (;;); }").unwrap();
        let build = |name: &str, flags: &[&str]| {
            let out = folder.path().join(name);
            let built =
                std::process::Command::new("cc").args(flags).arg(&source).arg("-o").arg(&out).status();
            assert!(built.unwrap().success());
            out
        };
        let alone = build("alone", &["-nostdlib", "-static"]);
        assert!(obstacle(alone.as_os_str()).unwrap().contains("is linked statically"));
        let usual = build("usual", &["-nostartfiles"]);
        assert_eq!(obstacle(usual.as_os_str()), None);
        std::fs::write(&source, "#!/bin/sh\n").unwrap();
        assert!(!is_static(&source));
    }
}
