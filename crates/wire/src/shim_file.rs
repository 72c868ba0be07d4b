//! Where the shim's file is. The command line puts it into programs, the daemon into its self-test.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use thiserror::Error;

const FILE_NAME: &str = "librota_shim.so";
const NVML_FILE_NAME: &str = "librota_nvml.so";

/// Why there is no shim to use.
#[derive(Debug, Error)]
pub enum ShimError {
    /// It is in none of its places.
    #[error(
        "the shim was not found{0}\nhint: put {FILE_NAME} beside `rota` and `rotad`, or name it in ROTA_SHIM"
    )]
    NotFound(Tried),
    /// The loader could not take its name.
    #[error(
        "the shim {0} cannot be preloaded: the loader takes spaces and colons for the end of a name\n\
         hint: put it at a path without them and name that in ROTA_SHIM"
    )]
    Unloadable(PathBuf),
    /// The system does not say where we are.
    #[error("cannot tell where this executable is: {0}")]
    Nowhere(#[from] std::io::Error),
}

/// The places that were tried, each with the reason.
#[derive(Debug)]
pub struct Tried(Vec<(PathBuf, String)>);

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(place, why)| write!(f, "\n  tried {}: {why}", place.display()))
    }
}

/// The shim to put into a program: `$ROTA_SHIM` if set, else beside this executable, else in `../lib/rota` seen from
/// there.
pub fn find_shim() -> Result<PathBuf, ShimError> {
    let executable = std::env::current_exe()?;
    let chosen = std::env::var_os("ROTA_SHIM").filter(|path| !path.is_empty());
    let found = std::path::absolute(first_file(&places(chosen.as_deref(), &executable))?)?;
    if found.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
        return Err(ShimError::Unloadable(found));
    }
    Ok(found)
}

/// What a process with the shim in it has in `LD_PRELOAD`: the shim first, so that its symbols come before those of
/// everything else, then what was there, such as the library of a virtual GPU.
pub fn preload(shim: &Path, existing: Option<OsString>) -> OsString {
    let mut list = shim.as_os_str().to_owned();
    if let Some(existing) = existing.filter(|existing| !existing.is_empty()) {
        list.push(":");
        list.push(existing);
    }
    list
}

/// The library in front of NVML, which lies beside the shim. Where it does not, programs see the whole GPU when they look at it
/// by NVML, and nothing else is different.
pub fn find_nvml_shim(shim: &Path) -> Option<PathBuf> {
    Some(shim.with_file_name(NVML_FILE_NAME)).filter(|nvml| nvml.is_file())
}

/// What a process has in `LD_PRELOAD` behind the shim: that library, then what was there.
pub fn preload_nvml(shim: &Path, existing: Option<OsString>) -> Option<OsString> {
    match find_nvml_shim(shim) {
        Some(nvml) => Some(preload(&nvml, existing)),
        None => existing,
    }
}

fn places(chosen: Option<&OsStr>, executable: &Path) -> Vec<PathBuf> {
    // A choice that leads nowhere is a mistake to report, not a reason to take another shim.
    if let Some(path) = chosen {
        return vec![path.into()];
    }
    let folder = executable.parent().unwrap_or(Path::new("/"));
    vec![folder.join(FILE_NAME), folder.parent().unwrap_or(folder).join("lib/rota").join(FILE_NAME)]
}

fn first_file(places: &[PathBuf]) -> Result<PathBuf, ShimError> {
    let mut tried = Vec::new();
    for place in places {
        match std::fs::metadata(place) {
            Ok(file) if file.is_file() => return Ok(place.clone()),
            Ok(_) => tried.push((place.clone(), "not a file".to_owned())),
            Err(cause) => tried.push((place.clone(), cause.to_string())),
        }
    }
    Err(ShimError::NotFound(Tried(tried)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_beside_the_executable_or_in_its_lib_folder() {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("bin/rota");
        let lib = folder.path().join("lib/rota").join(FILE_NAME);
        std::fs::create_dir_all(lib.parent().unwrap()).unwrap();
        std::fs::create_dir_all(executable.parent().unwrap()).unwrap();
        std::fs::write(&lib, "").unwrap();
        assert_eq!(first_file(&places(None, &executable)).unwrap(), lib);
        let beside = folder.path().join("bin").join(FILE_NAME);
        std::fs::write(&beside, "").unwrap();
        assert_eq!(first_file(&places(None, &executable)).unwrap(), beside);
    }

    #[test]
    fn a_failure_names_every_place() {
        let error = first_file(&places(None, Path::new("/nowhere/bin/rota"))).unwrap_err().to_string();
        assert!(error.contains("tried /nowhere/bin/librota_shim.so: No such file"), "{error}");
        assert!(error.contains("tried /nowhere/lib/rota/librota_shim.so: No such file"), "{error}");
        assert!(error.contains("hint: "), "{error}");
    }

    #[test]
    fn a_choice_is_the_only_place() {
        let here = Path::new("/usr/bin/rota");
        assert_eq!(places(Some(OsStr::new("/x.so")), here), [PathBuf::from("/x.so")]);
        let error = first_file(&places(Some(OsStr::new("/usr")), here)).unwrap_err().to_string();
        assert!(error.contains("tried /usr: not a file"), "{error}");
    }

    #[test]
    fn what_stands_before_nvml_is_beside_the_shim() {
        let folder = tempfile::tempdir().unwrap();
        let shim = folder.path().join(FILE_NAME);
        assert_eq!(preload_nvml(&shim, None), None);
        assert_eq!(preload_nvml(&shim, Some("/a.so".into())), Some("/a.so".into()));
        let nvml = folder.path().join(NVML_FILE_NAME);
        std::fs::write(&nvml, "").unwrap();
        assert_eq!(preload_nvml(&shim, None), Some(nvml.clone().into()));
        let mut both = nvml.into_os_string();
        both.push(":/a.so");
        assert_eq!(preload_nvml(&shim, Some("/a.so".into())), Some(both));
    }

    #[test]
    fn the_shim_comes_first_in_the_list() {
        let shim = Path::new("/s.so");
        assert_eq!(preload(shim, None), "/s.so");
        assert_eq!(preload(shim, Some("".into())), "/s.so");
        assert_eq!(preload(shim, Some("/a.so:/b.so".into())), "/s.so:/a.so:/b.so");
    }
}
