//! What puts a process on a virtual machine: its driver library in front of all others, and the machine's directory in the
//! environment. `rotad` enters this way itself, and `rota run` has programs enter.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cuda::library::search::DRIVER_VARIABLE;
use thiserror::Error;

use crate::place::VARIABLE;
use crate::start::{self, StartError};

/// The driver library's file.
const FILE_NAME: &str = "libvgpu.so";

/// The environment variable that names the driver library, where it is not beside the executable.
pub const LIBRARY_VARIABLE: &str = "ROTA_LIBVGPU";

/// NVML's file, beside it.
const NVML_FILE_NAME: &str = "libvgpu_nvml.so";

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Why no process can be put on a virtual machine.
#[derive(Debug, Error)]
pub enum EnterError {
    /// There is no driver library.
    #[error(
        "the virtual GPU's library was not found{0}\n\
         hint: put {FILE_NAME} and vgpud beside `rota` and `rotad`, or name it in {LIBRARY_VARIABLE}"
    )]
    NotFound(Tried),
    /// The loader could not take its name.
    #[error(
        "the virtual GPU's library {0} cannot be preloaded: the loader takes spaces and colons for the end of a name\n\
         hint: put it at a path without them and name that in {LIBRARY_VARIABLE}"
    )]
    Unloadable(PathBuf),
    /// The system does not say where we are.
    #[error("cannot tell where this executable is: {0}")]
    Nowhere(#[from] std::io::Error),
    /// There is no device.
    #[error(transparent)]
    Device(#[from] StartError),
}

/// The places that were tried.
#[derive(Debug)]
pub struct Tried(Vec<PathBuf>);

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|place| write!(f, "\n  tried {}: no such file", place.display()))
    }
}

/// The driver library of virtual GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library(PathBuf);

impl Library {
    /// `$ROTA_LIBVGPU` if set, else beside this executable, else in `../lib/rota` seen from there; with its device within
    /// reach.
    pub fn find() -> Result<Self, EnterError> {
        let chosen = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
        let library = Self::find_in(places(chosen.as_deref(), &std::env::current_exe()?))?;
        start::executable_of(&library.0)?;
        Ok(library)
    }

    fn find_in(places: Vec<PathBuf>) -> Result<Self, EnterError> {
        let Some(found) = places.iter().find(|place| place.is_file()) else {
            return Err(EnterError::NotFound(Tried(places)));
        };
        let found = std::path::absolute(found)?;
        if found.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
            return Err(EnterError::Unloadable(found));
        }
        Ok(Self(found))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// NVML of virtual GPUs, where it is there.
    pub fn nvml(&self) -> Option<PathBuf> {
        Some(self.0.with_file_name(NVML_FILE_NAME)).filter(|nvml| nvml.is_file())
    }

    /// What a process on the machine of this directory has in its environment. `preloaded` is what it would have in
    /// `LD_PRELOAD` without.
    pub fn environment(&self, directory: &Path, preloaded: Option<&OsStr>) -> Vec<(&'static str, OsString)> {
        let mut list = self.0.clone().into_os_string();
        for other in entries(preloaded).filter(|other| *other != self.0.as_os_str()) {
            list.push(":");
            list.push(other);
        }
        let mut environment = vec![
            (VARIABLE, directory.into()),
            (DRIVER_VARIABLE, self.0.clone().into()),
            (PRELOAD_VARIABLE, list),
        ];
        // Looking at GPUs must not lead to real ones.
        if let Some(nvml) = self.nvml() {
            environment.push((nvml::VARIABLE, nvml.into()));
        }
        environment
    }

    /// Whether this process has all that in its environment.
    pub fn is_entered(&self, directory: &Path) -> bool {
        let preloaded = std::env::var_os(PRELOAD_VARIABLE);
        self.environment(directory, preloaded.as_deref())
            .iter()
            .all(|(name, value)| std::env::var_os(name).as_ref() == Some(value))
    }
}

