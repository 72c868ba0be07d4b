//! Will the loader put the shim into a program? Looked at before it starts, so that nobody finds out by its neighbours'
//! complaints.

use crate::elf::{self, Elf};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// The first line of a script, as much of it as the system reads.
const FIRST_LINE_BYTES_MAX: usize = 255;

/// Why the shim will not be in a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It would run, and use the GPU past rota if it does: said, and done as asked.
    Past(String),
    /// The loader would drop the shim with a line of its own, or not start the program at all.
    Never(String),
}

/// What keeps the shim out of a program, and what to do, if anything does.
pub(super) fn obstacle(program: &OsStr, shim: &Path) -> Option<Obstacle> {
    let search = std::env::var_os("PATH");
    let path = find(program, search.as_deref())?;
    let shown = path.display().to_string();
    let privileged = privileges(&path, &shown);
    // Of a script, what is loaded is its interpreter.
    let path = interpreter(&path).and_then(|name| find(&name, search.as_deref())).unwrap_or(path);
    privileged.or_else(|| unloadable(&path, shim))
}

/// It gets rights that its caller has not: then the loader takes nothing of the caller's.
fn privileges(path: &Path, shown: &str) -> Option<Obstacle> {
    has_privileges(path).then(|| {
        let hint = match path.file_name().is_some_and(|name| name == "sudo") {
            true => "hint: sudo rota run -- CMD",
            false => "hint: start rota with these privileges instead",
        };
        Obstacle::Past(format!(
            "{shown} runs with raised privileges, so the loader leaves out the shim: it uses the GPU as if rota were not there; {hint}"
        ))
    })
}

/// Its kind, or its C library, does not go with the shim's.
fn unloadable(path: &Path, shim: &Path) -> Option<Obstacle> {
    let (program, shown) = (Elf::read(path)?, path.display());
    if !program.is_64_bit() {
        return Some(Obstacle::Never(format!(
            "{shown} is a 32-bit program, and rota shares GPUs between 64-bit programs only\n\
             hint: start it without `rota run` if it needs no GPU"
        )));
    }
    let Some(loader) = program.loader() else {
        return Some(Obstacle::Past(format!(
            "{shown} is linked statically, so there is no loader to put the shim in: it uses the GPU as if rota were not there"
        )));
    };
    if loader.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-musl")) {
        return Some(Obstacle::Never(format!(
            "{shown} is for the C library musl, and the shim for glibc, as NVIDIA's driver is\n\
             hint: run a program that is built for glibc"
        )));
    }
    let needed = Elf::read(shim).and_then(|shim| shim.glibc_needed())?;
    let there = elf::glibc_of(&loader)?;
    (there < needed).then(|| {
        Obstacle::Never(format!(
            "{shown} runs with glibc {}.{} (of {}), and the shim {} needs {}.{}: the loader would leave it out\n\
             hint: run it where glibc is newer, or build the shim for an older one",
            there.0,
            there.1,
            loader.display(),
            shim.display(),
            needed.0,
            needed.1
        ))
    })
}

/// The interpreter of a script, by its first line; what `env` stands before is it, too.
fn interpreter(path: &Path) -> Option<OsString> {
    let mut line = Vec::new();
    File::open(path).ok()?.take(FIRST_LINE_BYTES_MAX as u64).read_to_end(&mut line).ok()?;
    let line = line.split(|&byte| byte == b'\n').next()?.strip_prefix(b"#!")?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = words.next()?;
    let is_env = Path::new(OsStr::from_bytes(first)).file_name().is_some_and(|name| name == "env");
    let next = words.find(|word| !word.starts_with(b"-")).filter(|_| is_env);
    Some(OsString::from_vec(next.unwrap_or(first).to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// Needs what this machine has, as a shim does that was built here.
    fn me() -> PathBuf {
        std::env::current_exe().unwrap()
    }

    fn past(program: &Path) -> String {
        match obstacle(program.as_os_str(), &me()) {
            Some(Obstacle::Past(said)) => said,
            other => panic!("{}: {other:?}", program.display()),
        }
    }

    fn never(program: &Path) -> String {
        match obstacle(program.as_os_str(), &me()) {
            Some(Obstacle::Never(said)) => said,
            other => panic!("{}: {other:?}", program.display()),
        }
    }

    #[test]
    fn usual_programs_are_fine() {
        assert_eq!(obstacle(OsStr::new("sh"), &me()), None);
        assert_eq!(obstacle(OsStr::new("/nowhere/program"), &me()), None, "exec will say so");
        assert_eq!(obstacle(OsStr::new("rota-no-such-program"), &me()), None);
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
            let said = past(&found);
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
        assert!(past(&alone).contains("is linked statically"));
        let usual = build("usual", &["-nostartfiles"]);
        assert_eq!(obstacle(usual.as_os_str(), &me()), None);
        let script = folder.path().join("script");
        std::fs::write(&script, format!("#!{} -x\n", alone.display())).unwrap();
        assert!(past(&script).starts_with(&format!("{} is linked statically", alone.display())));
        std::fs::write(&script, "#! /bin/sh\n").unwrap();
        assert_eq!(obstacle(script.as_os_str(), &me()), None);
        // Other loaders, and programs of which only the head is there.
        let musl = build("musl", &["-nostartfiles", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
        assert!(never(&musl).contains("is for the C library musl"));
        let small = folder.path().join("small");
        let mut head = [0_u8; 64];
        head[..5].copy_from_slice(b"\x7fELF\x01");
        std::fs::write(&small, head).unwrap();
        assert!(never(&small).contains("is a 32-bit program"));
    }

    #[test]
    fn a_c_library_that_is_too_old_is_named_with_the_one_that_is_needed() {
        // A loader with a C library of its own beside it, which has no version but an old one.
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("versions"), "GLIBC_2.12 { global: old; };\n").unwrap();
        std::fs::write(at("c.c"), "int old;\n").unwrap();
        std::fs::write(at("p.c"), "void _start(void) { for (;;); }").unwrap();
        let cc = |arguments: &[String]| {
            assert!(std::process::Command::new("cc").args(arguments).status().unwrap().success());
        };
        let path = |name: &str| at(name).display().to_string();
        let script = format!("-Wl,--version-script={}", path("versions"));
        cc(&["-shared".into(), "-nostdlib".into(), script, path("c.c"), "-o".into(), path("libc.so.6")]);
        std::fs::copy("/lib64/ld-linux-x86-64.so.2", at("ld.so")).unwrap();
        let loader = format!("-Wl,--dynamic-linker={}", path("ld.so"));
        cc(&["-nostartfiles".into(), loader, path("p.c"), "-o".into(), path("program")]);
        let said = never(&at("program"));
        assert!(said.contains("runs with glibc 2.12 (of ") && said.contains(" needs 2."), "{said}");
        assert!(said.contains("\nhint: "), "{said}");
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("script");
        let of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            interpreter(&file)
        };
        assert_eq!(of("#!/usr/bin/python3 -u\nprint()"), Some("/usr/bin/python3".into()));
        assert_eq!(of("#! /usr/bin/env -S python3 -u\n"), Some("python3".into()));
        assert_eq!(of("#!/usr/bin/env\n"), Some("/usr/bin/env".into()));
        assert_eq!(of("echo #!/bin/sh\n"), None);
        assert_eq!(of("#!"), None);
    }
}