/// The variable that leads programs with this environment to a virtual GPU's library, if one does: by its name alone, so
/// nobody lands there without a word.
pub fn leads_to_library(environment: impl Fn(&str) -> Option<OsString>) -> Option<&'static str> {
    let names = |variable: &str| {
        let list = environment(variable);
        entries(list.as_deref()).any(|entry| Path::new(entry).file_name() == Some(OsStr::new(FILE_NAME)))
    };
    [PRELOAD_VARIABLE, DRIVER_VARIABLE].into_iter().find(|variable| names(variable))
}

/// The entries of a list as the loader reads it.
fn entries(list: Option<&OsStr>) -> impl Iterator<Item = &OsStr> {
    let bytes = list.map(OsStr::as_bytes).unwrap_or_default();
    bytes.split(|byte| b": ".contains(byte)).filter(|entry| !entry.is_empty()).map(OsStr::from_bytes)
}

fn places(chosen: Option<&OsStr>, executable: &Path) -> Vec<PathBuf> {
    // A choice that leads nowhere is a mistake to report, not a reason to take another library.
    if let Some(path) = chosen {
        return vec![path.into()];
    }
    let folder = executable.parent().unwrap_or(Path::new("/"));
    vec![folder.join(FILE_NAME), folder.parent().unwrap_or(folder).join("lib/rota").join(FILE_NAME)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_beside_the_executable_or_in_its_lib_folder() {
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("bin/rota");
        let [beside, lib] = ["bin", "lib/rota"].map(|place| folder.path().join(place).join(FILE_NAME));
        let find = || Library::find_in(places(None, &executable));
        let complaint = find().unwrap_err().to_string();
        for place in [&beside, &lib] {
            assert!(complaint.contains(&format!("tried {}: no such file", place.display())), "{complaint}");
        }
        for place in [&lib, &beside] {
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, "").unwrap();
            assert_eq!(find().unwrap().0, *place);
        }
        let chosen = places(Some(OsStr::new("/nowhere/l.so")), &executable);
        assert!(
            matches!(Library::find_in(chosen), Err(EnterError::NotFound(_))),
            "a choice is the only place"
        );
    }

    #[test]
    fn a_path_that_the_loader_would_cut_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a b.so");
        std::fs::write(&place, "").unwrap();
        assert!(matches!(Library::find_in(vec![place]), Err(EnterError::Unloadable(_))));
    }

    #[test]
    fn the_library_is_preloaded_once_before_what_was_there() {
        let library = Library("/l/libvgpu.so".into());
        let list = |preloaded: Option<&str>| {
            let environment = library.environment(Path::new("/d"), preloaded.map(OsStr::new));
            assert_eq!(environment[0], ("ROTA_VGPU", "/d".into()));
            assert_eq!(environment[1], ("ROTA_DRIVER", "/l/libvgpu.so".into()));
            environment[2].1.clone()
        };
        assert_eq!(list(None), "/l/libvgpu.so");
        assert_eq!(list(Some("")), "/l/libvgpu.so");
        assert_eq!(list(Some("/a.so:/b.so")), "/l/libvgpu.so:/a.so:/b.so");
        assert_eq!(list(Some("/a.so /l/libvgpu.so")), "/l/libvgpu.so:/a.so");
    }

    #[test]
    fn an_environment_that_leads_to_the_library_is_recognised() {
        let of = |variable: &'static str, value: &'static str| {
            leads_to_library(move |name| (name == variable).then(|| value.into()))
        };
        assert_eq!(of("LD_PRELOAD", "/a.so:/x/libvgpu.so"), Some("LD_PRELOAD"));
        assert_eq!(of("ROTA_DRIVER", "/x/libvgpu.so"), Some("ROTA_DRIVER"));
        assert_eq!(of("ROTA_DRIVER", "/x/libcuda.so.1"), None);
        assert_eq!(of("LD_PRELOAD", "/libvgpu.so.d/a.so"), None);
    }
}
